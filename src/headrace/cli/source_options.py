"""The options of each kind of source on the command line, as it declares them, for `run` and `check`."""

from __future__ import annotations

import argparse

from headrace.sources import registry
from headrace.sources.contract.declaration import Option


def add_source_options(command: argparse.ArgumentParser) -> None:
    """Add each kind's options under its heading. Whoever reads the configuration checks their values."""
    for titles, options in _by_kinds().items():
        group = command.add_argument_group(f"options of a {titles} source")
        for option in options:
            group.add_argument(
                f"--{option.name.replace('_', '-')}",
                dest=option.name,
                metavar="|".join(option.choices) or None,
                help=option.help + (f" (default: {option.default})" if option.default else ""),
            )


def source_options(args: argparse.Namespace) -> dict[str, str]:
    """The options that were given; one that is empty is not, as in `--slot "$SLOT"` where there is none."""
    names = (option.name for kind in registry.kinds() for option in registry.declaration(kind).options)
    return {name: getattr(args, name) for name in names if getattr(args, name)}


def _by_kinds() -> dict[str, list[Option]]:
    """The options by the titles of the kinds that have them: kinds may share one, as it is."""
    titles: dict[Option, list[str]] = {}
    for declared in map(registry.declaration, registry.kinds()):
        for option in declared.options:
            titles.setdefault(option, []).append(declared.title)
    found: dict[str, list[Option]] = {}
    for option, having in titles.items():
        found.setdefault(" or ".join(having), []).append(option)
    return found
