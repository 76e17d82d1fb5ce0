"""G2: no cut shows a part of a transaction. Two workloads make that visible by arithmetic alone.

    pgbench     sum(abalance) = sum(tbalance) = sum(bbalance) = sum(history.delta)
    Transfers   the rows of one transfer and revision, over both tables, are none or all of its parts

Both hold at every committed state of the source (`headrace_testing.pgbench`, `headrace_testing.workload`),
so they are judged at every time that the history knows, by adding it up from the first mark on, and in
the tables themselves at marks. `since` takes in the times before the first mark, back to where all of
the tables are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import polars as pl

from headrace.core.names import TableName
from headrace_testing.timeline import Cut, Lake, Mark, Remembered, history_table, runs_of, spread
from headrace_testing.violation import Violation

BALANCES = {
    "pgbench_accounts": "abalance",
    "pgbench_tellers": "tbalance",
    "pgbench_branches": "bbalance",
    "pgbench_history": "delta",
}
TRANSFERS = ("transfer_out", "transfer_in")
_PART = ["transfer", "revision", "parts"]

Rows = dict[str, pl.DataFrame]  # of each table


@dataclass
class Verdict:
    """The verdict: what was judged, and what was found; an empty list counts only beside these numbers."""

    marks: int = 0
    times: int = 0
    violations: list[Violation] = field(default_factory=list)


def whole(
    lake: Lake,
    *,
    source: str | None = None,
    schema: str = "public",
    since: int | None = None,
    sample: int = 20,
    every: bool = False,
) -> list[Violation]:
    """Judge by pgbench's tables and by those of `Transfers`, whichever the lake has."""
    options = _Options(source, schema, since, None if every else sample)
    verdicts = [_judge(lake, BALANCES, _unbalanced, _unbalanced_times, options)]
    verdicts.append(_judge(lake, TRANSFERS, _torn, _torn_times, options))
    if not any(verdict.marks for verdict in verdicts):
        raise ValueError("no mark has the tables of pgbench or of Transfers: nothing to judge by")
    return [violation for verdict in verdicts for violation in verdict.violations]


def balances(
    lake: Lake,
    *,
    source: str | None = None,
    schema: str = "public",
    since: int | None = None,
    sample: int | None = 20,
) -> Verdict:
    """pgbench's balances, at so many marks (None: at all of them) and at every time of its history."""
    options = _Options(source, schema, since, sample)
    return _judge(lake, BALANCES, _unbalanced, _unbalanced_times, options)


def transfers(
    lake: Lake,
    *,
    source: str | None = None,
    schema: str = "public",
    since: int | None = None,
    sample: int | None = 20,
) -> Verdict:
    """The parts of transfers, at so many marks (None: at all of them) and at every time of their history."""
    options = _Options(source, schema, since, sample)
    return _judge(lake, TRANSFERS, _torn, _torn_times, options)


@dataclass(frozen=True, slots=True)
class _Options:
    source: str | None
    schema: str
    since: int | None
    sample: int | None


def _judge(
    lake: Lake,
    tables: Sequence[str] | dict[str, str],
    at_mark: Callable[[Rows], str | None],
    at_times: Callable[[Rows, Rows], pl.DataFrame],
    options: _Options,
) -> Verdict:
    verdict, lake = Verdict(), Remembered.of(lake)
    names = {table: str(TableName(options.schema, table)) for table in tables}
    label = " + ".join(names.values())
    for number, run in enumerate(runs_of(lake, options.source, *names.values())):
        chosen = run if options.sample is None else spread(run, options.sample)
        for mark in chosen:
            what = at_mark(_contents(lake.at(epoch=mark.epoch, source=options.source), names))
            if what:
                verdict.violations.append(Violation("G2", label, what, mark.epoch, mark.time))
        since = options.since if number == 0 else None
        base, later = _stretch(lake, names, run, options.source, since)
        wrong = at_times(base, later)
        times = pl.concat([rows["_time"] for rows in later.values()]).n_unique()
        if wrong.height:
            what = f"transactions in parts at {wrong.height} of {times} times in history"
            first = int(wrong["_time"].to_list()[0])
            verdict.violations.append(Violation("G2", label, what, time=first))
        verdict.marks += len(chosen)
        verdict.times += times
    return verdict


