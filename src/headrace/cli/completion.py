"""`headrace completion`: a script for bash, zsh or fish that completes commands, options and tables.

    the parsers of the command line ─► `Words`, a command each ─► the script of a shell

A script holds the commands and options of the release that printed it. Only for the names of tables it calls
`headrace`, which reads them from the status files of the lake on the command line. It completes no tables of
a lake in a bucket: a keystroke must not wait for a network.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.cli.parser import examples

_TABLES, _FOLDERS, _FILES = "tables", "folders", "files"
_KINDS = {
    "lake": _FOLDERS,
    "state": _FOLDERS,
    "config": _FILES,
    "tables": _TABLES,
    "names": _TABLES,
}  # by where a value goes
_LONGEST = 70


def register(subparsers: Any) -> None:
    command = subparsers.add_parser(
        "completion",
        help="have a shell complete commands, options and tables",
        description="Prints a script for the shell. In ~/.bashrc or ~/.zshrc (after compinit), or in "
        "~/.config/fish/config.fish, the line below that is of the shell makes it complete from then on.",
        epilog=examples(
            'eval "$(headrace completion bash)"',
            'eval "$(headrace completion zsh)"',
            "headrace completion fish | source",
        ),
    )
    command.add_argument("shell", nargs="?", choices=tuple(_SCRIPTS), help="the shell")
    # Only the scripts use this option.
    command.add_argument("--tables-of", metavar="DIR", help=argparse.SUPPRESS)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    # Imported late: `main` imports this module.
    from headrace.cli.main import parser

    if args.tables_of is not None:
        print("".join(f"{name}\n" for name in tables_of(args.tables_of)), end="")
        return 0
    if args.shell is None:
        parser().parse_args(["completion", "--help"])
    print(script(args.shell, parser()), end="")
    return 0


def tables_of(lake: str) -> list[str]:
    """The tables that the runs of a lake in a directory last reported; unreadable files are passed over."""
    names: set[str] = set()
    for file in Path(os.path.expanduser(lake)).glob("_headrace/status/*.json"):
        try:
            names |= (json.loads(file.read_bytes())["record"].get("tables") or {}).keys()
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            continue
    return sorted(name for name in names if name.isprintable())


# --- the command line in words --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OptionValue:
    """A value that an option, or a command, takes."""

    kind: str = ""  # which names complete it: tables, folders or files; empty: none
    choices: tuple[str, ...] = ()
    is_list: bool = False  # further values may follow


@dataclass(frozen=True, slots=True)
class OptionWords:
    """An option and its names; without a value it is a switch."""

    names: tuple[str, ...]
    help: str
    value: OptionValue | None


@dataclass(frozen=True, slots=True)
class Words:
    """A command, and the subcommands, options and argument that may follow it."""

    path: tuple[str, ...]
    commands: tuple[tuple[str, str], ...]  # name and help of each subcommand
    options: tuple[OptionWords, ...]
    argument: OptionValue | None

    @property
    def place(self) -> str:
        return "".join(f"/{name}" for name in self.path)


def words(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> Iterator[Words]:
    """Yield the command of a parser, then its subcommands."""
    below: list[tuple[str, str]] = []
    options: list[OptionWords] = []
    argument = None
    inner: list[Words] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below = [(each.dest, _brief(each.help)) for each in action._choices_actions]
            inner = [each for name, sub in action.choices.items() for each in words(sub, (*path, name))]
        elif action.option_strings and action.help != argparse.SUPPRESS:
            value = None if action.nargs == 0 else _value(action)
            options.append(OptionWords(tuple(action.option_strings), _brief(action.help), value))
        elif not action.option_strings:
            # `add` takes tables that the lake does not know yet.
            argument = OptionValue() if path[-1:] == ("add",) else _value(action)
    yield Words(path, tuple(below), tuple(options), argument)
    yield from inner


def _value(action: argparse.Action) -> OptionValue:
    shown = action.metavar if isinstance(action.metavar, str) else ""
    choices = tuple(map(str, action.choices or ())) or (tuple(shown.split("|")) if "|" in shown else ())
    if any(each.isupper() for each in choices):
        choices = tuple(each for each in choices if not each.isupper())  # the others are placeholders
    return OptionValue(_KINDS.get(action.dest, ""), choices, action.nargs == "+")


def _brief(text: str | None) -> str:
    brief = (text or "").replace("%%", "%").partition(";")[0].partition(" (")[0]
    return brief if len(brief) <= _LONGEST else f"{brief[: _LONGEST - 3].rpartition(' ')[0]} ..."


def script(shell: str, parser: argparse.ArgumentParser) -> str:
    """The script for a shell."""
    return _SCRIPTS[shell](list(words(parser)))


# --- bash -----------------------------------------------------------------------------------------

_BASH = """\
# Completion of headrace for bash: eval "$(headrace completion bash)"
_headrace_tables_of() {
    local name
    while IFS= read -r name; do
        [[ $name == "$2"* ]] && COMPREPLY+=("$(printf %q "$name")")
    done < <("${COMP_WORDS[0]}" completion --tables-of "${1/#\\~/$HOME}" 2>/dev/null)
}
_headrace() {
    local cur=${COMP_WORDS[COMP_CWORD]} at= option= lake= word i
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        [[ $word == -* ]] && option=$word
        [[ ${COMP_WORDS[i-1]} == --lake ]] && lake=$word
        case $at/$word in
            @PLACES@) at=$at/$word option= ;;
        esac
    done
    case $at:$option in
        @LISTS@)
            [[ $cur != -* ]] && { _headrace_tables_of "$lake" "$cur"; return; } ;;
    esac
    case $at:${COMP_WORDS[COMP_CWORD-1]} in
