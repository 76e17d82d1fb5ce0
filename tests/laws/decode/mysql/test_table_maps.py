"""Table maps: a damaged one is refused, or tells columns whose widths are possible."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import Definite
from headrace.decode.mysql import table_map as maps
from headrace.decode.mysql.framing import HEADER
from headrace.decode.mysql.table_map import TableMapLayout, layout
from tests.effort import examples
from tests.laws.decode.mysql.events import told
from tests.laws.decode.wire import damaged

NAMED = (7).to_bytes(6, "little") + b"\x01\x00\x01d\x00\x01t\x00"


def of_columns(kinds: bytes, metadata: bytes, fields: bytes = b"") -> bytes:
    """The body of a table map."""
    nulls = bytes((len(kinds) + 7) // 8)
    return NAMED + bytes([len(kinds)]) + kinds + bytes([len(metadata)]) + metadata + nulls + fields


# A column of each kind, with metadata that a server writes.
SOUND = [
    (maps.LONG, b""),
    (maps.DOUBLE, b"\x08"),
    (maps.VARCHAR, struct.pack("<H", 400)),
    (maps.BIT, b"\x00\x08"),
    (maps.DECIMAL, bytes([65, 30])),
    (maps.BLOB, b"\x04"),
    (maps.JSON, b"\x04"),
    (maps.DATETIME2, b"\x06"),
    (maps.STRING, bytes([maps.ENUM, 2])),
    (maps.STRING, bytes([maps.SET, 8])),
    (maps.STRING, bytes([maps.STRING ^ 0x30, 255])),
]
IMPOSSIBLE = [
    (maps.BIT, b"\x01\x08"),
    (maps.BIT, b"\x00\x00"),
    (maps.DECIMAL, bytes([66, 0])),
    (maps.DECIMAL, bytes([0, 0])),
    (maps.DECIMAL, bytes([5, 6])),
    (maps.BLOB, b"\x00"),
    (maps.BLOB, b"\x05"),
    (maps.JSON, b"\xff"),
    (maps.TIME2, b"\x07"),
    (maps.STRING, bytes([maps.ENUM, 0])),
    (maps.STRING, bytes([maps.SET, 9])),
]


@pytest.mark.parametrize(("kind", "metadata"), SOUND)
def test_a_column_of_each_kind_is_read(kind: int, metadata: bytes) -> None:
    assert len(layout(of_columns(bytes([kind]), metadata), mariadb=False).columns) == 1


@pytest.mark.parametrize(
    "body",
    [
        *(of_columns(bytes([kind]), metadata) for kind, metadata in IMPOSSIBLE),
        of_columns(b"", b""),
        of_columns(bytes([maps.VARCHAR]), b"\x01\x00", b"\x02\x00"),  # charsets that say nothing
        of_columns(bytes([maps.LONG]), b"", b"\x04\x05\x01a"),
        NAMED,
        NAMED[:5],
    ],
    ids=lambda body: body[len(NAMED) :].hex() or "short",
)
def test_a_map_that_no_server_writes_is_refused(body: bytes) -> None:
    with pytest.raises(Definite) as refused:
        layout(body, mariadb=False)
    assert refused.value.code == "MY_BAD_TABLE_MAP"
    assert "headrace tables resync" in refused.value.hint


@pytest.mark.parametrize("kind", [6, 7, 11, 12, 20, 200, 244])
def test_a_column_of_an_unknown_type_is_refused(kind: int) -> None:
    with pytest.raises(Definite) as refused:
        layout(of_columns(bytes([kind]), b""), mariadb=True)
    assert refused.value.code == "MY_UNKNOWN_COLUMN_TYPE"
    assert f"type {kind}" in (refused.value.detail or "")
    assert "ALTER TABLE" in refused.value.hint


@examples(100)
@given(damaged(st.just(told(7)[HEADER:])), st.booleans())
def test_a_damaged_map_is_refused_or_tells_possible_columns(body: bytes, mariadb: bool) -> None:
    found = _read(body, mariadb=mariadb)
    if isinstance(found, str):
        assert found in {"MY_BAD_TABLE_MAP", "MY_UNKNOWN_COLUMN_TYPE"}
    else:
        assert found.columns
        assert all(-4 <= column.width <= 32 for column in found.columns)


def _read(body: bytes, *, mariadb: bool) -> TableMapLayout | str:
    try:
        return layout(body, mariadb=mariadb)
    except Definite as error:
        return error.code
