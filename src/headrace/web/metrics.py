"""The metrics: the name and meaning of each, and how it is computed from the pictures of the lakes.

`METRICS` is the whole list; `docs/metrics.md` is made from it. Each metric is a function from a source (or
one of its tables) to its samples. Nothing is counted here, so a restarted server reports the same values.
Counters are sums over all runs of a lake (`TotalsStatus`).

Gauges of a running process (log held back, spool, memory) have no sample while no run is alive: the last
value would look as if all were well. `headrace_up` is 0 then. Lag has samples even then: it grows with the
clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate

import headrace
from headrace.status.picture import BOUNDS, DROPPED, SourcePicture, TableProof, TableStatus
from headrace.status.summary import STATES, state_of
from headrace.status.watch import View
from headrace.web.exposition import Family, labels

_Sample = tuple[str, tuple[tuple[str, str], ...], float]  # suffix, further labels, value
_OfLake = Callable[[View], Iterable[_Sample]]
_OfSource = Callable[[SourcePicture], Iterable[_Sample]]
_OfTable = Callable[[TableStatus], Iterable[_Sample]]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of each lake, source or table; `of_us` holds samples of this process."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str
    of_source: _OfSource | None = None
    of_table: _OfTable | None = None
    of_lake: _OfLake | None = None
    of_us: Sequence[_Sample] = ()


def families(views: Sequence[View]) -> Iterator[Family]:
    """All metrics of these lakes."""
    for metric in METRICS:
        yield Family(metric.name, metric.kind, metric.help, list(_samples(metric, views)))


def _samples(metric: Metric, views: Sequence[View]) -> Iterator[tuple[str, str, float]]:
    yield from _with_labels("", metric.of_us)
    for view in views:
        lake = labels(("lake", view.lake))
        if metric.of_lake is not None:
            yield from _with_labels(lake, metric.of_lake(view))
        for source in view.sources:
            where = f"{lake},{labels(('source', source.name))}"
            if metric.of_source is not None:
                yield from _with_labels(where, metric.of_source(source))
            elif metric.of_table is not None:
                for name, table in source.tables.items():
                    yield from _with_labels(f"{where},{labels(('table', name))}", metric.of_table(table))


def _with_labels(where: str, samples: Iterable[_Sample]) -> Iterator[tuple[str, str, float]]:
    for suffix, further, value in samples:
        yield suffix, ",".join(filter(None, (where, labels(*further)))), value


def _one(value: float | None) -> Iterable[_Sample]:
    return () if value is None else (("", (), value),)


def _by(label: str, values: Mapping[str, float]) -> Iterable[_Sample]:
    return [("", ((label, name),), value) for name, value in sorted(values.items())]


def _seconds(moment: str | None) -> float | None:
    """A time as seconds since 1970; None if there is none, or if it is malformed."""
    try:
        read = datetime.fromisoformat(moment or "")
    except ValueError:
        return None
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()


def _state(source: SourcePicture) -> Iterable[_Sample]:
    now = state_of(source)
    return [("", (("state", state),), int(state == now)) for state in STATES]


def _lag(name: str) -> _OfSource:
    return lambda source: _one(
        getattr(source.position, name) if source.runs and source.position is not None else None
    )


def _retained_log(name: str) -> _OfSource:
    return lambda source: _one(
        getattr(source.status.upstream, name) if source.runs and source.status.upstream is not None else None
    )


def _mark_age(source: SourcePicture) -> Iterable[_Sample]:
    marked_at = _seconds(source.status.marked_at)
    return _one(None if marked_at is None else max(0.0, datetime.now(UTC).timestamp() - marked_at))


def _totals(name: str, label: str | None = None) -> _OfSource:
    def samples(source: SourcePicture) -> Iterable[_Sample]:
        if source.status.totals is None:
            return ()
        value = getattr(source.status.totals, name)
        return _one(value) if label is None else _by(label, value)

    return samples


def _epoch_seconds(source: SourcePicture) -> Iterator[_Sample]:
    steps = {} if source.status.totals is None else source.status.totals.steps
    for step, taken in sorted(steps.items()):
        if len(taken.counts) != len(BOUNDS) + 1:
            continue
        named, sums = ("step", step), list(accumulate(taken.counts))
        for bound, count in zip((*BOUNDS, float("inf")), sums, strict=True):
            yield "_bucket", (named, ("le", "+Inf" if bound == float("inf") else repr(bound))), count
        yield "_sum", (named,), taken.seconds
        yield "_count", (named,), sums[-1]


def _processes(name: str) -> _OfSource:
    return lambda source: _by(
        "role",
        {role: getattr(use, name) for role, use in source.status.processes.items()} if source.runs else {},
    )


def _proofs(source: SourcePicture, value: Callable[[TableProof], float | None]) -> Iterable[_Sample]:
    values = {name: value(proof) for name, proof in source.proofs.items()}
    return _by("table", {name: each for name, each in values.items() if each is not None})


def _copy(name: str) -> _OfTable:
    return lambda table: _one(None if table.copy is None else getattr(table.copy, name))


_S = ("lake", "source")
_T = (*_S, "table")

# The metrics that have samples only while a run is alive.
LIVING = frozenset(
    "headrace_turn_age_seconds headrace_lag_bytes headrace_spool_bytes headrace_kept_bytes"
    " headrace_retained_log_bytes headrace_retained_log_limit_bytes"
    " headrace_iceberg_behind_seconds"
    " headrace_process_resident_bytes headrace_process_cpu_seconds_total".split()
)

METRICS: tuple[Metric, ...] = (
    Metric(
        "headrace_build_info",
        "info",
        ("version",),
        "1, with the version of the headrace that answers.",
        of_us=[("", (("version", headrace.__version__),), 1)],
    ),
    Metric(
        "headrace_lake_up",
        "gauge",
        ("lake",),
        "1 if the lake could be read, else 0.",
        of_lake=lambda view: _one(int(view.error is None)),
    ),
    Metric(
        "headrace_up",
        "gauge",
        _S,
        "1 if a living run wrote its status within the last 15 s, else 0; of a dropped source none.",
        lambda source: _one(None if source.status.state == DROPPED else int(source.runs)),
    ),
    Metric(
        "headrace_source_state",
        "gauge",
        (*_S, "state"),
        "1 for the state that the source is in, 0 for the others.",
        _state,
    ),
    Metric(
        "headrace_lag_seconds",
        "gauge",
        _S,
        "Seconds that the lake may be behind its source; it grows while the source is not heard.",
        lambda source: _one(source.lag_seconds),
    ),
    Metric(
        "headrace_contact_age_seconds",
        "gauge",
        _S,
        "Seconds since the source last answered.",
        lambda source: _one(source.contact_age),
    ),
    Metric(
        "headrace_turn_age_seconds",
        "gauge",
        _S,
        "Seconds since the loop of the run came round; an epoch that takes long holds it up.",
        lambda source: _one(source.turn_age),
    ),
    Metric(
        "headrace_lag_bytes",
        "gauge",
        _S,
        "Bytes of the source's log that are in no mark.",
        _lag("lag_bytes"),
    ),
    Metric(
        "headrace_mark_epoch", "gauge", _S, "Number of the newest mark.", lambda source: _one(source.epoch)
    ),
    Metric(
        "headrace_mark_age_seconds", "gauge", _S, "Seconds since the newest mark was published.", _mark_age
    ),
    Metric(
        "headrace_marks_total",
        "counter",
        (*_S, "kind"),
        "Marks published, by kind.",
        _totals("marks", "kind"),
    ),
    Metric(
        "headrace_transactions_total",
        "counter",
        _S,
        "Transactions of the source in all marks.",
        _totals("transactions"),
    ),
    Metric("headrace_changes_total", "counter", _S, "Row changes in all marks.", _totals("changes")),
    Metric(
        "headrace_retained_log_bytes",
        "gauge",
        _S,
        "Bytes of its log that the source holds back for this mirror.",
        _retained_log("retained_bytes"),
    ),
    Metric(
        "headrace_retained_log_limit_bytes",
        "gauge",
        _S,
        "Bytes that the source may hold back: the lower of max_wal and the server's own limit.",
        _retained_log("limit_bytes"),
    ),
    Metric(
        "headrace_spool_bytes",
        "gauge",
        _S,
        "Bytes received that are in no mark yet, on the run's disk.",
        _lag("spool_bytes"),
    ),
    Metric(
        "headrace_kept_bytes",
        "gauge",
        _S,
        "Bytes of the stream kept in the lake for tables that wait for their copy.",
        _lag("kept_bytes"),
    ),
    Metric(
        "headrace_table_state",
        "gauge",
        (*_T, "state"),
        "1, with the state that the table is in. A table has one sample: the one of its state.",
        None,
        lambda table: [("", (("state", table.state),), 1)],
    ),
    Metric(
        "headrace_table_rows",
        "gauge",
        _T,
        "Rows of the table at the newest mark.",
        None,
        lambda table: _one(table.rows),
    ),
    Metric(
        "headrace_table_last_change_timestamp_seconds",
        "gauge",
        _T,
        "Time of the newest commit that changed the table since the run began, seconds since 1970.",
        None,
        lambda table: _one(_seconds(table.last_change)),
    ),
    *(
        Metric(
            f"headrace_snapshot_{name}",
            "gauge",
            _T,
            f"{text} Only while the table is being copied.",
            None,
            _copy(name),
        )
        for name, text in (
            ("rows_known", "Rows that the copy is estimated to have."),
            ("rows_done", "Rows copied so far."),
            ("bytes_known", "Bytes that the copy is estimated to have."),
            ("bytes_done", "Bytes copied so far."),
        )
    ),
    Metric(
        "headrace_verify_different",
        "gauge",
        _T,
        "1 if the last headrace verify found that the table differs from its source, else 0.",
        lambda source: _proofs(source, lambda proof: int(proof.outcome == "different")),
    ),
    Metric(
        "headrace_verify_timestamp_seconds",
        "gauge",
        _T,
        "Time of the last headrace verify of the table, seconds since 1970.",
        lambda source: _proofs(source, lambda proof: _seconds(proof.at)),
    ),
    Metric(
        "headrace_iceberg_epoch",
        "gauge",
        _S,
        "Number of the newest mark that was exported to Iceberg. Only where marks are exported.",
        lambda source: _one(None if source.status.iceberg is None else source.status.iceberg.epoch),
    ),
    Metric(
        "headrace_iceberg_behind_seconds",
        "gauge",
        _S,
        "Seconds since exports to Iceberg began to fail; 0 if the last one succeeded.",
        lambda source: _one(source.export_behind),
    ),
    Metric(
        "headrace_errors_total",
        "counter",
        (*_S, "code"),
        "Errors and warnings that runs met, by code; one that lasts counts once.",
        _totals("errors", "code"),
    ),
    Metric(
        "headrace_epoch_seconds",
        "histogram",
        (*_S, "step"),
        "Durations of an epoch's steps: job (work on rows), plan, commit (the tables), publish (the mark).",
        _epoch_seconds,
    ),
    Metric(
        "headrace_process_resident_bytes",
        "gauge",
        (*_S, "role"),
        "Memory of a run's processes. One that serves several sources is counted at each.",
        _processes("resident_bytes"),
    ),
    Metric(
        "headrace_process_cpu_seconds_total",
        "counter",
        (*_S, "role"),
        "CPU time of a run's processes since it began, by role.",
        _processes("cpu_seconds"),
    ),
)
