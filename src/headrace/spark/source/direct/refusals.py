"""The check of a batch for changes that a direct stream cannot say: it ends at the transaction before.

    a table is emptied that may have rows        which ones it had, only a lake knows
    a layout after which old rows come in part   a row that goes could not be told from others
    typed: a value that its type cannot hold     the row would lose it
    typed: another definition of the table       its columns are those of the query

Raw rows go on under other layouts: the first `_time` is logged from which on they have the new columns.

**Rows of a typed stream need a proof.** Some statements rewrite a table and show nowhere in the stream. So a
look at the table comes after its transactions were received and before they are offered (`TypedTableWatch`):

    look          look              DDL              look
     │ t1  t2  t3  │ t4  t5  t6  ... ┆ ... t7 ...     │     t1 to t3 are offered by the second look
                     └── the stream shows the DDL, or the catalog proves that only columns came or went:
                         offered up to it. Otherwise the stream ends behind t3
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

from headrace.core.errors import Definite, HeadraceError
from headrace.core.names import quote_identifier
from headrace.core.position import Position
from headrace.sources.contract.decoder import Decoder, TableFailure
from headrace.sources.contract.mirror import Mirror
from headrace.sources.contract.values import Change, StatementLog, TableDef
from headrace.spark.source.direct.cutting import pieces
from headrace.spark.source.direct.rows import as_text, filter_of
from headrace.spool.layout import Records
from headrace.spool.reader import SpoolReader

_log = logging.getLogger("headrace")


@dataclass(frozen=True, slots=True)
class BatchCheck:
    """The search for what cannot be said, in transactions of the spool."""

    spool: SpoolReader
    decoder: Decoder
    tables: Mapping[int, TableDef]  # by number
    filled_tables: Collection[int]  # that may have had rows before these transactions
    typed: bool = False

    def first(self, transactions: Records) -> tuple[int, HeadraceError | None]:
        """Count the transactions before the first that cannot be said, and say why it can't."""
        if not len(transactions):
            return 0, None
        fit = self._with_fit_rows if self.typed else self._under_fit_layouts
        count, refusal = fit(transactions)
        emptying = np.flatnonzero(transactions["truncates"][:count])
        if not len(emptying):
            return count, refusal
        if emptying[0] > 0:
            return int(emptying[0]), None  # looked at when all before it is offered
        error = self._truncation(transactions[:1])
        return (0, error) if error is not None else (1, None)

    def _under_fit_layouts(self, chosen: Records) -> tuple[int, HeadraceError | None]:
        start, stop = int(chosen["start"][0]), int(chosen["stop"][-1])
        names = {number: table.name for number, table in self.tables.items()}
        known: list[bytes] = []
        for address in [start, *self.spool.description_addresses(start, stop).tolist()]:
            layouts = self.spool.layouts_before(address)
            flaws = as_text(self.decoder.as_text).flaws(layouts, names)
            concerned = int(np.searchsorted(chosen["stop"], address, side="right"))
            if flaws:
                return concerned, next(iter(flaws.values()))
            if len(layouts) == len(known) and layouts != known and concerned < len(chosen):
                moment = int(chosen["time"][concerned])
                _log.warning("a table's columns changed: its rows have others from _time %d on", moment)
            known = layouts
        return len(chosen), None

    def _with_fit_rows(self, transactions: Records) -> tuple[int, HeadraceError | None]:
        """Decode the rows of a typed stream; find the first transaction that its columns cannot say."""
        if self._misfit(transactions) is None:
            return len(transactions), None
        fit, unfit = 0, len(transactions)  # the first `fit` are; one of the others up to `unfit` is not
        while unfit - fit > 1:
            middle = (fit + unfit) // 2
            fit, unfit = (middle, unfit) if self._misfit(transactions[fit:middle]) is None else (fit, middle)
        return fit, self._misfit(transactions[fit:unfit])

    def _misfit(self, transactions: Records) -> HeadraceError | None:
        [table] = self.tables.values()
        for piece in pieces(self.spool, self.decoder, transactions):
            for found in self.decoder.decode(piece.data, piece.context, filter_of(table)):
                if isinstance(found, TableFailure):
                    return _misread_error(table, found.failure)
                if found.bad.num_rows:
                    return unfit_error(table, found.bad["column"][0].as_py(), found.bad["_time"][0].as_py())
        return None

    def _truncation(self, transaction: Records) -> HeadraceError | None:
        """The error of a transaction that empties a table which may have rows."""
        counts: dict[int, int] = {}
        wanted = dict.fromkeys(self.tables, 0)
        for piece in pieces(self.spool, self.decoder, transaction):
            found = self.decoder.truncations(piece.data, piece.context, wanted)
            for table, truncations in found.items():
                for each in truncations:
                    seen = counts.get(table, 0)
                    if table in self.filled_tables or each.ordinal != seen:
                        return _truncated_error(self.tables[table], each.time)
                    counts[table] = seen + 1
        return None


