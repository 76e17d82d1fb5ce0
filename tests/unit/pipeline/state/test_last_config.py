"""A lake remembers its configuration, also one that an earlier program wrote down."""

from __future__ import annotations

import json
from pathlib import Path

from headrace.lake.format import layout
from headrace.lake.store.open import open_store
from headrace.pipeline.state import config, last_config

URL = "user=me dbname=shop host=db"


def test_what_is_remembered_is_what_was_configured(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    said = config.parse(
        {
            "lake": {"path": "x", "retention": "30d"},
            "source": {
                "a": {"url": URL, "tables": ["p.*"], "handoff": "xid", "strict": True},
                "b": {"url": URL},
            },
        }
    )
    for name, source in said.sources.items():
        last_config.remember(store, name, source, said.lake)
    found = last_config.recall(store)
    assert {name: source for name, (_, source) in found.items()} == said.sources
    assert found["a"][0].retention == "30d"


def test_options_of_the_kind_are_read_as_an_earlier_program_wrote_them(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    source = {"url": URL, "tables": ["p.*"], "publication": "mine", "slot": None, "handoff": "chunks"}
    store.put(layout.remembered_key("main"), json.dumps({"lake": {}, "source": source}).encode())
    _, found = last_config.recall(store)["main"]
    assert found.options == {"publication": "mine", "handoff": "chunks"}
    assert found.tables == ("p.*",)
