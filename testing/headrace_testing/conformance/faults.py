"""A mirror after a failure: a kill at any durable step, a lost position, another server, a lost login."""

from __future__ import annotations

import pytest

from headrace_testing import validators
from headrace_testing.conformance.mirror import Mirror
from headrace_testing.conformance.place import Place, SourceUnderTest, execute
from headrace_testing.mirror_process import Mirrored, Program

# The fail points of every durable step from a copy to an acknowledgement (docs/fail-points.md).
STEPS = (
    *("lake.plan.before", "lake.plan.after", "lake.table.before", "lake.table.after"),
    *("lake.mark.before", "lake.mark.after", "lake.sync.before", "lake.sync.after"),
    *("copy.snapshot.before", "copy.range.before", "copy.range.after"),
    *("acknowledge.before", "acknowledge.after"),
)
_ORDINARY = "lake.table.after"  # one of two tables is committed, no mark says so


def _exact(mirror: Mirror) -> None:
    assert validators.exact(mirror.lake, mirror.place.url, values=True) == []
    assert validators.definite(mirror.lake, of_many=mirror.of_many) == []


def _fill(place: Place) -> None:
    for table in ("t", "u"):
        execute(place, f"CREATE TABLE {table} (id int PRIMARY KEY, n int)")
        rows = ", ".join(f"({i}, 0)" for i in range(200))
        execute(place, f"INSERT INTO {table} VALUES {rows}")


@pytest.fixture
def filled(mirror: Mirror) -> Mirror:
    """Two tables that nobody mirrors yet."""
    _fill(mirror.place)
    return mirror


def _change(mirror: Mirror) -> None:
    execute(mirror.place, "UPDATE t SET n = n + 1", "DELETE FROM u WHERE id < 50", "UPDATE u SET n = 7")


@pytest.mark.parametrize(
    "step", [step if step == _ORDINARY else pytest.param(step, marks=pytest.mark.full) for step in STEPS]
)
def test_a_kill_at_any_durable_step_costs_nothing(filled: Mirror, program: Program, step: str) -> None:
    if not step.startswith("copy."):
        filled.once()
        _change(filled)
    mirrored = Mirrored(filled.path, filled.place.url, *filled.patterns, program=program)
    try:
        mirrored.start("--once", environment={"HEADRACE_FAILPOINT": f"{step}=kill"})
        assert mirrored.wait() == -9, mirrored.log()
    finally:
        mirrored.close()
    _change(filled)
    filled.once()
    _exact(filled)


def test_a_lost_position_stops_the_source_and_is_healed_on_request(
    filled: Mirror, source: SourceUnderTest
) -> None:
    """Changes that were lost with the log come as a difference, in one mark."""
    last = filled.once().at().mark
    _change(filled)
    filled.place.lose_position()
    _change(filled)
    error = filled.stops()
    assert (error.code, "--reconcile" in error.hint) == (source.lost, True)
    assert filled.lake.at().mark.versions == last.versions
    filled.once(heal=True)
    _exact(filled)
    assert filled.lake.at(epoch=last.epoch).arrow(str(filled.place.table("u"))).num_rows == 200
    _change(filled)
    filled.once()
    _exact(filled)


def test_another_server_is_never_followed_by_itself(filled: Mirror, source: SourceUnderTest) -> None:
    """The other server has the same tables."""
    last = filled.once().at().mark
    with filled.place.elsewhere() as other:
        _fill(other)
        # Not even where it may heal what was lost: the address may be wrong.
        assert filled.stops(url=other.url, reconcile="auto").code == source.elsewhere
    assert filled.lake.at().mark.versions == last.versions
    _change(filled)
    filled.once()
    _exact(filled)


@pytest.mark.full
def test_a_login_that_is_taken_away_and_given_back_ends_nothing(
    filled: Mirror, program_without_spark: Program, source: SourceUnderTest
) -> None:
    """A run waits and goes on by itself. A run that begins meanwhile ends at once with an error."""
    mirrored = Mirrored(filled.path, filled.place.url, *filled.patterns, program=program_without_spark)
    try:
        mirrored.start()
        mirrored.until_live(within=60)
        known = filled.lake.marks()[-1].epoch
        with filled.place.barred():
            mirrored.until(lambda: source.barred in mirrored.log(), "word of what is waited for", within=60)
        _change(filled)
        mirrored.until(lambda: filled.lake.at().mark.epoch > known, "further mark", within=60)
        assert mirrored.stop() == 0, mirrored.log()
        with filled.place.barred():
            mirrored.start()
            assert mirrored.wait(60) == 2, mirrored.log()
    finally:
        mirrored.close()
    filled.once()
    _exact(filled)


def test_a_run_that_only_catches_up_ends_where_a_table_may_not_be_read(
    filled: Mirror, source: SourceUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run does all other work first, and the error names the table. With the right, it goes on."""
    monkeypatch.setattr("headrace.pipeline.run.ATTEMPTS_ONCE", 1)
    place, known = filled.place, filled.once().at().mark
    execute(place, "CREATE TABLE late (id int PRIMARY KEY, n int)", "INSERT INTO late VALUES (1, 1)")
    filled.ask("tables.add", "late")
    _change(filled)
    with place.unreadable("late"):
        error = filled.stops()
    assert (error.code, error.family) == (source.unreadable, "misconfigured")
    assert str(place.table("late")) in error.primary
    mark = filled.lake.at().mark
    assert (mark.time > known.time, set(mark.versions)) == (True, set(known.versions))
    assert filled.lake.at().arrow(str(place.table("u"))).num_rows == 150
    filled.once()
    _exact(filled)
    assert str(place.table("late")) in filled.lake.at().mark.versions
