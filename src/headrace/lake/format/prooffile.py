"""The proof file: how each table of a source came out of its last `verify`, and when.

`headrace verify` writes it, after its report; the status shows it. A table that was proven equal once may be
damaged later, so the moment and the position stand beside the outcome. It holds names, outcomes and codes:
never a key or a value of a row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.core.records import from_record, to_record
from headrace.lake.format import layout
from headrace.lake.store.contract import Store


@dataclass(frozen=True, slots=True)
class TableProof:
    """The last comparison of a table with its source."""

    outcome: str = ""  # "equal", "different" or "not compared"
    at: str = ""
    position: str = ""
    code: str | None = None  # of the error for which it was not compared


def write(store: Store, source: str, tables: Mapping[str, TableProof]) -> None:
    """Note the outcomes of these tables; those of others stay."""
    known = {**read(store, source), **tables}
    record = {name: to_record(proof) for name, proof in sorted(known.items())}
    store.put(layout.proof_key(source), json.dumps({"tables": record}).encode(), lasting=False)


def read(store: Store, source: str) -> dict[str, TableProof]:
    """Read the outcomes by table; none where nothing was verified, or nothing can be read."""
    try:
        record = json.loads(store.get(layout.proof_key(source)) or b"{}")
        known = record.get("tables", {}).items()
        return {name: from_record(TableProof, proof, lenient=True) for name, proof in known}
    except (ValueError, TypeError, AttributeError):
        return {}
