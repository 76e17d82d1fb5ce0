"""The first run of a source: which tables, which objects upstream, and the records that say so.

    preflight, nothing against it ─► remembered ─► publication (committed) ─► permanent slot ─► epoch "open"

The order must not change: the server captures each change by itself, so the publication holds the tables
before the slot begins, and the copy's snapshot comes after both. A crash in between leaves a slot and a
publication under the lake's own name; the next run finds and uses them, and `headrace drop` removes them.
Such a slot, or one that the user made, may be older than a table's membership: then all tables are `late`,
exact from their copies on.

A later run finds its tables in the lake. If its configuration names another table, the run is refused
(`agree`). If only a pattern matches another table, the run reports it (`choice.find_unmirrored`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from headrace.core.errors import Misconfigured
from headrace.core.names import TableName
from headrace.core.position import ORIGIN
from headrace.ingest.last_commits import LastCommits
from headrace.pipeline.state import last_config
from headrace.pipeline.state.choice import examine, new_record
from headrace.pipeline.state.config import SourceConfig
from headrace.pipeline.state.epoch import Epoch
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.owner import RunContext
from headrace.pipeline.state.records import SourceRecord
from headrace.sources import registry
from headrace.sources.contract.column_rules import ColumnRules
from headrace.sources.contract.findings import CheckReport, refuse
from headrace.sources.contract.hash_key import hash_key
from headrace.sources.contract.mirror import Connection, Mirror, StreamOrder
from headrace.sources.contract.values import COLUMNS, Waiting
from headrace.sources.shared.patterns import Pattern, select


def preflight(config: SourceConfig) -> CheckReport:
    """Find the tables of a first run; raise if it cannot be done."""
    report = examine(config)
    refuse(report, named_any=bool(config.tables))
    registry.by_address(config.url).plan("", "", config.options)  # refuses options that contradict
    return report


def agree(
    config: SourceConfig,
    source: SourceRecord,
    mirrored_tables: Collection[TableName],
) -> None:
    """Refuse a configuration that asks for something that this lake does not do and would not begin to do."""
    declared, facts = registry.declaration(source.kind), source.facts
    for what in {**facts.objects, **facts.options}.keys() - {COLUMNS.name}:
        said, known = declared.value(config.options, what), facts.options.get(what)
        if said != known:
            raise Misconfigured(
                "SOURCE_CONTRADICTED",
                f"this source is mirrored with {_whose(what, known)}, "
                f"and the run is asked for {_whose(what, said)}",
                hint=f"leave out the {what}, or mirror into another lake"
                if known is None
                else f'give {what} "{known}", as before, or mirror into another lake',
            )
    asked = [
        text for text in config.tables if (pattern := Pattern.parse(text)).exact and not pattern.excludes
    ]
    missing = [
        text
        for text in asked
        if not select([text], mirrored_tables, case_insensitive=facts.case_insensitive).named_tables
    ]
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
class Attempt:
    """An attempt before its loop: the lake's state of the source, and the connected source."""

    ledger: Ledger
    place: RunContext
    connection: Connection
    waiting: Waiting  # for transactions of others

    def mirror(self) -> Mirror:
        """Return the mirror as the lake knows it by now."""
        assert self.ledger.source is not None
        return self.connection.mirror(self.ledger.source.upstream)


def begin_or_agree(attempt: Attempt, *, dropped_knowingly: bool) -> None:
    """Choose the tables on a first run; on a later one refuse to be asked for what the lake does not do."""
    ledger, place = attempt.ledger, attempt.place
    if ledger.source is None:
        begin(attempt)
        return
    if not dropped_knowingly:
        last_config.refuse_dropped(place.store, place.name)
    if place.copy_of is not None:
        own = last_config.with_own_objects(ledger.source, place.name, place.lake_id, place.copy_of)
        if own is not None:
            ledger.publish(Epoch("open", ledger.frontier, source=own))
    attempt.mirror()  # refuse an untrustworthy upstream first
    agree(place.config, ledger.source, ledger.tables)
    _follow_rules(attempt)
    last_config.remember(place.store, place.name, place.config, place.lake)


def _follow_rules(attempt: Attempt) -> None:
    """Go on with the configured rules of columns; raise if the lake may hold what they forbid."""
    ledger = attempt.ledger
    assert ledger.source is not None
    known = ledger.source.column_rules
    rules = known.follow(ColumnRules.of(attempt.place.config.options), ledger.tables)
    key = hash_key(rules)
    rules = rules.with_key(key.fingerprint if key else "")
    if rules != known:
        ledger.publish(Epoch("open", ledger.frontier, source=ledger.source.with_columns(rules)))


def begin(attempt: Attempt) -> None:
    """Choose the tables, make what is needed upstream, and publish the source's first records."""
    place = attempt.place
    report = preflight(place.config)
    source = _source(attempt, report)
    # From here on there may be objects upstream: remember that, for `headrace drop`.
    last_config.remember(place.store, place.name, place.config, place.lake)
    # A first run copies: without Spark it would leave a slot behind that nobody reads.
    place.spark.await_started(attempt.waiting.check)
    mirror = attempt.connection.mirror(source.upstream)
    origin = mirror.establish(StreamOrder(report.tables, undo=True), attempt.waiting)
    source = replace(source, identity=origin.identity, upstream=origin.upstream, start=origin.start)
    for error in origin.tables.errors.values():
        raise error
    late = not origin.fresh
    records = tuple(
        replace(new_record(table, source.start), late=late) for table in origin.tables.defs.values()
    )
    commits = LastCommits(source.start.time)
    attempt.ledger.publish(
        Epoch("open", source.start, records=records, source=source, commits=commits, begun_at=origin.begun_at)
    )


def _source(met: Attempt, report: CheckReport) -> SourceRecord:
    """Make the record of the source from the configuration; its stream has yet to begin."""
    place, config = met.place, met.place.config
    source = registry.by_address(config.url)
    record = SourceRecord(
        kind=registry.kind_of(config.url),
        address=config.address().without_secrets(),
        identity=met.connection.identity,
        upstream=source.plan(place.lake_id, place.name, config.options),
        start=ORIGIN,
        patterns=config.tables,
    )
    record = record.with_columns_of(report.tables)
    key = hash_key(record.column_rules)
    return record.with_columns(record.column_rules.with_key(key.fingerprint)) if key else record
