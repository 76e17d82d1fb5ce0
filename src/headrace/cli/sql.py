"""`headrace sql`: one statement or a prompt, in Spark SQL over a lake's tables at one cut."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headrace.cli.parser import examples
from headrace.cli.rows import FORMATS
from headrace.core.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.sql.session import SqlSession


def register(subparsers: Any) -> None:
    command = subparsers.add_parser(
        "sql",
        help="query a lake, or register sources in it",
        description="Runs any Spark SQL over all tables of a lake at one cut: schema.table, or the bare name "
        "where one schema has it, or source.schema.table. Also CREATE SOURCE, CREATE VIEWS FROM SOURCE, "
        "CREATE VIEW, SHOW SOURCES, SHOW VIEWS, SHOW TABLES, SHOW CREATE VIEW, DROP SOURCE, DROP VIEW. "
        "Without a statement: a prompt.",
        epilog=examples(
            "headrace sql --lake ./lake 'SELECT count(*) FROM public.orders'",
            "headrace sql --lake ./lake --at 2026-01-31T12:00:00Z 'SELECT * FROM orders'",
        ),
    )
    command.add_argument("statement", nargs="?", help="one statement, or several with semicolons between")
    command.add_argument(
        "--lake", metavar="DIR", required=True, help="a directory, or a bucket: s3://, gs:// or abfss://"
    )
    command.add_argument(
        "--at",
        metavar="MARK|POSITION|TIMESTAMP|last-exact",
        help="an epoch, a position such as 16/B374D848, a time with its zone, or last-exact: the newest mark "
        "that has all tables of the query (default: the newest mark)",
    )
    command.add_argument("--source", metavar="NAME", help="only this source of the lake")
    command.add_argument("--format", choices=FORMATS, default="table", help="default: table")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    # Imported late, as in every command: --help and --version answer at once.
    from headrace.sql.tokens import statements

    with _session(args) as session:
        if args.statement is not None:
            for statement in statements(args.statement):
                _answer(session, statement, args.format)
            return 0
        return _converse(session, args.format)


@contextmanager
def _session(args: argparse.Namespace) -> Iterator[SqlSession]:
    from headrace.spark.lazy import lazy_session
    from headrace.spark.session import starts_empty
    from headrace.sql.session import SqlSession

    at = int(args.at) if args.at is not None and args.at.isdecimal() else args.at
    spark = lazy_session("headrace sql")

    def expect() -> None:
        if spark.begin():
            print("starting Spark", file=sys.stderr)

    try:
        yield SqlSession(
            args.lake,
            lambda: spark.get().spark,
            at=at,
            source=args.source,
            expect=expect,
            alone=starts_empty(),
        )
    finally:
        spark.close()


def _answer(session: SqlSession, statement: str, how: str) -> None:
    from headrace.cli.rows import show

    answer = session.run(statement)
    if answer.line is not None:
        print(answer.line)
    if answer.rows is not None:
        show(answer.rows, how)
    for place in answer.places if how == "table" else ():
        print(place, file=sys.stderr)


def _converse(session: SqlSession, how: str) -> int:
    """Run the prompt; after an error, report it and read the next statement."""
    from headrace.cli import prompt
    from headrace.sql.tokens import statements

    code = 0
    for text in prompt.statements(session.known_names, terminal=sys.stdin.isatty()):
        try:
            for statement in statements(text):
                _answer(session, statement, how)
        except HeadraceError as error:
            print(f"error: {error}", file=sys.stderr)
            code = 2
    return 0 if sys.stdin.isatty() else code
