"""A second life of a test's server: a backup to go back to, and a standby to promote.

    backup = Backup.of(server)      a cold copy, taken while the server is stopped for a moment
    backup.restore()                the server is what it was then, on the same timeline

    with standby(server) as other:  a hot standby that streams from the server
        promote(other)              a primary on a timeline of its own

    demote(server)                  the server itself in recovery, behind nobody, until it is promoted
    branch_off(server)              the server itself, on another timeline

Cold copies of the whole folder, since that is what neither needs a tool nor a privilege.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headrace_testing.binaries import ServerUser
from headrace_testing.ports import free_port
from headrace_testing.postgres import Server, Setting, configure, new_folder
from headrace_testing.postmaster import Postmaster, wait_for


@dataclass(frozen=True, slots=True)
class Backup:
    """A copy of a server as it was at a moment."""

    server: Server
    folder: Path

    @classmethod
    def of(cls, server: Server) -> Backup:
        folder = server.postmaster.folder / "backup"
        shutil.rmtree(folder, ignore_errors=True)  # of a test before
        server.stop()
        _copy(server.postmaster.data, folder)
        server.start()
        return cls(server, folder)

    def restore(self) -> None:
        """Go back; the server runs afterwards."""
        self.server.stop("immediate")
        shutil.rmtree(self.server.postmaster.data)
        _copy(self.folder, self.server.postmaster.data)
        self.server.start()


@contextmanager
def standby(primary: Server, *, database: str = "postgres", **settings: Setting) -> Iterator[Server]:
    """A standby that has caught up; `database` is where it looks after slots that it keeps a copy of."""
    folder = new_folder()
    postmaster = Postmaster(primary.postmaster.binaries, folder)
    try:
        primary.stop()
        _copy(primary.postmaster.data, postmaster.data)
        primary.start()
        port = free_port()
        wanted: dict[str, Setting] = {
            "port": port,
            "unix_socket_directories": str(folder),
            "primary_conninfo": f"host={primary.host} port={primary.port} user=postgres dbname={database}",
            "hot_standby_feedback": True,
            **settings,
        }
        configure(postmaster.data, wanted)
        _signal(postmaster.data, "standby.signal")
        other = Server(postmaster, port, primary.password)
        other.start()
        wait_for(lambda: caught_up(primary, other), "the standby has caught up")
        yield other
    finally:
        postmaster.close()


def caught_up(primary: Server, other: Server) -> bool:
    """Tell whether the standby has replayed all that the primary has written."""
    [(written,)] = primary.execute("SELECT pg_current_wal_lsn()::text")
    [(there,)] = other.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", [written])
    return bool(there)


def promote(other: Server) -> None:
    """Make a primary of a standby."""
    other.execute("SELECT pg_promote()")
    wait_for(lambda: other.execute("SELECT pg_is_in_recovery()") == [(False,)], "the standby is promoted")


def demote(server: Server) -> None:
    """Make a standby of a primary, of nobody: it lists no transactions that run, and can be promoted."""
    server.stop()
    _signal(server.postmaster.data, "standby.signal")
    server.start()


def branch_off(server: Server) -> None:
    """Recover from an archive that is empty: that ends as a promotion does."""
    server.set(restore_command="/bin/false")
    server.stop()
    _signal(server.postmaster.data, "recovery.signal")
    server.start()
    wait_for(lambda: server.execute("SELECT pg_is_in_recovery()") == [(False,)], "recovery ends")


def _signal(data: Path, name: str) -> None:
    (data / name).touch()
    ServerUser.choose().own(data / name)


def _copy(data: Path, folder: Path) -> None:
    shutil.copytree(data, folder, symlinks=True, ignore=shutil.ignore_patterns("postmaster.pid"))
    for path in (folder, *folder.rglob("*")):
        ServerUser.choose().own(path)
    folder.chmod(0o700)
