"""The first run of a source: which tables, which objects upstream, and the records that say so.

    preflight, nothing against it ─► remembered ─► publication (committed) ─► permanent slot ─► epoch "open"

The order is the rule of DESIGN's section 1: capture is per change, so the publication holds the tables
before the slot begins, and the copy's snapshot comes after both. A crash in between leaves a slot and a
publication under the lake's own name; the next run finds and uses them, and `headrace drop` removes them.
Such a slot may be older than a table's membership, as one of the user's may: then all tables are `late`,
exact from their copies on.

A later run finds its tables in the lake. What its configuration asks for beyond them is refused (`agree`)
where it is named, and told (`choice.unmirrored`) where only a pattern matches it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from headrace.core.errors import HeadraceError, Misconfigured
from headrace.core.names import TableName
from headrace.core.position import ORIGIN
from headrace.pipeline.ingest.last_commits import LastCommits
from headrace.pipeline.state import last_config
from headrace.pipeline.state.choice import chosen, examined, refuse
from headrace.pipeline.state.config import SourceConfig
from headrace.pipeline.state.ledger import Epoch, Ledger
from headrace.pipeline.state.place import Place
from headrace.pipeline.state.records import SourceRecord
from headrace.sources import registry
from headrace.sources.patterns import Pattern
from headrace.sources.postgres import publication, upstream
from headrace.sources.postgres.catalog import definitions
from headrace.sources.postgres.lsn import Lsn
from headrace.sources.postgres.preflight import Report
from headrace.sources.postgres.publication import ensure_publication
from headrace.sources.postgres.session import clock
from headrace.sources.postgres.session.address import Address
from headrace.sources.postgres.session.identity import Identity
from headrace.sources.postgres.session.statements import Session
from headrace.sources.postgres.slot import Waiting, check_slot, ensure_slot, slot_state


def preflight(config: SourceConfig) -> Report:
    """The tables of a first run; raises what stands against it."""
    report = examined(config)
    refuse(report)
    _refuse_slot_alone(config)
    return report


def agree(config: SourceConfig, source: SourceRecord, mirrored: Collection[TableName]) -> None:
    """Refuse a configuration that asks for something else than the lake does, and would not get it."""
    for what, said, known, ours in (
        ("publication", config.publication, source.publication, source.owns_publication),
        ("slot", config.slot, source.slot, source.owns_slot),
    ):
        if said != (None if ours else known):
            raise Misconfigured(
                "SOURCE_CONTRADICTED",
                f"this source is mirrored with {_whose(what, None if ours else known)}, "
                f"and the run is asked for {_whose(what, said)}",
                hint=f"leave out the {what}, or mirror into another lake"
                if ours
                else f'give {what} "{known}", as before, or mirror into another lake',
            )
    asked = [pattern for pattern in map(Pattern.parse, config.tables) if pattern.exact]
    missing = [p.text for p in asked if not p.excludes and not any(map(p.matches, mirrored))]
    if missing:
        raise Misconfigured(
            "TABLE_NOT_ADDED",
            f"{missing[0]} is asked for and not mirrored",
            detail=f"nor are {', '.join(missing[1:6])}" if missing[1:] else None,
            hint=f"headrace tables add --lake DIR {' '.join(missing[:6])}; or leave it out of the tables",
        )


def _whose(what: str, name: str | None) -> str:
    return f"a {what} of its own" if name is None else f'the {what} "{name}"'


@dataclass(frozen=True, slots=True)
class Met:
    """An attempt before its loop: what the lake knows of the source, and the source as it was met."""

    ledger: Ledger
    place: Place
    address: Address
    connection: Session
    identity: Identity
    waiting: Waiting  # for transactions of others


def begin(met: Met) -> None:
    """Choose the tables, make what is needed upstream, and publish the source's first records."""
    place, connection = met.place, met.connection
    report = preflight(place.config)
    names = [look.name for look in report.tables]
    source = _source(place, met.identity)
    # From here on there may be something upstream, of which `headrace drop` must know.
    last_config.remember(place.store, place.name, place.config, place.lake)
    footing = found(source, met.address, connection, names, met.waiting, undo=True)
    source = replace(
        source, start=source.log.position(footing.start), publication_oid=footing.publication_oid
    )
    looks = definitions.look(connection, [look.oid for look in report.tables], [source.publication])
    late = not footing.fresh
    records = tuple(replace(chosen(look, source.start), late=late) for look in looks.values())
    commits = LastCommits(source.start.time)
    met.ledger.publish(
        Epoch("open", source.start, records=records, source=source, commits=commits, begun=footing.begun)
    )


def _source(place: Place, identity: Identity) -> SourceRecord:
    """The source as the configuration means it; its stream has yet to begin."""
    config = place.config
    own = upstream.object_name(place.lake_id, place.name)
    return SourceRecord(
        kind=registry.by_address(config.url).kind,
        address=Address.parse(config.url).without_secrets(),
        system_id=identity.system_id,
        timeline=identity.timeline,
        database=identity.database,
        slot=config.slot or own,
        publication=config.publication or own,
        owns_slot=config.slot is None,
        owns_publication=config.publication is None,
        start=ORIGIN,
        patterns=config.tables,
    )


def _refuse_slot_alone(config: SourceConfig) -> None:
    """A slot of the user's is older than any publication that we could make."""
    if config.slot is not None and config.publication is None:
        raise Misconfigured(
            "PG_SLOT_WITHOUT_PUBLICATION",
            f'the slot "{config.slot}" is named, and no publication that is older than it',
            detail="a slot cannot read of what its publication did not hold when it was written",
            hint="name both, with --publication too, or leave out the slot",
        )


# --- upstream -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Footing:
    """What a stream stands on: where it starts, as the server counts, and the publication that it reads.

    A slot that was there already may be older than a table's membership, and than what the publication says:
    only a `fresh` one is known to have all of every table from its start on. No commit before the start is
    later than `begun`, by the source's clock.
    """

    start: Lsn
    publication_oid: int
    fresh: bool = False
    begun: int | None = None


def found(
    source: SourceRecord,
    address: Address,
    connection: Session,
    names: Sequence[TableName],
    waiting: Waiting,
    *,
    undo: bool = False,
    anew: Collection[TableName] = (),
) -> Footing:
    """See that the publication holds the tables, then that there is a slot; the user's are used as they are.

    With `undo` the publication goes again if no slot can be made: while no record of the lake names it,
    nobody would find it later. It stays where a slot of an earlier try stands on it.
    """
    if source.owns_publication and names:
        ensure_publication(connection, source.publication, names, anew=anew)
    fresh = slot_state(connection, source.slot) is None
    try:
        start = _start(source, address, connection, waiting)
    except HeadraceError:
        if undo and source.owns_publication and slot_state(connection, source.slot) is None:
            upstream.drop_upstream(address, publication=source.publication, slot=None, application="")
        raise
    oid = publication.publication_oid(connection, source.publication)
    return Footing(start, oid, fresh, clock.begun(connection))


def _start(source: SourceRecord, address: Address, connection: Session, waiting: Waiting) -> Lsn:
    """Where the stream begins: the consistent point of our slot, or where the user's slot stands."""
    name = source.slot
    if source.owns_slot:
        return ensure_slot(address, name, waiting=waiting)
    state = slot_state(connection, name)
    if state is None or state.confirmed_flush_lsn is None:
        raise Misconfigured(
            "PG_SLOT_UNKNOWN",
            f'there is no logical slot "{name}" in database "{source.database}"',
            hint=f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput'), or leave out the slot",
        )
    check_slot(name, state, source.database)
    return state.confirmed_flush_lsn
