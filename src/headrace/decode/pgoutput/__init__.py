"""pgoutput: the logical replication stream of PostgreSQL, protocol 1 to 4, from bytes to change batches.

    raw CopyData frames ──scan──▶ Messages ─┬─ begins, commits, keepalives ──▶ receiver, spool
                                            ├─ relation, truncate, ... (one at a time)
                                            └─ changes, per relation version ──▶ change batch

    framing       where each message is
    positions     begins, commits, keepalives: when; what came while it ran, as if it came whole
    rare          messages that are read singly
    tuples, batch rows as columns, and these as the changes of each relation

The receiver uses the upper half only: it never looks into a tuple. The decoder of an epoch uses all of
it. So the lower half, `batch`, is not handed out here: it loads the kernels of every type, and a receiver
shall be there sooner. A relation's layout holds from its R to the next R of the same oid, in the order of
the bytes, also within one transaction: tuples are never decoded by "the current" relation.
"""

from headrace.decode.pgoutput.framing import Messages, alone, scan
from headrace.decode.pgoutput.positions import (
    BeginMessages,
    Commits,
    Keepalives,
    begins,
    commits,
    keepalives,
    shift,
    stream_commits,
    whole,
)
from headrace.decode.pgoutput.rare import (
    Relation,
    RelationColumn,
    StreamAbort,
    Truncate,
    relation,
    stream_abort,
    truncate,
)

__all__ = [
    "BeginMessages",
    "Commits",
    "Keepalives",
    "Messages",
    "Relation",
    "RelationColumn",
    "StreamAbort",
    "Truncate",
    "alone",
    "begins",
    "commits",
    "keepalives",
    "relation",
    "scan",
    "shift",
    "stream_abort",
    "stream_commits",
    "truncate",
    "whole",
]
