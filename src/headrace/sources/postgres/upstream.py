"""What we make upstream, a publication and a slot: their order, their names, their removal.

    `publication` first, committed ──► `slot` ──► W (`writers`) ──► `snapshot`

The order is the proof. Changes are captured one by one: a transaction that was open while its table
got into the publication arrives in part. So the slot is made when the publication has committed, and
the transactions that then hold a write lock on a table to be copied are noted as W: no snapshot is
accepted in which one of them still runs (`snapshot.leader`).

Both are named after the lake and removed with it. What belongs to the user (`--publication`, `slot =`) never
comes here to be altered or dropped.
"""

from __future__ import annotations

import zlib
from contextlib import closing

from headrace.sources.postgres.publication import drop_publication
from headrace.sources.postgres.session.address import Address
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.slot import drop_slot, free_slot

OURS = "^headrace_[0-9a-f]{8}_"  # what slots and publications of a lake's own are called (`object_name`)
_NAME_LIMIT = 63


def object_name(lake_id: str, source: str) -> str:
    """The name of both slot and publication: `headrace_<lake>_<source>`, fit for a slot."""
    plain = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in source.lower())
    name = f"headrace_{lake_id[:8].lower()}_{plain}"
    if plain == source and len(name) <= _NAME_LIMIT:
        return name
    # Two sources must not become one by losing what a slot's name cannot hold.
    mark = f"_{zlib.crc32(source.encode()):08x}"
    return name[: _NAME_LIMIT - len(mark)] + mark


def drop_upstream(
    address: Address, *, publication: str | None, slot: str | None, application: str, seconds: float = 30.0
) -> list[str]:
    """Remove the slot and the publication that are ours; what was removed, for people.

    A session that still reads the slot is ended if it is provably ours: it reads our slot and calls
    itself `application`. Any other is named and left alone.
    """
    removed: list[str] = []
    with closing(connect(address, role="drop")) as connection:
        if slot is not None:
            if free_slot(connection, slot, application):
                removed.append(f'the walsender of "{application}" was ended')
            if drop_slot(connection, slot, seconds):
                removed.append(f'slot "{slot}"')
        if publication is not None and drop_publication(connection, publication):
            removed.append(f'publication "{publication}"')
    return removed
