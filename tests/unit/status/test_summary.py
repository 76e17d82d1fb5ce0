"""The words that the page and the terminal share: which table comes first, and how far a copy is."""

from __future__ import annotations

from headrace.lake.format.status import CopyStatus, TableStatus
from headrace.status.pace import Rates
from headrace.status.summary import CopyWords, by_weight, copy_words, last_minute, states


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
