"""`headrace serve`: metrics, health and the page of lakes, whether a run is alive or not."""

from __future__ import annotations

import argparse
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from headrace.cli.parser import examples

if TYPE_CHECKING:
    from headrace.pipeline.state.config import WebConfig
    from headrace.web.settings import Settings


def register(subparsers: Any) -> None:
    command = subparsers.add_parser(
        "serve",
        help="metrics, health and a page, over HTTP",
        description="Answers GET /metrics, /healthz, /readyz, /api/status and the page of one or several "
        "lakes, whether a run is alive or not. Reads the lakes alone: asks no source, takes no lock, writes "
        "nothing. Goes on until Ctrl-C or SIGTERM.",
        epilog=examples(
            "headrace serve --lake ./lake", "headrace serve --lake ./lake --lake s3://bucket/other"
        ),
    )
    command.add_argument(
        "--lake",
        metavar="DIR",
        action="append",
        default=[],
        help="a directory, or a bucket: s3://, gs:// or abfss://; may come several times",
    )
    command.add_argument("--config", metavar="FILE", help="a headrace.toml: its lake, and its [web]")
    command.add_argument(
        "--listen",
        metavar="ADDRESS",
        help="HOST:PORT (default: 127.0.0.1:9464); others than loopback need a token",
    )
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    # Imported late, as in every command. Of the pipeline only the configuration is loaded.
    from headrace.cli.run import set_by_signals
    from headrace.core.errors import Misconfigured
    from headrace.pipeline.state import config as configuration
    from headrace.status.picture import open_lake
    from headrace.web.server import serving
    from headrace.web.settings import DEFAULT_LISTEN

    config = configuration.read(args.config) if args.config else None
    web = config.web if config else configuration.beside_sources()[0]
    lakes = args.lake or ([config.lake.path] if config else [])
    if not lakes:
        raise Misconfigured(
            "SERVE_INCOMPLETE",
            "it is not said which lake to serve",
            hint="headrace serve --lake DIR, or headrace serve --config headrace.toml",
        )
    wanted = web_settings(args.listen or web.listen or DEFAULT_LISTEN, web)
    for lake in lakes:
        open_lake(lake)
    stop = set_by_signals()
    with serving(wanted, lakes) as url:
        print(f"serving {', '.join(lakes)} at {url}", flush=True)
        stop.wait()
    return 0


def web_settings(listen: str, web: WebConfig) -> Settings:
    """The settings of the web server; a token in the environment wins over one in a file."""
    from headrace.web.settings import TOKEN_VARIABLE, settings

    token = os.environ.get(TOKEN_VARIABLE, web.token)
    return settings(listen, web.hosts, token, web.ready_lag)


def listening(stack: ExitStack, listen: str | None, lake: str, web: WebConfig) -> str | None:
    """Serve a run's lake from the run's process, if asked to; return the page's address."""
    where = listen or web.listen
    if where is None:
        return None
    from headrace.web.server import serving

    return stack.enter_context(serving(web_settings(where, web), [lake]))
