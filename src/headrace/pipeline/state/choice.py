"""The choice of the tables of a source that are mirrored, and the record of one that is.

    wish       what a configuration asks of the source
    examined   what a preflight of it finds, and which tables have no place in a lake
    chosen     a table that passed, as the record that waits for its copy

Nothing is made upstream here and nothing is published.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.lake.format import layout
from headrace.pipeline.state.config import SourceConfig
from headrace.pipeline.state.records import TableRecord
from headrace.pipeline.state.table_state import State, TableEvent, after
from headrace.sources import registry
from headrace.sources.contract.column_rules import ColumnRules
from headrace.sources.contract.findings import CheckReport, Wish
from headrace.sources.contract.hash_key import check_hash_key
from headrace.sources.contract.mirror import Mirror
from headrace.sources.contract.values import TableDef

NOT_ADDED = "TABLE_NOT_ADDED"


def wish(config: SourceConfig) -> Wish:
    """Ask of the source what the configuration does."""
    return Wish(config.tables, config.options, connections=config.snapshot_connections)


def examine(config: SourceConfig) -> CheckReport:
    """Examine the source, and find which of its tables have no place in a lake."""
    source = registry.by_address(config.url)
    report = source.examine(config.address(), wish(config))
    without_key = check_hash_key(ColumnRules.of(config.options))
    report = replace(report, findings=(*without_key, *report.findings))
    meant_first = sorted(
        (table.name for table in report.tables), key=lambda name: name not in report.named_tables
    )
    return report.without(layout.unfit_tables(meant_first))


def find_unmirrored(
    mirror: Mirror, config: SourceConfig, mirrored_tables: Collection[TableName]
) -> dict[str, str]:
    """Find what the patterns match and nobody mirrors, each with the code that says why."""
    reasons = mirror.find_unmirrored(config.tables, mirrored_tables)
    fit = [name for name, error in reasons.items() if error is None]
    reasons |= layout.unfit_tables(fit, mirrored_tables)
    return {str(name): NOT_ADDED if error is None else error.code for name, error in reasons.items()}


def new_record(table: TableDef, start: Position) -> TableRecord:
    """The record of a table that waits for its copy."""
    return TableRecord(
        name=table.name,
        state=after(State.ABSENT, TableEvent.CHOSEN),
        number=table.number,
        schema=table.schema,
        details=table.details,
        frontier=start,
    )
