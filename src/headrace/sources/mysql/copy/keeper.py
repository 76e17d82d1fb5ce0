"""A keeper: the thread beside a reader or a leader that keeps its sessions awake, and looks who waits for it.

A view holds up the server's purge for as long as it stands, and a machine that vanished says no goodbye. So
the server ends a session of ours that says nothing for `KEPT_SECONDS`, or does not take its rows for
`UNREAD_SECONDS`, and the keeper pings each that nobody asks just now.

Somebody may wait for a table that is being read: DDL, or `FLUSH TABLES WITH READ LOCK` for its last row; and
all writers wait behind these. A reader that two looks in a row find in somebody's way gives way: the keeper
ends its session, and the table is copied again later. Whose statements wait for what is shown to those who
have the privilege PROCESS; without it nobody is seen. Which of them waits for us and not for another no
server tells: whoever names our table counts, and whoever waits for a flush.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.sources.mysql.session.statements import MysqlConnection, ping, query

KEPT_SECONDS = 60  # of silence, until the server ends a session
UNREAD_SECONDS = 20  # until it ends one that takes nothing of an answer
PING_SECONDS = 10.0
LOOK_SECONDS = 1.0
_WAITING = """
SELECT id, state, info FROM information_schema.processlist
 WHERE state IN ('Waiting for table flush', 'Waiting for table metadata lock') AND id <> CONNECTION_ID()
"""
_FLUSH = "Waiting for table flush"


class Keeper:
    """A thread that keeps sessions awake, and calls `look` meanwhile; begun by the first `start`."""

    def __init__(
        self, sessions: Callable[[], Iterable[MysqlConnection | None]], look: Callable[[], None]
    ) -> None:
        self._sessions = sessions
        self._look = look
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep, name="headrace-keeper", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End before the sessions are closed: a session that is being pinged is waited for."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(KEPT_SECONDS)

    def _keep(self) -> None:
        pinged = time.monotonic()
        while not self._over.wait(LOOK_SECONDS):
            # Whoever owns the session meets what is wrong with it.
            with suppress(HeadraceError):
                self._look()
            if time.monotonic() < pinged + PING_SECONDS:
                continue
            pinged = time.monotonic()
            for session in self._sessions():
                if session is not None and not self._over.is_set():
                    with suppress(HeadraceError):
                        ping(session)


def nothing() -> None:
    """Nobody waits for a session that holds no table."""


def waiting_for(witness: MysqlConnection, tables: Iterable[TableName]) -> frozenset[int]:
    """The connections whose statements wait for one of these tables, as far as we may see them."""
    named = re.compile("|".join(rf"(?<!\w){re.escape(each.name)}(?!\w)" for each in tables), re.IGNORECASE)
    return frozenset(
        int(str(connection))
        for connection, state, statement in query(witness, _WAITING)
        if state == _FLUSH or named.search(str(statement))
    )
