"""Makes docs/states.md from the tables of `pipeline.state.table_state`. Run by `make docs`.

The tables in the source are the truth; the diagram is drawn from them, so that the two cannot disagree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from headrace.pipeline.state.table_state import MEANINGS, TRANSITIONS, Meaning, State, TableEvent

PAGE = Path(__file__).resolve().parents[1] / "docs" / "states.md"

_HEAD = """\
# The life of a table

Made by `make docs` from `pipeline/state/table_state.py`, which says what each state means. A table is
`absent` before it is chosen and after it is dropped. `failed` and `dropped` may happen anywhere, and stand
in the table alone.
"""
_MIDDLE = """
A dash is an event that cannot happen in that state: a bug, which stops the run and names both.
"""
_MEANING = """
What else a state decides, for whoever has to do something with the table:
"""
_ANYWHERE = (TableEvent.FAILED, TableEvent.DROPPED)


def page() -> str:
    """The life as a diagram, every state with every event, and what each state means."""
    return "\n".join([_HEAD, *_diagram(), _MIDDLE, *_transitions(), _MEANING, *_meanings(), ""])


def _diagram() -> list[str]:
    arrows = [
        f"    {_place(before)} --> {_place(after)}: {event.value}"
        for before, row in TRANSITIONS.items()
        for event, after in row.items()
        if event not in _ANYWHERE
    ]
    return ["```mermaid", "stateDiagram-v2", *arrows, "```"]


def _place(state: State) -> str:
    return "[*]" if state is State.ABSENT else state.value


def _transitions() -> list[str]:
    rows = [[TRANSITIONS[state].get(event) for event in TableEvent] for state in State]
    cells = [["-" if after is None else after.value for after in row] for row in rows]
    return _table([event.value for event in TableEvent], cells)


def _meanings() -> list[str]:
    names = [field.name for field in fields(Meaning)]
    cells = [["yes" if getattr(MEANINGS[state], name) else "" for name in names] for state in State]
    return _table([name.replace("_", " ") for name in names], cells)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A row for each state."""
    lines = [["in state", *heads], ["---"] * (len(heads) + 1)]
    lines += [[f"`{state.value}`", *row] for state, row in zip(State, rows, strict=True)]
    return ["| " + " | ".join(line) + " |" for line in lines]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
