"""Maintenance of a source's part of the lake: `headrace maintain`, and the same by itself in a run.

    compaction      small files of tables, histories and errors ─► epochs of the kind "maintain"
    expiry          retention ─► the reach moves on ─► old history leaves its log, a grace time later
    marks           thinned out, a thousand a file              ─► an epoch
    sweep           files, log lines, plans and answers that no mark needs which is there

A deed (`commands.serve`): everything that takes long is handed out to a thread and changes nothing but files
of its own; what changes the lake is an epoch of the source's one writer, published on the loop's thread
between two others. So marks are not held up, and a run that is ended anywhere leaves either an epoch that
whoever comes next finishes, or files that nobody names. Doing it twice does the rest.

A table that another program changed is left alone here and told of; the run itself judges it.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np

from headrace.core.columns import Ints
from headrace.core.errors import Definite, HeadraceError
from headrace.core.failpoint import failpoint
from headrace.core.names import TableName
from headrace.core.portions import portions
from headrace.core.records import on_disk, to_record
from headrace.lake.format import exportfile, layout
from headrace.lake.format.vector import Vector
from headrace.lake.log import horizon
from headrace.lake.log.commit import plan_base
from headrace.lake.log.horizon import Reach
from headrace.lake.log.marks import Mark
from headrace.lake.read.catalogs import Catalogs
from headrace.lake.read.intervals import Past
from headrace.lake.retain.sweep import Sweeper
from headrace.lake.retain.thinning import Keeping
from headrace.lake.store.contract import Store
from headrace.pipeline.maintain import expiry
from headrace.pipeline.state.epoch import MAINTAIN, Epoch, Rewrite
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.owner import Errand, Owner, Steps
from headrace.pipeline.tasks import compact
from headrace.pipeline.tasks.compact import Bundle, BundleResult, Survey
from headrace.pipeline.tasks.merge_vectors import cached_rows, deleted_positions
from headrace.pipeline.tasks.row_cache import forget_rows
from headrace.pipeline.tasks.table_task import REWRITE, Outcome, Outcomes, pack, unpack
from headrace.spark.jobs import Background, Jobs

EPOCH_BYTES = 256 << 20
MOST_TIDYINGS = 100  # of marks, so many at once
DURABLE_WITHIN = 60.0
DURABLE_POLL = 0.02
DRIVER_BYTES = 32 << 20  # so much is put together quicker here than Spark can say hello
LEAST = {True: (8, 100), False: (2, 2)}  # files and files of marks that are worth it: by itself, and asked


@dataclass(slots=True)
class MaintenanceReport:
    """The work that was done, or would be."""

    dry_run: bool
    file_counts: dict[str, int] = field(
        default_factory=lambda: {"before": 0, "after": 0}, metadata=on_disk("compacted")
    )
    marks: dict[str, int] = field(default_factory=lambda: {"dropped": 0, "files_before": 0, "files_after": 0})
    history: dict[str, Any] = field(default_factory=lambda: {"reaches_back_to": None, "files_expired": 0})
    deleted_files: dict[str, int] = field(default_factory=dict, metadata=on_disk("deleted"))
    left_alone: dict[str, str] = field(default_factory=dict)

    def leave(self, folder: str, error: HeadraceError) -> None:
        self.left_alone[layout.place(folder)] = error.code


@dataclass(frozen=True, slots=True)
class Order:
    """An order for maintenance."""

    keeping: Keeping
    dry: bool = False
    auto: bool = False
    plain: bool = False  # leave no file with a deletion vector, as readers of Iceberg need it

    @classmethod
    def of(cls, owner: Owner, arguments: Mapping[str, Any]) -> Order:
        said = owner.place.lake
        words = {name: arguments.get(name) or getattr(said, name) for name in ("retention", "marks", "grace")}
        dry, auto, plain = (bool(arguments.get(name)) for name in ("dry_run", "auto", "rewrite"))
        exported = exportfile.read(owner.place.store, owner.ledger.name) is not None
        return cls(Keeping.of(**words), dry, auto, plain or exported)

    @property
    def least(self) -> tuple[int, int]:
        return LEAST[self.auto]


def maintain(owner: Owner, arguments: Mapping[str, Any]) -> Steps:
    """The deed; its answer is the report."""
    order = Order.of(owner, arguments)
    report = MaintenanceReport(order.dry)
    yield from _compact(owner, order, report)
    yield from _expire(owner, order, report)
    yield from _tidy(owner, order, report)
    yield partial(_await_durable, owner.ledger)
    sweeper = Sweeper(
        owner.place.store,
        owner.ledger.name,
        order.keeping,
        max(0, owner.ledger.log.syncing.durable),
        datetime.now(UTC),
        frozenset(n for n, r in owner.ledger.tables.items() if not r.state.is_settled),
        order.dry,
    )
    swept = yield partial(sweeper.sweep, report.leave)
    report.deleted_files = {name: getattr(swept, name) for name in swept.__slots__}
    if order.dry and report.marks["dropped"] and order.keeping.grace:
        report.deleted_files["plans"] = 0  # the marks that go would keep them for that long
    return to_record(report)


def _await_durable(ledger: Ledger) -> None:
    """Give the acknowledgement time to come to what was published last: nothing later is swept up to."""
    epoch, deadline = ledger.mark.epoch, time.monotonic() + DURABLE_WITHIN
    while ledger.log.syncing.durable < epoch and time.monotonic() < deadline:
        time.sleep(DURABLE_POLL)


# --- compaction -----------------------------------------------------------------------------------


def _compact(owner: Owner, order: Order, report: MaintenanceReport) -> Generator[Errand, Any, None]:
    ledger = owner.ledger
    cache = owner.place.config.row_cache
    named = [record for record in ledger.tables.values() if record.state.is_named]
    tables = tuple(replace(ledger.outline(record), row_cache=cache) for record in named)
    survey = Survey(
        ledger.name, ledger.mark.epoch + 1, ledger.address, tables, order.least[0], plain=order.plain
    )
    bundles = yield survey.bundles
    if order.dry:
        report.file_counts = {"before": sum(len(b.paths) for b in bundles), "after": len(bundles)}
        return
    for portion in portions(bundles, (EPOCH_BYTES, lambda bundle: bundle.size)):
        much = sum(bundle.size for bundle in portion) > DRIVER_BYTES
        jobs = owner.place.spark if much else owner.place.driver
        done = yield partial(_bundle, Background(jobs, spare=True), portion)
        if owner.place.config.merge != REWRITE:
            yield partial(_warm, owner.place.store, done)
        _publish(owner, _fitting(ledger, done, report), report)
        _forget_rows(owner, done)


def _bundle(jobs: Jobs, bundles: Iterable[Bundle]) -> list[BundleResult]:
    done = jobs.run(compact.write_bundle, [pack(compact.outline(bundle)) for bundle in bundles])
    failpoint("maintain.bundled")
    return [unpack(answer, BundleResult) for answer in done]


def _warm(store: Store, done: Iterable[BundleResult]) -> None:
    """Read the new files of tables with vectors into the row cache, before the loop waits for that."""
    for each in done:
        table = each.bundle.table
        if table is not None and any(file.vector for file in each.bundle.live):
            for new in each.keyed_files:
                cached_rows(store, table, new.file.path)


def _forget_rows(owner: Owner, done: Iterable[BundleResult]) -> None:
    """Take files of these bundles that are not in their tables out of the row cache."""
    for each in done:
        bundle, ledger = each.bundle, owner.ledger
        if bundle.table is None or bundle.table.name not in ledger.tables:
            continue
        files = {
            *bundle.paths,
            *(file.path for file in bundle.smaller),
            *(n.file.path for n in each.keyed_files),
        }
        gone = files - ledger.live.ranges(bundle.folder).keys()
        forget_rows(ledger.store.url, bundle.folder, gone, owner.place.config.row_cache)


def _fitting(ledger: Ledger, done: Iterable[BundleResult], report: MaintenanceReport) -> list[BundleResult]:
    """Select the bundles whose files are all still live: the stream has gone on meanwhile.

    What it deleted from them is deleted from their new files, too.
    """
    found = []
    for each in done:
        table = each.bundle.table
        record = None if table is None else ledger.tables.get(table.name)
        same = table is None or (
            record is not None and record.state.is_named and record.schema == table.schema
        )
        live = _live(ledger, each.bundle.folder, report)
        if not same or not set(each.bundle.paths) <= live.keys():
            continue
        if table is None:
            found.append(each)
        elif (carried := compact.carry_over(ledger.store, each, live)) is not None:
            found.append(carried)
    return found


def _live(ledger: Ledger, folder: str, report: MaintenanceReport) -> dict[str, Vector | None]:
    """The files of a folder that are ours to put together; none where another program changed it."""
    table = ledger.live.table(folder)
    try:
        plan_base(table)
    except Definite as error:
        report.leave(folder, error)
        return {}
    return {path: file.vector for path, file in table.files().items()}


def _publish(owner: Owner, done: list[BundleResult], report: MaintenanceReport) -> None:
    if not done:
        return
    outcomes = Outcomes()
    rewrites: dict[str, Rewrite] = {}
    for each in done:
        bundle = each.bundle
        report.file_counts["before"] += len(bundle.paths)
        report.file_counts["after"] += len(each.files)
        if bundle.table is not None:
            outcomes.take(Outcome(bundle.table.name, add=each.keyed_files, remove=bundle.paths))
        else:
            known = rewrites.get(bundle.folder, Rewrite(bundle.folder, same=not bundle.errors))
            rewrites[bundle.folder] = known.plus(each.files, bundle.paths)
    for outcome in _moved_out(owner.ledger, done):
        outcomes.take(outcome)
    owner.publish(_epoch(owner.ledger, tuple(outcomes.tables.values()), tuple(rewrites.values())))


def _moved_out(ledger: Ledger, done: Iterable[BundleResult]) -> Iterator[Outcome]:
    """The vectors of files whose rows went, in part, to the new files of one bundle or more."""
    moved: dict[tuple[TableName, str], list[Ints]] = {}
    for each in done:
        for path, vector in each.moves:
            assert each.bundle.table is not None
            positions = deleted_positions(each.bundle.table, path, vector)
            moved.setdefault((each.bundle.table.name, path), []).append(positions)
    for (name, path), parts in moved.items():
        table = ledger.live.table(ledger.task_folder(name))
        file = table.files()[path]
        before = file.vector.positions(f"{table.folder}/{path}") if file.vector else np.empty(0, np.int64)
        vector = Vector.of(np.concatenate([before, *parts]))
        if vector.rows < file.rows:
            yield Outcome(name, vectors=((path, vector),))
        else:
            yield Outcome(name, remove=(path,))


def _epoch(
    ledger: Ledger, outcomes: tuple[Outcome, ...] = (), rewrites: tuple[Rewrite, ...] = (), **more: Any
) -> Epoch:
    """An epoch that changes no contents: tables that the last mark left out are left out again."""
    absent = frozenset(name for name in ledger.tables if str(name) not in ledger.mark.versions)
    return Epoch(MAINTAIN, ledger.frontier, outcomes=outcomes, rewrites=rewrites, absent=absent, **more)


# --- retention ------------------------------------------------------------------------------------


def _expire(owner: Owner, order: Order, report: MaintenanceReport) -> Generator[Errand, Any, None]:
    yield from _let_go(owner, order, report)
    store, name = owner.place.store, owner.ledger.name
    now = datetime.now(UTC)
    pending = horizon.read(store, name)
    if pending is None or expiry.ripe(pending, now, order.keeping.grace):
        begin: Mark | None = yield partial(expiry.start_mark, store, name, now, order.keeping)
        if begin is not None and not order.dry:
            failpoint("maintain.reach.before")
            horizon.write(
                store, name, Reach(begin.time, now, None if pending is None else pending.gone_before)
            )
            failpoint("maintain.reach.after")
            yield from _let_go(owner, order, report)
        elif begin is not None:
            gone = yield partial(expiry.spent_files, store, name, begin.time)
            report.history |= {
                "reaches_back_to": begin.frontier,
                "files_expired": sum(len(each.remove) for each in gone),
            }


def _let_go(owner: Owner, order: Order, report: MaintenanceReport) -> Generator[Errand, Any, None]:
    """Carry out what the reach says, as far as it is time."""
    store, ledger = owner.place.store, owner.ledger
    known = horizon.read(store, ledger.name)
    found = expiry.set_right(known, datetime.now(UTC))
    if found is None:
        return
    if found != known and not order.dry:
        horizon.write(store, ledger.name, found)
    # It may lie in an earlier life of the server: the marks of that time know how it was spelled.
    past = Past(store, ledger.name, Catalogs(store))
    report.history["reaches_back_to"] = yield partial(past.show, found.time + 1)
    since = found.time + 1
    gone: list[Rewrite] = []
    if expiry.ripe(found, datetime.now(UTC), order.keeping.grace):
        if found.gone_before != found.time and not order.dry:
            failpoint("maintain.gone.before")
            horizon.write(store, ledger.name, replace(found, gone_before=found.time))
            failpoint("maintain.gone.after")
        gone = yield partial(expiry.spent_files, store, ledger.name, found.time)
    # The stream has gone on meanwhile: the records, and which files are there, are those of now.
    gone = [each for each in gone if set(each.remove) <= _live(ledger, each.folder, report).keys()]
    at_rest = [r for r in ledger.tables.values() if r.state.is_settled]
    late = [record for record in at_rest if record.since is not None and record.since < since]
    report.history["files_expired"] += sum(len(each.remove) for each in gone)
    if (late or gone) and not order.dry:
        records = tuple(replace(record, since=since) for record in late)
        owner.publish(_epoch(ledger, rewrites=tuple(gone), records=records))


# --- marks ----------------------------------------------------------------------------------------


def _tidy(owner: Owner, order: Order, report: MaintenanceReport) -> Generator[Errand, Any, None]:
    store, ledger = owner.place.store, owner.ledger
    folder = layout.marks_folder(ledger.name)
    for _ in range(MOST_TIDYINGS):
        tidying: expiry.Tidying = yield partial(
            expiry.tidy,
            *(store, ledger.name, datetime.now(UTC), order.keeping, order.least[1]),
            dry=order.dry,
        )
        found = tidying.result
        if not found or not set(found.remove) <= _live(ledger, folder, report).keys():
            return
        report.marks["dropped"] += found.dropped_marks
        report.marks["files_before"] += len(found.remove)
        report.marks["files_after"] += len(found.add)
        if not order.dry:
            rewrite = Rewrite(folder, tidying.files, tuple(found.remove), same=not found.dropped_marks)
            owner.publish(_epoch(ledger, rewrites=(rewrite,)))
        if order.dry or not found.more:
            return
