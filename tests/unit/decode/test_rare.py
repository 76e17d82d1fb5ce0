"""Messages that are read one at a time."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from headrace.core.errors import Definite
from headrace.decode import pgoutput
from headrace.decode.kernel import Bytes
from tests.laws.decode.wire import array, oid, plugin, relation

COLUMNS = [(1, b"id", 23, -1), (0, 'naïve "name"'.encode(), 1043, 68)]
RELATION = relation(COLUMNS)
TYPE = b"Y" + oid(16400) + b"\0numeric\0"
TRUNCATE = b"T" + struct.pack(">IB", 2, 3) + oid(1) + oid(2)
ORIGIN = b"O" + struct.pack(">Q", 77) + b"elsewhere\0"
MESSAGE = b"M" + struct.pack(">BQ", 1, 88) + b"prefix\0" + struct.pack(">I", 3) + b"abc"


def _place(message: bytes) -> tuple[Bytes, int, int]:
    data = array(plugin(message))
    found = pgoutput.scan(data)
    return data, int(found.body[0]), int(found.stop[0])


def test_a_relation_names_its_columns_in_order() -> None:
    found = pgoutput.relation(*_place(RELATION))
    assert (found.oid, found.namespace, found.name, found.identity) == (16384, "public", "t", "d")
    assert [(c.name, c.type_oid, c.typmod, c.in_identity) for c in found.columns] == [
        ("id", 23, -1, True),
        ('naïve "name"', 1043, 68, False),
    ]


def test_a_relation_without_columns_is_one() -> None:
    assert pgoutput.relation(*_place(relation([]))).columns == ()


def test_an_empty_namespace_is_that_of_the_catalog() -> None:
    assert pgoutput.type_message(*_place(TYPE)) == pgoutput.TypeMessage(16400, "pg_catalog", "numeric")


def test_a_truncate_names_its_tables() -> None:
    assert pgoutput.truncate(*_place(TRUNCATE)) == pgoutput.Truncate(True, True, (1, 2))


def test_an_origin_and_a_logical_message_are_read() -> None:
    assert pgoutput.origin(*_place(ORIGIN)) == pgoutput.Origin(77, "elsewhere")
    assert pgoutput.logical_message(*_place(MESSAGE)) == pgoutput.LogicalMessage(True, 88, "prefix", b"abc")


@pytest.mark.parametrize(
    ("parse", "message"),
    [
        (pgoutput.relation, RELATION),
        (pgoutput.type_message, TYPE),
        (pgoutput.truncate, TRUNCATE),
        (pgoutput.origin, ORIGIN),
        (pgoutput.logical_message, MESSAGE),
    ],
)
def test_a_message_that_ends_too_early_is_a_definite_error(
    parse: Callable[[Bytes, int, int], object], message: bytes
) -> None:
    data = array(message)
    for stop in range(1, len(message)):
        with pytest.raises(Definite) as caught:
            parse(data, 1, stop)
        assert caught.value.code == "PG_BAD_MESSAGE"


def test_a_truncate_of_more_tables_than_it_has_bytes_is_refused_at_once() -> None:
    message = b"T" + struct.pack(">IB", 2**32 - 1, 0)
    with pytest.raises(Definite):
        pgoutput.truncate(array(message), 1, len(message))
