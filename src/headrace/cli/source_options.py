"""The options that each kind of source declares, on the command line of `run` and `check`."""

from __future__ import annotations

import argparse

from headrace.sources import registry
from headrace.sources.contract.values import Declaration, Option

_Form = tuple[Declaration, Option]


def add_source_options(command: argparse.ArgumentParser) -> None:
    """Add each kind's options under its heading. Their values are checked with the configuration."""
    for kinds, forms_by_name in _by_kinds().items():
        group = command.add_argument_group(_heading(kinds))
        for name, forms in forms_by_name.items():
            choices = dict.fromkeys(value for _, option in forms for value in option.choices)
            group.add_argument(
                f"--{name.replace('_', '-')}",
                dest=name,
                metavar="|".join(choices) or None,
                help=forms[0][1].help + _values(forms),
            )


def source_options(args: argparse.Namespace) -> dict[str, str]:
    """The options that were given. An empty one counts as not given: `--slot "$SLOT"` with SLOT unset."""
    options = (option for kind in registry.kinds() for option in registry.declaration(kind).options)
    names = (option.name for option in options if not option.table)
    return {name: getattr(args, name) for name in names if getattr(args, name)}


def _heading(kinds: tuple[str, ...]) -> str:
    if kinds == registry.kinds():
        return "for every kind of source, with values of its own"
    declared = [registry.declaration(kind) for kind in kinds]
    titles = _in_words([each.title for each in declared])
    return f"only for {titles}, at {_in_words([f'{each.schemes[0]}://...' for each in declared])}"


def _values(forms: list[_Form]) -> str:
    """The default; if the kinds differ, the values and the default of each."""
    alike: dict[tuple[tuple[str, ...], str | None], list[str]] = {}
    for declared, option in forms:
        alike.setdefault((option.choices, option.default), []).append(declared.title)
    if len(alike) == 1:
        default = forms[0][1].default
        return f" (default: {default})" if default else ""
    said = (
        f"{_in_words(titles)}: {', '.join(choices)}" + (f" (default: {default})" if default else "")
        for (choices, default), titles in alike.items()
    )
    return f". {'; '.join(said)}"


def _in_words(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _by_kinds() -> dict[tuple[str, ...], dict[str, list[_Form]]]:
    """The options, by the kinds that have them. Kinds may share an option and differ in its values."""
    kinds: dict[str, list[str]] = {}
    forms: dict[str, list[_Form]] = {}
    for kind in registry.kinds():
        declared = registry.declaration(kind)
        for option in declared.options:
            if option.table:
                continue
            kinds.setdefault(option.name, []).append(kind)
            forms.setdefault(option.name, []).append((declared, option))
    found: dict[tuple[str, ...], dict[str, list[_Form]]] = {}
    for name, having in kinds.items():
        found.setdefault(tuple(having), {})[name] = forms[name]
    return found
