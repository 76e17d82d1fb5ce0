"""The identity of a queue's server: the system and the database, on whatever timeline.

A promoted standby has another timeline. Its ticks prove whether it goes on from our position (`proof`), not
its log.
"""

from __future__ import annotations

from headrace.core.records import from_record
from headrace.sources.contract.values import Json
from headrace.sources.postgres.session.identity import PostgresIdentity, another_server, verify


def lasting_part(identity: PostgresIdentity) -> Json:
    """The lasting part, by which the lake recognises the source."""
    return {"system_id": identity.system_id, "database": identity.database}


def prove(actual: PostgresIdentity, record: Json) -> None:
    """Refuse a server that is not the one of a record; the record is an identity or its lasting part."""
    if "standby" in record:
        verify(actual, from_record(PostgresIdentity, record))
        return
    if lasting_part(actual) != {name: record[name] for name in ("system_id", "database")}:
        raise another_server(
            f"system {actual.system_id}, was {record['system_id']}; "
            f'database "{actual.database}", was "{record["database"]}"'
        )
