"""Verify: the proof that a lake's tables are what their source holds, while both go on.

    source    a snapshot S, by transactions, held open ─── pieces of its tables ───────► sums ─┐
              meanwhile: how far is the source?  = until                                       │
    mirror    wait for a mark at or after until ───── its files, minus history ────────► sums ─┴─► equal?
                                                                                                    │ no
                                                                     `drill_down` ◄──────────────────┘

S is a set of transactions, the mark a prefix of the commit order that holds all of S. `sides` takes
away from the mark what S does not show; then both sides are the same set, and equal sums are equal tables.
One scan of the source, at most `snapshot_connections` pieces at once; nothing is locked but what a reader
locks, and nothing is written on either side but the request for a mark. S is let go as soon as the sums are
known and what differs was looked into under it: where all agree, at once.

A table is compared if it was exact before S was taken and still is what was copied. Whatever is in the way
of one is its verdict, not the end of the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from headrace.core.checksum import bucket_count
from headrace.core.chunks import exact_from
from headrace.core.errors import Definite, HeadraceError, Misconfigured, ShapeChanged, Transient
from headrace.core.handoff import Handoff, by_name
from headrace.core.names import TableName
from headrace.lake.format import layout, prooffile
from headrace.lake.format.prooffile import TableProof
from headrace.lake.log import catalog, errors_table, histories, horizon
from headrace.lake.log.marks import Mark, Marks
from headrace.lake.read import resolve
from headrace.lake.read.lake import Lake
from headrace.pipeline.state import schema_check
from headrace.pipeline.state.choice import find_unmirrored
from headrace.pipeline.state.config import Config, config_of
from headrace.pipeline.state.owner import RunContext, open_contexts
from headrace.pipeline.state.records import SourceRecord, TableRecord, source_of, tables_of
from headrace.pipeline.state.schema_check import RecordsCheck
from headrace.pipeline.state.table_state import State
from headrace.pipeline.tasks.compare.proofs import Answer, Projection, RowSums
from headrace.pipeline.tasks.copy import FILE_BYTES
from headrace.pipeline.tasks.source_access import SourceDoor
from headrace.pipeline.tasks.table_task import from_ipc
from headrace.pipeline.verify.drill_down import (
    DrillDown,
    drill_down,
    found_by_sums,
    text_differences,
    wanting,
)
from headrace.pipeline.verify.sides import ComparedTable, ProofContext, untold_error
from headrace.pipeline.verify.verdicts import DIFFERENT, EQUAL, NOT_COMPARED, TableVerdict, Verdict
from headrace.pipeline.verify.waiting import Wait, marks_from, snapshot_check
from headrace.sources import registry
from headrace.sources.contract.copying import Snapshot, TableSizes
from headrace.sources.contract.errors import MISSED_SECONDS, MomentMissed
from headrace.sources.contract.hash_key import hash_key
from headrace.sources.contract.mirror import Mirror
from headrace.sources.shared.patterns import select
from headrace.spark.jobs import Background

WAIT_SECONDS = 120.0
LEAD_SECONDS = 30.0
MOST_NAMED = 100


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """An order to verify: which tables, and how it is told."""

    tables: tuple[str, ...] = ()  # patterns; none: all
    wait: float = WAIT_SECONDS  # seconds for the mirror to get to where the source was looked at
    values: bool = False  # show values of rows that differ
    most_named: int = MOST_NAMED  # rows that are named, of a table


def verify(
    config: Config | Mapping[str, Any] | str | Path,
    *,
    tables: Sequence[str] = (),
    source: str | None = None,
    wait: float = WAIT_SECONDS,
    show_values: bool = False,
    spark: Any = None,
) -> list[Verdict]:
    """Compare the sources of a lake (or one of them) with what the lake holds of them.

    `config` is as for `mirror`, `tables` are patterns (none: all), `wait` is how many seconds the mirror may
    take to get to where its source was looked at. `spark` is a session that does the work; without one, a
    session is started as the configuration says. What differs is told, not raised.
    """
    config, asked = config_of(config), VerifyRequest(tuple(tables), wait, show_values)
    lake = Lake(config.lake.path)
    if source is not None and source not in config.sources:
        raise Misconfigured(
            "LAKE_SOURCE_UNKNOWN",
            f'this lake has no source "{source}"',
            hint=f"name one of: {', '.join(sorted(config.sources))}",
        )
    chosen = {source: config.sources[source]} if source is not None else dict(config.sources)
    for name in chosen:
        resolve.newest([newest] if (newest := Marks(lake.store, name).newest()) else [])
    with open_contexts(replace(config, sources=chosen), spark, soon=True, brief=True, reads=True) as places:
        return [_of_source(place, asked) for place in places]


def _of_source(place: RunContext, asked: VerifyRequest) -> Verdict:
    begun = time.monotonic()
    newest = Marks(place.store, place.name).newest()
    assert newest is not None
    known = catalog.load(place.store, place.name, newest.epoch).records
    source = source_of(known)
    assert source is not None
    hash_key(source.column_rules)  # before the source is asked
    kind = registry.by_kind(source.kind)
    with closing(kind.connect(place.config.address(), role="verify")) as connection:
        mirror = connection.mirror(source.upstream, source.identity)
        chosen = choose(tables_of(known), asked.tables, case_insensitive=source.facts.case_insensitive)
        beside = {} if asked.tables else find_unmirrored(mirror, place.config, tables_of(known))
        handoff, tables = _compare_all(place, source, mirror, newest, chosen, asked)
    position, seconds = str(exact_from(handoff)), time.monotonic() - begun
    _note(place, position, tables)
    return Verdict(place.name, str(handoff), position, seconds, tables, beside)


def _note(place: RunContext, position: str, tables: Sequence[TableVerdict]) -> None:
    """Leave the outcomes for the status; a lake that this user may only read is verified all the same."""
    at = datetime.now(UTC).isoformat(timespec="seconds")
    outcomes = {
        table.name: TableProof(table.outcome, at, position, None if table.error is None else table.error.code)
        for table in tables
    }
    with suppress(HeadraceError):
        prooffile.write(place.store, place.name, outcomes)


def _compare_all(
    place: RunContext,
    source: SourceRecord,
    mirror: Mirror,
    newest: Mark,
    chosen: Sequence[TableRecord],
    asked: VerifyRequest,
) -> tuple[Handoff, tuple[TableVerdict, ...]]:
    """The verdicts, and the first snapshot that was read: all under it, or those whose reader missed it
    under a later one.
    """
    readers = min(place.config.snapshot_connections, place.spark.at_once)
    verdicts: dict[str, TableVerdict] = {}
    first: Handoff | None = None
    left = list(chosen)
    for _ in _tries():
        with mirror.snapshot([record.definition for record in left], readers, LEAD_SECONDS) as snapshot:
            comparison = SourceComparison(place, source, mirror, snapshot, newest)
            try:
                comparison.compare(left, asked)
            except MomentMissed as error:  # by all of them
                missed = error
                verdicts |= {str(each.name): _not_compared(each, error) for each in left}
        verdicts |= {verdict.name: verdict for verdict in comparison.verdicts(asked)}
        first = comparison.handoff if first is None else first
        left = [record for record in left if _is_missed(verdicts[str(record.name)])]
        if not left:
            break
    if first is None:
        raise missed
    return first, tuple(verdicts[str(record.name)] for record in chosen)


def _tries() -> Iterator[None]:
    """The tries to have readers at a moment, with a pause before each but the first."""
    for pause in (0.0, *MISSED_SECONDS):
        time.sleep(pause)
        yield


def _not_compared(record: TableRecord, error: HeadraceError) -> TableVerdict:
    return TableVerdict(str(record.name), NOT_COMPARED, error=error)


def _is_missed(verdict: TableVerdict) -> bool:
    """Tell whether a table is compared once more. One that was compared never is: what differed is told."""
    return verdict.outcome == NOT_COMPARED and isinstance(verdict.error, MomentMissed)


def choose(
    records: Mapping[TableName, TableRecord], patterns: Sequence[str], *, case_insensitive: bool = False
) -> list[TableRecord]:
    """The tables that the patterns mean; each pattern means one at least."""
    if not patterns:
        return [records[name] for name in sorted(records)]
    chosen = select(patterns, records, case_insensitive=case_insensitive).check()
    for pattern in chosen.empty:
        if not pattern.excludes:
            raise Misconfigured(
                "VERIFY_TABLE_UNKNOWN",
                f'the lake has no table that "{pattern.text}" means',
                detail=pattern.near(records),
                hint="headrace status lists the tables of the lake",
            )
    return [records[name] for name in chosen.names]


class SourceComparison:
    """One source under one snapshot."""

    def __init__(
        self,
        place: RunContext,
        source: SourceRecord,
        mirror: Mirror,
        snapshot: Snapshot,
        before: Mark,
    ) -> None:
        self._place = place
        self._source = source
        self._mirror = mirror
        self._snapshot = snapshot
        self._before = before  # a mark from before the snapshot was taken
        self.handoff: Handoff | None = None  # of the snapshot, once it was read
        self._sides: tuple[ProofContext, list[ComparedTable]] | None = None
        self._found: dict[TableName, DrillDown] = {}

    def compare(self, records: Sequence[TableRecord], request: VerifyRequest) -> None:
        """Do all that needs the snapshot: sum up both sides, and look into what differs."""
        tables = self._begin(records)
        context = self.sum_up([table for table in tables if table.error is None], request.wait)
        self._sides = (context, tables)
        for table in tables if self._snapshot.admits_later else ():
            if table.error is None:
                with _failing_alone(table):
                    self._look_into(context, table, partial(drill_down, values=request.values))

    def _look_into(
        self,
        context: ProofContext,
        table: ComparedTable,
        look: Callable[[ProofContext, ComparedTable], DrillDown],
    ) -> None:
        """Look into the rows that differ; where they can't be had, the tables differ all the same."""
        if len(table.difference().uneven()):
            self._found[table.name] = DrillDown(0)
            self._found[table.name] = look(context, table)

    def verdicts(self, request: VerifyRequest) -> Iterator[TableVerdict]:
        """The verdict on each of the tables, without the snapshot; none of those that all missed it."""
        if self._sides is None:
            return
        context, tables = self._sides
        for table in tables:
            yield self._judge(context, table, request)

    def sum_up(self, tables: Sequence[ComparedTable], seconds: float) -> ProofContext:
        """Both sides of each table: the source by pieces, some at once; the lake once it is far enough.

        Small tables share their tasks, on both sides.
        """
        context = self._context()
        owners = {piece: (table, number) for table in tables for number, piece in enumerate(table.pieces)}
        with ThreadPoolExecutor(context.connections, "headrace-verify") as pool:
            reading = {
                pool.submit(context.pieces, [(owners[piece][0].projection, piece) for piece in share]): share
                for share in self._snapshot.shares(list(owners))
            }
            try:
                self.handoff = self._snapshot.handoff
                # Times do not matter where names are known: who is told by history and shown by the snapshot
                # is so by his name.
                context = replace(context, snapshot=by_name(self.handoff))
                self._reach(context, self.handoff, tables, seconds)
                _sum_up_lake(context, [table for table in tables if table.error is None])
                for future, share in reading.items():
                    for piece, answer in zip(share, _all(future.result, len(share)), strict=True):
                        table, number = owners[piece]
                        with _failing_alone(table):
                            table.parts[number] = _good(answer)
            finally:
                for future in reading:
                    future.cancel()
        return context

    def _context(self) -> ProofContext:
        connection = self._mirror.connection
        return ProofContext(
            store=self._place.store,
            name=self._place.name,
            jobs=Background(self._place.spark),
            door=SourceDoor(
                self._source.kind,
                connection.identity,
                connection.address,
                self._snapshot.ticket,
                "verify",
                hash_key(self._source.column_rules),
            ),
            connections=self._place.config.snapshot_connections,
            decoder=registry.by_kind(self._source.kind).decoder(),
        )

    def _judge(self, context: ProofContext, table: ComparedTable, asked: VerifyRequest) -> TableVerdict:
        """The verdict on a table whose sides are summed up."""
        if table.error is None and not self._snapshot.admits_later:
            with _failing_alone(table):
                self._look_into(context, table, partial(self._looked_at_again, values=asked.values))
        if table.error is None or table.name in self._found:
            with _failing_alone(table):
                return _compare(context, table, asked, self._found.get(table.name, DrillDown(0)))
        assert table.error is not None
        return _not_compared(table.record, table.error)

    def _looked_at_again(self, context: ProofContext, table: ComparedTable, *, values: bool) -> DrillDown:
        """The rows of buckets that differ, under another snapshot: this one lets nobody in any more."""
        for _ in _tries():
            again = wanting(table)
            if again is None:
                return DrillDown(0)
            with _failing_alone(again):
                self._sum_up_alone(context, again)
            if again.error is None:
                return found_by_sums(context.decoder, again, values=values)
            error = again.error
            if not isinstance(error, MomentMissed):
                break
        raise error

    def _sum_up_alone(self, context: ProofContext, table: ComparedTable) -> None:
        """Both sides of one table under a snapshot of its own."""
        readers = min(context.connections, context.jobs.at_once)
        with self._mirror.snapshot([table.record.definition], readers, LEAD_SECONDS) as snapshot:
            look = SourceComparison(self._place, self._source, self._mirror, snapshot, self._before)
            look.sum_up([table], WAIT_SECONDS)

    def _begin(self, chosen: Sequence[TableRecord]) -> list[ComparedTable]:
        """The tables, with what keeps some of them from being compared."""
        live = [record for record in chosen if record.state is State.LIVE]
        check = schema_check.check_records(self._mirror, live, self._before.position)
        follows = self._place.config.on_ddl == "follow"
        errors = {record.name: _unfit(record) or _altered_error(record, check, follows) for record in chosen}
        # Only those: of a table that somebody holds exclusively even the size is waited for.
        fit = [record.definition for record in chosen if errors[record.name] is None]
        measured = self._mirror.measure(fit)
        errors |= measured.busy
        return [_begin(record, measured, errors[record.name]) for record in chosen]

    def _reach(
        self, context: ProofContext, handoff: Handoff, tables: Sequence[ComparedTable], seconds: float
    ) -> None:
        """Find for each table a mark that holds all that the snapshot shows."""
        wait = Wait(
            context.store,
            context.name,
            self._source,
            self._mirror.connection.address,
            exact_from(handoff),
            seconds,
            snapshot_check(self._snapshot.alive),
        )
        waiting = list(tables)
        for mark in marks_from(wait) if waiting else ():
            known = tables_of(catalog.load(context.store, context.name, mark.epoch).records)
            waiting = [each for each in waiting if not _is_placed(context, each, self._before, mark, known)]
            if not waiting:
                return
        for table in waiting:
            table.error = Transient(
                "VERIFY_NOT_IN_MARK",
                f"{table.name} is in no mark since its source was looked at",
                detail="it sits marks out while somebody holds it exclusively",
                hint="verify it again when headrace status shows it live",
            )


