"""`headrace sql`: one statement or a prompt, in Spark SQL over a lake's tables at one cut.

Rows on standard output are a table for people, JSON or CSV for programs.

    table   columns side by side, numbers to the right, NULL written out
    json    one object a line; what JSON has no form for (decimals, times, bytes, NaN) as text
    csv     a head, then a line for each row; NULL is an empty field, an empty text is two quotes

Each format prints values as PostgreSQL does, but booleans as true and false. A table escapes control
characters, so that no value can control a terminal.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from headrace.cli.output import printable
from headrace.cli.parser import examples
from headrace.core.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.sql.session import SqlSession

if TYPE_CHECKING:
    import pyarrow as pa


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


# --- rows on standard output ----------------------------------------------------------------------


FORMATS = ("table", "json", "csv")


def show(rows: pa.Table, how: str, out: TextIO | None = None) -> None:
    """Print the rows."""
    sink = out or sys.stdout
    lines = {"table": _table, "json": _json, "csv": _csv}[how](rows)
    for line in lines:
        sink.write(line + "\n")


def _table(rows: pa.Table) -> Iterator[str]:
    names = rows.column_names
    columns = [[_cell(text) for text in _texts(column)] for column in rows.columns]
    widths = [max([len(name), *map(len, cells)]) for name, cells in zip(names, columns, strict=True)]
    right = [_is_number(kind) for kind in rows.schema.types]
    yield " │ ".join(name.ljust(width) for name, width in zip(names, widths, strict=True)).rstrip()
    yield "─┼─".join("─" * width for width in widths)
    for line in zip(*columns, strict=True):
        cells = [
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(line, widths, right, strict=True)
        ]
        yield " │ ".join(cells).rstrip()
    yield f"({rows.num_rows} {'row' if rows.num_rows == 1 else 'rows'})"


def _cell(text: str | None) -> str:
    if text is None:
        return "NULL"
    return text if text.isprintable() else printable(text.replace("\\", "\\\\"))


def _json(rows: pa.Table) -> Iterator[str]:
    names = rows.column_names
    columns = [_plain(column) for column in rows.columns]
    for line in zip(*columns, strict=True):
        yield json.dumps(dict(zip(names, line, strict=True)), ensure_ascii=False)


def _csv(rows: pa.Table) -> Iterator[str]:
    yield ",".join(map(_field, rows.column_names))
    for line in zip(*map(_texts, rows.columns), strict=True):
        yield ",".join(map(_field, line))


def _field(text: str | None) -> str:
    if text is None:
        return ""
    quoted = not text or any(mark in text for mark in ',"\r\n')
    return '"' + text.replace('"', '""') + '"' if quoted else text


def _texts(column: Any) -> Sequence[str | None]:
    """The values as text."""
    import pyarrow as pa

    from headrace.decode.printing import print_values

    kind = column.type
    if pa.types.is_boolean(kind):
        return [None if value is None else str(value).lower() for value in column.to_pylist()]
    try:
        texts: list[str | None] = print_values(column).to_pylist()
    except TypeError:
        # The query made a map, a struct or an interval.
        texts = [None if value is None else str(value) for value in column.to_pylist()]
    return texts


def _plain(column: Any) -> list[Any]:
    """The values in JSON's types, or as text if JSON has no form for them."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_string(kind):
        plain: list[Any] = column.to_pylist()
        return plain
    if pa.types.is_floating(kind):
        return [
            value if value is None or math.isfinite(value) else text
            for value, text in zip(column.to_pylist(), _texts(column), strict=True)
        ]
    if pa.types.is_list(kind):
        return [None if item.values is None else _plain(item.values) for item in column]
    return list(_texts(column))


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
