"""From a column of information_schema to one of the lake: what is refused, and what a copy selects."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.core.errors import Definite
from headrace.sources.mysql.types.columns import column_of, doubtful_key, select_expression


@pytest.mark.parametrize(
    ("column_type", "charset", "word"),
    [
        ("datetime /* mariadb-5.3 */", None, "5.6"),
        ("timestamp(3) /* 5.5 binary format */", None, "5.6"),
        ("varchar(10)", "klingon", "klingon"),
        ("xmltype", None, "know"),
        ("", None, "know"),
    ],
)
def test_what_cannot_be_read_is_refused(column_type: str, charset: str | None, word: str) -> None:
    with pytest.raises(Definite) as caught:
        column_of("c", column_type, charset)
    assert caught.value.code == "MY_COLUMN_UNREADABLE"
    assert word in str(caught.value.detail)


@pytest.mark.parametrize(
    ("column_type", "charset", "expression"),
    [
        ("int", None, "`a``b`"),
        ("float(10,2)", None, "`a``b` * 1e0"),
        ("bit(3)", None, "`a``b` + 0"),
        ("decimal(65,30) unsigned zerofill", None, "CAST(`a``b` AS DECIMAL(65,30))"),
        ("decimal(10,2) unsigned zerofill", None, "`a``b`"),
        ("text", "utf8mb3", "`a``b`"),
        ("text", "latin1", "CAST(`a``b` AS BINARY)"),
        ("set('a')", "latin1", "CAST(`a``b` AS BINARY)"),
        ("enum('varchar(10)')", "utf8mb4", "`a``b`"),
    ],
)
def test_a_copy_selects_what_loses_nothing(column_type: str, charset: str | None, expression: str) -> None:
    assert select_expression(column_of("a`b", column_type, charset)) == expression


@pytest.mark.parametrize(
    ("width", "kind"),
    [(15, pa.int16()), (16, pa.int32()), (31, pa.int32()), (32, pa.int64()), (63, pa.int64())],
)
def test_bits_become_the_narrowest_number_that_holds_them(width: int, kind: pa.DataType) -> None:
    assert column_of("c", f"bit({width})", None).type == kind


def test_a_key_of_dates_is_doubtful() -> None:
    assert doubtful_key(column_of("c", "datetime(3)", None)) == "zero dates"
    assert doubtful_key(column_of("c", "int", None)) is None
