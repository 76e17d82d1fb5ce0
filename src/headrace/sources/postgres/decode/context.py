"""The context in which bytes of the stream are decoded: the layouts in force, and the open transaction.

Between two transactions none is open. In a whole transaction that was cut, the context holds the next
ordinals. In a transaction that was streamed while it ran, it also holds the subtransactions that were rolled
back.

    B ─ R(t) ─ I(t) ─ U(t) │ I(t) ─ I(u) │ U(u) ─ C │ B ...         cut between messages
       no layout, none open  t; 2 of t     t; 3 of t,   t; none open  the context of what follows
                                           1 of u

Layouts are whole frames of R messages, as the spool keeps them. Only the newest of each table is kept, so a
context does not grow with its transaction.

Only `decode` makes and reads contexts; the rooms above carry them and never look inside.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from headrace.core.records import on_disk
from headrace.decode.kernel import Bytes
from headrace.decode.pgoutput import Messages, scan
from headrace.sources.contract.decoder import Context

_OID = slice(31, 35)  # in a layout's frame: after its length, its header and the letter


@dataclass(frozen=True, slots=True)
class PostgresOpenTransaction:
    """The transaction in which bytes begin, with the number of changes that each table had before."""

    time: int
    xid: int
    commit_ts: int
    ordinals: Mapping[int, int]
    # Its messages begin with the xid of their subtransaction.
    in_stream: bool = field(default=False, metadata=on_disk("streamed"))
    # The subtransactions that were rolled back.
    rolled_back: tuple[int, ...] = field(default=(), metadata=on_disk("struck"))
    # Changes get the xid of their subtransaction, as the wire has it.
    by_subtransaction: bool = field(default=False, metadata=on_disk(outside=True))

    def lasting(self, messages: Messages) -> Messages:
        """The messages without those of rolled-back subtransactions."""
        return messages.take(~np.isin(messages.xid, self.rolled_back)) if self.rolled_back else messages


@dataclass(frozen=True, slots=True)
class PostgresStreamContext:
    """The layouts in force where bytes begin, and the transaction that is open there."""

    layouts: tuple[bytes, ...] = field(default=(), metadata=on_disk("relations"))
    inside: PostgresOpenTransaction | None = None

    def messages(self, data: Bytes) -> Messages:
        """The messages of these bytes, without those of rolled-back subtransactions."""
        found = scan(data, in_stream=self.inside is not None and self.inside.in_stream)
        return found if self.inside is None else self.inside.lasting(found)

    def only(self, tables: Collection[int]) -> PostgresStreamContext:
        """The part of the context that concerns these tables."""
        layouts = tuple(frame for frame in self.layouts if int.from_bytes(frame[_OID], "big") in tables)
        if self.inside is None:
            return PostgresStreamContext(layouts)
        ordinals = {oid: count for oid, count in self.inside.ordinals.items() if oid in tables}
        return PostgresStreamContext(layouts, replace(self.inside, ordinals=ordinals))


def own(context: Context) -> PostgresStreamContext:
    """Assert that a context is ours, for the type checker."""
    assert isinstance(context, PostgresStreamContext)
    return context


def newest(layouts: Iterable[bytes]) -> tuple[bytes, ...]:
    """Keep the last layout of each table."""
    latest: dict[bytes, bytes] = {}
    for frame in layouts:
        latest[frame[_OID]] = frame
    return tuple(latest.values())
