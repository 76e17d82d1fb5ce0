"""The chunks that tables were copied in, as a lake remembers them: by the moments at which they were read."""

from __future__ import annotations

import json
from pathlib import Path

from headrace.core.chunks import ByChunk
from headrace.core.records import from_record
from headrace.lake.read.lake import Lake
from headrace.pipeline.state.records import tables_of
from headrace.pipeline.state.table_state import State


def unfinished(lake: Lake) -> set[str]:
    """The moments of the chunks of tables that are not complete."""
    known = [r.handoff for r in tables_of(lake.catalog()).values() if r.state is State.PENDING]
    return {str(c.handoff) for handoff in known if isinstance(handoff, ByChunk) for c in handoff.chunks}


def ever(lake: Path) -> set[str]:
    """The moments of all chunks that copies were made of, as far as any plan told of them last."""
    plans = [json.loads(path.read_text()) for path in (lake / "_headrace/epochs").rglob("*.json")]
    newest: dict[str, ByChunk] = {}
    for plan in sorted(plans, key=lambda plan: int(plan["epoch"])):
        for name, state in plan["state"].items():
            known = state.get("handoff") if name.startswith("table/") and state else None
            if known and known["by"] == "chunk":
                newest[name] = from_record(ByChunk, known)
    return {str(chunk.handoff) for handoff in newest.values() for chunk in handoff.chunks}
