"""The sums that a run reports: marks, transactions, changes, errors, durations; they go on over restarts.

    status of the run before   totals up to epoch E  ─┐
    marks after E              read once             ─┴─► up to the newest mark ──► each mark adds itself

The status file is no durable record. Where it is gone, or tells of an epoch that a power cut took back, the
sums are those of the marks that are kept; errors and durations then begin anew. A counter may do that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from time import monotonic

import pyarrow as pa
import pyarrow.compute as pc

from headrace.lake.format.plan import Plan
from headrace.lake.format.status import BOUNDS, SourceStatus, StepStatus, TotalsStatus
from headrace.lake.log.marks import MarkIndex

Problem = tuple[str, str]  # where: the source itself, a warning, a table; and the code


class Totals:
    """The sums of one source; its status is replaced as a whole, so any thread may read it.

    The loop's thread adds marks and durations, the reporter's adds errors.
    """

    def __init__(self) -> None:
        self.status = TotalsStatus()
        self._lock = Lock()
        self._problems: frozenset[Problem] = frozenset()

    def resume(self, before: SourceStatus) -> None:
        """Go on from the last status of the run before."""
        if before.totals is not None:
            self.status = before.totals
            self._problems = frozenset(_problems(before))

    def catch_up(self, marks: MarkIndex) -> None:
        """Add the marks that the status before does not count; they were published and not reported."""
        newest = marks[-1].epoch if marks else 0
        if newest < self.status.epoch:
            self.status = TotalsStatus()
        for number, block in enumerate(marks.blocks):
            if block.last > self.status.epoch:
                rows = marks.rows(number)
                self._add_rows(rows.filter(pc.greater(rows["epoch"], self.status.epoch)))

    def on_published(self, plan: Plan) -> None:
        """Count an epoch that got its mark."""
        with self._lock:
            self.status = replace(
                self.status,
                epoch=plan.epoch,
                transactions=self.status.transactions + plan.transactions,
                changes=self.status.changes + plan.changes,
                marks=_plus(self.status.marks, {plan.kind: 1}),
            )

    def on_report(self, status: SourceStatus) -> None:
        """Count the errors and warnings that are new; one that lasts is counted once."""
        now = frozenset(_problems(status))
        new = Counter(code for _, code in now - self._problems)
        self._problems = now
        if new:
            with self._lock:
                self.status = replace(self.status, errors=_plus(self.status.errors, new))

    @contextmanager
    def timing(self, step: str) -> Iterator[None]:
        """Measure a step of an epoch; one that raises is not counted."""
        begun = monotonic()
        yield
        self.took(step, monotonic() - begun)

    def took(self, step: str, seconds: float) -> None:
        """Count a step of an epoch."""
        with self._lock:
            before = self.status.steps.get(step, StepStatus())
            fits = len(before.counts) == len(BOUNDS) + 1
            counts = list(before.counts) if fits else [0] * (len(BOUNDS) + 1)
            counts[bisect_left(BOUNDS, seconds)] += 1
            taken = StepStatus(tuple(counts), round(before.seconds + seconds, 6))
            self.status = replace(self.status, steps={**self.status.steps, step: taken})

    def _add_rows(self, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        kinds = {each["values"]: each["counts"] for each in pc.value_counts(rows["kind"]).to_pylist()}
        with self._lock:
            self.status = replace(
                self.status,
                epoch=pc.max(rows["epoch"]).as_py(),
                transactions=self.status.transactions + pc.sum(rows["transactions"]).as_py(),
                changes=self.status.changes + pc.sum(rows["changes"]).as_py(),
                marks=_plus(self.status.marks, kinds),
            )


def _plus(sums: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return dict(Counter(sums) + Counter(more))


def _problems(said: SourceStatus) -> Iterable[Problem]:
    if said.error is not None:
        yield "", str(said.error.get("code"))
    for code in said.warnings:
        yield "warning", code
    for name, table in (said.tables or {}).items():
        if table.error is not None:
            yield name, str(table.error.get("code"))
