"""A primary, and a standby that keeps copies of its failover slots (PostgreSQL 17 and later).

    with cluster() as pair, pair.primary.database() as database:
        pair.join()                  a standby, from a base backup
        pair.await_slot(name, once)  it has a copy of the slot that may be used
        pair.fail_over()             kill -9 of the primary; the standby is promoted
        pair.join()                  the next standby

`door` is a port that always leads to the primary, as a floating address does. Each standby streams through
`line`, which a test may cut. The standby's physical slot has the same name on every primary, so
`synchronized_standby_slots` may stay as it is: it makes the logical stream wait for the standby.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from headrace_testing.binaries import ServerUser, tool
from headrace_testing.copies import caught_up, promote
from headrace_testing.ports import free_port
from headrace_testing.postgres import Server, Setting, configure, new_folder, postgres
from headrace_testing.postmaster import Postmaster, wait_for
from headrace_testing.proxy import Proxy

STANDBY = "standby"  # the name of the standby's slot
HOLDS: Mapping[str, Setting] = {"synchronized_standby_slots": STANDBY}
_SYNCED = """
SELECT 1 FROM pg_replication_slots
 WHERE slot_name = %s AND synced AND NOT temporary AND invalidation_reason IS NULL
"""
_SLOT = "SELECT pg_create_physical_replication_slot(%s, true)"


class Cluster:
    """The servers of one system, one of them the primary."""

    def __init__(self, stack: ExitStack, primary: Server) -> None:
        self._stack = stack
        self.primary = primary
        self.standby: Server | None = None
        self.door = stack.enter_context(Proxy(primary.host, primary.port))
        self.line = stack.enter_context(Proxy(primary.host, primary.port))
        primary.execute(_SLOT, [STANDBY])

    def join(self, *, database: str, **settings: Setting) -> Server:
        """Make a standby of the primary that keeps its slots; it becomes the next primary."""
        other = self._base_backup(database, settings)
        other.start()
        self.standby = other
        wait_for(lambda: caught_up(self.primary, other), "the standby has caught up")
        return other

    def await_slot(self, slot: str, acknowledge: Callable[[], object]) -> None:
        """Return when the standby has a copy of a slot that outlives a promotion.

        A copy is made of a place in the log that the standby has come to, so `acknowledge` must move the slot
        past what the primary writes first: which transactions are running.
        """
        standby = self.standby
        assert standby is not None

        def synced() -> bool:
            if standby.execute(_SYNCED, [slot]):
                return True
            self.primary.execute("SELECT pg_log_standby_snapshot()")
            acknowledge()
            return False

        wait_for(synced, "the standby has a copy of the slot")

    def fail_over(self, *, clean: bool = False) -> Server:
        """Shut the primary down, or kill it, and promote the standby; the old primary stays down."""
        old, new = self.primary, self.standby
        assert new is not None
        if clean:
            old.stop()
        else:
            old.crash()
        promote(new)
        new.execute(_SLOT, [STANDBY])
        for proxy in (self.door, self.line):
            proxy.lead_to(new.host, new.port)
            proxy.cut()
            proxy.heal()
        self.primary, self.standby = new, None
        return old

    def _base_backup(self, database: str, settings: Mapping[str, Setting]) -> Server:
        primary, folder = self.primary, new_folder()
        postmaster = Postmaster(primary.postmaster.binaries, folder)
        self._stack.callback(postmaster.close)
        options = ["--checkpoint=fast", "--no-sync", "--wal-method=stream", "--dbname", primary.conninfo]
        ServerUser.choose().run([tool("pg_basebackup"), "--pgdata", postmaster.data, *options], cwd=folder)
        port, line = free_port(), self.line
        wanted: dict[str, Setting] = {
            "port": port,
            "unix_socket_directories": str(folder),
            "primary_conninfo": f"host={line.host} port={line.port} user=postgres dbname={database}",
            "primary_slot_name": STANDBY,
            "hot_standby_feedback": True,
            "sync_replication_slots": True,
            "wal_receiver_status_interval": "1s",
            **settings,
        }
        configure(postmaster.data, wanted)
        (postmaster.data / "standby.signal").touch()
        ServerUser.choose().own(postmaster.data / "standby.signal")
        return Server(postmaster, port, primary.password)


@contextmanager
def cluster(version: str = "18", *, settings: Mapping[str, Setting] | None = None) -> Iterator[Cluster]:
    """A primary without a standby yet; all servers that join are gone after the block."""
    with ExitStack() as stack:
        primary = stack.enter_context(postgres(version, settings=settings))
        yield Cluster(stack, primary)
