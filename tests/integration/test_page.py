"""The page in a real browser: every state, light, dark, on a telephone, without JavaScript; and the site."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import tarfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.lake.format import statusfile
from headrace.lake.store.open import open_store
from headrace.web.server import serving
from headrace.web.settings import settings
from headrace_testing.cache import cached
from headrace_testing.postmaster import wait_for
from setup.build_site import build
from tests.chromium import Chromium, Tab, browser
from tests.unit.web.lakes import a_lake, get, many_tables
from tests.unit.web.scenes import SCENES, differing, healthy, scene, stopped_table

pytestmark = pytest.mark.full
WEB = settings("127.0.0.1:0")
AXE = "axe-core@4.14.1"
AXE_SHA512 = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
VIOLATIONS = """axe.run(document, {resultTypes: ['violations']}).then((found) =>
    found.violations.map((each) => each.id + ': ' + each.nodes.map((node) => node.html).slice(0, 3)))"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def axe() -> str:
    """The script that looks for what keeps people out (WCAG)."""

    def fetch(into: Path) -> None:
        subprocess.run(["npm", "pack", "--silent", AXE], cwd=into, check=True, capture_output=True)
        [archive] = into.glob("*.tgz")
        digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        assert digest == AXE_SHA512
        with tarfile.open(archive) as tar:
            tar.extract("package/axe.min.js", into, filter="data")

    return (cached(AXE.replace("@", "-"), fetch) / "package" / "axe.min.js").read_text()


def sound(tab: Tab, url: str, axe: str) -> None:
    """Nothing is complained of, nothing asked of another host, and nobody is kept out."""
    tab.run("document.title")
    assert tab.complaints == []
    assert [each for each in tab.requests if not each.startswith(url)] == []
    tab.run(axe)
    assert tab.run(VIOLATIONS) == []


@pytest.mark.parametrize("name", [*SCENES, "differing"])
def test_every_state_is_shown_to_everybody(chromium: Chromium, axe: str, tmp_path: Path, name: str) -> None:
    lake = differing(tmp_path / "lake") if name == "differing" else scene(tmp_path / "lake", name)
    with serving(WEB, [lake]) as url:
        for dark in (False, True):
            tab = chromium.tab(dark=dark)
            tab.open(url)
            tab.screenshot(tmp_path / f"{name}-{dark}.png")
            sound(tab, url, axe)
        pages = ["/tables", "/marks?epoch=40"] + (
            ["/table?name=public.items_0"] if name != "starting" else []
        )
        for page in pages:
            tab.open(url + page)
            sound(tab, url, axe)
        phone = chromium.tab(width=390, height=800)
        phone.open(url)
        assert phone.run("document.documentElement.scrollWidth") <= 390
        phone.screenshot(tmp_path / f"{name}-phone.png")


def test_what_stopped_and_what_to_type_stand_at_the_top(chromium: Chromium, tmp_path: Path) -> None:
    lake = scene(tmp_path / "lake", "stopped-table")
    with serving(WEB, [lake]) as url:
        for script in (True, False):
            tab = chromium.tab(script=script)
            tab.open(url)
            document = get(url, "/").text
            assert "<script>alert" not in document
            order = [
                document.index(each) for each in ("public.invoices: stopped", "became text", "tables resync")
            ]
            assert order == sorted(order)
        tab = chromium.tab()
        tab.open(url)
        assert tab.run("document.querySelector('h1').textContent").endswith("table public.invoices: stopped")
        command = tab.run("document.querySelector('.problems code').textContent")
        assert command == f"headrace tables resync --lake {lake} public.invoices"
        assert tab.run("document.querySelector('button[data-copy]').hidden") is False
        focused = []
        for _ in range(12):
            tab.press("Tab")
            focused.append(tab.run("document.activeElement.textContent"))
        assert focused[0] == "Skip to the content"
        assert "Copy" in focused


def test_the_page_follows_without_being_loaded_again(chromium: Chromium, tmp_path: Path) -> None:
    lake = a_lake(tmp_path / "lake", healthy())
    store = open_store(lake)
    with serving(WEB, [lake]) as url:
        tab = chromium.tab(height=250)
        tab.open(f"{url}/tables?q=items")
        tab.run("window.mine = 1; scrollTo(0, 60)")
        assert tab.run("document.querySelectorAll('#rows tr').length") == 3
        said = healthy()
        assert said.tables is not None
        changed = {**said.tables, "public.items_1": replace(said.tables["public.items_1"], rows=987_654_321)}
        statusfile.write(store, "shop", replace(said, tables=changed))
        wait_for(lambda: "987,654,321" in tab.run("document.body.textContent"), "the new figure")
        assert tab.run("window.mine") == 1
        assert tab.run("scrollY") == 60
        assert tab.run("document.querySelectorAll('#rows tr').length") == 3
        tab.run(
            "const q = document.querySelector('[name=q]'); q.value = 'stock';"
            "q.dispatchEvent(new Event('input', {bubbles: true}))"
        )
        wait_for(
            lambda: "public.stock_0" in tab.run("document.getElementById('rows').textContent"), "the filter"
        )
        assert "public.items_1" not in tab.run("document.getElementById('rows').textContent")
        other = chromium.tab()
        other.open(url)
        statusfile.write(store, "shop", stopped_table())
        wait_for(lambda: "stopped" in other.run("document.querySelector('h1').textContent"), "what stopped")
        assert other.complaints == []
    wait_for(lambda: not other.run("document.getElementById('stale').hidden"), "that nobody answers")
    assert "does not answer" in other.run("document.getElementById('stale').textContent")


def test_a_thousand_tables_stay_quick_and_the_page_is_small(chromium: Chromium, tmp_path: Path) -> None:
    with serving(WEB, [a_lake(tmp_path / "lake", many_tables(1000))]) as url:
        tab = chromium.tab()
        for page in ("/", "/tables"):
            times = []
            for _ in range(5):  # others keep the machine busy
                tab.open(url + page)
                size = "performance.getEntries().reduce((sum, each) => sum + (each.transferSize || 0), 0)"
                assert tab.run(size) <= 150_000
                times.append(
                    tab.run("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd")
                )
            assert min(times) <= 300
        assert tab.run("document.querySelectorAll('#rows tr').length") == 1000
        begun = time.monotonic()
        tab.open(f"{url}/tables?q=table_0777&state=live&sort=rows")
        assert tab.run("document.querySelectorAll('#rows tr').length") == 1
        assert time.monotonic() - begun < 2


def test_the_site_of_the_documents_is_for_everybody(chromium: Chromium, axe: str, tmp_path: Path) -> None:
    assert build(tmp_path / "site") == 0
    url = (tmp_path / "site").as_uri()
    tabs = chromium.tab(), chromium.tab(dark=True), chromium.tab(width=390, height=844)
    for name in ("index", "start", "how-to/monitoring", "commands", "why", "notebooks/dashboard"):
        for tab in tabs:
            tab.complaints.clear()
            tab.open(f"{url}/{name}.html")
            assert tab.complaints == []  # axe's own come later: it may not ask for files
            assert tab.run("document.documentElement.scrollWidth <= innerWidth"), name
            assert [each for each in tab.requests if not each.startswith((url, "data:"))] == []
            tab.run(axe)
            assert (name, tab.run(VIOLATIONS)) == (name, [])
