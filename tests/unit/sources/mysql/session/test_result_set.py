"""An answer is the same however its packets come, as rows and as blocks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import HeadraceError
from headrace.sources.mysql.session.packets import LONGEST, PacketBatch, ServerError
from headrace.sources.mysql.session.result_set import ResultRows, StatementAnswer, answer

EOF = b"\xfe\x01\x00\x22\x00"
OK = b"\x00\xfb\x00\x02\x00\x03\x00"
ERROR = b"\xff\x28\x04#42000You have an error near 'hunter2'"


def number(value: int) -> bytes:
    if value < 251:
        return bytes([value])
    width, mark = (2, 0xFC) if value < 1 << 16 else (3, 0xFD) if value < 1 << 24 else (8, 0xFE)
    return bytes([mark]) + value.to_bytes(width, "little")


def row(*values: bytes | None) -> bytes:
    return b"".join(b"\xfb" if value is None else number(len(value)) + value for value in values)


def definition(name: str) -> bytes:
    texts = [b"def", b"shop", b"a", b"t", name.encode(), b"x"]
    fixed = (45).to_bytes(2, "little") + (80).to_bytes(4, "little") + b"\xfd\x01\x10\x04\x00\x00"
    return row(*texts) + b"\x0c" + fixed


def result(rows: list[bytes], end: bytes = EOF, columns: int = 2) -> list[bytes]:
    names = [definition(f"c{i}") for i in range(columns)]
    return [number(columns), *names, EOF, *rows, end]


def received(packets: list[bytes], cuts: list[int] | None = None) -> StatementAnswer:
    """The answer of these packets, so many of them in each batch."""

    def batches() -> Iterator[PacketBatch]:
        at = 0
        sizes = cuts or [len(packets)]
        turn = 0
        while at < len(packets):
            part = packets[at : at + sizes[turn % len(sizes)]]
            at, turn = at + len(part), turn + 1
            stops = np.cumsum([len(packet) for packet in part], dtype=np.int64)
            data = np.frombuffer(b"".join(part), np.uint8)
            yield PacketBatch(data, stops - np.array([len(packet) for packet in part], np.int64), stops)

    return answer(batches().__next__)


def rows_of(block: ResultRows) -> list[bytes]:
    return [block.data[block.starts[i] : block.starts[i + 1]].tobytes() for i in range(len(block))]


values = st.one_of(st.none(), st.binary(max_size=20), st.just(b"x" * 300))
ROWS = st.lists(st.tuples(values, values), max_size=60)
CUTS = st.lists(st.integers(1, 30), min_size=1, max_size=5)


@given(ROWS, CUTS, st.integers(1, 700))
def test_rows_and_blocks_hold_the_same_however_they_come(
    table: list[tuple[bytes | None, bytes | None]], cuts: list[int], size: int
) -> None:
    packets = result([row(*each) for each in table])
    assert list(received(packets, cuts).rows()) == table
    taken = received(packets, cuts)
    blocks = list(taken.blocks(size))
    assert [each for block in blocks for each in rows_of(block)] == [row(*each) for each in table]
    assert all(len(block.data) <= size or len(block) == 1 for block in blocks)
    assert taken.finished


def test_columns_are_read_and_the_end_says_how_it_went() -> None:
    found = received(result([row(b"1", None)]))
    assert [column.name for column in found.columns] == ["c0", "c1"]
    first = found.columns[0]
    assert (first.database, first.table, first.type, first.charset, first.flags, first.decimals) == (
        ("shop", "t", 0xFD, 45, 0x1001, 4)
    )
    assert not found.finished
    assert list(found.rows()) == [(b"1", None)]
    assert (found.finished, found.warnings, found.status) == (True, 1, 0x22)


def test_a_statement_without_rows_ends_at_once() -> None:
    found = received([OK])
    assert (found.finished, found.columns, list(found.rows()), found.status) == (True, (), [], 2)


@pytest.mark.parametrize("way", ["rows", "blocks"])
def test_an_error_amid_rows_ends_them_and_shows_nothing_of_its_text(way: str) -> None:
    found = received(result([row(b"1", b"2")], ERROR))
    with pytest.raises(ServerError) as caught:
        list(getattr(found, way)())
    assert (caught.value.number, caught.value.state, found.finished) == (1064, "42000", True)
    assert "hunter2" not in str(caught.value) + repr(caught.value)


def test_a_row_that_begins_like_the_end_is_told_by_its_size() -> None:
    large = b"\0" * (LONGEST + 10)
    packets = result([row(large), row(b"z")], columns=1)
    assert packets[3][0] == EOF[0]
    assert list(received(packets).rows()) == [(large,), (b"z",)]
    assert [len(block) for block in received(packets, [1]).blocks(1000)] == [1, 1]


@pytest.mark.parametrize(
    "packets",
    [
        [b""],
        [b"\xfb/etc/passwd"],
        [b"\x01", definition("a"), row(b"1")],
        [b"\x01", b"\x03def", EOF],
        result([row(b"1", b"2", b"3")]),
        result([row(b"1")]),
        result([b"\x05a\x00"]),
        result([], b"\xfe\x00\x00\x02\x00\x00\x00"),
        result([], b"\xfe\x00\x00\x0a\x00"),
        [b"\x00\x00\x00\x0a\x00\x00\x00"],
    ],
)
def test_what_no_server_sends_is_refused(packets: list[bytes]) -> None:
    with pytest.raises(HeadraceError) as caught:
        list(received(packets).rows())
    assert caught.value.code == "MY_BAD_PACKET"
