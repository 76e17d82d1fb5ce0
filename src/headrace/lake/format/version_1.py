"""Records of a lake of version 1, as those of today.

Version 1 knew one kind of source, PostgreSQL, and wrote its positions as texts alone, two hexadecimal numbers
(`16/B374D848`), which were times as well: for a server that had been set back its `shift` was added to them.
Since version 2 a position is a time and the text that the server itself would write (`core.position`).

Whoever folds a catalog gets today's records, whatever the plans were written by; the next epoch of the
source's owner writes down all of them that came from version 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = Any

_OF_TABLES = ("table/", "staged/")
_OF_FILES = "late/"
_SOURCE, _COMMITS = "source", "commits"


def upgraded(records: Mapping[str, Json]) -> dict[str, Json]:
    """The records of a catalog, those of version 1 as today's."""
    source = records.get(_SOURCE) or {}
    positions = _Positions.of(source)
    return {key: _record(key, record, positions) for key, record in records.items()}


def _record(key: str, record: Json, positions: _Positions) -> Json:
    if key == _SOURCE and "shift" in record:
        return _source(record, positions)
    if key == _COMMITS and isinstance(record["since"], str):
        return {
            "since": _time(record["since"]),
            "commits": record["commits"],
            "newest": record["xid"],
        }
    if key.startswith(_OF_FILES) and isinstance(record["reached"], str):
        return {**record, "reached": positions.read(record["reached"])}
    if key.startswith(_OF_TABLES):
        return _table(record, positions)
    return record


class _Positions:
    """The positions of one catalog: since its present life began the server's own numbers are smaller."""

    def __init__(self, shift: int, start: int) -> None:
        self._shift = shift
        self._start = start

    @classmethod
    def of(cls, source: Mapping[str, Json]) -> _Positions:
        start = source.get("start")
        return cls(source.get("shift", 0), _time(start) if isinstance(start, str) else 0)

    def read(self, text: Json) -> Json:
        """A position of version 1; whatever else it is stays so."""
        if not isinstance(text, str):
            return text
        time = _time(text)
        return {"time": time, "text": _text(time - self._shift) if time >= self._start else text}


_IDENTITY = ("system_id", "timeline", "database")
_UPSTREAM = ("slot", "publication", "owns_slot", "owns_publication", "publication_oid")


def _source(record: Mapping[str, Json], positions: _Positions) -> Json:
    moved = {"shift", "healing", *_IDENTITY, *_UPSTREAM}
    upstream = {name: record[name] for name in _UPSTREAM if name in record}
    return {
        **{name: value for name, value in record.items() if name not in moved},
        "identity": {name: record[name] for name in _IDENTITY},
        "upstream": {**upstream, "base": record["shift"]},
        "start": positions.read(record["start"]),
        "recovering": positions.read(record.get("healing")),
    }


def _table(record: Mapping[str, Json], positions: _Positions) -> Json:
    moved = {name: positions.read(record[name]) for name in ("applied", "stopped_at") if name in record}
    if isinstance(record.get("handoff"), Mapping):
        moved["handoff"] = _handoff(record["handoff"], positions)
    return _words({**record, **moved}) if "shadows" in record else {**record, **moved}


def _words(record: Mapping[str, Json]) -> Json:
    """A table's record in today's words. One that had to wait, and was kept nothing of, was held back."""
    word, renewed = record["state"], record.get("stage") is not None
    kept = record.get("kept", False)
    states = {
        "chosen": "pending",
        "joining": "catching_up" if kept else "joining",
        "live": "ready" if renewed else "live",
    }
    waits = {"held_back": True} if word == "chosen" and not kept else {}
    moved = {
        "state": states.get(word, word),
        "raw_columns": record["shadows"],
        "added_live": record.get("late", False),
        "copy_id": record.get("stage"),
        "number": record["oid"],
        "details": record["look"],
    }
    left = ("shadows", "late", "kept", "stage", "oid", "look")
    return {name: value for name, value in record.items() if name not in left} | moved | waits


def _handoff(record: Mapping[str, Json], positions: _Positions) -> Json:
    if record["by"] == "position":
        return {**record, "frontier": _frontier(record["frontier"], positions)}
    if record["by"] == "xid":
        return {**record, "settled": _frontier(record["settled"], positions)}
    chunks = [[low, high, _handoff(handoff, positions)] for low, high, handoff in record["chunks"]]
    return {**record, "chunks": chunks}


def _frontier(record: Json, positions: _Positions) -> Json:
    """A frontier of version 1 said of which kind it was, though there was one."""
    return positions.read(record["text"]) if record is not None and "kind" in record else record


def time_of(position: Json) -> int:
    """The time of a position that stands apart from the catalog, whichever version wrote it."""
    return _time(position) if isinstance(position, str) else int(position["time"])


def _time(text: str) -> int:
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


def _text(number: int) -> str:
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"
