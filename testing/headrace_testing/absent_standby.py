"""A server whose commits hang: they wait for a standby that does not exist.

The setting counts for a session once another process of the server, the checkpointer, has read it too; a
commit before that waits for nobody. So one of our own is tried until it hangs, and is let go of.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from headrace_testing.postgres import Server
from headrace_testing.postmaster import wait_for

_HANGING = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
_AT_MOST = 0.2  # until it is looked whether a commit hangs


@contextmanager
def absent_standby(server: Server) -> Iterator[None]:
    """Within the block every commit hangs whose session has `synchronous_commit = on`."""
    server.set(synchronous_standby_names="nobody")
    try:
        wait_for(lambda: _one_hangs(server), "a server that waits for its standby")
        yield
    finally:
        server.set(synchronous_standby_names=None)


def hanging(server: Server) -> int:
    """The number of commits that hang."""
    return len(server.execute(_HANGING))


def _one_hangs(server: Server) -> bool:
    """Tell whether a commit of ours hangs; it is ended."""
    with server.connect() as connection:
        connection.execute("SET synchronous_commit = on")
        probe = "SELECT pg_logical_emit_message(true, 'probe', '')"
        thread = threading.Thread(target=connection.execute, args=(probe,))
        thread.start()
        thread.join(_AT_MOST)
        hangs = False
        while thread.is_alive():
            hangs = hangs or bool(server.execute(_HANGING))
            server.execute(
                f"SELECT pg_cancel_backend(pid) FROM ({_HANGING}) h WHERE pid = %s",
                [connection.info.backend_pid],
            )
            thread.join(_AT_MOST)
        return hangs
