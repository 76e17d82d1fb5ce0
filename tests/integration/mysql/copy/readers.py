"""Readers of a snapshot in processes of their own, as tasks are.

`Reader(url, identity, ticket)` begins one; `state()` waits for what it has to say: the rows of its question
as its view shows them, or the code of what kept it from that.
"""

from __future__ import annotations

import multiprocessing as mp
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

from headrace.core.errors import HeadraceError
from headrace.core.records import to_record
from headrace.sources.mysql.copy.follower import MysqlFollower
from headrace.sources.mysql.copy.ticket import Ticket
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.identity import MysqlIdentity
from headrace.sources.mysql.session.statements import query

SECONDS = 60.0
# Forked from a process that is ready and holds no socket of ours: a leader's has to end with the leader.
_PROCESSES = mp.get_context("forkserver")
_PROCESSES.set_forkserver_preload([__name__])


class Reader:
    """One reader's process; killed when the block ends."""

    def __init__(self, url: str, identity: MysqlIdentity, ticket: Ticket, question: str) -> None:
        self._said, said = _PROCESSES.Pipe(duplex=False)
        arguments = (said, url, identity, to_record(ticket), question)
        self.process = _PROCESSES.Process(target=_read, args=arguments, daemon=True)
        self.process.start()
        said.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.join()

    def state(self) -> Any:
        """The rows that it saw, or a code."""
        assert self._said.poll(SECONDS), "the reader says nothing"
        return self._said.recv()


def _read(said: Connection, url: str, identity: MysqlIdentity, ticket: dict[str, Any], question: str) -> None:
    with MysqlFollower(MysqlAddress.parse(url), identity, Ticket.of(ticket), role="copy") as follower:
        try:
            said.send(query(follower.join(), question))
        except HeadraceError as error:
            said.send(error.code)
