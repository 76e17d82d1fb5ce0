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
from dataclasses import replace
from functools import partial
from typing import Any

from headrace.core.errors import Definite, HeadraceError, Misconfigured
from headrace.core.names import TableName, split_identifiers
from headrace.pipeline.resync import replacement
from headrace.pipeline.state.epoch import Epoch
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.owner import Owner, Steps
from headrace.pipeline.state.records import SourceRecord, TableRecord
from headrace.sources import registry
from headrace.sources.contract.session import Address
from headrace.sources.contract.tables import Examined


def resync(owner: Owner, arguments: Mapping[str, Any]) -> Steps:
    """Begin a new copy of each of these tables."""
    ledger = owner.ledger
    source = ledger.source
    assert source is not None
    refuse_while_recovering(ledger)
    names = [find(ledger, text) for text in arguments["tables"]]
    wanted = [name for name in names if name not in ledger.staged]
    found = yield partial(prepare, owner.session.address, source, wanted)
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


def refuse_while_recovering(ledger: Ledger) -> None:
    """Until a lost position is left the tables stay what they are."""
    if ledger.recovering:
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


def prepare(address: Address, source: SourceRecord, names: Sequence[TableName]) -> Examined:
    """See that the tables that are fit for it are captured, and wholly."""
    with closing(registry.by_kind(source.kind).connect(address, role="resync")) as session:
        tables = session.tables(source.upstream)
        found = tables.examine(names)
        return found.then(tables.capture(found.fit))


def renewed(ledger: Ledger, record: TableRecord, found: Examined) -> TableRecord:
    """The record of the new copy of a table."""
    if record.name in found.errors:
        raise found.errors[record.name]
    table = found.defs.get(record.name)
    if table is None:
        raise Definite(
            "RESYNC_TABLE_GONE",
            f"{record.name} is not at the source any more",
            hint=f"headrace tables drop {record.name}: it is left out of the marks, the old ones keep it",
        )
    replacement.refuse_other_columns(record.name, record.schema, table.schema)
    fresh = record.defined(replace(table, schema=replace(table.schema, version=record.schema.version)))
    return replacement.staged(fresh, stage_of(ledger, record.name), ledger.position)


def stage_of(ledger: Ledger, name: TableName) -> str:
    """A name for the folder of a new copy that none before had."""
    number = sorted(ledger.tables).index(name)
    return f"{ledger.mark.epoch + 1}-{number}"
