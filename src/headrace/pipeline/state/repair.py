"""After a power cut: who takes back what it tore, and when.

    run         before it reads anything of its source's, once it is sure that nobody else owns it
    a command   before it looks what the lake knows, if nobody lives who owns the source
    a reader    never: what it can't read says that a run will mend it

The judging and the mending are `headrace.lake.log.recovery`; here is what the pipeline adds: its own files
that an epoch rests on, and the question whether somebody is alive.
"""

from __future__ import annotations

from headrace.lake.log import recovery
from headrace.lake.store.contract import Store
from headrace.pipeline.state.ownership import living_owner


def mend(store: Store, source: str) -> None:
    """Take back the epochs that a power cut has torn. For whoever owns the source, or is about to."""
    if recovery.is_settled(store, source):
        return
    from headrace.pipeline.state import kept_files

    recovery.recover(store, source, lambda plan: kept_files.whole(store, source, plan.state))


def mend_if_nobody_lives(store: Store, source: str) -> None:
    """Take back torn epochs, unless a living run owns the source."""
    if not recovery.is_settled(store, source) and living_owner(store, source) is None:
        mend(store, source)
