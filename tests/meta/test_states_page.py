"""docs/states.md is what the tables of states draw."""

from __future__ import annotations

from headrace.pipeline.state.table_state import TRANSITIONS, State
from setup.draw_states import PAGE, page


def test_the_page_is_in_step_with_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: make docs"


def test_every_transition_stands_on_the_page() -> None:
    table = PAGE.read_text(encoding="utf-8").split("| in state |")[1]
    for state in State:
        [row] = [line for line in table.splitlines() if line.startswith(f"| `{state.value}` |")]
        cells = [cell.strip() for cell in row.split("|")[2:-1]]
        assert sorted(cell for cell in cells if cell != "-") == sorted(
            after.value for after in TRANSITIONS[state].values()
        )
