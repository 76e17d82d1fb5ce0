"""`headrace`: reads the command line, runs one command, tells how it ended.

    exit code   0  what was asked for is true
                1  a bug: the traceback is ours to mend
                2  a person must act (`Misconfigured`), or the command line is wrong
                3  the data cannot be mirrored as asked (`Definite`)
                4  the world is in the way (`Transient`): trying again may succeed
              130  interrupted, by Ctrl-C or, with --once, before all was mirrored
              141  the reader of the output went away, as `head` does

This is one of the named supervisors. It catches our three families of errors alone: a bug must show its
traceback.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from types import ModuleType

import headrace
from headrace.cli import (
    alerts,
    check,
    completion,
    demo,
    drop,
    explain,
    iceberg,
    maintain,
    run,
    serve,
    sql,
    status,
    tables,
    verify,
    version,
    views,
)
from headrace.cli.argv import hide_passwords
from headrace.cli.output import UNREAD, bear_all_letters, is_unread, printable_lines
from headrace.cli.parser import CommandLine, Parser, examples
from headrace.core.errors import Definite, HeadraceError, Misconfigured, Transient

# The commands by purpose, in the order of the help.
PURPOSES: dict[str, tuple[ModuleType, ...]] = {
    "begin": (demo, check, run),
    "see how it is": (status, serve, alerts, explain),
    "read it, and prove it": (sql, views, iceberg, verify),
    "change what is mirrored": (tables, maintain, drop),
    "this program": (completion, version),
}
COMMANDS: tuple[ModuleType, ...] = tuple(each for commands in PURPOSES.values() for each in commands)


def parser() -> argparse.ArgumentParser:
    """The whole command line; each command registers its own part."""
    whole = CommandLine(
        prog="headrace",
        description="Mirrors the tables of a database into a lakehouse, exactly.",
        epilog=examples(
            "headrace run postgresql://me@db.example/shop --lake ./lake --tables 'public.*'",
            "headrace status --lake ./lake --watch",
        ),
    )
    whole.purposes = {
        purpose: [command.__name__.rpartition(".")[2] for command in commands]
        for purpose, commands in PURPOSES.items()
    }
    whole.add_argument("--version", action="version", version=f"headrace {headrace.__version__}")
    subparsers = whole.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)
    for command in COMMANDS:
        command.register(subparsers)
    return whole


def report(error: HeadraceError, lake: str | None = None) -> int:
    """Say on standard error what is wrong and what to type; return the exit code of the error's family.

    Commands in a hint get the lake that the user named.
    """
    # Imported late: `serve` and `--help` load nothing of a pipeline.
    from headrace.pipeline.state.policy import exit_code

    said = str(error) if lake is None else str(error).replace("--lake DIR", f"--lake {shlex.quote(lake)}")
    print(printable_lines(f"error: {said}"), file=sys.stderr)
    return exit_code(error)


def main(argv: Sequence[str] | None = None) -> int:
    hide_passwords(sys.argv)
    bear_all_letters()
    try:
        args = parser().parse_args(argv)
        code: int = args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:
        if not is_unread():
            raise
        return UNREAD
    except SystemExit:
        is_unread()
        raise
    except (Misconfigured, Definite, Transient) as error:
        named = getattr(args, "lake", None)  # `serve` takes several
        return report(error, named if isinstance(named, str) else None)
    except KeyboardInterrupt:
        return run.INTERRUPTED
    return code


if __name__ == "__main__":
    sys.exit(main())