def _begin(record: TableRecord, measured: TableSizes, error: HeadraceError | None) -> ComparedTable:
    """A table, cut into pieces and buckets."""
    if error is not None:
        return ComparedTable(record, Projection(record.schema, 1), [], error=error)
    size = measured.sizes[record.name]
    pieces = measured.pieces([record.name], FILE_BYTES)
    return ComparedTable(
        record, Projection(record.schema, bucket_count(size.rows, size.bytes, len(pieces))), pieces
    )


def _unfit(record: TableRecord) -> HeadraceError | None:
    """Say why a table can't be compared, as far as its record tells."""
    if record.state is State.STOPPED:
        return record.stop or Definite(
            "TABLE_STOPPED", f"{record.name} is stopped", hint="headrace status shows why"
        )
    if record.state is not State.LIVE:
        return Transient(
            "VERIFY_NOT_LIVE",
            f"{record.name} is not exact yet: it is {record.state.value}",
            hint="verify it when headrace status shows it live",
        )
    return None


def _altered_error(record: TableRecord, check: RecordsCheck, follows: bool) -> HeadraceError | None:
    """Say why a table can't be compared, as far as the look at it tells.

    A run that follows DDL has yet to see it: nothing is to be done about that.
    """
    if record.name in check.denials:
        return check.denials[record.name]
    if record.name in check.locked_tables:
        return Transient(
            "VERIFY_LOCKED",
            f"somebody holds {record.name} exclusively",
            hint="verify it again when the statement that holds it has ended",
        )
    changed = check.changed_tables([record]).get(record.name)
    if changed is None or not follows:
        return changed
    hint = "nothing to do: headrace run follows it; verify it again when headrace status shows it live"
    return ShapeChanged(changed.code, changed.primary, detail=changed.detail, hint=hint)


