"""The parser of the command line: help by purpose, colours on a terminal, near names for typing errors.

    CommandLine   `headrace` itself: its help lists the commands by purpose
    Parser        each command: its options in groups, an example at the end

An error in a command line is one line and a hint, without the usage. It never repeats a password.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, NoReturn

from headrace.cli.argv import mask
from headrace.core.near import did_you_mean

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

WIDEST = 100
_HEADING = re.compile(r"(?m)^(usage:|[a-z][^\n]*:)(?= |$)")
_OPTION = re.compile(r"(?<![\w\-'.])--?[a-z][\w-]*")
_EXAMPLE = re.compile(r"(?m)^  (headrace .*|eval .*|source .*)$")
_BOLD, _GREEN, _PLAIN = "\x1b[1m", "\x1b[32m", "\x1b[0m"


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Wraps descriptions but no epilog: its examples are lines to be typed."""

    def __init__(self, prog: str) -> None:
        columns = _columns()
        super().__init__(prog, max_help_position=min(30, columns // 3), width=columns - 2)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith(_EXAMPLES):
            return super()._fill_text(text, width, indent)
        return argparse.HelpFormatter._fill_text(self, text, width, indent)


def _columns() -> int:
    try:
        columns = os.get_terminal_size().columns
    except (OSError, ValueError):
        columns = 80
    return max(20, min(int(os.environ.get("COLUMNS") or columns), WIDEST))


_EXAMPLES = "example:"


def examples(*lines: str) -> str:
    """The end of a command's help: lines that can be typed as they are."""
    return "\n".join([_EXAMPLES, *(f"  {line}" for line in lines)])


class Parser(argparse.ArgumentParser):
    """The parser of a command; its errors are one line and a hint, with passwords masked."""

    def __init__(self, **known: Any) -> None:
        if sys.version_info >= (3, 14):
            known.setdefault("color", False)  # argparse's own colours leave our examples out
        super().__init__(formatter_class=_Formatter, **known)

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        out, text = file or sys.stdout, self.format_help()
        out.write(paint(text) if file is None and has_colours(sys.stdout) else text)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {self.prog}: {mask(message)}\nhint: {self.prog} --help\n")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse, but refuse unknown options first: a mistyped option may make an argument seem missing."""
        given = list(sys.argv[1:] if args is None else args)
        if self._subparsers is None:
            self._refuse_unknown(given)
        found, extra = super().parse_known_args(given, namespace)
        if extra:
            self.error(f'unexpected argument "{extra[0]}"')
        return found, extra

    def _refuse_unknown(self, given: Sequence[str]) -> None:
        known = self._option_string_actions
        for word in given:
            if word == "--":
                return
            name = word.partition("=")[0]
            if re.fullmatch(r"--?[A-Za-z][\w-]*", name) and not any(each.startswith(name) for each in known):
                self.error(f'unknown option "{name}"{_question(name, known)}')

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = action.choices
        if choices is None or value in choices:
            return
        kind = "command" if isinstance(choices, Mapping) else "value"
        known = ", ".join(map(str, choices))
        raise argparse.ArgumentError(
            None if kind == "command" else action,
            f'unknown {kind} "{value}"{_question(str(value), map(str, choices)) or f"; known are {known}"}',
        )


class CommandLine(Parser):
    """The parser of the whole command line."""

    purposes: Mapping[str, Sequence[str]] = {}  # the commands by purpose

    def format_help(self) -> str:
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        listed = {
            each.dest: each
            for action in self._actions
            if isinstance(action, argparse._SubParsersAction)
            for each in action._choices_actions
        }
        for purpose, names in self.purposes.items():
            formatter.start_section(purpose)
            formatter.add_arguments([listed[name] for name in names if name in listed])
            formatter.end_section()
        formatter.start_section("options")
        formatter.add_arguments([each for each in self._actions if each.option_strings])
        formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()


def has_colours(stream: IO[str], environment: Mapping[str, str] = os.environ) -> bool:
    """Tell whether to colour a stream: it is a terminal that has colours, and NO_COLOR is not set."""
    wanted = not environment.get("NO_COLOR") and environment.get("TERM", "dumb") not in ("dumb", "unknown")
    return wanted and stream.isatty()


def paint(text: str) -> str:
    """Colour the headings, options and examples of a help text."""
    text = _OPTION.sub(rf"{_GREEN}\g<0>{_PLAIN}", text)
    text = _HEADING.sub(rf"{_BOLD}\g<0>{_PLAIN}", text)
    return _EXAMPLE.sub(lambda line: f"  {_BOLD}{_plain(line[1])}{_PLAIN}", text)


def _plain(text: str) -> str:
    return text.replace(_GREEN, "").replace(_PLAIN, "")


def _question(name: str, known: Iterable[str]) -> str:
    asked = did_you_mean(name, known)
    return "" if asked is None else f"; {asked}"
