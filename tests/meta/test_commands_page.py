"""docs/commands.md is what the parsers of the command line make it."""

from __future__ import annotations

import argparse

from headrace.cli.main import COMMANDS, parser
from setup.assemble_commands import PAGE, page


def test_the_page_is_in_step_with_the_parsers() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: make docs"


def test_the_page_has_every_command_and_every_option() -> None:
    text = page()
    names = [module.__name__.rpartition(".")[2] for module in COMMANDS]
    assert [name for name in names if f"\n## headrace {name}\n" not in text] == []
    options = {
        option
        for each in _parsers(parser())
        for option, action in each._option_string_actions.items()
        if action.help != argparse.SUPPRESS and not isinstance(action, argparse._HelpAction)
    }
    assert {option for option in options if f"`{option}" not in text} == set()


def _parsers(whole: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """The parser of every command, those within a command too."""
    subparsers = [action for action in whole._actions if isinstance(action, argparse._SubParsersAction)]
    commands = [command for action in subparsers for command in action.choices.values()]
    return [each for command in commands for each in (command, *_parsers(command))]