@VALUES@
    esac
    case $at in
@COMMANDS@
    esac
}
complete -F _headrace headrace
"""


def _bash(known: Sequence[Words]) -> str:
    values, commands, lists = [], [], []
    for each in known:
        listed = [name for name, _ in each.commands]
        listed += [name for option in each.options for name in option.names]
        listed += each.argument.choices if each.argument else ()
        reply = f'COMPREPLY=($(compgen -W "{" ".join(listed)}" -- "$cur"))'
        if each.argument and each.argument.kind == _TABLES:
            reply = f'if [[ $cur == -* ]]; then {reply}; else _headrace_tables_of "$lake" "$cur"; fi'
        commands.append(f"        {each.place or shlex.quote('')}) {reply} ;;")
        for option in each.options:
            if option.value is None:
                continue
            if option.value.kind == _TABLES and option.value.is_list:
                lists += [f"{each.place}:{name}" for name in option.names]
                continue
            places = "|".join(f"{each.place}:{name}" for name in option.names)
            values.append(f"        {places}) {_bash_value(option.value)} return ;;")
    made = {
        "PLACES": "|".join(each.place for each in known if each.path),
        "LISTS": "|".join(lists) or "-",
        "VALUES": "\n".join(values),
        "COMMANDS": "\n".join(commands),
    }
    return _fill(_BASH, made)


def _bash_value(value: OptionValue) -> str:
    if value.choices:
        return f'COMPREPLY=($(compgen -W "{" ".join(value.choices)}" -- "$cur"));'
    if value.kind in (_FOLDERS, _FILES):
        letter = "d" if value.kind == _FOLDERS else "f"
        found = f'COMPREPLY=($(compgen -{letter} -- "$cur"));'
        return f"compopt -o filenames 2>/dev/null; local IFS=$'\\n'; {found}"
    return ""


# --- zsh ------------------------------------------------------------------------------------------

_ZSH = """\
#compdef headrace
# Completion of headrace for zsh, after compinit: eval "$(headrace completion zsh)"
_headrace_tables_of() {
    local -a names
    local lake=${words[${words[(I)--lake]}+1]}
    [[ ${words[(I)--lake]} -gt 0 ]] || return 1
    names=("${(@f)$($_headrace_program completion --tables-of ${(Q)lake} 2>/dev/null)}")
    [[ -n $names ]] && compadd -a names
}
@FUNCTIONS@
_headrace() {
    local _headrace_program=$words[1]
    _headrace_at
}
if [[ $funcstack[1] == _headrace ]]; then
    _headrace "$@"
