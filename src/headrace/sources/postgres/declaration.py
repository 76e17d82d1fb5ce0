"""The declaration of PostgreSQL (`sources.contract.values`), with its own options."""

from __future__ import annotations

from headrace.sources.contract.values import COLUMNS, Declaration, Option

SLOT, XID, CHUNKS = "slot", "xid", "chunks"
SLOT_FAILOVER, AUTO, OFF = "slot_failover", "auto", "off"

DECLARATION = Declaration(
    kind="postgres",
    title="PostgreSQL",
    schemes=("postgresql", "postgres"),
    password="PGPASSWORD, ~/.pgpass, or passfile=... in it",
    driver="psycopg",
    options=(
        Option("publication", "one of yours, to be used as it is", in_sql=True),
        Option("slot", "one of yours, to be used as it is; needs a publication that is older"),
        Option(
            "handoff",
            "how a snapshot is joined to the stream",
            default=SLOT,
            choices=(SLOT, XID, CHUNKS),
        ),
        Option(
            SLOT_FAILOVER,
            "auto: standbys of PostgreSQL 17 or later may keep a copy of our slot",
            default=AUTO,
            choices=(AUTO, OFF),
        ),
        COLUMNS,
    ),
)
