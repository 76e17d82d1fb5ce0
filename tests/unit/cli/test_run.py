"""`headrace run`, `status` and their kin: what the command line says is checked before anything is done."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace
from headrace.cli import main as cli
from headrace.cli import run
from headrace.cli.progress import ProgressView
from headrace.core.errors import HeadraceError
from headrace.lake.format import formatfile, statusfile
from headrace.lake.format.status import SourceStatus
from headrace.lake.retain.thinning import GRACE, MARKS
from headrace.lake.store.open import open_store
from headrace.pipeline.commands import drop_source
from headrace.pipeline.state import config as configuration
from headrace.pipeline.state import last_config
from headrace.spool.process import this_process
from tests.kinds.declaration import beside

URL = "postgresql://user@nowhere.invalid/db"
CONFIG = '[lake]\npath = "{lake}"\n[source.main]\nurl = "{url}"\ntables = ["public.*"]\n'


@pytest.fixture(autouse=True)
def our_own_signals() -> Iterator[None]:
    """`run` takes SIGINT and SIGTERM for the process, which here is the test run's."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def _refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The code with which the command refuses, in the words of standard error."""
    assert cli.main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "\nhint: " in err
    return err.removeprefix("error: ").split(":")[0]


def test_the_pace_of_marks_is_for_every_source_of_a_run(tmp_path: Path) -> None:
    file = tmp_path / "headrace.toml"
    text = CONFIG.format(lake=tmp_path / "lake", url=URL) + f'[source.other]\nurl = "{URL}"\nevery = "5s"\n'
    file.write_text(text)
    arguments = cli.parser().parse_args(["run", "--config", str(file)])
    paces = [source.every for source in run.with_pace(run.parse_config(arguments), None).sources.values()]
    assert paces == ["auto", "5s"]
    for every in ("0s", "auto"):
        paces = [
            source.every for source in run.with_pace(run.parse_config(arguments), every).sources.values()
        ]
        assert paces == [every, every]


def test_a_source_that_is_named_is_run_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake, file = str(tmp_path / "lake"), tmp_path / "headrace.toml"
    file.write_text(CONFIG.format(lake=lake, url=URL) + f'[source.other]\nurl = "{URL}"\n')
    store = open_store(lake)
    formatfile.create_lake(store)
    for name, source in configuration.read(file).sources.items():
        last_config.remember(store, name, source, configuration.read(file).lake)
    for known in (["--config", str(file)], ["--lake", lake]):
        for named, run_alone in (([], ["main", "other"]), (["--source", "other"], ["other"])):
            arguments = cli.parser().parse_args(["run", *known, *named])
            assert sorted(run.parse_config(arguments).sources) == run_alone
        assert _refused(capsys, "run", *known, "--source", "none") == "RUN_SOURCE_UNKNOWN"
    arguments = cli.parser().parse_args(["run", URL, "--lake", lake, "--tables", "a.b", "--source", "new"])
    assert list(run.parse_config(arguments).sources) == ["new"]


def test_a_pace_that_is_no_duration_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code = _refused(
        capsys, "run", URL, "--lake", str(tmp_path / "lake"), "--tables", "a.b", "--every", "fast"
    )
    assert code == "DURATION_MALFORMED"
    assert not (tmp_path / "lake").exists()


def test_run_without_arguments_says_what_to_type(capsys: pytest.CaptureFixture[str]) -> None:
    assert _refused(capsys, "run") == "RUN_INCOMPLETE"
    assert _refused(capsys, "run", URL) == "RUN_INCOMPLETE"


