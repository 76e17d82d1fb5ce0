"""The remedies of a table that stopped because it is another one at the source: what a person types.

    same columns            headrace tables resync      copied anew beside the old, the difference in one mark
    other columns           headrace tables resync      copied anew, a new interval and a new history
    other name              headrace tables drop, add   the same
    unfit to be mirrored    what makes it fit first: the source says the statement

A resync that finds more than the look saw refuses with a hint of its own.
"""

from __future__ import annotations

from headrace.core.names import TableName
from headrace.pipeline.state.records import TableRecord
from headrace.sources.contract.values import Change


def way_back(record: TableRecord, change: Change) -> str:
    """The hint for a table that is not what was recorded."""
    name, now = record.name, change.now
    again = f"headrace tables resync {name}"
    if now is None:
        return f"{again}, if it was made again; it says what to do if not"
    if now.name != name:
        return anew(name, now.name)
    if change.mend is not None:
        return f"{change.mend}, then {again}"
    kept = "; older marks keep what it was" if record.state.is_named else ""
    return again + kept if now.schema.columns != record.schema.columns else again


def anew(old: TableName, new: TableName) -> str:
    """The way to a new interval of a table that cannot be compared with what it was."""
    return f"headrace tables drop {old}, then headrace tables add {new}"