def _is_placed(
    context: ProofContext,
    table: ComparedTable,
    before: Mark,
    mark: Mark,
    known: Mapping[TableName, TableRecord],
) -> bool:
    """Tell whether it is known where the lake has the table at this mark, or that it can't be compared."""
    old, new = table.record, known.get(table.name)
    try:
        if new is None or (new.schema, new.since) != (old.schema, old.since):
            raise Transient(
                "VERIFY_COPIED_ANEW",
                f"{table.name} was copied anew while it was to be compared",
                hint="verify it again",
            )
        if unfit := _unfit(new):
            raise unfit
        if str(table.name) not in mark.versions:
            return False
        kept = (
            histories.history_number(context.store, context.name, table.name, new.schema.version) is not None
        )
        if not kept and before.versions.get(str(table.name)) != mark.versions[str(table.name)]:
            raise untold_error(table.name)
        context.place(table, mark, old.since or 0)
        # Asked after history was looked into, as it is said in `lake.log.horizon`.
        reach = horizon.read(context.store, context.name)
        if reach is not None and reach.gone_before is not None and reach.gone_before > before.time:
            raise untold_error(table.name)
    except HeadraceError as error:
        table.error = error
    return True


def _sum_up_lake(context: ProofContext, tables: Sequence[ComparedTable]) -> None:
    small = [table for table in tables if table.small]
    for table, answer in zip(small, _all(lambda: context.lakes(small), len(small)), strict=True):
        with _failing_alone(table):
            table.lake = _good(answer)
    for table in (table for table in tables if not table.small):
        with _failing_alone(table):
            table.lake = context.lake(table, table.projection)


