"""Transactions of wanted tables, from events: what is stored, what is only progress, what is refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headrace.core.errors import HeadraceError
from headrace.core.position import STEP
from headrace.sources.contract.stream import StreamRead
from headrace.sources.mysql import position
from headrace.sources.mysql.ddl.alterations import Effect
from headrace.sources.mysql.ddl.steps import Reason
from headrace.sources.mysql.position import MysqlTimeline
from headrace.sources.mysql.stream import events, frames
from headrace.sources.mysql.stream.events import EventReader
from headrace.sources.mysql.stream.gathering import MOST_HELD, MOST_WAITING
from headrace.sources.mysql.stream.transactions import MysqlTransactionFinder, WantedTables
from tests.unit.sources.mysql.stream import logged
from tests.unit.sources.mysql.stream.logged import SERVER

BASE = 1 << 40
WANTED = [("shop", "orders"), ("shop", "Items"), ("crm", "people")]
ORDERS, OTHER = logged.table_map(1, "shop", "orders"), logged.table_map(2, "shop", "others")
BEGIN, XID = logged.query("BEGIN"), logged.xid()

OWN = STEP - 1  # of a transaction, behind the position before it


class Feed:
    """A connection whose events a test sends; what was received, as short texts."""

    def __init__(self, start: str = f"{SERVER}:1-10", *, folded: bool = False) -> None:
        log = MysqlTimeline(BASE)
        self.start = log.position(start).time
        self.finder = MysqlTransactionFinder(WantedTables(WANTED, folded), position.parse(start), log)
        self.reader = EventReader()
        self.send(logged.description())

    def send(self, *data: bytes) -> StreamRead:
        for each in data:
            event = self.reader.read(memoryview(each))
            if event is not None:
                self.finder.take(event)
        return self.finder.as_arrival(sum(map(len, data)))

    @property
    def position(self) -> str:
        return self.finder.frontier.text


def shown(data: object) -> list[str]:
    """Frames, a word each."""
    whole, at, found = bytes(memoryview(data)), 0, []  # type: ignore[arg-type]
    while at < len(whole):
        _, kind, _, size, _, _ = frames.HEADER.unpack_from(whole, at)
        body = whole[at + frames.HEADER.size : at + size]
        found.append(_word(kind, body))
        at += size
    assert at == len(whole)
    return found


def _word(kind: int, body: bytes) -> str:
    if kind == frames.BEGIN:
        return "BEGIN " + body[18:].decode().removeprefix(SERVER + ":")
    if kind in (frames.TRUNCATE, frames.ALTERED):
        altered = kind == frames.ALTERED
        at, names = int(altered), []
        for _ in range(2):
            size = int.from_bytes(body[at : at + 2], "little")
            names.append(body[at + 2 : at + 2 + size].decode())
            at += 2 + size
        return ".".join(names) + " " + (Reason(body[0]).name.lower() if altered else "emptied")
    return "map" if kind == events.TABLE_MAP else f"rows {kind}"


def ends(received: StreamRead) -> list[tuple[int, int, int]]:
    """Time by steps, changes and truncates of each transaction that ended."""
    return [
        (int(each["time"]), int(each["changes"]), int(each["truncates"])) for each in received.transactions
    ]


def test_rows_of_wanted_tables_are_kept_with_the_name_of_their_transaction() -> None:
    feed = Feed()
    received = feed.send(
        *(logged.gtid(11), BEGIN, ORDERS, OTHER, logged.rows(2), logged.rows(1), logged.rows(1, kind=31), XID)
    )
    assert shown(received.data) == ["BEGIN 11", "map", "rows 30", "rows 31"]
    assert ends(received) == [(feed.start + OWN, 2, 0)]
    [end] = received.transactions
    assert (end["commit_ts"], end["end"]) == (logged.COMMITTED, feed.start + STEP)
    assert (end["start"], end["stop"]) == (0, len(received.data))
    assert feed.position == f"{SERVER}:1-11"
    assert received.complete == feed.start + STEP


def test_a_stored_row_event_is_what_the_server_sent_without_its_checksum() -> None:
    rows = logged.rows(1, b"some rows")
    received = Feed().send(logged.gtid(11), BEGIN, ORDERS, rows, XID)
    stored = bytes(received.data)[-(len(rows) - 4) :]
    assert stored[:9] + stored[13:] == rows[:9] + rows[13:-4]
    assert int.from_bytes(stored[9:13], "little") == len(stored)


@pytest.mark.parametrize(
    "group",
    [
        [BEGIN, OTHER, logged.rows(2), XID],
        [BEGIN, ORDERS, XID],
        [BEGIN, logged.query("COMMIT")],
        [logged.query("CREATE USER u IDENTIFIED BY 'secret'")],
        [logged.query("DROP TABLE others")],
        [logged.query("XA START X'78',X'',1"), OTHER, logged.rows(2), logged.xa_prepare("x")],
        [logged.query("XA COMMIT X'78',X'',1")],
    ],
)
def test_a_transaction_without_wanted_rows_is_progress_only(group: Sequence[bytes]) -> None:
    feed = Feed()
    received = feed.send(logged.gtid(11), *group)
    assert (len(received.data), len(received.transactions), received.running) == (0, 0, {})
    assert (feed.position, received.complete) == (f"{SERVER}:1-11", feed.start + STEP)


def test_nothing_of_a_statement_is_stored() -> None:
    secret = "s3cret"
    received = Feed().send(
        *(logged.gtid(11), logged.query(f"DROP TABLE orders /* {secret} */")),
        *(logged.gtid(12), BEGIN, logged.event(events.ROWS_QUERY, b"\x06" + secret.encode(), flags=0x80)),
        *(ORDERS, logged.rows(1), XID),
        *(logged.gtid(13), BEGIN, logged.query(f"UPDATE orders SET p='{secret}'", changed=["shop"]), XID),
    )
    assert secret.encode() not in bytes(received.data)
    assert len(received.transactions) == 3


def test_statements_mark_the_tables_that_they_are_on() -> None:
    received = Feed().send(
        *(logged.gtid(11), logged.query("RENAME TABLE orders TO x, y TO orders, crm.people TO z")),
        *(logged.gtid(12), logged.query("TRUNCATE crm.people")),
        *(logged.gtid(13), logged.query("DROP DATABASE shop")),
        *(logged.gtid(14), logged.query("FROBNICATE")),
        *(logged.gtid(15), BEGIN, logged.query("UPDATE x SET a=1", changed=["crm"]), XID),
        *(logged.gtid(16), logged.query("DROP TABLE items")),
    )
    assert shown(received.data) == [
        *("BEGIN 11", "shop.orders renamed", "crm.people renamed"),
        *("BEGIN 12", "crm.people emptied"),
        *("BEGIN 13", "shop.Items dropped", "shop.orders dropped"),
        *("BEGIN 14", "crm.people unclear", "shop.Items unclear", "shop.orders unclear"),
        *("BEGIN 15", "crm.people by_statement"),
    ]
    assert [each[1:] for each in ends(received)] == [(2, 2), (1, 1), (2, 2), (3, 3), (1, 1)]


def test_names_are_matched_as_the_server_matches_them() -> None:
    received = Feed(folded=True).send(logged.gtid(11), logged.query("TRUNCATE SHOP.ITEMS"))
    assert shown(received.data) == ["BEGIN 11", "shop.Items emptied"]
    dropped = logged.event(events.QUERY, logged.query("TRUNCATE orders")[19:-4], flags=4)
    assert shown(Feed().send(logged.gtid(11), dropped).data) == ["BEGIN 11", "shop.orders unclear"]


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("ŞİXÄ", "emptied"),  # in Python the second letter becomes two
        ("şixä", "emptied"),
        ("Ƞ", "unclear"),  # newer releases lower it
        ("ƞ", "emptied"),
        ("SS", None),
        ("SIXA", None),
    ],
)
def test_capital_letters_are_lowered_one_by_one_as_servers_do(typed: str, told: str | None) -> None:
    wanted = WantedTables([("shop", "şixä"), ("shop", "ƞ"), ("shop", "ß")], case_insensitive=True)
    found = list(wanted.concerned_tables(Effect(None, "SHOP", typed)))
    assert [reason for reason, _ in found] == {"emptied": [None], "unclear": [Reason.UNCLEAR], None: []}[told]


def test_what_was_logged_and_rolled_back_is_taken_back() -> None:
    feed, rows, again = Feed(), [ORDERS, logged.rows(1)], [ORDERS, logged.rows(1, kind=31)]
    to, point = logged.query("ROLLBACK TO `s`"), logged.query("SAVEPOINT `s`")
    received = feed.send(
        *(logged.gtid(11), BEGIN, *rows, logged.query("ROLLBACK")),
        *(logged.gtid(12), BEGIN, point, *rows, to, XID),
        *(logged.gtid(13), BEGIN, point, *rows, to, *again, XID),
        *(logged.gtid(14), BEGIN, *rows, point, *again, to, *again, to, XID),
    )
    assert shown(received.data) == [
        *("BEGIN 13", "map", "rows 31"),
        *("BEGIN 14", "map", "rows 30"),
    ]
    assert [changes for _, changes, _ in ends(received)] == [1, 1]
    assert feed.position == f"{SERVER}:1-14"


def test_what_was_rolled_back_does_not_hang_on_where_a_read_ends() -> None:
    rows, point, to = logged.rows(1), logged.query("SAVEPOINT `s`"), logged.query("ROLLBACK TO `s`")
    large = logged.rows(1, bytes(MOST_HELD))
    groups = [
        [logged.gtid(11), BEGIN, ORDERS, rows, point, ORDERS, rows, to, ORDERS, rows, XID],
        [logged.gtid(12), BEGIN, ORDERS, rows, logged.query("ROLLBACK")],
        [logged.gtid(13), BEGIN, ORDERS, large, point, ORDERS, rows, to, XID],
        [logged.gtid(14), BEGIN, ORDERS, rows, XID],
    ]
    at_once, singly = Feed(), Feed()
    one = at_once.send(*(event for group in groups for event in group))
    several = [singly.send(event) for group in groups for event in group]
    assert b"".join(bytes(each.data) for each in several) == bytes(one.data)
    assert [end for each in several for end in ends(each)] == ends(one)
    assert shown(one.data)[-4:] == ["shop.orders rolled_back", *("BEGIN 14", "map", "rows 30")]
    assert len(one.transactions) == 3


def test_what_was_rolled_back_elsewhere_stops_the_tables_that_it_touched() -> None:
    feed, rows, point = Feed(), [ORDERS, logged.rows(1)], logged.query("SAVEPOINT `s`")
    # Too large; a savepoint that is not known, or not which of two; a statement within.
    feed.send(logged.gtid(11), BEGIN, point, ORDERS, logged.rows(1, bytes(MOST_HELD)))
    update = logged.query("UPDATE x SET a=1", changed=["crm"])
    received = feed.send(
        *(logged.query("ROLLBACK TO `s`"), XID),
        *(logged.gtid(12), BEGIN, *rows, logged.query("ROLLBACK TO `s`"), XID),
        *(logged.gtid(13), BEGIN, point, *rows, point, *rows, logged.query("ROLLBACK TO `s`"), XID),
        *(logged.gtid(14), BEGIN, *rows, update, logged.query("ROLLBACK")),
    )
    assert shown(received.data) == [
        "shop.orders rolled_back",
        *("BEGIN 12", "map", "rows 30", "shop.orders rolled_back"),
        *("BEGIN 13", "map", "rows 30", "map", "rows 30", "shop.orders rolled_back"),
        *("BEGIN 14", "map", "rows 30", "crm.people by_statement", "shop.orders rolled_back"),
    ]
    assert len(received.transactions) == 4


XA_GROUP = [logged.query("XA START X'78',X'',1"), ORDERS, logged.rows(1), logged.query("XA END X'78',X'',1")]


def test_a_prepared_transaction_runs_until_its_end_and_is_sent_again_until_then() -> None:
    feed = Feed()
    first = feed.send(logged.gtid(11), *XA_GROUP, logged.xa_prepare("x"), logged.gtid(12), BEGIN, XID)
    [(number, own)] = first.running.items()
    assert (shown(own), len(first.data), len(first.transactions)) == (["map", "rows 30"], 0, 0)
    assert feed.position == f"{SERVER}:1-10:12 open {SERVER}:11"
    assert first.complete == feed.start + 2 * STEP
    second = feed.send(logged.gtid(13), logged.query("XA COMMIT X'78',X'',1"))
    [end] = second.transactions
    assert (bool(end["ran"]), int(end["number"]), int(end["changes"])) == (True, number, 1)
    assert int(end["time"]) == feed.start + 2 * STEP + OWN
    assert shown(second.data) == ["BEGIN 13"]
    assert second.aborted_parts == {number: ()}
    assert feed.position == f"{SERVER}:1-13"


def test_a_prepared_transaction_that_comes_again_is_counted_once() -> None:
    feed = Feed(f"{SERVER}:1-10:12 open {SERVER}:11")
    again = feed.send(logged.gtid(11), *XA_GROUP, logged.xa_prepare("x"))
    assert (again.complete, len(again.running)) == (feed.start, 1)
    assert feed.position == f"{SERVER}:1-10:12 open {SERVER}:11"
    ended = feed.send(logged.gtid(13), logged.query("XA ROLLBACK X'78',X'',1"))
    assert ended.rolled_back == tuple(again.running)
    assert (ended.complete, len(ended.transactions), feed.position) == (
        feed.start + STEP,
        0,
        f"{SERVER}:1-13",
    )


def test_a_commit_of_one_phase_ends_a_transaction_at_once() -> None:
    feed = Feed()
    received = feed.send(logged.gtid(11), *XA_GROUP, logged.xa_prepare("x", one_phase=True))
    [end] = received.transactions
    assert (bool(end["ran"]), int(end["time"])) == (True, feed.start + OWN)
    assert shown(received.data) == ["BEGIN 11"]
    assert list(map(shown, received.running.values())) == [["map", "rows 30"]]


def test_mariadbs_groups_open_by_their_names() -> None:
    feed = Feed("7-1-5,8-1-3")
    rows = (ORDERS, logged.rows(1, kind=23), XID)
    received = feed.send(logged.mariadb(6, 7), *rows, logged.mariadb(9, 8), *rows)
    assert shown(received.data) == ["BEGIN 7-1-6", "map", "rows 23", "BEGIN 8-1-9", "map", "rows 23"]
    assert [each[0] for each in ends(received)] == [feed.start + OWN, feed.start + STEP + OWN]
    assert (feed.position, received.complete) == ("7-1-6,8-1-9", feed.start + 7 * STEP)
    alone = feed.send(logged.mariadb(7, 7, flags=1), logged.query("TRUNCATE orders"))
    assert shown(alone.data) == ["BEGIN 7-1-7", "shop.orders emptied"]


def test_mariadb_sends_again_from_before_the_oldest_prepared_one() -> None:
    feed = Feed("7-1-5")
    prepared = [ORDERS, logged.rows(1, kind=23), logged.xa_prepare("x")]
    feed.send(logged.mariadb(6, 7, flags=64), *prepared, logged.mariadb(1, 8), ORDERS, XID)
    feed.send(logged.mariadb(7, 7, flags=64), ORDERS, logged.rows(1, kind=23), logged.xa_prepare("y"))
    assert feed.position == "7-1-5 read 7-1-7,8-1-1 open 7-1-6,7-1-7"
    again = Feed(feed.position)
    more = again.send(logged.mariadb(6, 7, flags=64), *prepared, logged.mariadb(1, 8), ORDERS, XID)
    assert more.complete == feed.start + 2 * STEP
    feed.send(logged.mariadb(8, 7, flags=1 | 128), logged.query("XA COMMIT X'78',X'',1"))
    assert feed.position == "7-1-6,8-1-1 read 7-1-8,8-1-1 open 7-1-7"


@pytest.mark.parametrize(
    ("start", "sent", "code"),
    [
        ("7-1-5", [logged.mariadb(5, 7), XID], "MY_GTID_DISORDERED"),
        ("7-1-5", [logged.mariadb(0, 8), XID], "MY_GTID_DISORDERED"),
        ("7-1-5", [logged.mariadb((1 << 59) + 1, 8), XID], "MY_GTID_DISORDERED"),
        ("7-1-5", [logged.gtid(6), BEGIN, XID], "MY_EVENT_UNKNOWN"),
        (f"{SERVER}:1-10", [logged.gtid(7), BEGIN, XID], "MY_GTID_DISORDERED"),
        (f"{SERVER}:1-10", [logged.gtid(0), BEGIN, XID], "MY_GTID_DISORDERED"),
        (f"{SERVER}:1-10", [logged.gtid(1 << 63), BEGIN, XID], "MY_GTID_DISORDERED"),
        (f"{SERVER}:1-10", [logged.mariadb(11), XID], "MY_EVENT_UNKNOWN"),
        (f"{SERVER}:1-10", [XID], "MY_STREAM_DISORDERED"),
        (f"{SERVER}:1-10", [BEGIN], "MY_STREAM_DISORDERED"),
        (f"{SERVER}:1-10", [logged.gtid(11), ORDERS], "MY_STREAM_DISORDERED"),
        (f"{SERVER}:1-10", [logged.gtid(11), logged.gtid(12)], "MY_STREAM_DISORDERED"),
        (f"{SERVER}:1-10", [logged.gtid(11), BEGIN, logged.rows(5)], "MY_STREAM_DISORDERED"),
        (f"{SERVER}:1-10", [logged.gtid(11), BEGIN, logged.description()], "MY_EVENT_DAMAGED"),
        (f"{SERVER}:1-10", [logged.event(events.ANONYMOUS, bytes(42))], "MY_TRANSACTION_ANONYMOUS"),
        (f"{SERVER}:1-10", [logged.event(events.INCIDENT, b"\1\0\0")], "MY_INCIDENT"),
        (f"{SERVER}:1-10", [logged.event(events.GTID, b"\1")], "MY_TRANSACTION_ANONYMOUS"),
        (f"{SERVER}:1-10", [logged.gtid(11), logged.event(events.QUERY, b"\1")], "MY_EVENT_DAMAGED"),
    ],
)
def test_what_cannot_be_followed_is_refused(start: str, sent: Sequence[bytes], code: str) -> None:
    with pytest.raises(HeadraceError) as refused:
        Feed(start).send(*sent)
    assert refused.value.code == code


def test_a_tag_whose_server_is_none_is_damaged() -> None:
    name = logged.tagged(11, "blue")
    server = name.index(b"\0\2\2") + 3
    body = name[19:server] + b"\xfd\xff" + name[server + 1 : -4]  # a number where a byte has to be
    with pytest.raises(HeadraceError) as refused:
        Feed().send(logged.event(events.GTID_TAGGED, body))
    assert refused.value.code == "MY_EVENT_DAMAGED"


def test_of_millions_of_maps_without_rows_the_newest_are_kept() -> None:
    """Each statement on another table maps a wanted one that its trigger may write."""
    feed, again = Feed(), logged.table_map(1, "crm", "people")
    feed.send(logged.gtid(11), BEGIN)
    statement = [ORDERS, OTHER, logged.rows(2)]
    for _ in range(4):
        assert len(feed.send(*statement * MOST_WAITING).data) == 0
    received = feed.send(again, logged.rows(1), XID)
    assert len(received.data) < (MOST_WAITING + 2) * len(ORDERS)
    assert shown(received.data)[-2:] == ["map", "rows 30"]
    assert bytes(received.data).rfind(b"people") > bytes(received.data).rfind(b"orders")


def test_gaps_and_tags_and_other_servers_are_counted_one_by_one() -> None:
    feed = Feed(f"{SERVER}:1-3:7-9")
    groups = [logged.gtid(5), logged.gtid(4), logged.gtid(11), logged.tagged(2, "blue"), logged.gtid(6)]
    received = feed.send(*(each for name in groups for each in (name, BEGIN, XID)))
    assert feed.position == f"{SERVER}:1-9:11:blue:2"
    assert received.complete == feed.start + 5 * STEP
