"""The status of a source, as its owner says it; the file holds its record (`core.records`).

    SourceStatus ─┬─ PositionStatus    how far marks, stream and acknowledgement are
                  ├─ WorkStatus        what the loop does at this moment, and what Spark waits for
                  ├─ UpstreamStatus    what the source holds for us, as it words that itself
                  ├─ RunningStatus     transactions that are streamed while they run
                  ├─ EpochStatus       the work since the run began
                  ├─ CopyStatus        of all copies together
                  ├─ StorageStatus     the size of the source's part of the lake
                  ├─ AlterationStatus  changes of tables' shapes that this run has followed
                  ├─ TableStatus       each table, and its copy
                  └─ IcebergStatus     the export of marks to Iceberg

Filled by a run (`pipeline.status_report`); read by `status.picture`, by a run's own progress lines, and by
whoever asks who owns a source. A record of another release is read as far as it goes: what it lacks is empty,
what it has more is left out. Nothing here is a value of a row, or a secret.

A run repeats its record each second, whatever its loop does. So each fact that may grow old has its own time:

    updated_at        the record was written
    turned_at         the loop came round
    contact_at        the source answered, be it an idle word
    position.at       positions were looked up, in the spool and not by the loop
    upstream.at       the source spoke of what it holds for us
    state_since, work.since, warned_since[code], unmirrored_at, tables[name].retry_at
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from headrace.core.records import from_record, on_disk

CONTACT_SECONDS = 15.0  # a healthy run hears its source at least every five
TIME_SPEC = "milliseconds"


@dataclass(frozen=True, slots=True)
class PositionStatus:
    """The progress of a source: positions as the source writes them, and how much the lake is behind."""

    frontier: str = ""  # of the newest mark
    received_until: str = field(default="", metadata=on_disk("received"))
    source: str = ""
    acknowledged_until: str | None = field(default=None, metadata=on_disk("acknowledged"))
    complete_until: str | None = None  # the source's clock: the newest mark holds all that is older
    lag_bytes: int = 0
    lag_seconds: float = 0.0
    spool_bytes: int = 0
    kept_bytes: int = 0  # of the stream, in the lake, for tables that wait for their copy
    waiting_since: str | None = (
        None  # the commit of the oldest transaction that was received and is in no mark
    )
    at: str | None = None


@dataclass(frozen=True, slots=True)
class WorkStatus:
    """A step that somebody is at, and since when."""

    what: str = ""
    since: str = ""


@dataclass(frozen=True, slots=True)
class UpstreamStatus:
    """The source's word on what it holds for us: figures by its own names, and lines for people."""

    figures: Mapping[str, Any] = field(default_factory=dict, metadata=on_disk("upstream"))
    lines: tuple[str, ...] = field(default=(), metadata=on_disk("upstream_lines"))
    at: str | None = field(default=None, metadata=on_disk("upstream_at"))
    # The bytes of its log that it holds back for us, and beyond which it, or we, end that.
    retained_bytes: int | None = field(default=None, metadata=on_disk("upstream_retained_bytes"))
    limit_bytes: int | None = field(default=None, metadata=on_disk("upstream_limit_bytes"))


@dataclass(frozen=True, slots=True)
class RunningStatus:
    """Transactions that are streamed while they run, and have not ended."""

    open: int = 0
    open_bytes: int = 0


@dataclass(frozen=True, slots=True)
class EpochStatus:
    """The epochs of this run, by who did them, and the newest one's number."""

    driver: int = 0
    spark: int = 0
    from_sorted_runs: int = field(default=0, metadata=on_disk("layered"))
    newest: int = 0
    file_ways: Mapping[str, int] = field(default_factory=dict, metadata=on_disk("files", sparse=True))


@dataclass(frozen=True, slots=True)
class StepStatus:
    """The durations of one step of all epochs: how many took at most each of `BOUNDS`, and all of them."""

    counts: tuple[int, ...] = ()  # one a bound, and one for what took longer
    seconds: float = 0.0


BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)  # seconds


@dataclass(frozen=True, slots=True)
class StorageStatus:
    """The size of a source's part of the lake: as it was counted, and what marks have added since."""

    files: int = 0
    size_bytes: int = 0
    counted_at: str | None = None  # None: not yet
    hour_files: int = 0  # that marks wrote in the last hour of this run
    hour_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TotalsStatus:
    """Sums over all runs of the lake. A run goes on from the record of the one before, and from the marks
    behind it; where that record is gone, from the marks that are kept."""

    epoch: int = 0  # of the newest mark that is counted
    transactions: int = 0
    changes: int = 0
    marks: Mapping[str, int] = field(default_factory=dict)  # by kind
    errors: Mapping[str, int] = field(default_factory=dict)  # by code: how often one came to be
    steps: Mapping[str, StepStatus] = field(default_factory=dict)  # of epochs


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """The memory and CPU time of the processes of one role."""

    resident_bytes: int = 0
    cpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CopyStatus:
    """The progress of a copy; what is known of it is an estimate."""

    rows_known: int = field(default=0, metadata=on_disk("snapshot_rows_known"))
    rows_done: int = field(default=0, metadata=on_disk("snapshot_rows_done"))
    bytes_known: int = field(default=0, metadata=on_disk("snapshot_bytes_known"))
    bytes_done: int = field(default=0, metadata=on_disk("snapshot_bytes_done"))


