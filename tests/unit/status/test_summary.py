"""The words that the page and the terminal share: which table comes first, and how far a copy is."""

from __future__ import annotations

from dataclasses import replace

from headrace.lake.format.status import CopyStatus, SourceStatus, StorageStatus, TableStatus
from headrace.status.pace import Rates
from headrace.status.picture import SourcePicture
from headrace.status.summary import CopyWords, by_weight, copy_words, last_minute, pace, states, storage


def test_tables_that_stopped_come_first_and_then_those_that_changed_last() -> None:
    tables = {
        "old": TableStatus("live", last_change="2026-01-01T00:00:00"),
        "new": TableStatus("live", last_change="2026-01-02T00:00:00"),
        "held": TableStatus("live", unseen_since="2026-01-02T00:00:00"),
        "stops": TableStatus("stopped"),
        "comes": TableStatus("copying"),
        "odd": TableStatus("of a newer release"),
        "never": TableStatus("live"),
    }
    assert by_weight(tables) == ["stops", "held", "comes", "odd", "new", "old", "never"]
    assert states(tables.values()) == "4 live, 1 stopped, 1 copying, 1 of a newer release"


def test_a_copy_has_a_time_left_once_its_rate_is_known() -> None:
    table = TableStatus("copying", copy=CopyStatus(1000, 250, 4_000_000, 1_000_000))
    assert copy_words(table, None).time_left == ""
    said = copy_words(table, 50_000.0)
    assert said == CopyWords(0.25, "4.0 MB", "250 of about 1,000", "50.0 kB/s", "60 s")
    assert said.progress == "25% of 4.0 MB"
    assert copy_words(TableStatus("pending"), None).progress == "waits"


def test_figures_of_a_minute_are_whole() -> None:
    assert last_minute(Rates({}, 1.2, 0.0)) == "1 mark, 0 changes"
    assert last_minute(Rates()) is None


def test_a_lake_says_its_size_and_how_often_marks_come() -> None:
    stored = StorageStatus(1_234, 5_600_000, "2026-01-01T00:00:00+00:00", 120, 1_500_000)
    said = SourceStatus("main", "running", storage=stored, mark_interval=7.5, chooses_interval=True)
    living = SourcePicture(said, 1.0, 7)
    assert storage(living) == "1,234 files, 5.6 MB; added by marks of the last hour: 120 files, 1.5 MB"
    assert pace(living) == "at least 7.5 s apart, by what marks cost"
    assert pace(SourcePicture(replace(said, chooses_interval=False), 1.0, 7)) == "at least 7.5 s apart"
    ended = SourcePicture(replace(said, state="stopped"), 1.0, 7)
    assert (storage(ended), pace(ended)) == ("1,234 files, 5.6 MB", None)
    assert storage(SourcePicture(replace(said, storage=StorageStatus()), 1.0, 7)) is None
