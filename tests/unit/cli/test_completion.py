"""Completion in real shells: commands, options, values, folders, and the tables of a lake."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from headrace.cli import main as cli
from headrace.cli.completion import script, tables_of
from headrace.lake.format.status import TableStatus
from headrace_testing.costs import of_command
from tests.debian_programs import libraries, program
from tests.terminals import Terminal, plain, terminal
from tests.unit.web.lakes import a_lake, many_tables
from tests.unit.web.scenes import healthy

ODD = 'public."odd name"'
TABLES = {
    ODD: TableStatus("live"),
    "public.orders": TableStatus("live"),
    "public.a\x1bb": TableStatus("live"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a lake, and `headrace` on the path."""
    a_lake(tmp_path / "lake", replace(healthy(), tables=TABLES))
    command = tmp_path / "bin" / "headrace"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec env -u LD_LIBRARY_PATH "{sys.executable}" -m headrace "$@"\n')
    command.chmod(0o755)
    (tmp_path / "house.toml").touch()
    return tmp_path


def _environment(folder: Path) -> dict[str, str]:
    here = os.path.dirname(os.path.dirname(os.path.dirname(cli.__file__)))
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": here, "HOME": str(folder), "LC_ALL": "C.UTF-8"}


# What is typed, and what is offered for its last word.
OFFERED: Sequence[tuple[str, Sequence[str]]] = (
    ("headrace st", ["status"]),
    ("headrace tables ", ["add", "drop", "resync"]),
    ("headrace status --", ["--help", "--lake", "--state", "--json", "--watch", "--check", "--max-lag"]),
    ("headrace tables resync --lake lake public.or", ["public.orders"]),
    ("headrace tables add --lake lake public.or", []),
    ("headrace verify --lake lake --tables public.or", ["public.orders"]),
    ("headrace sql --format ", ["table", "json", "csv"]),
    ("headrace run --handoff ", ["slot", "xid", "chunks", "locks"]),
    ("headrace completion b", ["bash"]),
)


def test_bash_completes(folder: Path) -> None:
    tries = [
        *OFFERED,
        ("headrace status --lake la", ["lake"]),
        ("headrace run --config ho", ["house.toml"]),
        ("headrace tables drop --lake lake ", [r"public.\"odd\ name\"", "public.orders"]),
        ("headrace tables resync --lake nowhere ", []),
        ("headrace verify --lake lake --tables public.orders public.or", ["public.orders"]),
    ]
    asked = "".join(map(_bash_try, (typed for typed, _ in tries)))
    done = subprocess.run(
        ["bash", "--norc", "-c", f'eval "$(headrace completion bash)" || exit 1\n{asked}'],
        cwd=folder,
        env=_environment(folder),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.replace("compopt: not currently executing completion function", "").count("bash") <= 2
    said = [line.split("\t") for line in done.stdout.splitlines()]
    for (typed, offered), words in zip(tries, said, strict=True):
        assert sorted(filter(None, words)) == sorted(set(offered) | _short(typed, words)), typed


def _bash_try(typed: str) -> str:
    words = typed + (" ''" if typed.endswith(" ") else "")
    return (
        f"COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _headrace; "
        "printf '%s\\t' \"${COMPREPLY[@]}\"; echo\n"
    )


def _short(typed: str, words: Sequence[str]) -> set[str]:
    """Options of one letter stand among commands; which of them is no matter."""
    return {word for word in words if word.startswith("-") and not typed.endswith("--")}


@pytest.mark.full
def test_fish_completes(folder: Path) -> None:
    fish = program("fish", "fish")
    for typed, offered in OFFERED:
        text = f"headrace completion fish | source; complete -C '{typed}'"
        done = subprocess.run(
            [str(fish), "--no-config", "-c", text],
            cwd=folder,
            env=_environment(folder) | libraries(fish),
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == ""
        words = [line.partition("\t")[0] for line in done.stdout.splitlines()]
        assert sorted(words) == sorted(offered), typed


@pytest.mark.full
def test_zsh_completes(folder: Path) -> None:
    """Zsh completes at its prompt alone: it lists what is offered there, or puts the only one in."""
    zsh = program("zsh", "zsh", "bin")
    (folder / "rc").write_text(_RC.format(root="" if "debian-" not in str(zsh) else zsh.parents[1]))
    environment: Mapping[str, str] = {**_environment(folder), **libraries(zsh), "TERM": "xterm"}
    with terminal(200, 50) as screen:
        process = screen.start([str(zsh), "-f", "-i"], environment)
        screen.type(f"cd {folder}; source ./rc\r")
        screen.until(lambda: "ready" in screen.text, "the prompt")
        for typed, offered in OFFERED:
            before = len(screen.raw)
            screen.type(f"{typed}\t\t")
            for word in offered:
                shown = partial(_shows, screen, before, word)
                screen.until(shown, f"{word} for {typed!r}")
            screen.type("\x15")  # Ctrl-U: the next line begins empty
        process.kill()
        process.wait(30)


_RC = """\
[[ -n "{root}" ]] && module_path=({root}/usr/lib/*/zsh/*(/)) && fpath=({root}/usr/share/zsh/functions/**/*(/))
zmodload zsh/zle zsh/complete zsh/compctl zsh/complist
setopt zle; bindkey -e; bindkey '^I' expand-or-complete
autoload -Uz compinit; compinit -D -u
unsetopt beep; LISTMAX=1000; PS1='%% '
eval "$(headrace completion zsh)"; print ready
"""


def _shows(screen: Terminal, before: int, word: str) -> bool:
    return word in plain(screen.raw[before:])


def test_the_tables_of_a_lake_are_there_at_once(tmp_path: Path) -> None:
    lake = a_lake(tmp_path, many_tables(1000))
    cost, said = of_command(sys.executable, "-m", "headrace", "completion", "--tables-of", lake)
    assert len(said.splitlines()) == 1000
    assert cost <= 20


def test_a_lake_that_cannot_be_read_has_no_tables(tmp_path: Path) -> None:
    assert tables_of(str(tmp_path / "nowhere")) == tables_of("~nobody-of-this-name/lake") == []
    status = tmp_path / "_headrace" / "status"
    status.mkdir(parents=True)
    for name, text in (("half", '{"record"'), ("odd", "[]"), ("none", '{"record": {"tables": null}}')):
        (status / f"{name}.json").write_text(text)
    assert tables_of(str(tmp_path)) == []


def test_no_text_of_a_help_ends_a_script_early(folder: Path) -> None:
    """An option's help may hold what a shell would obey."""
    parser = argparse.ArgumentParser(prog="headrace")
    commands = parser.add_subparsers()
    made = commands.add_parser("odd", help='it\'s $(touch here) `touch here` [a]: \\ "b"')
    made.add_argument("--odd", help='it\'s $(touch here) `touch here` [a]: \\ "b"', metavar="X")
    for shell in ("bash", "zsh", "fish"):
        text = script(shell, parser)
        assert "odd" in text
        if shell == "bash":
            subprocess.run(["bash", "-c", text], cwd=folder, check=True)
    assert not (folder / "here").exists()
