"""The identity of a queue's server: the system and the database, on whatever timeline.

A standby that was promoted has another timeline; whether it goes on where we were is told by its ticks
(`upstream`), not by the log.
"""

from __future__ import annotations

from headrace.sources.contract.record import Json
from headrace.sources.postgres.session.identity import Identity, another_server, verify


def known(identity: Identity) -> Json:
    """The part that lasts: by it the lake knows the source again."""
    return {"system_id": identity.system_id, "database": identity.database}


def prove(found: Identity, expected: Json) -> None:
    """Refuse a server that is not the one of a record: all of an identity, or what of it lasts."""
    if "standby" in expected:
        verify(found, Identity(**expected))
        return
    if known(found) != {name: expected[name] for name in ("system_id", "database")}:
        raise another_server(
            f"system {found.system_id}, was {expected['system_id']}; "
            f'database "{found.database}", was "{expected["database"]}"'
        )
