"""The identity of a queue's server: the system and the database, on whatever timeline.

A standby that was promoted has another timeline; whether it goes on where we were is told by its ticks
(`proof`), not by the log.
"""

from __future__ import annotations

from headrace.core.records import from_record
from headrace.sources.contract.values import Json
from headrace.sources.postgres.session.identity import PostgresIdentity, another_server, verify


def lasting_part(identity: PostgresIdentity) -> Json:
    """The part that lasts: by it the lake knows the source again."""
    return {"system_id": identity.system_id, "database": identity.database}


def prove(actual: PostgresIdentity, record: Json) -> None:
    """Refuse a server that is not the one of a record: all of an identity, or what of it lasts."""
    if "standby" in record:
        verify(actual, from_record(PostgresIdentity, record))
        return
    if lasting_part(actual) != {name: record[name] for name in ("system_id", "database")}:
        raise another_server(
            f"system {actual.system_id}, was {record['system_id']}; "
            f'database "{actual.database}", was "{record["database"]}"'
        )
