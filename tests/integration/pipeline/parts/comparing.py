"""The newest mark against the source, which is at rest: its tables, or views of the parts that it sends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headrace.core.names import TableName
from headrace_testing import validators
from headrace_testing.canonical import difference, lake_rows
from headrace_testing.oracle.postgres_rows import source_rows
from tests.integration.pipeline.conftest import Mirrors


def differing(mirrors: Mirrors, names: Iterable[str]) -> dict[str, str]:
    """The tables that the newest mark holds otherwise than the view `oracle.NAME` shows them."""
    cut, found = mirrors.lake.at(), {}
    with mirrors.database.connect() as connection:
        for name in names:
            if f"public.{name}" not in cut.mark.versions:
                found[name] = "not in the mark"
                continue
            have = lake_rows(cut.arrow(f"public.{name}"))
            want = source_rows(connection, TableName("oracle", name))
            wrong = difference(have.frame, want.select(have.names).frame)
            if wrong.height or have.names != want.names:
                found[name] = f"{have.names} {want.names} {wrong}"
    return found


def unlike(mirrors: Mirrors, columns: Mapping[str, Sequence[str]]) -> list[object]:
    """Rows, or columns and their order, that the newest mark has otherwise than the tables."""
    cut = mirrors.lake.at()
    have = {table: cut.schema(table).names for table in columns}
    return [
        *validators.exact(mirrors.lake, mirrors.database.url(), values=True),
        *((table, have[table], list(want)) for table, want in columns.items() if have[table] != list(want)),
    ]
