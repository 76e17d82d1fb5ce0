"""Looks at the tables of a direct stream, for what its bytes do not show.

A table that was dropped, or taken out of the publication, sends nothing more, so the catalog has to tell.
**Rows need a proof:** some statements rewrite a table, or leave changes out, and show nowhere in the stream.
So a look comes between the moment when transactions were received and the moment when they are offered:

    look          look              DDL              look
     │ t1  t2  t3  │ t4  t5  t6  ... ┆ ... t7 ...     │     t1 to t3 are offered by the second look
                     └── the stream shows the DDL, or the catalog proves that only columns came or went:
                         offered up to it. Otherwise the stream ends behind t3

What ends a raw stream is a break in the capture: its rows go on under other columns.

The looks also keep our capture from hurting others: a table whose UPDATE and DELETE the server refuses
because of it is released, which ends the stream.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.sources.contract.decoder import Decoder
from headrace.sources.contract.mirror import Mirror
from headrace.sources.contract.values import Change, SchemaCheck, StatementLog, TableDef
from headrace.spark.source.direct.refusals import (
    altered_error,
    gone_error,
    uncaptured_error,
    unfollowed_error,
)
from headrace.spool.layout import Records

LOOK_AGAIN_SECONDS = 0.5  # while another session holds a table
NEW_TABLES_SECONDS = 10.0
WAIT_LOG_SECONDS = 30.0  # between two lines of the log about a wait for another session

_NOWHERE = Position(0, "")
_log = logging.getLogger("headrace")


class TableWatch:
    """The looks at the tables of a stream; they prove its rows up to a time.

    `patterns` of a raw stream name its tables; a typed stream has none.
    """

    def __init__(
        self,
        mirror: Callable[[], Mirror],
        tables: Sequence[TableDef],
        decoder: Decoder,
        patterns: Sequence[str] | None,
    ) -> None:
        self._mirror, self._patterns = mirror, patterns
        self._records: Mapping[str, TableDef] = {str(table.number): table for table in tables}
        self._known: set[TableName] = {table.name for table in tables}
        self._has_statements = decoder.statements is not None
        self._proven_until = 0
        self._altered: HeadraceError | None = None
        self._ends_at = 0  # what is altered ends the stream here at the latest
        self._locked_since: float | None = None  # a session may be altering a table: the stream waits
        self._next_look = self._next_names = 0.0

    @property
    def is_due(self) -> bool:
        """Tell whether a look may show what the last one did not."""
        return self._locked_since is None or time.monotonic() >= self._next_look

    def look(self) -> None:
        """Look at the tables, and at what comes now and then."""
        self._release_unwritable()
        self._check()
        now = time.monotonic()
        if self._patterns is not None and now >= self._next_names:
            self._next_names = now + NEW_TABLES_SECONDS
            self._name_new_tables(self._patterns)

    def fit(
        self, transactions: Records, count: int, refusal: HeadraceError | None
    ) -> tuple[int, HeadraceError | None]:
        """Leave out the transactions whose rows are not proven; the rest comes with its reason or None."""
        if count and int(transactions["time"][count - 1]) >= self._proven_until:
            self._check()
        proven = int(np.searchsorted(transactions["time"][:count], self._proven_until))
        return (count, refusal) if proven == count else (proven, self._altered)

    def require_unaltered(self, received_until: int | None = None) -> None:
        """Raise what altered the tables, once all that came before it was offered; None: all was."""
        if self._altered is not None and (received_until is None or received_until >= self._ends_at):
            raise self._altered

    def _check(self) -> None:
        """Find how far rows are proven, and what ends the stream there."""
        self._next_look = time.monotonic() + LOOK_AGAIN_SECONDS
        log = StatementLog(_NOWHERE, _NOWHERE) if self._has_statements else None
        check = self._mirror().check(self._records, log)
        self._note_locks(check)
        ending, end = self._ending(check), check.end.time
        if ending is None:
            self._altered = None
        elif self._altered is None:
            self._altered, self._ends_at = ending[0], end
        change = None if ending is None else ending[1]
        if change is not None and change.told_by is not None:
            self._proven_until = self._ends_at  # the stream has the statement before that
        elif self._locked_since is None and (
            ending is None or (change is not None and change.derivation is not None)
        ):
            self._proven_until = end

    def _ending(self, check: SchemaCheck) -> tuple[HeadraceError, Change | None] | None:
        """Find what ends the stream: its error, and the table's change that may prove rows up to it."""
        if check.upstream_error is not None:
            return check.upstream_error, None
        for key in check.unproven:  # a state from before such tables were refused
            return unfollowed_error(self._records[key]), None
        for key, change in check.changes.items():
            table = self._records[key]
            if change.now is None:
                return gone_error(table), change
            if self._patterns is None:
                return altered_error(table, change.what), change
            if not change.capture_unbroken:
                return uncaptured_error(table, change), None
        return None

    def _note_locks(self, check: SchemaCheck) -> None:
        if not check.locked_tables:
            self._locked_since = None
            return
        now = time.monotonic()
        begun = self._locked_since or now
        self._locked_since = begun
        if begun < now - WAIT_LOG_SECONDS:
            self._locked_since = now
            reasons = {**check.busy, **check.denials}
            for key in sorted(check.locked_tables):
                reason = f": {reasons[key].primary}" if key in reasons else ""
                _log.warning("the stream waits for %s%s", self._records[key].name, reason)

    def _release_unwritable(self) -> None:
        """Release the tables whose writes fail because we capture them."""
        captures = self._mirror().captures
        if captures is None or captures.unwritable is None:
            return
        flawed = captures.unwritable() & {table.number for table in self._records.values()}
        if flawed:
            captures.release_now(flawed)

    def _name_new_tables(self, patterns: Sequence[str]) -> None:
        for name in self._mirror().find_unmirrored(patterns, self._known):
            self._known.add(name)
            _log.warning("%s came later and is not in this stream: begin anew to have it", name)
