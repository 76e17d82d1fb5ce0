"""Metrics of a real mirror: sums of its marks, over restarts too, and what its source holds for it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from urllib.parse import quote

import pytest

from headrace.lake.format import layout
from headrace.pipeline.commands import ask
from headrace.status.watch import Watch
from headrace.web import exposition, metrics
from headrace.web.server import serving as listening
from headrace.web.settings import settings
from headrace_testing.postgres import Database
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.serving import serving
from tests.unit.web.lakes import get

pytestmark = pytest.mark.server
_SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")


@pytest.fixture
def mirrors(mirrors: Mirrors, database: Database) -> Mirrors:
    """A mirror of one table, copied."""
    database.execute("CREATE TABLE a (id int PRIMARY KEY); INSERT INTO a VALUES (1), (2)", user="app")
    mirrors.once()
    return mirrors


def samples(mirrors: Mirrors) -> dict[str, float]:
    """The samples by name and labels, the lake left out."""
    watch = Watch(str(mirrors.path))
    text = exposition.write_text(metrics.families([watch.view()]), openmetrics=False).decode()
    watch.stop()
    found = [_SAMPLE.fullmatch(line) for line in text.splitlines() if not line.startswith("#")]
    lake = f'lake="{mirrors.path}",source="main"'
    return {
        f"{each[1]}{{{(each[2] or '').replace(lake, '').lstrip(',')}}}": float(each[3])
        for each in found
        if each
    }


def sums(mirrors: Mirrors) -> dict[str, float]:
    """The counters as the marks table has them."""
    marks = mirrors.lake.marks()
    kinds = Counter(mark.kind for mark in marks)
    return {
        "headrace_transactions_total{}": sum(mark.transactions for mark in marks),
        "headrace_changes_total{}": sum(mark.changes for mark in marks),
        **{f'headrace_marks_total{{kind="{kind}"}}': count for kind, count in kinds.items()},
    }


def counters(mirrors: Mirrors) -> dict[str, float]:
    names = ("headrace_transactions_total", "headrace_changes_total", "headrace_marks_total")
    return {name: value for name, value in samples(mirrors).items() if name.startswith(names)}


def test_counters_are_sums_of_marks_over_restarts(mirrors: Mirrors, database: Database) -> None:
    assert counters(mirrors) == sums(mirrors)
    status = Path(mirrors.path, layout.status_key("main"))
    before = status.read_bytes()
    database.execute("INSERT INTO a VALUES (3); DELETE FROM a WHERE id = 1", user="app")
    mirrors.once()
    assert counters(mirrors) == sums(mirrors)
    assert sums(mirrors)["headrace_changes_total{}"] == 2
    # A run that was killed left marks that its last word does not count; then even that is lost.
    status.write_bytes(before)
    mirrors.once()
    assert counters(mirrors) == sums(mirrors)
    status.unlink()
    mirrors.once()
    assert counters(mirrors) == sums(mirrors)


def test_a_living_run_tells_lag_log_steps_and_processes(mirrors: Mirrors, database: Database) -> None:
    mirrors.options["max_wal"] = 10_000_000
    with serving(mirrors) as served:
        database.execute("INSERT INTO a VALUES (3)", user="app")

        served.until(lambda: "headrace_retained_log_bytes{}" in samples(mirrors), "the source's health")
        served.until(lambda: samples(mirrors).get('headrace_table_rows{table="public.a"}') == 3, "the row")
        found = samples(mirrors)
    assert found["headrace_up{}"] == 1
    assert found['headrace_source_state{state="running"}'] == 1
    assert found["headrace_lag_seconds{}"] < 60
    assert found["headrace_retained_log_limit_bytes{}"] == 10_000_000
    assert 0 <= found["headrace_mark_age_seconds{}"] < 60
    assert found['headrace_table_rows{table="public.a"}'] == 3
    assert found['headrace_table_last_change_timestamp_seconds{table="public.a"}'] > 1e9
    for step in ("job", "plan", "commit", "publish"):
        assert found[f'headrace_epoch_seconds_sum{{step="{step}"}}'] > 0
    for role in ("driver", "receiver"):
        assert found[f'headrace_process_resident_bytes{{role="{role}"}}'] > 10_000_000
        assert found[f'headrace_process_cpu_seconds_total{{role="{role}"}}'] > 0
    ended = samples(mirrors)
    assert ended["headrace_up{}"] == 0
    assert ended['headrace_source_state{state="stopped"}'] == 1
    assert "headrace_lag_bytes{}" not in ended
    assert ended["headrace_changes_total{}"] == 1


def test_errors_and_states_of_tables_are_told_by_code(mirrors: Mirrors, database: Database) -> None:
    mirrors.options["on_ddl"] = "stop"
    with serving(mirrors) as served:
        database.execute("ALTER TABLE a ADD COLUMN b int; INSERT INTO a VALUES (4, 4)", user="app")
        served.until(
            lambda: samples(mirrors).get('headrace_table_state{table="public.a",state="stopped"}') == 1,
            "the table's stop",
        )
        found = samples(mirrors)
    errors = {name: value for name, value in found.items() if name.startswith("headrace_errors_total")}
    assert errors == {'headrace_errors_total{code="TABLE_CHANGED"}': 1}
    mirrors.options.clear()


TABLE = "/table?name=public.a"


def intervals(page: str) -> list[str]:
    """The cells that say from when until when a table can be read."""
    body = page.partition('aria-label="When it can be read"')[2].partition("</table>")[0]
    return [re.sub("<[^>]+>", "", cell) for cell in re.findall(r"<td>(.*?)</td>", body)]


def test_no_path_shows_a_password_or_a_value_and_a_table_says_when_it_can_be_read(
    mirrors: Mirrors, database: Database
) -> None:
    mirrors.options["on_ddl"] = "stop"
    with listening(settings("127.0.0.1:0"), [str(mirrors.path)]) as url, serving(mirrors) as served:
        database.execute("INSERT INTO a VALUES (3)", user="app")
        served.until(lambda: served.holds("public.a", 3), "the row")
        database.execute("ALTER TABLE a ADD COLUMN t text; INSERT INTO a VALUES (4, 'row-value')", user="app")
        served.until(lambda: "public.a: stopped" in get(url, "/").text, "the table's stop")
        stopped_after = max(mark.epoch for mark in mirrors.lake.marks() if "public.a" in mark.versions)
        assert len(intervals(get(url, TABLE).text)) == 2
        paths = ["/", "/tables", "/marks", "/table?name=public.a", "/metrics", "/api/status", "/readyz"]
        for path in paths:
            text = get(url, path).text
            assert "public.a" in text or path in ("/marks", "/readyz"), path
            assert "row-value" not in text, path
            assert database.server.password not in text, path
            assert quote(database.server.password, safe="") not in text, path
        ask.ask(str(mirrors.path), "resync", {"tables": ["public.a"]})
        served.until(lambda: served.holds("public.a", 4), "the table's return")
        served.until(lambda: "now" in intervals(get(url, TABLE).text), "its interval")
        table = get(url, TABLE).text
        first, last = intervals(table)[-2:], intervals(table)[:2]
        assert first[1].endswith(f", mark {stopped_after}")
        assert last[1] == "now"
        assert "<td>t</td><td>text</td><td>string</td>" in table
        assert re.search(r"<dt>Size</dt><dd>[\d.]+ k?B in \d files?</dd>", table)