@dataclass(frozen=True, slots=True)
class TableStatus:
    """The state of one table."""

    state: str = ""
    join: str = ""
    held_transactions: int = 0
    copied_anew: str | None = None  # the state of its new copy, while there is one
    since: Any = None
    rows: int | None = None
    files: int | None = None  # of its rows at the newest mark
    size_bytes: int | None = None  # of these files
    last_change: str | None = None
    error: Mapping[str, Any] | None = None
    stopped_at: Any = None
    stopped_since: str | None = field(default=None, metadata=on_disk(sparse=True))
    schema_version: int | None = None  # the number of the history that goes on under its columns
    schema_since: Any = None
    unseen_since: str | None = None  # since when it is in no mark, as somebody may be altering it
    holder: str | None = None  # who that is, where it is known
    follows: bool = False  # it stopped, and the run takes it up again by itself
    retry_at: str | None = None  # when it tries that again, after it was in vain
    is_missing: bool = field(default=False, metadata=on_disk("gone"))  # at the source
    columns_left_out: tuple[str, ...] = ()  # that the source does not send, so that the lake has none of them
    copy: CopyStatus | None = field(default=None, metadata=on_disk(inline=True))


@dataclass(frozen=True, slots=True)
class AlterationStatus:
    """A change of a table's shape that was followed."""

    table: str = ""
    epoch: int = 0  # whose mark tells of it
    at: str = ""
    way: str = ""  # as the catalog says it: "added", "rewritten", "copied"
    what: str = ""
    published_at: str | None = None


@dataclass(frozen=True, slots=True)
class IcebergStatus:
    """The export of marks to an Iceberg catalog."""

    epoch: int = 0  # of the mark that was exported last
    exported_at: str | None = None
    behind_since: str | None = None  # since when no export succeeded; None: the last one did
    tables: int = 0
    left_out: Mapping[str, str] = field(default_factory=dict)  # code by table


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """The state of a source, and who says so. Without an owner's word there are no tables in it."""

    source: str = ""
    state: str = ""
    owner: Mapping[str, Any] = field(default_factory=dict)
    updated_at: str = ""
    error: Mapping[str, Any] | None = None
    warnings: Mapping[str, str] = field(
        default_factory=dict
    )  # by their codes; what is over is not among them
    warned_since: Mapping[str, str] = field(default_factory=dict)
    # Those that the patterns match: code by name.
    unmirrored_tables: Mapping[str, str] = field(default_factory=dict, metadata=on_disk("unmirrored"))
    unmirrored_at: str | None = None
    position: PositionStatus | None = None
    running: RunningStatus | None = field(default=None, metadata=on_disk("streamed"))
    epochs: EpochStatus | None = None
    marked_at: str | None = None  # when the newest mark was published
    totals: TotalsStatus | None = None
    processes: Mapping[str, ProcessStatus] = field(default_factory=dict)  # by role
    alterations: tuple[AlterationStatus, ...] = ()  # that this run has followed, the newest last
    state_since: str | None = None
    turned_at: str | None = None
    contact_at: str | None = None
    work: WorkStatus | None = None  # the loop's
    spark: WorkStatus | None = None  # what Spark waits for, if it does
    upstream: UpstreamStatus | None = field(default=None, metadata=on_disk(inline=True))
    copy: CopyStatus | None = field(default=None, metadata=on_disk("snapshot", sparse=True))
    storage: StorageStatus | None = field(default=None, metadata=on_disk(sparse=True))
    # The seconds that lie between two marks at least, and whether the run chose them by what marks cost.
    mark_interval: float | None = field(default=None, metadata=on_disk(sparse=True))
    chooses_interval: bool = field(default=False, metadata=on_disk(sparse=True))
    tables: Mapping[str, TableStatus] | None = field(default=None, metadata=on_disk(sparse=True))
    iceberg: IcebergStatus | None = field(default=None, metadata=on_disk(sparse=True))

    def lag_seconds(self, now: datetime) -> float | None:
        """The seconds that the lake may be behind its source at a moment; None where nothing is known.

        It grows with the clock while a transaction waits for its mark, and while the source is not heard:
        nobody knows then what is committed there.
        """
        if self.position is None:
            return None
        waiting = seconds_since(self.position.waiting_since, now) or 0.0
        return max(waiting, (self.silent_seconds(now) or 0.0) if self.unheard(now) else 0.0)

    def unheard(self, now: datetime) -> bool:
        """Tell whether the source has been silent for longer than a healthy run lets it be."""
        silent = self.silent_seconds(now)
        return silent is not None and silent > CONTACT_SECONDS

    def silent_seconds(self, now: datetime) -> float | None:
        """The seconds since the source last answered."""
        return seconds_since(self.contact_at or self.updated_at, now)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> SourceStatus:
        """Read the record of a source, as far as it goes."""
        return from_record(cls, record, lenient=True)


def moment_text(seconds: float) -> str:
    """A moment as a status holds it, from seconds since 1970."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec=TIME_SPEC)


def seconds_since(moment: str | None, now: datetime) -> float | None:
    """The age of a moment of a status; never below zero, since clocks differ."""
    try:
        return max(0.0, (now - datetime.fromisoformat(moment)).total_seconds()) if moment else None
    except (ValueError, TypeError):  # another release's
        return None
