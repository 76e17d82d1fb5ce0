"""The handles of a source's tables are used by the loop and by the thread that acknowledges."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.lake.store.open import open_store
from headrace.pipeline.state import live_tables
from headrace.pipeline.state.live_tables import LiveTables


def test_a_table_that_is_opened_while_a_folder_is_forgotten_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = LiveTables(open_store(tmp_path), "main")
    gone = live.table("staged/main/1/rows")
    lies_in = live_tables._lies_in

    def opened_meanwhile(path: str, folder: str) -> bool:
        live.table("tables/main/public/t")  # as the thread that acknowledges does
        return lies_in(path, folder)

    monkeypatch.setattr(live_tables, "_lies_in", opened_meanwhile)
    live.forget("staged/main/1")
    assert live.table("staged/main/1/rows") is not gone
