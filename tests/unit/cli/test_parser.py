"""The help by purpose, in colour where there is any, and the near names of what was mistyped."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from headrace.cli import main as cli
from headrace.cli.completion import words
from headrace.cli.parser import Parser, paint
from headrace.core.near import did_you_mean, near
from headrace_testing.costs import of_command
from tests.terminals import plain, terminal

ALL = [each.path for each in words(cli.parser())]


def _ended(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(argv)
    heard = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, heard.out, heard.err


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_help_has_an_example_and_fits(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = _ended(capsys, *path, "--help")
    assert code == 0
    examples = out.rpartition("\nexample:\n")[2].splitlines()
    assert examples
    for line in examples:
        assert re.match(r'  (headrace|eval "\$\(headrace)', line)
    assert max(len(line) for line in out.partition("\nexample:\n")[0].splitlines()) <= 80
    monkeypatch.setenv("COLUMNS", "20")
    assert _ended(capsys, *path, "--help")[0] == 0


def test_the_help_lists_every_command_by_what_it_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = _ended(capsys, "--help")
    for purpose, commands in cli.PURPOSES.items():
        part = out.partition(f"\n{purpose}:\n")[2].partition("\n\n")[0]
        named = re.findall(r"(?m)^  (\w+) ", part)
        assert named == [command.__name__.rpartition(".")[2] for command in commands]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["statsu"], 'unknown command "statsu"; did you mean "status"?'),
        (["tables", "resnyc"], 'unknown command "resnyc"; did you mean "resync"?'),
        (["status", "--laek", "l"], 'unknown option "--laek"; did you mean "--lake"?'),
        (["run", "--qeueu=x"], 'unknown option "--qeueu"; did you mean "--queue"?'),
        (["sql", "--lake", "l", "--format", "jsno"], 'unknown value "jsno"; did you mean "json"?'),
        (["sql", "--lake", "l", "--format", "xml"], 'unknown value "xml"; known are table, json, csv'),
        (["explain"], "the following arguments are required: CODE"),
        (["version", "more"], 'unexpected argument "more"'),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_what_is_mistyped_is_asked_about_in_two_lines(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = _ended(capsys, *argv)
    assert (code, out) == (2, "")
    first, second = err.splitlines()
    assert first.startswith("error: headrace")
    assert first.endswith(said)
    assert re.fullmatch(r"hint: headrace( \w+)* --help", second)


def test_a_value_that_looks_like_an_option_is_taken_where_argparse_takes_it() -> None:
    args = cli.parser().parse_args(["sql", "--lake", "l", "--", "--odd"])
    assert args.statement == "--odd"
    args = cli.parser().parse_args(["sql", "--lak", "l", "-- a comment"])
    assert (args.lake, args.statement) == ("l", "-- a comment")


def test_an_error_is_explained_and_a_code_that_nobody_knows_is_asked_about(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["explain", "pg_slot_lost:"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("PG_SLOT_LOST (definite: ")
    assert "what to do: `headrace run --reconcile`" in out
    assert cli.main(["explain", "PG_SLOT_LOTS"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: EXPLAIN_CODE_UNKNOWN: ")
    assert 'did you mean "PG_SLOT_LOST"' in err


def test_near_names_are_found_in_any_case_and_without_their_schema() -> None:
    known = ["public.orders", "public.Customers", "crm.people"]
    assert near("public.ordres", known) == ["public.orders"]
    assert near("ordes", known) == ["public.orders"]
    assert near("PUBLIC.CUSTOMER", known) == ["public.Customers"]
    assert did_you_mean("nothing.like.it", known) is None
    assert did_you_mean("x", []) is None
    assert did_you_mean("sales.ordr", ['"Sales"."Order"']) == 'did you mean "Sales"."Order"?'


def test_colours_are_for_terminals_that_want_them() -> None:
    command = [sys.executable, "-m", "headrace", "status", "--help"]
    for environment, coloured in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
        with terminal(80, 40) as screen:
            assert screen.start(command, environment).wait(30) == 0
            screen.until(lambda: "--watch\n" in plain(screen.raw), "the help")
            assert ("\x1b" in screen.raw) is coloured
            shown = screen.text
        piped = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert shown.strip() == piped.strip()
    assert paint("usage: x\n\na text with e-mail, x-y and 'a -b'\n").count("\x1b[32m") == 1


def test_the_help_costs_little() -> None:
    assert of_command(sys.executable, "-m", "headrace", "--help")[0] <= 20


def test_no_password_is_repeated_by_what_is_said_of_the_command_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, _, err = _ended(capsys, "status", "--lake", "l", "postgresql://me:hunter2@db/x")
    assert "unexpected argument" in err
    assert "hunter2" not in err


def test_a_parser_without_commands_refuses_before_it_asks_for_what_is_missing() -> None:
    parser = Parser(prog="p")
    parser.add_argument("--needed", required=True)
    with pytest.raises(SystemExit):
        parser.parse_args(["--neede", "1", "--other"])
