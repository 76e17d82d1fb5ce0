"""Makes docs/states.md from the transitions of `pipeline.state.table_state`. Run by `make docs`.

The table in the source is the truth; the diagram is drawn from it, so that the two cannot disagree.
"""

from __future__ import annotations

from pathlib import Path

from headrace.pipeline.state.table_state import TRANSITIONS, State

PAGE = Path(__file__).resolve().parents[1] / "docs" / "states.md"

_HEAD = """\
# The life of a table

Made by `make docs` from `pipeline/state/table_state.py`, which says what each state means. Marks name a table
only while it is `live`; an event that is not drawn cannot happen.
"""


def page() -> str:
    """The transitions as a diagram, and as a table for those whose viewer draws none."""
    arrows = [
        f"    {before.value} --> {after.value}: {event.value}"
        for (before, event), after in TRANSITIONS.items()
    ]
    rows = [
        f"| {before.value} | {event.value} | {after.value} |"
        for (before, event), after in TRANSITIONS.items()
    ]
    diagram = ["```mermaid", "stateDiagram-v2", f"    [*] --> {next(iter(State)).value}", *arrows, "```"]
    table = ["| in state | when | becomes |", "|---|---|---|", *rows]
    return "\n".join([_HEAD, *diagram, "", *table, ""])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
