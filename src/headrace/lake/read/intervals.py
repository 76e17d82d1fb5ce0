"""The ways to the tables of a cut: which mark's version each is had from, and what history adds to that.

A table is exact at a mark that names it; and anywhere else from the `since` of its record on, up to the last
mark that has it: those contents are made of the nearest mark and history (`headrace.lake.read.travel`).

                since                    mark a       t       mark b         the last mark that has it
    ──────────────┼─────── exact ──────────●──────────┼──────────●────────── exact ──────●──── not exact

Whether `since` is early enough is asked of the catalog as of mark b: after a table was copied anew, the
newest record tells of another interval. `since`, the version of the `schema`, which numbers the table's
histories, and of a table that stopped `stopped_at` and the code of its `error` are all that this room knows
of the pipeline's records.
Nothing is told of times before the source's reach (`headrace.lake.log.horizon`), whatever old catalogs say:
history that ran out of its retention is gone from there.

It opens tables and looks into logs, and reads no row.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from headrace.core.errors import Definite, Misconfigured
from headrace.core.names import TableName, quote_identifier, split_identifiers
from headrace.core.near import did_you_mean
from headrace.core.position import plain
from headrace.lake.format import layout
from headrace.lake.log import histories, horizon
from headrace.lake.log.histories import HistoryPart
from headrace.lake.log.marks import Mark, MarkIndex
from headrace.lake.log.table import LakeTable
from headrace.lake.read import travel
from headrace.lake.read.catalogs import Catalogs
from headrace.lake.read.positions import show_position, spelling_of
from headrace.lake.read.resolve import CommitPlace
from headrace.lake.store.contract import Store

Name = tuple[str, TableName]  # of a table in the lake: its source, and its name there
_TABLE = "table/"  # how the keys of tables begin in the catalog


@dataclass(frozen=True, slots=True)
class Standing:
    """The way to a table at a place: a mark's version, and what history adds to it or takes away."""

    base: Mark
    schema_mark: Mark  # whose schema the rows have
    parts: tuple[HistoryPart, ...] = ()
    sign: int = 1


class Past:
    """The marks and the catalogs of one source, each read once."""

    def __init__(self, store: Store, source: str, catalogs: Catalogs) -> None:
        self._store = store
        self._source = source
        self._reach = horizon.read(store, source)
        self._catalogs = catalogs

    @cached_property
    def index(self) -> MarkIndex:
        return self._catalogs.marks(self._source)

    def first(self, time: int, table: TableName | None = None) -> Mark | None:
        """The first mark at or after a time (that has the table)."""
        start = bisect_left(self.index, time, key=lambda mark: mark.time)
        following = (self.index[at] for at in range(start, len(self.index)))
        return next((mark for mark in following if table is None or str(table) in mark.versions), None)

    def last(self, time: int) -> Mark | None:
        """The last mark at or before a time."""
        at = bisect_right(self.index, time, key=lambda mark: mark.time)
        return self.index[at - 1] if at else None

    def since(self, mark: Mark, table: TableName) -> int | None:
        """The frontier from which the table's history is exact: as the catalog had it at a mark, and not
        before the source's reach. What is gone is looked up now: ask after looking into history.
        """
        record = self.records(mark).get(f"{_TABLE}{table}")
        since = None if record is None else record.get("since")
        if since is None:
            return None
        now = horizon.read(self._store, self._source)
        reach = -1 if self._reach is None else self._reach.time
        gone = -1 if now is None or now.gone_before is None else now.gone_before
        return max(int(since), reach + 1, gone + 1)

    def exact_tables(self, mark: Mark, time: int) -> Iterator[TableName]:
        """The tables whose history is exact from this time on, as the catalog had them at a mark."""
        for key, record in self.records(mark).items():
            since = record.get("since") if key.startswith(_TABLE) else None
            if since is not None and since <= time + 1:
                yield TableName.parse(key[len(_TABLE) :])

    def last_with(self, time: int, table: TableName) -> Mark | None:
        """The last mark at or before a time that has the table."""
        end = bisect_right(self.index, time, key=lambda mark: mark.time)
        earlier = (self.index[at] for at in reversed(range(end)))
        return next((mark for mark in earlier if str(table) in mark.versions), None)

    def history(self, mark: Mark, table: TableName) -> LakeTable | None:
        """The history that the table had at a mark: its record says under which number."""
        record = self.records(mark).get(f"{_TABLE}{table}") or {}
        number = record.get("schema", {}).get("version", 1)
        return histories.history_number(self._store, self._source, table, number)

    def stop(self, table: TableName) -> str | None:
        """The place and the reason of the table's stop, if it did."""
        record = self.records(self.index[-1]).get(f"{_TABLE}{table}") or {}
        error, at = record.get("error"), record.get("stopped_at")
        return None if error is None or at is None else f'it stopped at "{at["text"]}" ({error["code"]})'

    def show(self, time: int) -> str:
        """A frontier in time as a person is told it."""
        near = self.first(time - 1) or self.index[-1]
        return show_position(spelling_of(self.records(near)), time, near.position)

    def known_tables(self) -> set[TableName]:
        """All tables that the newest catalog knows of, or that a folder of the lake is left of."""
        newest = self.index[-1]
        keys = self.records(newest)
        names = {*newest.versions, *(key[len(_TABLE) :] for key in keys if key.startswith(_TABLE))}
        roots = layout.tables_folder(self._source), layout.histories_folder(self._source)
        lying = (found for root in roots for found in histories.tables_under(self._store, root))
        return {TableName.parse(text) for text in names} | set(lying)

    def records(self, mark: Mark) -> Mapping[str, Any]:
        """The source's catalog at a mark."""
        return self._catalogs.at(self._source, mark)


