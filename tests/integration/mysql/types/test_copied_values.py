"""A copied value of every type becomes what docs/types.md says, on MySQL and on MariaDB."""

from __future__ import annotations

import pytest

from headrace.decode.copyrows import CopiedRows
from headrace.decode.mysql.result_rows import decode
from headrace_testing.mysql import Server
from tests.cases.types.cases import Type, column
from tests.integration.mysql.types.result_sets import KINDS, EveryType, of_kind

pytestmark = pytest.mark.server


@pytest.mark.parametrize("kind", KINDS)
def test_every_value_of_every_type_is_copied_without_loss(request: pytest.FixtureRequest, kind: str) -> None:
    server: Server = request.getfixturevalue(f"{kind}_server")
    with server.database() as db:
        table = EveryType(db, of_kind(server))
        table.create()
        table.insert()
        copied = decode(table.rows(), table.columns)
    wrong = {of.name: _wrong(copied, number, of, table) for number, of in enumerate(table.types, start=1)}
    assert {name: found for name, found in wrong.items() if found} == {}


def _wrong(copied: CopiedRows, number: int, of: Type, table: EveryType) -> list[object]:
    """List a column's values and raw texts beside the expected ones, where they differ."""
    values = table.column_values(of)
    found, expected = copied.rows.column(number).combine_chunks(), column(of, values)
    wrong: list[object] = [] if found.equals(expected) else [found.to_pylist(), expected.to_pylist()]
    raws = {row: value.raw for row, value in enumerate(values) if value.raw is not None}
    texts = _texts(copied, number)
    return wrong if texts == raws else [*wrong, texts, raws]


def _texts(copied: CopiedRows, number: int) -> dict[int, str]:
    """The texts of a column that have no form in the lake, by row."""
    return {
        int(row): text
        for each in copied.unrepresentable
        if each.column == number
        for row, text in zip(each.rows, each.texts.to_pylist(), strict=True)
    }
