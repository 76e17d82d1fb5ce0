"""`headrace alerts`: try the hooks of a configuration."""

from __future__ import annotations

import argparse
from typing import Any

from headrace.cli.parser import examples

_EXAMPLE = "headrace alerts test --config headrace.toml"


def register(subparsers: Any) -> None:
    command = subparsers.add_parser(
        "alerts",
        help="try where alerts go",
        description="Alerts tell a webhook or a command what happens to a mirror: docs/alerts.md.",
        epilog=examples(_EXAMPLE),
    )
    actions = command.add_subparsers(title="actions", metavar="ACTION", required=True)
    about = "send one event to every hook, and say what came back"
    action = actions.add_parser(
        "test", help=about, description=f"Sends{about.removeprefix('send')}.", epilog=examples(_EXAMPLE)
    )
    action.add_argument(
        "--config", metavar="FILE", help="a headrace.toml: its [alerts]; else what the environment says"
    )
    action.add_argument(
        "--name", metavar="NAME", help="only the hook of the section [alerts.NAME]; [alerts] is default"
    )
    action.set_defaults(run=test)


def test(args: argparse.Namespace) -> int:
    # Imported late, as in every command: --help and --version answer at once.
    import os

    from headrace.alerts.delivery import deliver
    from headrace.alerts.events import test_event
    from headrace.alerts.hooks import hooks_of
    from headrace.core.errors import HeadraceError, Misconfigured
    from headrace.core.records import to_record
    from headrace.pipeline.state import config as configuration

    config = configuration.read(args.config) if args.config else None
    hooks = hooks_of(config.alerts if config else configuration.beside_sources()[1], os.environ)
    names = sorted({hook.name for hook in hooks})
    wanted = [hook for hook in hooks if args.name in (None, hook.name)]
    if not wanted:
        raise Misconfigured(
            "ALERT_NONE",
            "there is no hook to try" if args.name is None else f'there is no hook "{args.name}"',
            detail=f"there are {', '.join(names)}" if names else None,
            hint="write [alerts] with webhook_file or command, and give the file with --config",
        )
    lake, sources = (config.lake.path, sorted(config.sources)) if config else ("no lake", ["main"])
    event = {"id": "test", "lake": lake, **to_record(test_event(sources[0], lake)), "dropped": 0}
    failed: HeadraceError | None = None
    for hook in wanted:
        try:
            print(f"{hook.label}: {deliver(hook, event)}", flush=True)
        except HeadraceError as error:
            print(f"{hook.label}: {error}", flush=True)
            failed = failed or error
    if failed is None:
        return 0
    from headrace.pipeline.state.policy import exit_code

    return exit_code(failed)