def test_options_of_a_source_need_their_source(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for option in ("--publication", "--slot", "--handoff"):
        assert _refused(capsys, "run", "--lake", str(tmp_path / "lake"), option, "slot") == "RUN_INCOMPLETE"
    assert _refused(capsys, "run", URL, "--lake", str(tmp_path), "--handoff", "hope") == "CONFIG_BAD_VALUE"
    assert _refused(capsys, "check", URL, "--handoff", "hope") == "CONFIG_BAD_VALUE"


def test_an_option_of_the_source_that_is_given_empty_is_not_given(tmp_path: Path) -> None:
    """A script hands over `--publication "$PUBLICATION"`, and has none."""
    arguments = cli.parser().parse_args(
        ["run", URL, "--lake", str(tmp_path), "--publication", "", "--slot", ""]
    )
    assert run.parse_config(arguments).sources["main"].options == {}


def test_help_shows_the_options_of_each_kind_under_its_heading(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    beside(monkeypatch)
    for command in ("run", "check"):
        with pytest.raises(SystemExit):
            cli.main([command, "--help"])
        _, postgres, every, mysql, queue, tide = re.split(r"\nonly for [^\n]+:\n", capsys.readouterr().out)
        assert re.findall(r"(?m)^  --(\S+)", postgres) == ["publication", "slot", "slot-failover"]
        assert re.findall(r"(?m)^  --(\S+)", every) == ["handoff"]
        assert "slot|xid|chunks|locks" in every
        assert "MySQL and MariaDB: locks, chunks" in " ".join(every.split())
        assert re.findall(r"(?m)^  --(\S+)", mysql) == ["unlogged-cascades"]
        assert re.findall(r"(?m)^  --(\S+)", queue) == ["queue", "schema", "tick", "idle-tick"]
        assert re.findall(r"(?m)^  --(\S+)", tide) == ["basin", "moon"]


@pytest.mark.parametrize("command", ["run", "check", "verify"])
def test_patterns_may_be_said_one_by_one(command: str) -> None:
    args = cli.parser().parse_args([command, URL, "--tables", "shop.*", "crm.*", "--tables", "!crm.log"])
    assert args.tables == ["shop.*", "crm.*", "!crm.log"]


def test_run_takes_a_file_or_a_source_not_both(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "headrace.toml"
    config.write_text(CONFIG.format(lake=tmp_path / "lake", url=URL))
    for more in ([URL], ["--tables", "public.t"], ["--publication", "p"], ["--slot", "s"]):
        assert _refused(capsys, "run", *more, "--config", str(config)) == "RUN_TWO_CONFIGURATIONS"
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (None, "CONFIG_UNREADABLE"),
        ("[lake", "CONFIG_MALFORMED"),
        ("[lake]\npath = 'x'\n", "CONFIG_INCOMPLETE"),
        (CONFIG + "tabels = []\n", "CONFIG_UNKNOWN_KEY"),
        (CONFIG + "[sparkle]\n", "CONFIG_UNKNOWN_KEY"),
        (CONFIG + "strict = 'yes'\n", "CONFIG_BAD_VALUE"),
        (CONFIG.replace('["public.*"]', "[1]"), "CONFIG_BAD_VALUE"),
        (CONFIG + "on_max_wal = 'panic'\n", "CONFIG_BAD_VALUE"),
        (CONFIG + "snapshot_connections = 0\n", "CONFIG_BAD_VALUE"),
        (CONFIG + "chunk_bytes = 0\n", "CONFIG_BAD_VALUE"),
        (CONFIG + "max_wal = -5\n", "CONFIG_BAD_VALUE"),
        (CONFIG + "driver_epochs = -1\n", "CONFIG_BAD_VALUE"),
        (CONFIG + "merge = 'vector'\n", "CONFIG_BAD_VALUE"),
        (CONFIG + "row_cache = -1\n", "CONFIG_BAD_VALUE"),
    ],
)
def test_a_configuration_that_cannot_be_meant_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str | None, code: str
) -> None:
    config = tmp_path / "headrace.toml"
    if text is not None:
        config.write_text(text.format(lake=tmp_path / "lake", url=URL))
    assert _refused(capsys, "run", "--config", str(config)) == code
    assert not (tmp_path / "lake").exists()