def _contents(cut: Cut, names: dict[str, str]) -> Rows:
    return {table: pl.DataFrame(cut.arrow(name)) for table, name in names.items()}


def _stretch(
    lake: Lake, names: dict[str, str], run: Sequence[Mark], source: str | None, since: int | None
) -> tuple[Rows, Rows]:
    """The contents of the tables at the beginning of a run (or at `since`), and the history from there on.

    Both with `_diff`; what was there before the first mark is that mark minus the history it holds.
    """
    first, last = run[0], run[-1]
    contents = _contents(lake.at(epoch=first.epoch, source=source), names)
    newest = lake.at(epoch=last.epoch, source=source)
    base: Rows = {}
    later: Rows = {}
    for table, name in names.items():
        history = pl.DataFrame(history_table(newest, name)).filter(pl.col("_time") <= last.time)
        begin = first.time + 1 if since is None else since
        later[table] = history.filter(pl.col("_time") >= begin)
        undone = later[table].filter(pl.col("_time") <= first.time).with_columns(-pl.col("_diff"))
        held = contents[table].with_columns(_diff=pl.lit(1, pl.Int64))
        base[table] = pl.concat([held, undone.select(held.columns)])
    return base, later


def _unbalanced(tables: Rows) -> str | None:
    sums = [tables[table][column].cast(pl.Int64).sum() for table, column in BALANCES.items()]
    if len(set(sums)) == 1:
        return None
    return "balances differ: " + ", ".join(
        f"{table} {total}" for table, total in zip(BALANCES, sums, strict=True)
    )


def _unbalanced_times(base: Rows, later: Rows) -> pl.DataFrame:
    times = pl.concat([rows.select("_time") for rows in later.values()]).unique().sort("_time")
    for table, column in BALANCES.items():
        start = base[table].select((pl.col(column) * pl.col("_diff")).sum()).item()
        deltas = later[table].group_by("_time").agg((pl.col(column) * pl.col("_diff")).sum().alias(table))
        times = times.join(deltas, on="_time", how="left", maintain_order="left")
        times = times.with_columns(pl.col(table).fill_null(0).cum_sum() + start)
    one, *others = BALANCES
    return times.filter(pl.any_horizontal(pl.col(one) != pl.col(other) for other in others))


def _torn(tables: Rows) -> str | None:
    rows = pl.concat([tables[table].select(_PART) for table in TRANSFERS])
    groups = rows.group_by("transfer").agg(
        pl.len().alias("n"), pl.col("parts").max(), pl.col("revision").n_unique().alias("revisions")
    )
    wrong = groups.filter((pl.col("n") != 2 * pl.col("parts")) | (pl.col("revisions") > 1))
    return f"parts only of {wrong.height} of {groups.height} transfers" if wrong.height else None


def _torn_times(base: Rows, later: Rows) -> pl.DataFrame:
    start = [base[table].select(*_PART, "_diff", _time=pl.lit(None, pl.Int64)) for table in TRANSFERS]
    steps = [later[table].select(*_PART, "_diff", "_time") for table in TRANSFERS]
    net = pl.concat([*start, *steps]).group_by(*_PART, "_time").agg(pl.col("_diff").sum())
    held = net.sort("_time", nulls_last=False).with_columns(pl.col("_diff").cum_sum().over(_PART))
    wrong = held.filter((pl.col("_diff") != 0) & (pl.col("_diff") != 2 * pl.col("parts")))
    # A time is wrong as soon as one transfer is; the state before the first time counts as one too.
    return wrong.select(pl.col("_time").fill_null(-1)).unique().sort("_time")
