"""Looks at the tables of a direct stream, for what its bytes do not show.

A table that was dropped sends nothing more, so the catalog has to tell. **Rows of a typed stream need a
proof:** some statements rewrite a table and show nowhere in the stream. So a look comes between the moment
when transactions were received and the moment when they are offered:

    look          look              DDL              look
     │ t1  t2  t3  │ t4  t5  t6  ... ┆ ... t7 ...     │     t1 to t3 are offered by the second look
                     └── the stream shows the DDL, or the catalog proves that only columns came or went:
                         offered up to it. Otherwise the stream ends behind t3
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.sources.contract.decoder import Decoder
from headrace.sources.contract.mirror import Mirror
from headrace.sources.contract.values import Change, StatementLog, TableDef
from headrace.spark.source.direct.refusals import altered_error, gone_error
from headrace.spool.layout import Records

LOOK_AGAIN_SECONDS = 0.5  # while another session holds the table
NEW_TABLES_SECONDS = 10.0

_log = logging.getLogger("headrace")


class TableWatch(Protocol):
    """The looks at the tables of a stream."""

    @property
    def is_due(self) -> bool:
        """Tell whether a look may show what the last one did not."""

    def look(self) -> None:
        """Look at the tables now; raises for one that is gone."""

    def fit(
        self, transactions: Records, count: int, refusal: HeadraceError | None
    ) -> tuple[int, HeadraceError | None]:
        """Leave out the transactions whose rows are not proven; the rest comes with its reason or None."""

    def require_unaltered(self, received_until: int) -> None:
        """Raise what altered a table, once all that came before it was offered."""


class RawTableWatch:
    """The looks at the tables of a raw stream: their columns may change, and none may be dropped."""

    is_due = True

    def __init__(self, mirror: Callable[[], Mirror], tables: Sequence[TableDef], patterns: Sequence[str]):
        self._mirror, self._patterns = mirror, patterns
        self._records: Mapping[str, TableDef] = {str(table.number): table for table in tables}
        self._known: set[TableName] = {table.name for table in tables}
        self._next_names = 0.0

    def look(self) -> None:
        for key, change in self._mirror().check(self._records).changes.items():
            if change.now is None:
                raise gone_error(self._records[key])
        if (now := time.monotonic()) >= self._next_names:
            self._next_names = now + NEW_TABLES_SECONDS
            self._name_new_tables()

    def _name_new_tables(self) -> None:
        for name in self._mirror().find_unmirrored(self._patterns, self._known):
            self._known.add(name)
            _log.warning("%s came later and is not in this stream: begin anew to have it", name)

    def fit(
        self, transactions: Records, count: int, refusal: HeadraceError | None
    ) -> tuple[int, HeadraceError | None]:
        return count, refusal

    def require_unaltered(self, received_until: int) -> None:
        """Nothing: rows go on under other columns."""


class TypedTableWatch:
    """The looks at the table of a typed stream; they prove its rows up to a time."""

    def __init__(self, mirror: Callable[[], Mirror], table: TableDef, decoder: Decoder) -> None:
        self._mirror, self._table = mirror, table
        self._has_statements = decoder.statements is not None
        self._proven_until = 0
        self._altered: HeadraceError | None = None
        self._ends_at = 0  # what is altered ends the stream here at the latest
        self._is_locked = False  # a session may be altering the table: the stream waits
        self._next_look = 0.0

    @property
    def is_due(self) -> bool:
        return not self._is_locked or time.monotonic() >= self._next_look

    def look(self) -> None:
        self._next_look = time.monotonic() + LOOK_AGAIN_SECONDS
        log = StatementLog(_NOWHERE, _NOWHERE) if self._has_statements else None
        check = self._mirror().check({"table": self._table}, log)
        change, end = check.changes.get("table"), check.end.time
        self._is_locked = "table" in check.locked_tables
        if change is None:
            self._altered = None
        elif self._altered is None:
            self._altered, self._ends_at = self._error(change), end
        if change is not None and change.told_by is not None:
            self._proven_until = self._ends_at  # the stream has the statement before that
        elif not self._is_locked and (change is None or change.derivation is not None):
            self._proven_until = end

    def fit(
        self, transactions: Records, count: int, refusal: HeadraceError | None
    ) -> tuple[int, HeadraceError | None]:
        if count and int(transactions["time"][count - 1]) >= self._proven_until:
            self.look()
        proven = int(np.searchsorted(transactions["time"][:count], self._proven_until))
        return (count, refusal) if proven == count else (proven, self._altered)

    def require_unaltered(self, received_until: int) -> None:
        if self._altered is not None and received_until >= self._ends_at:
            raise self._altered

    def _error(self, change: Change) -> HeadraceError:
        if change.now is None:
            return gone_error(self._table)
        return altered_error(self._table, change.what)


_NOWHERE = Position(0, "")