def test_another_place_for_the_lake_leaves_the_other_options_as_they_are(tmp_path: Path) -> None:
    config = tmp_path / "headrace.toml"
    config.write_text(CONFIG.format(lake="x", url=URL).replace("[source", "retention = '30d'\n[source"))
    args = cli.parser().parse_args(["run", "--config", str(config), "--lake", "elsewhere"])
    lake = run.parse_config(args).lake
    assert (lake.path, lake.retention) == ("elsewhere", "30d")


@pytest.mark.parametrize("section", ["lake = 1", "[lake]\npath = 'x'\n[source]\nmain = 1"])
def test_a_section_that_is_a_value_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, section: str
) -> None:
    config = tmp_path / "headrace.toml"
    config.write_text(f"{section}\n" if "source" in section else f"{section}\n[source.main]\nurl = ''\n")
    assert _refused(capsys, "run", "--config", str(config)) == "CONFIG_BAD_VALUE"


def test_an_address_that_cannot_be_read_is_refused_without_being_shown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    argv = ("run", "postgresql://u:se%zzcret@[", "--lake", str(tmp_path / "lake"), "--tables", "public.*")
    assert cli.main(argv) == 2
    err = capsys.readouterr().err
    assert "PG_ADDRESS_MALFORMED" in err
    assert "cret" not in err


