"""A copy as a thread of the driver: start it, read its events, stop it.

    Copying     tables of the source (`snapshot`)
    Rewriting   rows of the lake (`from_lake`)

Its events wait in `CopyContext.events` for the loop.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Collection

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.pipeline.copy.context import CopyBroken, CopyContext, CopyLost


class CopyThread(ABC):
    """One attempt to copy some tables; a caller starts it once."""

    reads_source = True

    def __init__(self, site: CopyContext, names: frozenset[TableName]) -> None:
        self.site = site
        self.names = names
        self._thread = threading.Thread(target=self._work, name="headrace-copying", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def over(self) -> bool:
        """Tell whether no more events will come: checks the end before the queue, so as to miss none."""
        return self.site.has_ended.is_set() and self.site.events.empty()

    def forget(self, names: Collection[TableName]) -> None:
        """Give up these tables: no more of their parts come; the other tables are copied to their end."""
        self.names -= frozenset(names)
        if not self.names:
            self.site.stopping.set()

    def stop(self) -> None:
        """Give up what is under way; files of unfinished tables are orphans."""
        self.site.stopping.set()
        self._thread.join()

    def _work(self) -> None:
        try:
            self._attempt()
        except HeadraceError as error:
            self.site.events.put(CopyLost(error))
        except BaseException as error:
            # A bug must not leave the run waiting for ever: it is for the main thread.
            self.site.events.put(CopyBroken(error))
            raise
        finally:
            self.site.has_ended.set()

    @abstractmethod
    def _attempt(self) -> None:
        """Copy the tables; an error ends the attempt."""
