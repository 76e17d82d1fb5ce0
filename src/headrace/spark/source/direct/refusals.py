"""The check of a batch for changes that a direct stream cannot say: it ends at the transaction before.

    a table is emptied that may have rows        which ones it had, only a lake knows
    a layout after which old rows come in part   a row that goes could not be told from others
    typed: a value that its type cannot hold     the row would lose it
    typed: another definition of the table       its columns are those of the query

Raw rows go on under other layouts: the first `_time` is logged from which on they have the new columns.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from headrace.core.errors import Definite, HeadraceError, PositionDoubtful, PositionLost
from headrace.core.names import quote_identifier
from headrace.sources.contract.decoder import Decoder, TableFailure
from headrace.sources.contract.values import Change, TableDef
from headrace.spark.source.direct.cutting import pieces
from headrace.spark.source.direct.rows import as_text, filter_of
from headrace.spool.layout import Records
from headrace.spool.reader import SpoolReader

BEGIN_ANEW = "begin anew with a new state and a new checkpoint"

_log = logging.getLogger("headrace")
_RECONCILE = re.compile(
    "(headrace run goes on there if [^;]*; if it stops with this: )?"
    "headrace run --reconcile( copies its tables anew and writes the difference)?"
)


@dataclass(frozen=True, slots=True)
class BatchCheck:
    """The search for what cannot be said, in transactions of the spool."""

    spool: SpoolReader
    decoder: Decoder
    tables: Mapping[int, TableDef]  # by number
    filled_tables: Collection[int]  # that may have had rows before these transactions
    is_typed: bool = False

    def first(self, transactions: Records) -> tuple[int, HeadraceError | None]:
        """Count the transactions before the first that cannot be said, and say why it can't."""
        if not len(transactions):
            return 0, None
        fit = self._with_fit_rows if self.is_typed else self._under_fit_layouts
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


@contextmanager
def speaking_of_states() -> Iterator[None]:
    """Let a source's hints say how a direct stream begins anew: it has no lake to reconcile."""
    try:
        yield
    except (PositionLost, PositionDoubtful) as error:
        hint = _RECONCILE.sub(BEGIN_ANEW, error.hint)
        raise type(error)(error.code, error.primary, detail=error.detail, hint=hint) from error


def gone_error(table: TableDef) -> Definite:
    """The error of a table that was dropped."""
    return Definite(
        "DIRECT_TABLE_GONE",
        f"{table.name} was dropped: nothing in the stream takes its rows away",
        hint=f"{BEGIN_ANEW}, without the table",
    )


def uncaptured_error(table: TableDef, change: Change) -> Definite:
    """The error of a raw stream that may lack changes of a table."""
    return Definite(
        "DIRECT_TABLE_UNCAPTURED",
        f"{table.name} was not captured for a while, so the stream may lack changes of it",
        detail=change.what,
        hint=BEGIN_ANEW if change.mend is None else f"{change.mend}; then {BEGIN_ANEW}",
    )


def unfollowed_error(table: TableDef) -> Definite:
    """The error of a table whose rows may come and go without a word in the stream."""
    return Definite(
        "DIRECT_TABLE_PARTITIONED",
        f"{table.name} may lose rows that the stream does not name: only a lake follows partitions",
        hint=f"{BEGIN_ANEW}, with its partitions instead of it; or mirror it into a lake: "
        'headrace run, then .option("lake", PATH).option("as", "changes")',
    )


def altered_error(table: TableDef, what: str) -> Definite:
    """The error of a typed stream whose table is another one by now."""
    return Definite(
        "DIRECT_TABLE_ALTERED",
        f"{table.name} was altered since its stream began, and the query has the columns from before",
        detail=what,
        hint=f"{BEGIN_ANEW}; a mirror in a lake follows DDL: "
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
        hint=f"{BEGIN_ANEW}; a mirror in a lake takes TRUNCATE: "
        'headrace run, then .option("lake", PATH).option("as", "changes")',
    )
