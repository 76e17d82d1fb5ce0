"""Debian's Prometheus scrapes a real run, and its promtool judges our metrics and rules."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.web.server import serving as listening
from headrace.web.settings import settings
from headrace_testing.mirror_process import Mirrored
from headrace_testing.ports import free_port
from headrace_testing.postgres import Database
from headrace_testing.postmaster import wait_for
from tests.debian_programs import program
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.serving import serving
from tests.meta.tracked import ROOT

pytestmark = pytest.mark.full
MONITORING = ROOT / "examples" / "monitoring"
TOKEN = "a-token-of-the-test"


def promtool(*arguments: str, cwd: Path = MONITORING, given: str | None = None) -> None:
    command = [str(program("promtool", "prometheus")), *arguments]
    done = subprocess.run(command, cwd=cwd, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[int]:
    """A Prometheus that scrapes the target once a second, with our rules; its port."""
    port = free_port()
    shutil.copytree(MONITORING, folder)
    config = (folder / "prometheus.yml").read_text()
    config = config.replace("15s", "1s").replace("127.0.0.1:9464", target)
    config = config.replace("    # authorization: ", "    authorization: ").replace(
        "/etc/headrace/token", str(folder / "token")
    )
    (folder / "prometheus.yml").write_text(config)
    (folder / "token").write_text(TOKEN)
    promtool("check", "config", "prometheus.yml", cwd=folder)
    command = [
        str(program("prometheus", "prometheus")),
        "--config.file=prometheus.yml",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        try:
            yield port
        finally:
            process.terminate()
            process.wait(30)


def asked(port: int, path: str, **query: str) -> Any:
    url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]
    except OSError:
        return None  # it is still starting


def value(port: int, query: str) -> float | None:
    found = asked(port, "query", query=query)
    return float(found["result"][0]["value"][1]) if found and found["result"] else None


def test_the_rules_are_sound_and_fire_when_they_should() -> None:
    promtool("check", "rules", "alerts.yml")
    promtool("test", "rules", "alerts_test.yml")


def test_prometheus_scrapes_a_run_and_sees_it_end(
    mirrors: Mirrors, database: Database, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE a (id int PRIMARY KEY); INSERT INTO a VALUES (1), (2)", user="app")
    mirrors.once()
    web = settings("127.0.0.1:0", token=TOKEN)
    with (
        listening(web, [str(mirrors.path)]) as url,
        prometheus(tmp_path / "prometheus", url.removeprefix("http://")) as port,
    ):
        with serving(mirrors) as served:
            database.execute("INSERT INTO a VALUES (3)", user="app")
            served.until(lambda: value(port, 'headrace_table_rows{table="public.a"}') == 3, "the row")
            served.until(
                lambda: value(port, 'headrace_epoch_seconds_count{step="job"}') is not None, "a step"
            )
            assert value(port, "headrace_up") == 1
            assert value(port, "headrace_changes_total") == 1
            [target] = asked(port, "targets")["activeTargets"]
            assert (target["health"], target["lastError"]) == ("up", "")
            request = urllib.request.Request(f"{url}/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
            with urllib.request.urlopen(request, timeout=10) as answer:
                promtool("check", "metrics", given=answer.read().decode())
        wait_for(lambda: value(port, "headrace_up") == 0, "the end of the run in Prometheus")
        rules = asked(port, "rules")["groups"][0]["rules"]
        assert {rule["health"] for rule in rules} <= {"ok", "unknown"}


def test_a_run_serves_its_own_page_from_before_its_first_mark_to_its_end(
    database: Database, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE a (id int PRIMARY KEY); INSERT INTO a VALUES (1)", user="app")
    url = f"http://127.0.0.1:{free_port()}"

    def answer(path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"{url}{path}", timeout=10) as found:
                return found.status, found.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()
        except OSError:
            return 0, ""  # it does not listen yet, or any more

    with closing(Mirrored(tmp_path / "lake", database.url(user="app"), "public.*")) as mirror:
        mirror.start("--listen", url.removeprefix("http://"))
        mirror.until(lambda: answer("/readyz")[0] == 503, "an answer before there is a lake")
        mirror.until(lambda: answer("/readyz")[0] == 200, "the run to be ready")
        mirror.until(lambda: "The mirror is true: 1 table," in answer("/")[1], "the page")
        assert f"the page is at {url}" in mirror.log()
        mirror.kill()
        assert answer("/healthz")[0] == 0
