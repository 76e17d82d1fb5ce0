"""Facts about sessions that need no start of one: masters, versions, targets, Spark's own words."""

from __future__ import annotations

import importlib
import socket
from pathlib import Path

import pyspark
import pytest

from headrace.core.errors import Misconfigured, Transient
from headrace.spark import failures, session
from headrace.spark.session import SparkConfig


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local", "local[1,4]"),
        ("local[3]", "local[3,4]"),
        ("local[*]", "local[*,4]"),
        ("local[3,1]", "local[3,1]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("spark://host:7077", "spark://host:7077"),
    ],
)
def test_a_local_master_gets_the_attempts_of_a_cluster(master: str, expected: str) -> None:
    assert session.retrying(master) == expected


def test_an_old_pyspark_is_refused_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "3.5.8")
    with pytest.raises(Misconfigured) as caught:
        session.open_session(SparkConfig())
    assert caught.value.code == "SPARK_TOO_OLD"
    assert "3.5.8" in caught.value.primary


@pytest.mark.parametrize("version", ["4.0.0", "4.1.0.dev0", "4.3.0", "10.0"])
def test_a_newer_pyspark_is_taken(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    session.require_pyspark()


def test_a_missing_pyspark_is_refused_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(Misconfigured) as caught:
        session.require_pyspark()
    assert caught.value.code == "SPARK_MISSING"


def test_two_targets_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://elsewhere")
    with pytest.raises(Misconfigured) as caught:
        session.open_session(SparkConfig(master="local[2]"))
    assert caught.value.code == "SPARK_TWO_TARGETS"


def test_our_own_local_session_is_only_taken_when_nobody_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    assert not session._ambient({})
    assert session._ambient({"spark.master": "yarn"})
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-defaults.conf").write_text("# spark.master yarn\nspark.masters x\n")
    assert not session._ambient({})
    (tmp_path / "spark-defaults.conf").write_text("spark.master\tyarn\n")
    assert session._ambient({})


def test_submit_arguments_say_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master yarn pyspark-shell")
    assert session._ambient({})


@pytest.mark.parametrize(
    "said",
    [
        "PythonException: ModuleNotFoundError: No module named 'headrace'",
        "AttributeError: Can't get attribute 'perform' on <module 'headrace.spark.worker' from 'x'>",
        "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9",
        'java.io.IOException: Cannot run program "python3": error=2',
    ],
)
def test_a_worker_that_cannot_run_us_is_misconfigured(said: str) -> None:
    found = failures.of_job(RuntimeError(f"Job aborted due to stage failure: Task 0\n at x\n{said}\n at y"))
    assert isinstance(found, Misconfigured)
    assert found.code == "SPARK_WORKER_UNFIT"


def test_a_job_that_failed_is_transient_and_its_stack_is_dropped() -> None:
    text = "An error\n: SparkException: Job aborted due to stage failure: Task 0 lost\n\tat secret.value"
    found = failures.of_job(RuntimeError(text))
    assert isinstance(found, Transient)
    assert found.detail == "RuntimeError: Job aborted due to stage failure: Task 0 lost"


def test_a_server_that_does_not_answer_is_transient_and_a_wrong_master_is_not() -> None:
    assert failures.of_start(ConnectionError(), remote=True).code == "SPARK_UNREACHABLE"
    assert failures.of_start(ConnectionError(), remote=False).code == "SPARK_START_FAILED"


def test_a_remote_address_where_nothing_listens_fails_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("grpc_proxy", "https_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    with socket.socket() as taken:
        # Bound and not listening: nobody else can take the port meanwhile.
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(Transient) as caught:
            session.open_session(SparkConfig(remote=f"sc://127.0.0.1:{taken.getsockname()[1]}"))
    assert caught.value.code == "SPARK_UNREACHABLE"


@pytest.mark.parametrize(
    "master", ["spark://{0}", "spark://127.0.0.1:1,{0}", "k8s://https://{0}", "k8s://{0}"]
)
def test_a_master_where_nothing_listens_fails_at_once_and_starts_no_java(master: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        place = master.format(f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(Misconfigured) as caught:
            session.open_session(SparkConfig(master=place))
    assert caught.value.code == "SPARK_MASTER_SILENT"
    assert place in caught.value.primary
