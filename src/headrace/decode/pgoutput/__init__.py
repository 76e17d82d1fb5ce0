"""pgoutput: the logical replication stream of PostgreSQL, protocol 1 to 4, from bytes to change batches.

    raw CopyData frames ──scan──▶ Messages ─┬─ begins, commits, keepalives ──▶ receiver, spool
                                            ├─ relation, truncate, ... (one at a time)
                                            └─ changes, per relation version ──▶ change batch

    framing       the place of each message
    positions     the times in begins, commits, keepalives; a streamed transaction as an ordinary one
    rare          messages that are read one at a time
    tuples        rows as columns
    batch         columns as the changes of a relation

The receiver uses only the messages above: it looks into a tuple for columns that are hashed alone. The
decoder of an epoch uses all modules. `batch` is not handed out here: it loads the kernels of every type, and
a receiver must start quickly. A relation's layout holds from its R to the next R of the same oid, in the
order of the bytes, even within one transaction: tuples are never decoded by "the current" relation.
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