def test_a_run_once_that_was_told_to_stop_does_not_say_that_all_is_mirrored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def ended(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("headrace.pipeline.run.mirror", ended)
    argv = ("run", URL, "--lake", str(tmp_path / "lake"), "--tables", "public.*")
    assert cli.main(argv) == 0
    assert cli.main((*argv, "--once")) == 130


# --- commands on a lake -------------------------------------------------------------------------

_DEEDS = ("add", "drop", "resync")
_ON_A_LAKE = (["status"], ["status", "--json"], ["drop"], ["run"])


@pytest.mark.parametrize("command", _ON_A_LAKE, ids=" ".join)
@pytest.mark.parametrize("place", ["absent", "empty", "file", "other"])
def test_a_place_that_is_no_lake_is_refused_and_left(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: list[str], place: str
) -> None:
    lake = tmp_path / "lake"
    if place == "file":
        lake.write_text("mine")
    elif place != "absent":
        lake.mkdir()
    if place == "other":
        (lake / "thesis.txt").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    assert _refused(capsys, *command, "--lake", str(lake)) == "LAKE_ABSENT"
    assert sorted(tmp_path.rglob("*")) == before


_ELSE = (["sql", "SELECT 1"], ["verify"], ["maintain"], *(["tables", do, "t"] for do in _DEEDS))


@pytest.mark.parametrize("command", [*_ON_A_LAKE, *_ELSE], ids=" ".join)
def test_a_lake_of_a_newer_format_is_refused_and_left(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: list[str]
) -> None:
    (tmp_path / "_headrace").mkdir()
    text = json.dumps({"format": formatfile.FORMAT + 1, "lake_id": "f" * 32})
    (tmp_path / "_headrace/format.json").write_text(text)
    assert _refused(capsys, *command, "--lake", str(tmp_path)) == "LAKE_TOO_NEW"
    with pytest.raises(HeadraceError, match="LAKE_TOO_NEW"):
        headrace.Lake(tmp_path)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["format.json"]


def test_a_lake_without_a_source_has_nothing_to_run_or_show(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    formatfile.create_lake(open_store(tmp_path / "lake"))
    assert _refused(capsys, "run", "--lake", str(tmp_path / "lake")) == "LAKE_WITHOUT_SOURCE"
    assert cli.main(["status", "--json", "--lake", str(tmp_path / "lake")]) == 0
    assert json.loads(capsys.readouterr().out) == {}
    assert cli.main(["drop", "--lake", str(tmp_path / "lake")]) == 0
    assert "nothing was made upstream" in capsys.readouterr().out


def test_status_tells_of_a_source_that_never_got_to_its_first_mark(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    store = open_store(tmp_path / "lake")
    formatfile.create_lake(store)
    error = {"code": "PG_PASSWORD_REFUSED", "primary": "refused", "hint": "check it", "detail": None}
    statusfile.write(store, "main", SourceStatus("main", "failed", error=error | {"family": "misconfigured"}))
    assert cli.main(["status", "--json", "--lake", str(tmp_path / "lake")]) == 0
    told = json.loads(capsys.readouterr().out)["main"]
    assert (told["state"], told["error"]["code"]) == ("failed", "PG_PASSWORD_REFUSED")
    assert cli.main(["status", "--lake", str(tmp_path / "lake")]) == 0
    assert "PG_PASSWORD_REFUSED" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [["status", "--watch", "--json"], ["status", "--watch"], ["version"]], ids=" ".join
)
def test_a_reader_that_goes_away_ends_the_command_without_a_traceback(
    tmp_path: Path, words: list[str]
) -> None:
    store = open_store(tmp_path / "lake")
    formatfile.create_lake(store)
    statusfile.write(store, "main", SourceStatus("main", "running"))
    lake = ["--lake", str(tmp_path / "lake")] if words[0] == "status" else []
    command = [sys.executable, "-m", "headrace", *words, *lake]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout
    if "--watch" in words:
        assert b"running" in process.stdout.readline()
    process.stdout.close()
    assert process.stderr
    assert process.stderr.read() == b""
    assert process.wait(60) == 141
    process.stderr.close()


def test_a_mirror_goes_on_where_nobody_reads_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as unread:
        monkeypatch.setattr("sys.stdout", unread)
        with ProgressView(as_json=True) as progress:
            progress.tell(SourceStatus("main", "running"))
            progress.tell(SourceStatus("main", "running"))
        os.dup2(os.open(os.devnull, os.O_WRONLY), writer)


def test_drop_names_what_goes_and_asks_at_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dropped: list[str] = []

    def drop(path: str, **_: object) -> list[str]:
        dropped.append(path)
        return ["done"]

    monkeypatch.setattr(drop_source, "removable", lambda path, **_: ['main: slot "s"'])
    monkeypatch.setattr(drop_source, "drop", drop)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for answer, code in (("n", 130), ("", 130), ("y", 0)):
        monkeypatch.setattr("builtins.input", lambda _, answer=answer: answer)
        assert cli.main(["drop", "--lake", "l"]) == code
        assert capsys.readouterr().out.startswith('main: slot "s"\n')
        assert dropped == (["l"] if code == 0 else [])


def test_the_help_of_maintain_has_the_true_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["maintain", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert f"every single mark is kept (default: {MARKS})" in said
    assert f"what it opened (default: {GRACE})" in said


def test_a_second_run_is_refused_and_leaves_the_owners_word(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Had it written that it failed, the next one would find no living owner, and take the source over."""
    store = open_store(tmp_path / "lake")
    formatfile.create_lake(store)
    owner = this_process("long ago") | {"pid": os.getppid()}
    statusfile.write(store, "main", SourceStatus("main", "running", owner))
    said = store.get("_headrace/status/main.json")
    argv = ("run", URL, "--lake", str(tmp_path / "lake"), "--tables", "public.*")
    # A run starts its Spark first thing: nothing listens there, so none starts in this process.
    monkeypatch.setenv("HEADRACE_SPARK__REMOTE", "sc://127.0.0.1:1")
    assert _refused(capsys, *argv) == "SOURCE_OWNED"
    assert store.get("_headrace/status/main.json") == said


def test_a_signal_that_comes_while_the_event_is_asked_about_is_not_waited_for() -> None:
    """In the main thread the handler runs between two steps of `wait`, the lock of the event in hand."""
    stop = run.set_by_signals()
    with stop._cond:  # type: ignore[attr-defined]
        os.kill(os.getpid(), signal.SIGTERM)
        assert not stop.is_set()
    assert stop.wait(10)
