"""`headrace serve` as a process: what it costs, what it loads, and what it refuses before it listens."""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from headrace.cli import main as cli
from headrace.cli.serve import listening
from headrace.pipeline.state.config import WebConfig
from headrace.web.server import serving
from headrace.web.settings import settings
from headrace_testing.postmaster import wait_for
from tests.lakes import Bucket
from tests.unit.web.lakes import RUNNING, a_lake, get, many_tables, port_of

MEGABYTE = 1 << 20
_TICK = os.sysconf("SC_CLK_TCK")


@contextmanager
def served(*arguments: str) -> Iterator[tuple[str, int]]:
    """A process of `headrace serve`; where it listens, and its id."""
    command = [sys.executable, "-m", "headrace", "serve", "--listen", "127.0.0.1:0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            yield url, process.pid
        finally:
            process.send_signal(signal.SIGTERM)
    assert process.returncode == 0


def resident(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) << 10


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def test_it_stays_small_and_loads_neither_spark_nor_arrow_nor_numba(tmp_path: Path) -> None:
    with served("--lake", a_lake(tmp_path, many_tables(1000))) as (url, pid):
        for path in ("/metrics", "/api/status", "/readyz"):
            assert get(url, path).status == 200
        mapped = Path(f"/proc/{pid}/maps").read_text()
        size, before, begun = resident(pid), cpu_seconds(pid), time.monotonic()
        with socket.create_connection(("127.0.0.1", port_of(url))) as idle:
            idle.settimeout(12)
            assert idle.recv(1) == b""  # ten seconds of rest, by its own clock
        rest = (cpu_seconds(pid) - before) / (time.monotonic() - begun)
    assert size <= 80 * MEGABYTE
    assert rest <= 0.01
    for heavy in ("numpy", "pyarrow", "deltalake", "numba", "llvmlite", "polars", "pyspark"):
        assert heavy not in mapped


@pytest.mark.full
def test_ten_thousand_connections_cost_little_and_the_next_client_is_served(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with served("--lake", a_lake(tmp_path, RUNNING)) as (url, pid), ExitStack() as stack:
            for _ in range(10_000):
                stack.enter_context(socket.create_connection(("127.0.0.1", port_of(url))))
            assert get(url, "/metrics").status == 200
            assert resident(pid) <= 80 * MEGABYTE
            assert len(list(Path(f"/proc/{pid}/fd").iterdir())) < 400
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_configuration_says_which_lake_and_who_may_ask(tmp_path: Path) -> None:
    lake = a_lake(tmp_path / "lake", RUNNING)
    file = tmp_path / "headrace.toml"
    file.write_text(
        f'[lake]\npath = "{lake}"\n[source.main]\nurl = "postgresql://me:pass-word@db/shop"\n'
        '[web]\nhosts = ["mirror.example"]\ntoken = "a-long-token"\nready_lag = "1s"\n'
    )
    with served("--config", str(file)) as (url, pid):
        assert get(url, "/metrics", {"Host": "mirror.example"}).status == 401
        shown = {"Authorization": "Bearer a-long-token"}
        for path in ("/metrics", "/readyz", "/api/status"):
            answer = get(url, path, shown)
            assert answer.status == 200
            assert "pass-word" not in answer.text
            assert "a-long-token" not in answer.text
        assert "a-long-token" not in Path(f"/proc/{pid}/cmdline").read_text()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], "SERVE_INCOMPLETE"),
        (["--lake", "{}/nowhere"], "LAKE_ABSENT"),
        (["--lake", "{}/newer"], "LAKE_TOO_NEW"),
        (["--lake", "gcs://bucket"], "LAKE_URL"),
        (["--lake", "{}/lake", "--listen", "0.0.0.0:9464"], "WEB_TOKEN_MISSING"),
        (["--lake", "{}/lake", "--listen", "nonsense"], "WEB_ADDRESS"),
    ],
)
def test_what_cannot_be_served_is_refused_before_it_listens(
    tmp_path: Path, arguments: list[str], code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    a_lake(tmp_path / "lake", RUNNING)
    newer = Path(a_lake(tmp_path / "newer"), "_headrace", "format.json")
    newer.write_text('{"format": 99, "lake_id": "x"}')
    assert cli.main(["serve", *(argument.format(tmp_path) for argument in arguments)]) == 2
    assert capsys.readouterr().err.startswith(f"error: {code}: ")


def test_a_run_that_cannot_listen_is_refused_before_anything_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["postgresql://me@127.0.0.1:1/db", "--lake", str(tmp_path / "lake"), "--tables", "public.*"]
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        assert cli.main(["run", *arguments, "--listen", address]) == 2
    assert capsys.readouterr().err.startswith("error: WEB_PORT_TAKEN: ")
    assert not (tmp_path / "lake").exists()


def test_a_run_listens_where_it_is_told_and_before_it_has_a_lake(tmp_path: Path) -> None:
    with ExitStack() as stack:
        assert listening(stack, None, str(tmp_path), WebConfig()) is None
        url = listening(stack, None, str(tmp_path / "lake"), WebConfig(listen="127.0.0.1:0"))
        assert url is not None
        assert get(url, "/healthz").status == 200
        assert get(url, "/readyz").record["reasons"][0]["code"] == "LAKE_ABSENT"
        a_lake(tmp_path / "lake", RUNNING)
        wait_for(lambda: get(url, "/readyz").status == 200, "the lake")
    with pytest.raises(OSError):  # noqa: PT011 - whatever the system says of a port where nobody listens
        get(url, "/healthz")


def test_a_lake_in_a_bucket_is_served_and_its_keys_are_not(any_bucket: Bucket) -> None:
    a_lake(any_bucket.address, RUNNING)
    with served("--lake", any_bucket.address) as (url, pid):
        wait_for(lambda: get(url, "/readyz").status == 200, "the lake")
        for path in ("/", "/tables", "/marks", "/metrics", "/api/status", "/readyz"):
            answer = get(url, path)
            assert answer.status == 200
            assert any_bucket.secret not in answer.text
        assert resident(pid) <= 80 * MEGABYTE
        assert "pyarrow" not in Path(f"/proc/{pid}/maps").read_text()


def test_a_bucket_that_hangs_holds_up_neither_health_nor_the_other_lake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and never answers
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        for name, value in (("ACCESS_KEY_ID", "x"), ("SECRET_ACCESS_KEY", "y"), ("ALLOW_HTTP", "true")):
            monkeypatch.setenv(f"AWS_{name}", value)
        lake = a_lake(tmp_path, RUNNING)
        with serving(settings("127.0.0.1:0"), ["s3://bucket/lake", lake]) as url:
            begun = time.monotonic()
            assert get(url, "/healthz").status == 200
            assert time.monotonic() - begun < 1
            text = get(url, "/metrics").text
            assert time.monotonic() - begun < 9
            codes = [reason["code"] for reason in get(url, "/readyz").record["reasons"]]
    assert 'headrace_lake_up{lake="s3://bucket/lake"} 0' in text
    assert f'headrace_up{{lake="{lake}",source="main"}} 1' in text
    assert codes == ["WEB_LAKE_SLOW"]
