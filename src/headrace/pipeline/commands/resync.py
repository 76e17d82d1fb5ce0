"""The deed "resync": copy tables anew beside the old ones, for whoever suspects or lost them.

    names ─► still there, fit as for their first choice, with the columns of their history ─► wholly in the
    publication ─► records of new copies, PENDING: the loop copies them, and `replacement` puts them in their
    tables' place

For tables that are live and for those that stopped. What they hold now stays readable until the mark that
replaces it. Asked twice, it is done once: a table that is being copied anew already is left alone. One that
fails a check is refused, and the others go on: `headrace run --reconcile` (`recovery`) asks here too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from headrace.core.errors import Definite, HeadraceError, Misconfigured
from headrace.core.names import TableName, split_identifiers
from headrace.pipeline.resync import replacement
from headrace.pipeline.state.ledger import Epoch, Ledger
from headrace.pipeline.state.owner import Owner, Steps
from headrace.pipeline.state.records import SourceRecord, TableRecord
from headrace.sources.postgres.bridge import address_of
from headrace.sources.postgres.catalog import definitions, table_def
from headrace.sources.postgres.catalog.definitions import look_by_name
from headrace.sources.postgres.catalog.table_def_record import to_record
from headrace.sources.postgres.preflight import unfit_members, unfit_tables
from headrace.sources.postgres.publication import ensure_publication
from headrace.sources.postgres.session.address import Address
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.statements import Session
from headrace.sources.postgres.upstream import Upstream


def resync(owner: Owner, arguments: Mapping[str, Any]) -> Steps:
    """Begin a new copy of each of these tables."""
    ledger = owner.ledger
    source = ledger.source
    assert source is not None
    refuse_while_healing(ledger)
    names = [find(ledger, text) for text in arguments["tables"]]
    wanted = [name for name in names if name not in ledger.staged]
    found = yield partial(prepare, address_of(owner.session.address), source, wanted)
    records, refusals = [], []
    for name in wanted:
        try:
            records.append(renewed(ledger, ledger.tables[name], found))
        except (Definite, Misconfigured) as error:
            refusals.append(error)
    if records:
        owner.publish(Epoch("resync", ledger.frontier, records=tuple(records)))
    if refusals:
        raise _with_others(refusals, [record.name for record in records])
    return {"tables": [str(name) for name in names]}


def _with_others(refusals: Sequence[HeadraceError], begun: Sequence[TableName]) -> HeadraceError:
    """The first table that was refused; the others that were, and those that are copied anew all the same."""
    first, *others = refusals
    for error in others:
        first = first.adding(f"and {error.code}: {error.primary}")
    return first.adding(f"copied anew: {', '.join(map(str, begun))}") if begun else first


def refuse_while_healing(ledger: Ledger) -> None:
    """Until a lost position is left the tables stay what they are."""
    if ledger.healing:
        raise Misconfigured(
            "RESYNC_HEALING",
            "all tables of the source are being copied anew",
            hint="headrace status shows how far they are; ask again when they are live",
        )


def find(ledger: Ledger, text: str) -> TableName:
    """The table of the source that is meant."""
    parts = split_identifiers(text)
    found = [n for n in ledger.tables if (n.schema, n.name)[-len(parts) :] == parts]
    if len(found) != 1:
        said = "names more than one table" if found else "is no table that this source mirrors"
        raise Misconfigured(
            "RESYNC_TABLE_UNKNOWN",
            f'"{text}" {said}',
            hint="headrace status lists the tables; write the schema, too",
        )
    record = ledger.tables[found[0]]
    if not record.state.may_resync:
        raise Misconfigured(
            "RESYNC_TABLE_COPYING",
            f"{record.name} is being copied already",
            hint="wait until headrace status shows it live",
        )
    return found[0]


@dataclass(frozen=True, slots=True)
class Examined:
    """How tables look at the source, and why some of them can't be mirrored."""

    looks: Mapping[TableName, table_def.TableLook]
    errors: Mapping[TableName, HeadraceError]

    @property
    def fit(self) -> list[TableName]:
        return sorted(self.looks.keys() - self.errors.keys())


def prepare(address: Address, source: SourceRecord, names: Sequence[TableName]) -> Examined:
    """See that the tables that are fit for it are published, and wholly."""
    with closing(connect(address, role="resync")) as connection:
        found = examined(connection, source, names)
        if Upstream.of(source.upstream).owns_publication and found.fit:
            limited = unfit_members(
                connection, Upstream.of(source.upstream).publication, [found.looks[n] for n in found.fit]
            )
            publication = Upstream.of(source.upstream).publication
            ensure_publication(connection, publication, found.fit, make=False, anew=limited)
        return published(connection, source, found)


def examined(connection: Session, source: SourceRecord, names: Sequence[TableName]) -> Examined:
    """The tables as they are, before they are published."""
    looks = look_by_name(connection, names, [Upstream.of(source.upstream).publication])
    return Examined(looks, unfit_tables(connection, list(looks.values())))


def published(connection: Session, source: SourceRecord, found: Examined) -> Examined:
    """The same tables as members of the source's publication, which has to send all of them."""
    oids = [look.oid for look in found.looks.values()]
    publication = Upstream.of(source.upstream).publication
    looks = definitions.look(connection, oids, [publication])
    fit = [look for name, look in looks.items() if name not in found.errors]
    return Examined(looks, {**found.errors, **unfit_members(connection, publication, fit)})


def renewed(ledger: Ledger, record: TableRecord, found: Examined) -> TableRecord:
    """The record of the new copy of a table."""
    look = found.looks.get(record.name)
    if look is None:
        raise Definite(
            "RESYNC_TABLE_GONE",
            f"{record.name} is not at the source any more",
            hint=f"headrace tables drop {record.name}: it is left out of the marks, the old ones keep it",
        )
    if record.name in found.errors:
        raise found.errors[record.name]
    schema = table_def.schema_of(look)
    replacement.refuse_other_columns(record.name, record.schema, schema)
    schema = replace(schema, version=record.schema.version)
    fresh = replace(record, oid=look.oid, look=to_record(look), schema=schema)
    return replacement.staged(fresh, stage_of(ledger, record.name), ledger.position)


def stage_of(ledger: Ledger, name: TableName) -> str:
    """A name for the folder of a new copy that none before had."""
    number = sorted(ledger.tables).index(name)
    return f"{ledger.mark.epoch + 1}-{number}"
