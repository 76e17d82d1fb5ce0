"""Events: headers, checksums, names of groups, statements; and what is refused."""

from __future__ import annotations

import pytest

from headrace.core.errors import HeadraceError
from headrace.sources.mysql.stream import events
from headrace.sources.mysql.stream.events import BinlogEvent, EventReader
from tests.unit.sources.mysql.stream import logged


def read(data: bytes, *, checksums: bool = True) -> BinlogEvent | None:
    reader = EventReader()
    reader.read(memoryview(logged.description(checksums)))
    return reader.read(memoryview(data))


def event(data: bytes) -> BinlogEvent:
    found = read(data)
    assert found is not None
    return found


def code(data: bytes) -> str:
    with pytest.raises(HeadraceError) as refused:
        read(data)
    return refused.value.code


def test_a_group_is_named_as_the_server_prints_it() -> None:
    named = events.group_start(event(logged.gtid(7)))
    assert (str(named.gtid), named.commit_ts) == (f"{logged.SERVER}:7", logged.COMMITTED)
    # The time at which it was first committed is the same on every server.
    assert events.group_start(event(logged.gtid(7, replicated=True))).commit_ts == logged.COMMITTED


@pytest.mark.parametrize("number", [1, 63, 64, 8191, 1 << 40, (1 << 62) - 1])
def test_a_tag_is_a_part_of_the_name(number: int) -> None:
    named = events.group_start(event(logged.tagged(number, "blue_1")))
    assert (str(named.gtid), named.commit_ts) == (f"{logged.SERVER}:blue_1:{number}", logged.COMMITTED)


def test_mariadbs_name_says_the_domain_and_the_server_of_the_header() -> None:
    named = events.group_start(event(logged.mariadb(12, 7, server=5)))
    assert (str(named.gtid), named.commit_ts) == ("7-5-12", logged.NOW * 1_000_000)
    assert named.is_open
    assert not named.xa
    assert events.group_start(event(logged.mariadb(12, flags=1))).alone
    assert events.group_start(event(logged.mariadb(12, flags=64))).xa


def test_a_statement_comes_with_what_its_reading_needs() -> None:
    query = events.query(event(logged.query("DROP TABLE t", "crm", mode=4, charset=28, changed=["crm", "a"])))
    assert bytes(query.text) == b"DROP TABLE t"
    assert query[1:] == (b"crm", 4, 28, (b"crm", b"a"), 0)
    assert events.query(event(logged.query("x"))).databases is None


def test_a_table_is_known_by_the_names_in_its_map() -> None:
    number, key = events.table_key(event(logged.table_map(9, "shop", "größe")).body)
    assert (number, key) == (b"\x09\0\0\0\0\0", events.as_key("shop", "größe"))
    assert key != events.as_key("sho", "pgröße")


@pytest.mark.parametrize("at", [0, 4, 17, 20, -5, -1])
def test_an_event_that_changed_on_the_way_is_damaged(at: int) -> None:
    broken = bytearray(logged.rows(1))
    broken[at] ^= 1
    assert code(bytes(broken)) == "MY_EVENT_DAMAGED"


@pytest.mark.parametrize("size", [0, 5, 18, 25])
def test_an_event_that_is_cut_is_damaged(size: int) -> None:
    assert code(logged.rows(1)[:size]) == "MY_EVENT_DAMAGED"


def test_a_file_without_checksums_is_read_as_it_is() -> None:
    found = read(logged.rows(1, b"abcd", checksum=False), checksums=False)
    assert found is not None
    assert bytes(found.body[-4:]) == b"abcd"


def test_a_description_may_be_marked_as_in_use_behind_its_checksum() -> None:
    marked = bytearray(logged.description())
    marked[17] |= 1
    reader = EventReader()
    assert reader.read(memoryview(bytes(marked))) is not None
    marked[30] ^= 1
    with pytest.raises(HeadraceError, match="MY_EVENT_DAMAGED"):
        reader.read(memoryview(bytes(marked)))


@pytest.mark.parametrize("bit", range(8))
def test_a_description_that_denies_its_checksum_is_damaged(bit: int) -> None:
    broken = bytearray(logged.description())
    broken[-5] ^= 1 << bit
    with pytest.raises(HeadraceError, match="MY_EVENT_DAMAGED"):
        EventReader().read(memoryview(bytes(broken)))
    EventReader().read(memoryview(logged.description(checksums=False)))


def test_the_name_of_the_first_file_is_checked_where_the_server_writes_checksums() -> None:
    sound = logged.event(events.ROTATE, bytes(8) + b"binlog.000002")
    broken = bytearray(sound)
    broken[-6] ^= 1
    checked, unchecked = EventReader(is_checked=True), EventReader()
    for reader in (checked, unchecked):
        found = reader.read(memoryview(sound))
        assert found is not None
        assert events.file_name(found) == "binlog.000002"
    with pytest.raises(HeadraceError, match="MY_EVENT_DAMAGED"):
        checked.read(memoryview(bytes(broken)))
    bare = logged.event(events.ROTATE, bytes(8) + b"binlog.000002", checksum=False)
    found = unchecked.read(memoryview(bare))
    assert found is not None
    assert events.file_name(found) == "binlog.000002"


def test_an_unknown_event_stops_the_source_unless_it_may_be_passed_over() -> None:
    assert code(logged.event(43, b"new")) == "MY_EVENT_UNKNOWN"
    assert code(logged.event(172, b"new")) == "MY_EVENT_UNKNOWN"
    assert read(logged.event(43, b"new", flags=0x80)) is None


@pytest.mark.parametrize(
    "kind", [events.ANNOTATE, events.ROWS_QUERY, events.PREVIOUS_GTIDS, events.GTID_LIST]
)
def test_annotations_and_lists_are_passed_over_unread(kind: int) -> None:
    assert read(logged.event(kind, b"\xff" * 40)) is None
