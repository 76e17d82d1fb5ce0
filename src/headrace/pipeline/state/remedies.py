"""What a person types to have a table back that stopped because it is another one at the source.

    same columns            headrace tables resync      copied anew beside the old, the difference in one mark
    other columns or name   headrace tables drop, add   a new interval, and a new history where that must be
    unfit to be mirrored    what makes it fit first

Called by `schema_check`. A resync that finds more than the look saw refuses with a hint of its own.
"""

from __future__ import annotations

from headrace.core.names import TableName, quote_identifier
from headrace.pipeline.state.records import SourceRecord, TableRecord
from headrace.sources.postgres.catalog.table_def import TableLook, identity_flaw, schema_of
from headrace.sources.postgres.upstream import Upstream


def way_back(source: SourceRecord, record: TableRecord, now: TableLook | None, version: int) -> str:
    """The hint for a table that is not what was recorded."""
    name = record.name
    again = f"headrace tables resync {name}"
    if now is None:
        return f"{again}, if it was made again; it says what to do if not"
    if now.name != name:
        return anew(name, now.name)
    if identity_flaw(now, version) is not None:
        kind = "DEFAULT" if now.identity.full else "FULL"
        return f"ALTER TABLE {name} REPLICA IDENTITY {kind}, then {again}"
    if schema_of(now).columns != record.schema.columns:
        kept = "; older marks keep what it was" if record.state.is_named else ""
        return anew(name, name) + kept
    if not now.memberships and not Upstream.of(source.upstream).owns_publication:
        publication = quote_identifier(Upstream.of(source.upstream).publication)
        return f"ALTER PUBLICATION {publication} ADD TABLE ONLY {name}, then {again}"
    return again


def anew(old: TableName, new: TableName) -> str:
    """The way to a new interval of a table that cannot be compared with what it was."""
    return f"headrace tables drop {old}, then headrace tables add {new}"
