"""docs/states.md is what the transition table draws, and the table has no state that nothing leads to."""

from __future__ import annotations

from headrace.pipeline.state.table_state import TRANSITIONS, State
from setup.draw_states import PAGE, page


def test_the_page_is_in_step_with_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: make docs"


def test_every_state_is_reached() -> None:
    reached = {next(iter(State))}
    while more := {after for (before, _), after in TRANSITIONS.items() if before in reached} - reached:
        reached |= more
    assert reached == set(State)
