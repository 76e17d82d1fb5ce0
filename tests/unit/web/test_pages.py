"""The page as a document: whole HTML for every scene, the answer first, nothing that a text could break."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pytest

from headrace.status import problems, words
from headrace.status.problems import commands
from headrace.status.watch import Sample
from headrace.web import curves
from headrace.web.markup import tag
from headrace.web.pages import short_names
from headrace.web.server import serving
from headrace.web.settings import settings
from tests.unit.web.lakes import a_lake, get
from tests.unit.web.scenes import AWAY, SCENES, differing, healthy, scene, two_lakes

WEB = settings("127.0.0.1:0")
ASSETS = list(files("headrace.web").joinpath("assets").iterdir())
_VOID = {"meta", "link", "input", "br", "hr", "img"}


class Whole(HTMLParser):
    """Refuses a document whose elements do not nest, or that has script or style within."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.feed(document)
        assert self.open == []
        assert len(self.ids) == len(set(self.ids))

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        worn = dict(attributes)
        assert not [key for key in worn if key.startswith("on") or key == "style"]
        assert name != "script" or "src" in worn
        self.ids += [value for key, value in attributes if key == "id" and value]
        if name not in _VOID:
            self.open.append(name)

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name

    def handle_data(self, data: str) -> None:
        assert not data.strip() or self.open[-1] not in ("script", "style")


