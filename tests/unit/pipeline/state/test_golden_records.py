"""Records of real lakes, as bytes: each is read, and written again to the same bytes.

`tests/cases/records/` holds them, a file a kind and a line a record, so chosen that every key is there and
every shape that a value has: of PostgreSQL, MySQL, MariaDB and a queue, of tables that are copied in every
way, altered, stopped, replaced. Paths and the name of the machine are replaced. Statements, registered things
and open transactions were made by hand.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace.core.errors import Misconfigured
from headrace.core.records import from_record, to_record
from headrace.ingest.last_commits import LastCommits
from headrace.lake.format import layout
from headrace.lake.format.formatfile import Format
from headrace.lake.format.placefile import LakePlace
from headrace.lake.format.plan import Plan
from headrace.lake.format.prooffile import TableProof
from headrace.lake.format.registry import Registry
from headrace.lake.format.status import SourceStatus
from headrace.lake.log.durable import Durable
from headrace.lake.log.horizon import Reach
from headrace.lake.log.unknown_moments import TimeGap
from headrace.lake.store.contract import Store
from headrace.pipeline.state import last_config
from headrace.pipeline.state.records import LateFile, SourceRecord, TableRecord
from headrace.sources import registry
from headrace.sources.mysql.catalog.table_def import STATEMENTS, recorded_look
from headrace.sources.mysql.ddl.steps import AlterStatement
from headrace.sources.mysql.upstream import MysqlUpstream
from headrace.sources.postgres.upstream import PostgresUpstream
from headrace.sources.queue.catalog.definitions import entry_of
from headrace.sources.queue.decode import layouts, partitions
from headrace.sources.queue.upstream import QueueUpstream
from tests.meta.tracked import ROOT

FOLDER = ROOT / "tests" / "cases" / "records"
UPSTREAMS: dict[str, Any] = {
    "postgres": PostgresUpstream,
    "mysql": MysqlUpstream,
    "mariadb": MysqlUpstream,
    "queue": QueueUpstream,
}


def _compact(record: Any) -> str:
    """Write a record as a plan does."""
    return json.dumps(record, separators=(",", ":"), sort_keys=True)


def _sorted(record: Any) -> str:
    return json.dumps(record, sort_keys=True)


def _again(kind: type[Any]) -> Callable[[Any], Any]:
    return lambda record: to_record(from_record(kind, record))


def _late_file(record: Any) -> Any:
    name, inside = record
    return [name, to_record(from_record(LateFile, inside, name=name))]


def _source(record: Any) -> Any:
    source = from_record(SourceRecord, record)
    upstream = from_record(UPSTREAMS[source.kind], source.upstream)
    return to_record(source) | {"upstream": to_record(upstream)}


def _table(record: Any) -> Any:
    table = from_record(TableRecord, record)
    return to_record(table) | {"details": _details(table.details)}


def _details(details: dict[str, Any]) -> dict[str, Any]:
    """The look that the details hold, and what a source has beside it."""
    if "engine" in details:
        beside = {key: details[key] for key in STATEMENTS & details.keys()}
        return {**to_record(recorded_look(details)), **beside}
    again = to_record(entry_of(details))
    if layouts.KEY in details:
        again[layouts.KEY] = to_record(layouts.from_details(details))
    if partitions.KEY in details:
        again[partitions.KEY] = partitions.to_records(partitions.from_details(details))
    return {**again, **{key: details[key] for key in details.keys() - again.keys()}}


def _catalog(record: Any) -> Any:
    kinds: dict[str, Any] = {
        "table": _table,
        "staged": _table,
        "source": _source,
        "commits": _again(LastCommits),
    }
    kinds["unseen"] = _moments
    records = {key: kinds[key.partition("/")[0]](each) for key, each in record["records"].items()}
    return {"epoch": record["epoch"], "records": records}


def _moments(record: Any) -> Any:
    return [to_record(from_record(TimeGap, each)) for each in record]


def _status(record: Any) -> Any:
    return {**record, "record": to_record(SourceStatus.of(record["record"]))}


def _proofs(record: Any) -> Any:
    return {"tables": {name: _again(TableProof)(each) for name, each in record["tables"].items()}}


def _late_footer(record: Any) -> Any:
    """Restore each piece of the stream: where it stands, and the context that its source's decoder reads."""
    for piece in record:
        place = {key: piece.pop(key) for key in ("start", "stop", "crc")}
        inside = piece["inside"] or {"maps": []}
        kind = "postgres" if "relations" in piece else "mysql" if "maps" in inside else "queue"
        context = registry.by_kind(kind).decoder().restore(dict(piece))
        piece.clear()
        piece |= place | to_record(context)
    return record


