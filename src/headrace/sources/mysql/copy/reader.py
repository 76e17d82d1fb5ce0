"""The reader of a copy, by a ticket of `plan`, which travels as JSON.

ticket   of a snapshot    its leader                  ─► ranges of an index, as the leader sees them
         of a key walk    how far the stream came     ─► ranges of keys, as they are now
"""

from __future__ import annotations

from headrace.sources.contract.copying import Reader
from headrace.sources.contract.values import Json
from headrace.sources.mysql.copy.chunk_reader import ChunkReader
from headrace.sources.mysql.copy.moment_reader import of_moment
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.identity import MysqlIdentity


def reader(address: MysqlAddress, identity: MysqlIdentity, ticket: Json, *, role: str) -> Reader:
    """A reader; it connects when it is first asked for something."""
    if "leader" in ticket:
        return of_moment(address, identity, ticket, role=role)
    return ChunkReader(address, identity, ticket, role=role)
