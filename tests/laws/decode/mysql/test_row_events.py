"""The kernels that find events and rows agree with their twin on any bytes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import Definite
from headrace.decode.kernel import Bytes
from headrace.decode.mysql import table_map
from headrace.decode.mysql.framing import HEADER, scan
from headrace.decode.mysql.rows import MysqlChangeMeta, blank, changes, counts
from headrace_testing.reference.mysql import row_events as reference
from tests.effort import examples
from tests.laws.decode.mysql.events import SCHEMA, begin, events, frame, image, told
from tests.laws.decode.wire import damaged


def array(data: bytes) -> Bytes:
    return np.frombuffer(data, np.uint8)


def found(data: bytes) -> list[reference.Change]:
    """The changes as the kernels find them."""
    buffer = array(data)
    scanned = scan(buffer)
    rows = np.flatnonzero(scanned.is_rows)
    layout = table_map.layout(scanned.maps[0][HEADER:], mariadb=False)
    sizes = counts(buffer, scanned, rows, layout)
    number = np.arange(int(sizes.sum()))
    names = pa.array(["g"] * len(number), pa.string())
    meta = MysqlChangeMeta(number, number, names, number)
    batch = changes(buffer, scanned, rows, layout, np.arange(3), SCHEMA, sizes, meta).batch
    kinds = np.repeat(scanned.kind[rows], sizes)
    return [(int(kind), _row(batch, "o", i), _row(batch, "n", i)) for i, kind in enumerate(kinds)]


def _row(batch: pa.RecordBatch, side: str, row: int) -> reference.Values | None:
    image, op = batch["_image"][row].as_py(), batch["_op"][row].as_py()
    if (side == "o" and image == 0) or (side == "n" and op == 3):
        return None
    number, *rest = (batch[f"{side}{i}"][row].as_py() for i in range(3))
    return [None if number is None else number.to_bytes(4, "little", signed=True), *rest]


def _read(step: Callable[[], list[reference.Change]]) -> object:
    try:
        return step()
    except (Definite, reference.MalformedRowEvent):
        return "refused"


@examples(30)
@given(st.lists(events(), min_size=1, max_size=4))
def test_rows_are_those_of_the_twin(sent: list[bytes]) -> None:
    data = told(7) + b"".join(sent)
    assert found(data) == reference.rows_of(data)


@examples(40)
@given(damaged(events().map(lambda event: event[HEADER + 8 :])), st.sampled_from([23, 24, 25, 30, 31, 32]))
def test_a_damaged_event_is_read_as_the_twin_reads_it_or_refused(rest: bytes, kind: int) -> None:
    data = told(7) + frame(kind, (7).to_bytes(6, "little") + b"\x00\x00" + rest)
    assert _read(lambda: found(data)) == _read(lambda: reference.rows_of(data))


@examples(30)
@given(st.lists(events(), min_size=1, max_size=4), st.sets(st.integers(0, 2), min_size=1))
def test_values_of_columns_that_are_blanked_are_zeros_and_the_others_stay(
    sent: list[bytes], out: set[int]
) -> None:
    data = told(7) + b"".join(sent)
    buffer = array(data).copy()
    scanned = scan(buffer)
    layout = table_map.layout(scanned.maps[0][HEADER:], mariadb=False)
    blank(buffer, scanned, np.flatnonzero(scanned.is_rows), layout, sorted(out))

    def blanked(row: reference.Values | None) -> reference.Values | None:
        return row and [value and bytes(len(value)) if i in out else value for i, value in enumerate(row)]

    wanted = [(kind, blanked(old), blanked(new)) for kind, old, new in reference.rows_of(data)]
    assert reference.rows_of(buffer.tobytes()) == wanted


@given(
    st.lists(st.tuples(st.sampled_from([7, 8]), st.sampled_from([b"t", b"u"]), st.booleans()), max_size=12)
)
def test_a_row_event_is_of_the_newest_map_of_its_id_within_its_transaction(
    steps: list[tuple[int, bytes, bool]],
) -> None:
    data, expected, current = begin(1), list[bytes](), dict[int, bytes]()
    for number, table, ends in steps:
        data += told(number, table)
        current[number] = table
        for each in current:
            rows = each.to_bytes(6, "little") + bytes(2) + b"\x03\x07" + image((None, b"x", None))
            data += frame(23, rows)
            expected.append(current[each])
        if ends:
            data += begin(2)
            current.clear()
    scanned = scan(array(data))
    names = [table_map.names(each[HEADER:])[1].encode() for each in scanned.maps]
    assert [names[number] for number in scanned.map[scanned.is_rows]] == expected


def test_rows_without_their_map_are_refused() -> None:
    rows = (9).to_bytes(6, "little") + bytes(2) + b"\x03\x07" + image((None, b"x", None))
    assert _read(lambda: found(told(7) + frame(23, rows))) == "refused"
    rows = (7).to_bytes(6, "little") + rows[6:]
    assert _read(lambda: found(told(7) + begin(1) + frame(23, rows))) == "refused"