@pytest.fixture(params=[*SCENES, "differing"])
def shown(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A scene, and where it is served."""
    name = request.param
    lake = differing(tmp_path) if name == "differing" else scene(tmp_path, name)
    with serving(WEB, [lake]) as url:
        yield name, url


FIRST = {
    "healthy": r"The mirror is true: 30 tables, \d\.\d s behind the database",
    "stopped-table": "table public.invoices: stopped",
    "copying": r"The mirror is true: 31 of 36 tables, \d\.\d s behind the database",
    "returning": r"The mirror is true: 30 of 33 tables, \d\.\d s behind the database",
    "dropped": "The mirror is true: 30 tables, as of the newest mark",
    "near-limit": "source shop: the database holds back 91% of the log that it may",
    "starting": "Nothing can be read yet",
    "waiting": "source shop: slot &quot;headrace_shop&quot; is lost",
    "stopped": "source shop: its run was stopped",
    "failed": "source shop: slot &quot;headrace_shop&quot; is lost",
    "silent": "source shop: no run keeps it up to date",
    "killed": "source shop: no run keeps it up to date",
    "differing": "table public.items_0: it differs from its source, as the last verify found",
}


def test_every_scene_is_a_whole_document_that_answers_first(shown: tuple[str, str]) -> None:
    name, url = shown
    paths = ["/", "/tables", "/tables?q=ITEMS&state=live&sort=rows&down=1", "/marks", "/marks?epoch=40"]
    paths += [] if name == "starting" else ["/table?lake=0&source=shop&name=public.items_0"]
    for path in paths:
        answer = get(url, path)
        assert (answer.status, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        Whole(answer.text)
    heading = re.search(r"<h1>.*?</span> (.*?)</h1>", get(url, "/").text)
    assert heading is not None
    assert re.fullmatch(FIRST[name], heading[1])


def test_a_page_of_nothing_and_of_a_lake_that_is_gone(tmp_path: Path) -> None:
    lake = a_lake(tmp_path / "lake")
    with serving(WEB, [lake]) as url:
        assert "nothing is mirrored into this lake yet" in get(url, "/").text
        for path in ("/tables", "/marks", "/table?name=public.a"):
            assert get(url, path).record["code"] == "WEB_PATH"
    with serving(WEB, [str(tmp_path / "nowhere")]) as url:
        assert "LAKE_ABSENT" in get(url, "/").text


def _cells(document: str) -> list[str]:
    return [re.sub("<[^>]+>", "", cell) for cell in re.findall(r"<td>(.*?)</td>", document)]


def test_a_table_tells_its_types_its_size_and_each_interval_in_which_it_can_be_read(tmp_path: Path) -> None:
    with serving(WEB, [scene(tmp_path, "healthy")]) as url:
        cells = _cells(get(url, f"/table?name={AWAY}").text)
        text = get(url, "/tables?q=prices_1").text
    assert cells[:4] == ["16/B370001F", "now", "16/B3700000", "16/B3700013, mark 19"]
    assert cells[4:14] == [
        "id", "bigint", "bigint", "key", "never", "total", "numeric(12,2)", "decimal(12,2)", "", "allowed",
    ]  # fmt: skip
    assert "949 kB" in _cells(text)


def test_two_lakes_with_a_source_of_one_name_are_told_apart(tmp_path: Path) -> None:
    lakes = two_lakes(tmp_path)
    with serving(WEB, lakes) as url:
        text = get(url, "/").text
        Whole(text)
    assert "table public.invoices of billing/lake: stopped" in text
    assert "Source shop of billing/lake " in text
    assert "Source shop of search/lake " in text
    assert text.index("/table?lake=0&amp;source=shop&amp;name=public.invoices")
    assert f"--lake {lakes[0]} public.invoices" in text


@pytest.mark.parametrize(
    ("lakes", "shorts"),
    [
        (["./a"], ["a"]),
        (["/x/a", "/y/a/"], ["x/a", "y/a"]),
        (["a", "/y/a"], ["a", "y/a"]),
        (["s3://b/a", "s3://c/a", "s3://c/d"], ["b/a", "c/a", "d"]),
        (["/a", "/a"], ["a", "a"]),
    ],
)
def test_lakes_have_the_shortest_names_that_tell_them_apart(lakes: list[str], shorts: list[str]) -> None:
    assert [short_names(lakes)[lake] for lake in lakes] == shorts


def test_no_text_breaks_the_page(tmp_path: Path) -> None:
    evil = '"><script>alert(1)</script><b onclick="'
    table = replace(healthy().tables["public.items_0"], state=evil, last_change=evil)  # type: ignore[index]
    said = replace(
        healthy(), source=evil, state=evil, warnings={evil: evil}, tables={evil: table}, marked_at=evil
    )
    with serving(WEB, [a_lake(tmp_path, said)]) as url:
        for path in ("/", "/tables", f"/tables?q={'%22%3E%3Cscript%3E'}"):
            document = get(url, path).text
            Whole(document)
            assert "<script>alert" not in document
            assert "<b onclick" not in document


def test_a_stopped_table_says_since_when_and_counts_as_proved_no_more(tmp_path: Path) -> None:
    with serving(WEB, [scene(tmp_path / "lake", "stopped-table")]) as url:
        overview, table = (get(url, path).text for path in ("/", "/table?name=public.invoices"))
    assert "30 of 31 equal, 3 h ago" in overview
    assert re.search(r"Stopped [\d: -]+UTC, \d+ min ago\. It can be read as of its last exact mark", overview)
    assert re.search(r"<dt>Stopped</dt>\s*<dd>[\d: -]+UTC, \d+ min ago</dd>", table)
    with serving(WEB, [scene(tmp_path / "healthy", "healthy")]) as url:
        assert "30 equal, 3 h ago" in get(url, "/").text


def test_tables_are_filtered_and_sorted_by_the_server(tmp_path: Path) -> None:
    def names(path: str) -> list[str]:
        return re.findall(r'<tr id="row-public\.(\w+)"', get(url, path).text)

    with serving(WEB, [scene(tmp_path, "stopped-table")]) as url:
        assert names("/tables?q=stock") == ["stock_0", "stock_1", "stock_2"]
        assert names("/tables?state=stopped") == ["invoices"]
        assert names("/tables?sort=state")[0] == "invoices"
        by_rows = names("/tables?sort=rows")
        assert names("/tables?sort=rows&down=1") == by_rows[::-1]


@pytest.mark.parametrize(
    ("hint", "typed"),
    [
        ("headrace tables resync public.a", ["headrace tables resync --lake '/a lake' public.a"]),
        ("headrace tables resync, or headrace tables drop if the table is not needed",
         [f"headrace tables {each} --lake '/a lake' public.a" for each in ("resync", "drop")]),
        ("it was reset: headrace run --reconcile", ["headrace run --reconcile --lake '/a lake'"]),
        ("raise max_wal, or free the source with `headrace drop`", ["headrace drop --lake '/a lake'"]),
        ("pip install 'headrace[local]'", ["pip install 'headrace[local]'"]),
        ("headrace status shows why", []),
        (None, []),
    ],
)  # fmt: skip
def test_commands_of_a_hint_can_be_typed_as_they_stand(hint: str | None, typed: list[str]) -> None:
    assert commands(hint, "/a lake", "public.a") == typed


def test_curves_have_a_line_a_gap_and_figures() -> None:
    samples = [Sample(1000.0 + 10 * at, at / 10, 0, 100 * at, None) for at in (*range(10), *range(60, 70))]
    drawn = curves.curve("Lag", curves.levels(samples, lambda each: each.lag_seconds), words.span)
    assert drawn.count("<polyline") == 2
    assert "Lag, last hour: now 6.9 s, at most 6.9 s" in drawn
    rates = curves.rates(curves.levels(samples, lambda each: each.changes))
    assert {rate for _, rate in rates} == {10.0}
    assert curves.rates([(0.0, 5.0), (10.0, 2.0), (20.0, 4.0)]) == [(20.0, 0.2)]  # a sum that began anew
    assert "no curve yet" in curves.curve("Lag", [], words.span)


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (words.size(999), "999 B"), (words.size(1_234_567), "1.2 MB"), (words.size(None), "unknown"),
        (words.span(0.25), "0.2 s"), (words.span(600), "10 min"), (words.span(7300), "2 h"),
        (words.span(10 * 86400), "10 days"), (words.number(1234.5), "1,234"),
        (words.count_of(1, "table"), "1 table"), (words.count_of(2, "table"), "2 tables"),
        (words.clock(words.moment("2020-01-01T00:00:00")), "2020-01-01 00:00 UTC"), (words.ago(None), ""),
    ],
)  # fmt: skip
def test_figures_are_said_shortly(said: str, text: str) -> None:
    assert said == text


def test_what_is_sent_to_a_browser_is_small() -> None:
    assert sum(len(each.read_bytes()) for each in ASSETS) < 20_000
    texts = [each.read_text() for each in ASSETS if each.name != "icon.svg"]
    assert not [text for text in texts if "://" in text]


def test_attributes_and_texts_are_escaped_unless_they_are_markup() -> None:
    made = tag("p", "<", tag("b", "&"), title='"', hidden=True, lang=None)
    assert made == '<p title="&quot;" hidden>&lt;<b>&amp;</b></p>'


@pytest.mark.parametrize("words", problems._EFFECTS)
def test_a_hint_that_is_a_command_is_told_by_what_it_does(words: str) -> None:
    hint = f"headrace {words}" + (" public.t" if words.startswith("tables") else "")
    told = problems.Problem("grave", "table t", "it stopped", hint=hint, commands=[hint])
    assert told.advice == problems._EFFECTS[words]
    assert replace(told, hint=f"{hint}; or wait").advice == f"{hint}; or wait"