KINDS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], str]]] = {
    "plan": (_again(Plan), _compact),
    "table": (_table, _compact),
    "source": (_source, _compact),
    "last_commits": (_again(LastCommits), _compact),
    "unknown_moments": (_moments, _compact),
    "late_file": (_late_file, _sorted),
    "late_footer": (_late_footer, json.dumps),
    "catalog": (_catalog, _sorted),
    "alter_statement": (_again(AlterStatement), json.dumps),
    "status": (_status, json.dumps),
    "format": (_again(Format), json.dumps),
    "place": (_again(LakePlace), json.dumps),
    "durable": (_again(Durable), json.dumps),
    "reach": (_again(Reach), json.dumps),
    "proofs": (_proofs, json.dumps),
}


def lines(kind: str) -> list[str]:
    return (FOLDER / f"{kind}.jsonl").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_is_written_again_to_the_same_bytes(kind: str) -> None:
    again, dump = KINDS[kind]
    for text in lines(kind):
        assert dump(again(json.loads(text))) == text


def test_what_a_person_registered_or_ran_is_written_again_to_the_same_bytes(local_store: Store) -> None:
    """Their options stand beside other keys; the note of a drop goes with the next run."""
    for folder, kind in ((layout.REGISTERED_SOURCES, "source"), (layout.REGISTERED_VIEWS, "view")):
        for number, text in enumerate(lines(f"registered_{kind}")):
            key = f"{folder}/n{number}.json"
            local_store.put(key, text.encode())
            things = Registry(local_store).sources() if kind == "source" else Registry(local_store).views()
            Registry(local_store).replace(things[f"n{number}"])
            assert local_store.get(key) == text.encode()
    for text in lines("remembered"):
        local_store.put(layout.remembered_key("main"), text.encode())
        lake, source = last_config.recall(local_store)["main"]
        last_config.remember(local_store, "main", source, lake)
        left = {key: part for key, part in json.loads(text).items() if key != "dropped_at"}
        assert local_store.get(layout.remembered_key("main")) == _sorted(left).encode()


STRICT = ("plan", "table", "source", "last_commits", "format", "place", "durable", "reach", "alter_statement")
OPTIONAL = frozenset(("recovering", "alteration", "old_rows", "copy_of", "until", "id"))


@pytest.mark.parametrize("kind", STRICT)
def test_a_record_with_another_key_or_type_is_refused(kind: str) -> None:
    """With a key too many, one too few, or a value of another type; a record comes from a disk."""
    again, _ = KINDS[kind]
    for text in lines(kind)[:3]:
        record = json.loads(text)
        again(record)
        for spoilt in _spoilt(record):
            with pytest.raises(Misconfigured) as caught:
                again(spoilt)
            assert caught.value.code in ("RECORD_MALFORMED", "POSITION_MALFORMED"), spoilt


def _spoilt(record: dict[str, Any]) -> Iterator[Any]:
    yield {**record, "more": 1}
    yield [record]
    for key, value in record.items():
        if key not in OPTIONAL:
            yield {name: each for name, each in record.items() if name != key}
        yield {**record, key: 7 if isinstance(value, dict) else {"another": "type"}}