def _all(answers: Callable[[], Sequence[Answer]], count: int) -> Sequence[Answer]:
    """The answers to a task; one that failed as a whole answers so for each of its tables."""
    try:
        return answers()
    except HeadraceError as error:
        return [error] * count


def _good(answer: Answer) -> RowSums:
    if isinstance(answer, HeadraceError):
        raise answer
    return answer


@contextmanager
def _failing_alone(table: ComparedTable) -> Iterator[None]:
    """Make what goes wrong with one table its verdict."""
    try:
        yield
    except HeadraceError as error:
        table.error = table.error or error


def _compare(
    context: ProofContext, table: ComparedTable, asked: VerifyRequest, found: DrillDown
) -> TableVerdict:
    assert table.lake is not None
    assert table.mark is not None
    source, uneven = table.source, table.difference().uneven()
    texts = None if source.texts is None else from_ipc(source.texts)
    lost = text_differences(
        table.projection.schema, texts, _standing(context, table), values=asked.values, most=asked.most_named
    )
    differences = [*found.differences, *lost.differences]
    return TableVerdict(
        name=str(table.name),
        outcome=DIFFERENT if len(uneven) or lost.count else EQUAL,
        rows=source.sums.rows,
        lake_rows=table.lake.sums.rows,
        texts=0 if texts is None else texts.num_rows,
        buckets=table.projection.buckets,
        different_buckets=len(uneven),
        narrowed_buckets=found.buckets,
        differences=tuple(differences[: asked.most_named]),
        unlisted_rows=max(0, len(found.differences) + lost.count - asked.most_named),
        epoch=table.mark.epoch,
        error=table.error,
    )


def _standing(context: ProofContext, table: ComparedTable) -> Iterator[pl.DataFrame]:
    """The texts that stand in `errors/` for what the snapshot shows, part by part."""
    assert table.lake is not None
    assert table.mark is not None
    undone = pl.Series(sorted(table.lake.times), dtype=pl.Int64)
    shown = (pl.col("time") <= table.mark.time) & ~pl.col("time").is_in(undone.implode())
    for said in errors_table.said_in_parts(context.store, layout.errors_folder(context.name), table.name):
        yield errors_table.standing_of(said.filter(shown))
