"""Repair after a power cut: who takes back torn epochs, and when.

    run         before it reads any state of its source, once it is sure that nobody else owns it
    a command   before it reads the lake's state, if no living run owns the source
    a reader    never: its error says that a run will repair the lake

`headrace.lake.log.recovery` judges and repairs. The pipeline adds two things here: its own files that an
epoch rests on, and the check whether an owner is alive.
"""

from __future__ import annotations

from headrace.lake.log import recovery
from headrace.lake.store.contract import Store
from headrace.pipeline.state.ownership import living_owner


def mend(store: Store, source: str) -> None:
    """Take back the epochs that a power cut has torn; only the source's owner, old or new, may call this."""
    if recovery.is_settled(store, source):
        return
    from headrace.pipeline.state import kept_files

    recovery.recover(store, source, lambda plan: kept_files.whole(store, source, plan.state))


def mend_if_nobody_lives(store: Store, source: str) -> None:
    """Take back torn epochs, unless a living run owns the source."""
    if not recovery.is_settled(store, source) and living_owner(store, source) is None:
        mend(store, source)
