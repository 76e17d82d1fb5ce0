"""The check of a batch for changes that a direct stream cannot say: it ends at the transaction before.

    a table is emptied that may have rows        which ones it had, only a lake knows
    a layout after which old rows come in part   a row that goes could not be told from others

Other layouts don't end it: their first `_time` is logged, and rows have the new columns from there on.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from headrace.core.errors import Definite, HeadraceError
from headrace.sources.contract.decoder import Decoder
from headrace.sources.contract.values import TableDef
from headrace.spark.source.direct.cutting import pieces
from headrace.spark.source.direct.rows import as_text
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

    def first(self, transactions: Records) -> tuple[int, HeadraceError | None]:
        """Count the transactions before the first that cannot be said, and say why it can't."""
        if not len(transactions):
            return 0, None
        count, refusal = self._under_fit_layouts(transactions)
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


def _truncated_error(table: TableDef, at: int) -> Definite:
    return Definite(
        "DIRECT_TABLE_TRUNCATED",
        f"{table.name} was truncated, and which rows it had then is not known here",
        detail=f"in the transaction of _time {at}; all before it was offered",
        hint="begin anew with a new state and a new checkpoint; a mirror in a lake takes TRUNCATE: "
        'headrace run, then .option("lake", PATH).option("as", "changes")',
    )
