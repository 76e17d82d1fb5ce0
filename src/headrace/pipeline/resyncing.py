"""The deed "resync": copy tables anew beside the old ones, for whoever suspects or lost them.

    names ─► still there, with a usable identity and the columns of their history ─► in the publication ─►
    records of new copies, CHOSEN: the loop copies them, and `reconciling` puts them in their tables' place

For tables that are live and for those that stopped. What they hold now stays readable until the mark that
replaces it. Asked twice, it is done once: a table that is being copied anew already is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.core.errors import Definite, Misconfigured
from headrace.core.names import TableName, split_identifiers
from headrace.pipeline import reconciling
from headrace.pipeline.ledger import Epoch, Ledger
from headrace.pipeline.records import SourceRecord, TableRecord
from headrace.pipeline.states import State
from headrace.sources.postgres import catalog, upstream
from headrace.sources.postgres.lookrecord import to_record
from headrace.sources.postgres.session import Address, Session, connect

if TYPE_CHECKING:
    from headrace.pipeline.requesting import Answer, Owner, Steps


def resync(owner: Owner, arguments: Mapping[str, Any]) -> Steps:
    """Begin a new copy of each of these tables."""
    ledger = owner.ledger
    source = ledger.source
    assert source is not None
    refuse_while_healing(ledger)
    names = [find(ledger, text) for text in arguments["tables"]]
    wanted = [name for name in names if name not in ledger.staged]
    looks = yield partial(prepare, owner.address, source, wanted)
    records = [renewed(ledger, ledger.tables[name], looks.get(name)) for name in wanted]
    if records:
        owner.publish(Epoch("resync", ledger.frontier, records=tuple(records)))
    return _answer(names)


def _answer(names: Sequence[TableName]) -> Answer:
    return {"tables": [str(name) for name in names]}


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
    if record.state in (State.CHOSEN, State.JOINING):
        raise Misconfigured(
            "RESYNC_TABLE_COPYING",
            f"{record.name} is being copied already",
            hint="wait until headrace status shows it live",
        )
    return found[0]


def prepare(
    address: Address, source: SourceRecord, names: Sequence[TableName]
) -> dict[TableName, catalog.TableLook]:
    """See that the tables are published; how they look then."""
    with closing(connect(address, role="resync")) as connection:
        present = sorted(catalog.look_by_name(connection, names))
        if source.owns_publication and present:
            upstream.ensure_publication(connection, source.publication, present)
        return looked(connection, source, present)


def looked(
    connection: Session, source: SourceRecord, names: Sequence[TableName]
) -> dict[TableName, catalog.TableLook]:
    """How these tables look, as members of the source's publication."""
    oids = [look.oid for look in catalog.look_by_name(connection, names).values()]
    return catalog.look(connection, oids, [source.publication])


def renewed(ledger: Ledger, record: TableRecord, look: catalog.TableLook | None) -> TableRecord:
    """The record of the new copy of a table."""
    if look is None:
        raise Definite(
            "RESYNC_TABLE_GONE",
            f"{record.name} is not at the source any more",
            hint="headrace tables drop leaves it out of the marks; the old ones keep it",
        )
    if not look.memberships:
        raise Misconfigured(
            "RESYNC_NOT_PUBLISHED",
            f"{record.name} is not in the publication",
            hint=f"ALTER PUBLICATION ... ADD TABLE {record.name}",
        )
    schema = catalog.schema_of(look)
    reconciling.refuse_other_columns(record.name, record.schema, schema)
    schema = replace(schema, version=record.schema.version)
    fresh = replace(record, oid=look.oid, look=to_record(look), schema=schema)
    return reconciling.staged(fresh, stage_of(ledger, record.name), ledger.position)


def stage_of(ledger: Ledger, name: TableName) -> str:
    """A name for the folder of a new copy that none before had."""
    number = sorted(ledger.tables).index(name)
    return f"{ledger.mark.epoch + 1}-{number}"
