"""Makes docs/commands.md from the parsers of the command line. Run by `make docs`.

`tests/meta/test_commands_page.py` holds the page against the code.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from headrace.cli.main import parser

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "commands.md"

_HEAD = """\
# Commands

`headrace COMMAND --help` says the same in a terminal. [Operate](operate.md) says when to use which, and what
the [exit codes](operate.md#exit-codes) mean. This page is made by `make docs` from the parsers in
`src/headrace/cli/`; edit there.

"""


def page() -> str:
    """The whole page: a table of all commands, and a section for each."""
    found = list(_commands(parser(), "headrace"))
    rows = [f"| [`{name}`](#{_anchor(name)}) | {_cell(help_)} |\n" for name, help_, _ in found]
    sections = [_section(name, command) for name, _, command in found]
    return "".join([_HEAD, "| command | does |\n", "|---|---|\n", *rows, *sections])


def _commands(
    whole: argparse.ArgumentParser, prefix: str
) -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    """Each command with its help, in the order of `headrace --help`; a command of commands before its own."""
    for action in whole._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, command in action.choices.items():
                yield f"{prefix} {name}", helps.get(name, ""), command
                yield from _commands(command, f"{prefix} {name}")


def _section(name: str, command: argparse.ArgumentParser) -> str:
    groups = [
        _group((group.title or "").removeprefix("positional "), list(group._group_actions))
        for group in command._action_groups
        if any(map(_is_shown, group._group_actions))
    ]
    text = " ".join((command.description or "").split())
    said = f"\n{text}\n" if text else ""
    typed = [line.strip() for line in (command.epilog or "").splitlines()[1:]]  # the first is "example:"
    example = "\n".join(["", "```", *typed, "```", ""]) if typed else ""
    return "".join([f"\n## {name}\n", said, *groups, example])


def _group(title: str, actions: list[argparse.Action]) -> str:
    rows = [f"| {_name(action)} | {_cell(_help(action))} |\n" for action in actions if _is_shown(action)]
    return "".join([f"\n| {title} | meaning |\n", "|---|---|\n", *rows])


def _is_shown(action: argparse.Action) -> bool:
    hidden = isinstance(action, argparse._HelpAction | argparse._SubParsersAction)
    return not hidden and action.help != argparse.SUPPRESS


def _name(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else _value(action)
    if not action.option_strings:
        return f"`{_cell(value)}`"
    value = _cell(value)
    return ", ".join(f"`{option} {value}`" if value else f"`{option}`" for option in action.option_strings)


def _value(action: argparse.Action) -> str:
    """The value as the usage line writes it."""
    if isinstance(action.metavar, str):
        shown = action.metavar
    elif action.choices is not None:
        shown = "|".join(map(str, action.choices))
    else:
        shown = action.dest.upper() if action.option_strings else action.dest
    return f"{shown} ..." if action.nargs in ("+", "*") else shown


def _help(action: argparse.Action) -> str:
    return (action.help or "").replace("%%", "%") % {"default": action.default} if action.help else ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _anchor(name: str) -> str:
    return name.replace(" ", "-")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
