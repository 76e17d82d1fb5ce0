"""The copies that are under way: one at the beginning, and one more for each lot of tables that come later.

    begin    a lot of tables, under a snapshot of its own: nobody waits for a copy that takes hours
    events   what they brought, for the loop of `lifecycle`
    forget   a table left: its copy is given up, and what else that one held is begun again

They share what the source gives us: no more than `snapshot_connections` ranges are read at once, whichever
copy they are of. They also share the account of how far each table is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from headrace.core.errors import Transient
from headrace.core.names import TableName
from headrace.pipeline.copies import Event, Progress, Room
from headrace.pipeline.copying import Copying


class Underway:
    """The copies of one attempt; for its loop alone."""

    def __init__(self, connections: int) -> None:
        self.room = Room(connections)
        self._copies: list[Copying] = []
        self._given_up: list[Copying] = []

    def begin(self, copying: Copying) -> None:
        self._copies.append(copying)
        copying.start()

    @property
    def names(self) -> frozenset[TableName]:
        """The tables of copies that have not ended."""
        self._copies = [copying for copying in self._copies if not copying.over]
        return frozenset(name for copying in self._copies for name in copying.names)

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return all(copying.over for copying in self._copies)

    @property
    def progress(self) -> Mapping[TableName, Progress]:
        return self.room.progress

    @property
    def waits_for(self) -> Transient | None:
        """What keeps a copy from its snapshot."""
        waiting = (copying.site.waits_for for copying in self._copies)
        return next((each for each in waiting if each is not None), None)

    def events(self) -> Iterator[Event]:
        """What has come; a caller that raises in between loses nothing that another attempt needs."""
        for copying in self._copies:
            while not copying.site.finished.empty():
                yield copying.site.finished.get()

    def forget(self, names: Collection[TableName]) -> None:
        """Give up the copies of these tables; nothing of them comes any more."""
        concerned = [copying for copying in self._copies if not copying.names.isdisjoint(names)]
        for copying in concerned:
            copying.site.stopping.set()
        self._given_up += concerned
        self._copies = [copying for copying in self._copies if copying not in concerned]
        for name in names:
            self.room.progress.pop(name, None)

    def stop(self) -> None:
        """Give up what is under way; tables that are not complete are copied again by the next attempt."""
        for copying in self._copies + self._given_up:
            copying.stop()