class Standings:
    """The tables of a cut; what is looked up is remembered."""

    def __init__(self, store: Store, places: Mapping[str, CommitPlace], catalogs: Catalogs) -> None:
        self._store = store
        self._places = places
        self.pasts = {source: Past(store, source, catalogs) for source in places}
        self._found: dict[Name, Standing | None] = {}
        self._opened: dict[tuple[Name, int], LakeTable] = {}

    def names(self) -> list[Name]:
        """The tables that are exact here: those of the mark; between two, those that can be read here."""
        listed = self.list_tables()
        found = [name for name in listed if self._find(name) is not None]
        for source, place in self._places.items():
            past = self.pasts[source]
            mark = None if place.mark else past.first(place.time)
            exact = () if mark is None else past.exact_tables(mark, place.time)
            # They sit the next mark out. Of one whose columns changed meanwhile, whoever names it is told.
            for name in {(source, table) for table in exact} - set(listed):
                with suppress(Definite):
                    found += [name] if self._find(name) is not None else []
        return sorted(found)

    def resolve(self, text: str) -> Name:
        """The table that is meant; parts that are unambiguous may be left out."""
        known = self.list_tables()
        matching = matches(text, known)
        if not matching:
            # A table that joined at a later mark may be exact here all the same.
            known = [(source, table) for source in self.pasts for table in self.pasts[source].known_tables()]
            matching = matches(text, sorted(known))
        if len(matching) == 1:
            return matching[0]
        if matching:
            raise ambiguous(text, matching)
        raise _unknown_error(text, did_you_mean(text, (str(table) for _, table in known)))

    def of(self, full: Name) -> Standing:
        """The way to the table here; an error where it is not exact."""
        found = self._find(full)
        if found is None:
            raise self._absent(full)
        return found

    def since(self, full: Name) -> int | None:
        """The frontier from which history leads to this table as it is here; None: it does not."""
        source, table = full
        later = self._later(source, table)
        return None if later is None else self.pasts[source].since(later, table)

    def history(self, full: Name) -> LakeTable | None:
        """The history under the columns that the table has here, or had when a mark last had it."""
        source, table = full
        past, time = self.pasts[source], self._places[source].time
        since = self.since(full)
        exact = since is not None and since <= time + 1
        mark = self._later(source, table) if exact else past.last_with(time, table)
        return None if mark is None else past.history(mark, table)

    def _later(self, source: str, table: TableName) -> Mark | None:
        """The mark here that has the table, or the first after it: a mark before may have the same time."""
        place = self._places[source]
        if place.mark is not None and str(table) in place.mark.versions:
            return place.mark
        return self.pasts[source].first(place.time, table)

    def open(self, full: Name, mark: Mark) -> LakeTable:
        """The table at a mark that has it."""
        version = mark.versions[str(full[1])]
        if (full, version) not in self._opened:
            folder = LakeTable(self._store, layout.table_folder(*full))
            self._opened[full, version] = folder.at(version)
        return self._opened[full, version]

    def schema(self, full: Name) -> pa.Schema:
        return self.open(full, self.of(full).schema_mark).schema()

    def journey(self, full: Name) -> travel.Journey:
        """From the table's base to its contents here."""
        standing = self.of(full)
        return travel.Journey(self.schema(full), standing.parts, standing.sign)

    def list_tables(self) -> list[Name]:
        """The tables of the marks, or of those that follow where a place is between two; not looked into."""
        found = []
        for source, place in sorted(self._places.items()):
            mark = place.mark or self.pasts[source].first(place.time)
            found += [(source, TableName.parse(text)) for text in sorted(mark.versions if mark else ())]
        return found

    def _find(self, full: Name) -> Standing | None:
        if full not in self._found:
            mark = self._places[full[0]].mark
            direct = mark is not None and str(full[1]) in mark.versions
            self._found[full] = Standing(mark, mark) if mark is not None and direct else self._travel(full)
        return self._found[full]

    def _travel(self, full: Name) -> Standing | None:
        """The way to the place from the mark before it or after it; None where the table is not exact."""
        source, table = full
        past, time = self.pasts[source], self._places[source].time
        earlier, later = past.last(time), past.first(time, table)
        if later is None:
            return None
        ways = [self._way(full, later, later)]
        if earlier is not None and str(table) in earlier.versions:
            ways.append(self._way(full, earlier, later))
        since = past.since(later, table)
        if since is None or since > time + 1:
            return None
        # The marks between two intervals may be thinned out: history does not lead from the first to here.
        ways = [way for way in ways if way.base is later or since <= way.base.time + 1]
        schema = self.open(full, later).schema()
        fitting = [way for way in ways if travel.fits(schema, way.parts)]
        if not fitting:
            raise travel.incompatible(str(table))
        return min(fitting, key=lambda way: (bool(way.parts), abs(way.base.time - time)))

    def _way(self, full: Name, base: Mark, shown: Mark) -> Standing:
        time = self._places[full[0]].time
        ends = (base.time, time) if base.time < time else (time, base.time)
        found = histories.parts(self._store, *full, ends)
        return Standing(base, shown, tuple(found), 1 if base.time < time else -1)

    def _absent(self, full: Name) -> Definite | Misconfigured:
        """Say why a table can't be read here: it left the marks, or is exact only later."""
        source, table = full
        since = self.since(full)
        if since is not None:
            detail = f'it is exact from "{self.pasts[source].show(since)}" on'
            hint = "read it there or later: headrace sql --at POSITION, at(position=...)"
        else:
            last, stop = _last_with(table, self.pasts[source].index), self.pasts[source].stop(table)
            if last is None:
                return _unknown_error(str(table), stop)
            detail = f'the last mark that has it is epoch {last.epoch} at "{plain(last.frontier)}"'
            detail += f"; {stop}" if stop else ""
            hint = f"read it there: headrace sql --at {last.epoch}, at(epoch={last.epoch})"
            hint += "; headrace status tells why it stopped" if stop else ""
        where = self._places[source].text
        return Definite(
            "LAKE_TABLE_NOT_EXACT", f'table "{table}" is not exact at {where}', detail=detail, hint=hint
        )


def _last_with(table: TableName, marks: Sequence[Mark]) -> Mark | None:
    return next((mark for mark in reversed(marks) if str(table) in mark.versions), None)


def matches(text: str, names: Sequence[Name]) -> list[Name]:
    """The names that a text may mean: their last parts are its parts."""
    parts = split_identifiers(text)
    return [
        (source, table)
        for source, table in names
        if (source, table.schema, table.name)[-len(parts) :] == parts
    ]


def ambiguous(text: str, matching: Sequence[Name]) -> Misconfigured:
    """The error for a name that fits several tables."""
    return Misconfigured(
        "LAKE_NAME_AMBIGUOUS",
        f'"{text}" names more than one table of this lake',
        detail=", ".join(f"{quote_identifier(source)}.{table}" for source, table in matching),
        hint="write the schema, and the source where the lake has several",
    )


def _unknown_error(text: str, detail: str | None = None) -> Misconfigured:
    return Misconfigured(
        "LAKE_TABLE_UNKNOWN",
        f'no mark of this lake has a table "{text}"',
        detail=detail,
        hint="headrace status lists the tables and how far each is copied",
    )
