"""The declaration of the queue (`sources.contract.values`), with its own options."""

from __future__ import annotations

from headrace.sources.contract.values import Declaration, Option

QUEUE = Option("queue", "its name: several lakes may read one", default="main", in_sql=True)
SCHEMA = Option("schema", "where its tables stand at the source", default="headrace", in_sql=True)
TICK = Option("tick", "seconds between two ticks under load", default="0.1", number=True)
IDLE_TICK = Option("idle_tick", "seconds after which an idle queue is looked at", default="0.5", number=True)
XID, CHUNKS = "xid", "chunks"
HANDOFF = Option(
    "handoff",
    "how a snapshot is joined to the stream",
    default=XID,
    choices=(XID, CHUNKS),
)

DECLARATION = Declaration(
    kind="queue",
    title="PostgreSQL by triggers",
    schemes=("queue+postgresql", "queue+postgres"),
    password="PGPASSWORD, ~/.pgpass, or passfile=... in it",
    options=(QUEUE, SCHEMA, TICK, IDLE_TICK, HANDOFF),
)
