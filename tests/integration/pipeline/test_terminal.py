"""A real run in a terminal, and `headrace status --watch` beside it in another one."""

from __future__ import annotations

import re
import sys
from contextlib import closing
from pathlib import Path

import pytest

from headrace_testing.mirror_process import Mirrored, Program
from headrace_testing.postgres import Database
from tests.terminals import in_terminal, terminal

pytestmark = pytest.mark.server
EVIL = 'public."evil\x1b[31m"'


def test_a_run_shows_its_copies_its_stream_and_what_stops_in_a_terminal(
    database: Database, tmp_path: Path, program: Program
) -> None:
    database.execute(
        "CREATE TABLE a (id int PRIMARY KEY, t text); CREATE TABLE b (id int PRIMARY KEY); "
        f"CREATE TABLE {EVIL} (id int PRIMARY KEY)",
        user="app",
    )
    database.execute(
        "INSERT INTO a SELECT i, repeat('x', 400) FROM generate_series(1, 5000) i; ANALYZE", user="app"
    )
    lake, url = tmp_path / "lake", database.url(user="app")
    # Wide enough for the lake's path: a word that is cut into pieces is not what one looks for.
    with terminal(100, 30) as screen, terminal(140, 24) as watch:
        shown = in_terminal(screen, program)
        mirror = Mirrored(lake, url, "public.*", options={"on_ddl": "stop"}, program=shown)
        with closing(mirror):
            release = tmp_path / "release"
            pause = {"HEADRACE_FAILPOINT": "copy.range.after@public.a=pause"}
            mirror.start(environment={**pause, "HEADRACE_FAILPOINT_RELEASE": str(release)})
            bar = re.compile(r"\npublic\.a  [█░]{12}  \d+% of \d+\.\d MB")
            screen.until(lambda: bar.search(screen.text) is not None, "the bar")
            release.touch()
            mirror.until_live()
            process = watch.start(
                [sys.executable, "-m", "headrace", "status", "--lake", str(lake), "--watch"]
            )
            watch.until(lambda: "✓ The mirror is true: 3 tables" in watch.page, "the page")
            database.execute("INSERT INTO a SELECT i FROM generate_series(60000, 60100) i", user="app")
            watch.until(lambda: re.search(r"public\.a +✓ live +5,101 ", watch.page) is not None, "the rows")
            database.execute("ALTER TABLE b ADD COLUMN n int; INSERT INTO b VALUES (1, 1)", user="app")
            screen.until(lambda: "main: public.b stopped at " in screen.text, "the stop")
            watch.until(lambda: watch.page.startswith("✕ table public.b: stopped"), "what is wrong")
            assert f"headrace tables resync --lake {lake} public.b" in re.sub(r" \\\n +", " ", watch.page)
            assert mirror.stop() == 0
            watch.until(lambda: "source main: its run was stopped" in watch.page, "the end of the run")
            watch.type("\x03")
            assert process.wait(60) == 130
        first, *lines = [line for line in screen.text.splitlines() if re.match(r"\d{4}-\d\d-\d\dT", line)]
    assert first.endswith(f"no page is served; headrace serve --lake {lake} shows one")
    assert any("in the marks, exact: " in line for line in lines)
    assert any(" main stopped" in line for line in lines)
    for raw in (screen.raw, watch.raw):
        assert "\x1b[31m" not in raw
        assert r"evil\x1b[31m" in raw
        assert raw.rindex("\x1b[?25h") > raw.rindex("\x1b[?25l")  # the cursor is back