else
    compdef _headrace headrace
fi
"""


def _zsh(known: Sequence[Words]) -> str:
    functions = []
    for each in known:
        specs = [_zsh_option(option) for option in each.options]
        name = "_headrace_at" + "".join(f"_{part}" for part in each.path)
        if each.commands:
            specs += ["'1: :->command'", "'*:: :->rest'"]
        elif each.argument:
            count = "*" if each.argument.is_list else "1"
            specs.append(shlex.quote(f"{count}: :{_zsh_value(each.argument) or ' '}"))
        lines = [f"{name}() {{", "    local curcontext=$curcontext state line", "    typeset -A opt_args"]
        lines.append(" \\\n        ".join(["    _arguments -C", *specs]))
        if each.commands:
            listed = " ".join(shlex.quote(f"{word}:{about}") for word, about in each.commands)
            cases = " ".join(f"{word}) {name}_{word} ;;" for word, _ in each.commands)
            lines += [
                "    case $state in",
                f"        command) local -a commands=({listed}); _describe -t commands command commands ;;",
                f"        rest) case $line[1] in {cases} esac ;;",
                "    esac",
            ]
        functions.append("\n".join([*lines, "}"]))
    return _fill(_ZSH, {"FUNCTIONS": "\n".join(functions)})


def _zsh_option(option: OptionWords) -> str:
    about = option.help.replace("\\", "").replace("[", "(").replace("]", ")").replace(":", "\\:")
    value = "" if option.value is None else f":value:{_zsh_value(option.value) or ' '}"
    repeated = "*" if option.value is not None and option.value.is_list else ""
    return " ".join(shlex.quote(f"{repeated}{name}[{about}]{value}") for name in option.names)


def _zsh_value(value: OptionValue) -> str:
    if value.choices:
        return f"({' '.join(value.choices)})"
    return {_FOLDERS: "_files -/", _FILES: "_files", _TABLES: "_headrace_tables_of"}.get(value.kind, "")


# --- fish -----------------------------------------------------------------------------------------

_FISH = """\
# Completion of headrace for fish: headrace completion fish | source
function __headrace_at
    set -l at
    for word in (commandline -opc)[2..-1]
        switch "$at/$word"
            case @PLACES@
                set at "$at/$word"
        end
    end
    test "$at" = "$argv[1]"
end
function __headrace_tables_of
    set -l typed (commandline -opc)
    set -l at (contains -i -- --lake $typed)
    and $typed[1] completion --tables-of $typed[(math $at + 1)] 2>/dev/null
end
complete -c headrace -f
@LINES@
"""


def _fish(known: Sequence[Words]) -> str:
    lines = []
    for each in known:
        here = f"complete -c headrace -n {_fish_text(f'__headrace_at {shlex.quote(each.place)}')}"
        lines += [f"{here} -a {name} -d {_fish_text(about)}" for name, about in each.commands]
        if each.argument and (each.argument.choices or each.argument.kind == _TABLES):
            lines.append(f"{here} -a {_fish_value(each.argument)}")
        for option in each.options:
            names = " ".join(f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in option.names)
            value = "" if option.value is None else f" -r {_fish_taken(option.value)}"
            lines.append(f"{here} {names}{value} -d {_fish_text(option.help)}")
    places = " ".join(each.place for each in known if each.path)
    return _fill(_FISH, {"PLACES": places, "LINES": "\n".join(lines)})


def _fish_taken(value: OptionValue) -> str:
    if value.choices or value.kind == _TABLES:
        return f"-f -a {_fish_value(value)}"
    return {_FOLDERS: "-f -a '(__fish_complete_directories)'", _FILES: "-F"}.get(value.kind, "-f")


def _fish_value(value: OptionValue) -> str:
    return _fish_text(" ".join(value.choices)) if value.choices else "'(__headrace_tables_of)'"


def _fish_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _fill(template: str, parts: dict[str, str]) -> str:
    for name, part in parts.items():
        template = template.replace(f"@{name}@", part)
    return template


_SCRIPTS: dict[str, Callable[[Sequence[Words]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
