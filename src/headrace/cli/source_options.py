"""The options of each kind of source on the command line, as it declares them, for `run` and `check`."""

from __future__ import annotations

import argparse

from headrace.sources import registry
from headrace.sources.contract.values import Option


def add_source_options(command: argparse.ArgumentParser) -> None:
    """Add each kind's options under its heading. Whoever reads the configuration checks their values."""
    for titles, names in _by_kinds().items():
        group = command.add_argument_group(f"options of a {titles} source")
        for name, forms in names.items():
            choices = dict.fromkeys(value for option in forms for value in option.choices)
            defaults = dict.fromkeys(option.default for option in forms if option.default)
            group.add_argument(
                f"--{name.replace('_', '-')}",
                dest=name,
                metavar="|".join(choices) or None,
                help=forms[0].help + (f" (default: {' or '.join(defaults)})" if defaults else ""),
            )


def source_options(args: argparse.Namespace) -> dict[str, str]:
    """The options that were given; one that is empty is not, as in `--slot "$SLOT"` where there is none."""
    names = (option.name for kind in registry.kinds() for option in registry.declaration(kind).options)
    return {name: getattr(args, name) for name in names if getattr(args, name)}


def _by_kinds() -> dict[str, dict[str, list[Option]]]:
    """The options by the titles of the kinds that have them: kinds may share one, with their own values."""
    titles: dict[str, list[str]] = {}
    forms: dict[str, list[Option]] = {}
    for declared in map(registry.declaration, registry.kinds()):
        for option in declared.options:
            titles.setdefault(option.name, []).append(declared.title)
            forms.setdefault(option.name, []).append(option)
    found: dict[str, dict[str, list[Option]]] = {}
    for name, having in titles.items():
        found.setdefault(" or ".join(having), {})[name] = forms[name]
    return found
