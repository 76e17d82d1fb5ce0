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
TRUNCATE = b"T" + struct.pack(">IB", 2, 3) + oid(1) + oid(2)
ABORT = b"A" + struct.pack(">II", 7, 9)


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
    found = pgoutput.relation(*_place(RELATION.replace(b"public\0", b"\0")))
    assert (found.oid, found.namespace, found.name) == (16384, "pg_catalog", "t")


def test_a_truncate_names_its_tables() -> None:
    assert pgoutput.truncate(*_place(TRUNCATE)) == pgoutput.Truncate(True, True, (1, 2))


@pytest.mark.parametrize(
    ("parse", "message"),
    [
        (pgoutput.relation, RELATION),
        (pgoutput.truncate, TRUNCATE),
        (pgoutput.stream_abort, ABORT),
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
