"""A process that owns a source for some epochs; a test ends it at a fail point.

    python -m tests.integration.lake.owner <lake> <epochs>

Prints `acknowledged <frontier>` after each epoch, once everything is durable.
"""

from __future__ import annotations

import sys

from headrace.core.position import Position
from headrace.lake.format.plan import Plan
from headrace.lake.log.commit import EpochLog, UnfinishablePlan
from headrace.lake.log.marks import Mark
from headrace.lake.store.open import open_store
from tests.integration.lake.real import Real
from tests.laws.lake.writers import SOURCE, Writer


class Owner(Writer):
    """The protocol's writer, without a schedule."""

    def work(self) -> None:
        files, marks, table = self.bench.open()
        self._open_table = table
        self.new_id = iter(f"{id(self)}-{number}" for number in range(10**6)).__next__
        self.stopped = set()
        self.log = EpochLog(SOURCE, files, marks, table)
        mark = self.log.takeover(origin=Position(0, "0")).mark
        for _ in range(self.epochs):
            mark = self._acknowledged(self._plan(mark))

    def _acknowledged(self, plan: Plan) -> Mark:
        self.log.put_plan(plan)
        mark = self.log.finish(plan)
        if isinstance(mark, UnfinishablePlan):
            mark = self.log.withdraw(mark)
        self.log.syncing.sync(plan)
        print(f"acknowledged {mark.frontier}", flush=True)  # noqa: T201 - read by the test
        return mark


if __name__ == "__main__":
    Owner(Real(open_store(sys.argv[1])), int(sys.argv[2]), []).work()
