"""A table stops with an error, and the others go on: the epoch that says so.

    stop_tables    tables, where the newest mark stands
    stop_copies    new copies that can't be finished, where the stream has come to; their tables stay

Made by the `loop` and by whoever works for it between two epochs of the stream; an epoch that finds a table
at fault while it is made says so in the record that it brings anyway (`TableRecord.failed`).
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.pipeline.state.epoch import Epoch
from headrace.pipeline.state.ledger import Ledger

Failures = Mapping[TableName, HeadraceError]


def stop_tables(ledger: Ledger, failures: Failures) -> Epoch:
    """Tables stop where the newest mark stands."""
    records = [ledger.tables[name].failed(error, ledger.frontier) for name, error in failures.items()]
    return Epoch("stop", ledger.frontier, records=tuple(records))


def stop_copies(ledger: Ledger, failures: Failures) -> Epoch:
    """New copies of tables stop."""
    records = [ledger.staged[name].failed(error, ledger.position) for name, error in failures.items()]
    return Epoch("stop", ledger.frontier, records=tuple(records))