LOOK_AGAIN_SECONDS = 0.5  # while another session holds the table


class TypedTableWatch:
    """The looks at the table of a typed stream; they prove its rows up to a time."""

    def __init__(self, mirror: Callable[[], Mirror], table: TableDef, decoder: Decoder) -> None:
        self._mirror, self._table = mirror, table
        self._has_statements = decoder.statements is not None
        self._proven_until = 0
        self._altered: HeadraceError | None = None
        self._ends_at = 0  # what is altered ends the stream here at the latest
        self._next_look = 0.0
        self.is_locked = False  # a session may be altering the table: the stream waits

    def fit(
        self, chosen: Records, count: int, refusal: HeadraceError | None
    ) -> tuple[int, HeadraceError | None]:
        """Leave out the transactions whose rows are not proven; the rest comes with its reason or None."""
        if count and int(chosen["time"][count - 1]) >= self._proven_until:
            self.look()
        proven = int(np.searchsorted(chosen["time"][:count], self._proven_until))
        return (count, refusal) if proven == count else (proven, self._altered)

    def require_unaltered(self, received_until: int) -> None:
        """Raise what altered the table, once all that came before it was offered."""
        if self._altered is not None and received_until >= self._ends_at:
            raise self._altered

    @property
    def is_due(self) -> bool:
        """Tell whether a look may show what the last one did not."""
        return not self.is_locked or time.monotonic() >= self._next_look

    def look(self) -> None:
        """Look at the table now."""
        self._next_look = time.monotonic() + LOOK_AGAIN_SECONDS
        log = StatementLog(_NOWHERE, _NOWHERE) if self._has_statements else None
        check = self._mirror().check({"table": self._table}, log)
        change, end = check.changes.get("table"), check.end.time
        self.is_locked = "table" in check.locked_tables
        if change is None:
            self._altered = None
        elif self._altered is None:
            self._altered, self._ends_at = self._error(change), end
        if change is not None and change.told_by is not None:
            self._proven_until = self._ends_at  # the stream has the statement before that
        elif not self.is_locked and (change is None or change.derivation is not None):
            self._proven_until = end

    def _error(self, change: Change) -> HeadraceError:
        if change.now is None:
            return gone_error(self._table)
        return altered_error(self._table, change.what)


_NOWHERE = Position(0, "")


def gone_error(table: TableDef) -> Definite:
    """The error of a table that was dropped."""
    return Definite(
        "DIRECT_TABLE_GONE",
        f"{table.name} was dropped: nothing in the stream takes its rows away",
        hint="begin anew with a new state and a new checkpoint, without the table",
    )


def altered_error(table: TableDef, what: str) -> Definite:
    """The error of a typed stream whose table is another one by now."""
    return Definite(
        "DIRECT_TABLE_ALTERED",
        f"{table.name} was altered since its stream began, and the query has the columns from before",
        detail=what,
        hint="begin anew with a new state and a new checkpoint; a mirror in a lake follows DDL: "
        'headrace run, then .option("lake", PATH).option("as", "changes")',
    )


def _misread_error(table: TableDef, failure: HeadraceError) -> Definite:
    detail = "" if failure.detail is None else f": {failure.detail}"
    return altered_error(table, f"{failure.primary}{detail}")


def unfit_error(table: TableDef, number: int, at: int | None = None) -> Definite:
    """The error of a value that its column's type cannot hold, of a transaction or of the snapshot."""
    column = table.schema.columns[number]
    return Definite(
        "DIRECT_VALUE_UNFIT",
        f"{column.lake_type} cannot hold a value of {table.name}, column {quote_identifier(column.name)}",
        detail="in the snapshot" if at is None else f"in the transaction of _time {at}",
        hint='stream it as text: .option("tables", ...) in the place of .option("table", ...); '
        "or mirror it: a lake keeps such values beside the table",
    )


def _truncated_error(table: TableDef, at: int) -> Definite:
    return Definite(
        "DIRECT_TABLE_TRUNCATED",
        f"{table.name} was truncated, and which rows it had then is not known here",
        detail=f"in the transaction of _time {at}; all before it was offered",
        hint="begin anew with a new state and a new checkpoint; a mirror in a lake takes TRUNCATE: "
        'headrace run, then .option("lake", PATH).option("as", "changes")',
    )
