"""Hashes in PostgreSQL's stream: which values they replace, and by which layout."""

from __future__ import annotations

import struct

import numpy as np

from headrace.core.hashing import HashKey
from headrace.core.names import TableName
from headrace.decode import pgoutput
from headrace.sources.contract.column_rules import ColumnRules
from headrace.sources.postgres.stream.hashing import ColumnHasher

KEY = HashKey("5f0c6a1d9e3b47c2" * 2)
RULES = ColumnRules.parse('{"public.users": {"hash": ["email", "code"]}}').fix_columns(
    {TableName("public", "users"): ["id", "email", "code"]}
)
USERS = (("id", 23), ("email", 25), ("code", 1042))


def _relation(
    columns: tuple[tuple[str, int], ...] = USERS, name: str = "users", oid: int = 7, xid: int | None = None
) -> bytes:
    body = struct.pack(">I", oid) + b"public\0" + name.encode() + b"\0d" + struct.pack(">H", len(columns))
    for column, kind in columns:
        body += b"\0" + column.encode() + b"\0" + struct.pack(">Ii", kind, -1)
    return _frame("R", body, xid)


def _tuple(kind: str, *values: str | None) -> bytes:
    found = kind.encode() + struct.pack(">H", len(values))
    for value in values:
        text = b"" if value is None else value.encode()
        found += {None: b"n", "?": b"u"}.get(value, b"t" + struct.pack(">I", len(text)) + text)
    return found


def _change(kind: str, *tuples: bytes, oid: int = 7, xid: int | None = None) -> bytes:
    return _frame(kind, struct.pack(">I", oid) + b"".join(tuples), xid)


def _frame(kind: str, body: bytes, xid: int | None = None) -> bytes:
    return pgoutput.alone(ord(kind), (b"" if xid is None else struct.pack(">I", xid)) + body)


def _hashed(hasher: ColumnHasher, *frames: bytes) -> bytes:
    return hasher.apply(np.frombuffer(b"".join(frames), np.uint8)).tobytes()


def _hash(text: str) -> str:
    return KEY.hash(text.encode())


def test_hashes_take_the_place_of_values_in_old_and_new_rows() -> None:
    old, new = _tuple("K", "1", "ada", None), _tuple("N", "2", "?", "ab   ")
    told = _hashed(ColumnHasher(RULES, KEY), _relation(), _change("U", old, new), _change("I", new, oid=8))
    hashed = _tuple("K", "1", _hash("ada"), None), _tuple("N", "2", "?", _hash("ab"))
    assert told == _relation() + _change("U", *hashed) + _change("I", new, oid=8)


def test_a_layout_holds_over_reads() -> None:
    hasher = ColumnHasher(RULES, KEY)
    assert _hashed(hasher, _relation()) == _relation()
    told = _hashed(hasher, _change("D", _tuple("K", "1", "ada", None)))
    assert told == _change("D", _tuple("K", "1", _hash("ada"), None))


def test_what_the_rule_does_not_show_is_hashed_under_another_name() -> None:
    """Somebody renamed a column, and then the table; the schema check has yet to see it."""
    hasher, row = ColumnHasher(RULES, KEY), _tuple("N", "1", "ada", "b")
    hidden = _change("I", _tuple("N", "1", _hash("ada"), _hash("b")))
    renamed = (("id", 23), ("mail", 25), ("code", 1042))
    assert _hashed(hasher, _relation(), _relation(renamed), _change("I", row)).endswith(hidden)
    assert _hashed(hasher, _relation(renamed, "people"), _change("I", row)).endswith(hidden)
    short = _change("I", _tuple("N", "1", "ada"))
    assert _hashed(hasher, short) == _change("I", _tuple("N", _hash("1"), _hash("ada")))


def test_a_layout_of_a_running_transaction_is_its_own_until_it_commits() -> None:
    hasher, row = ColumnHasher(RULES, KEY), _tuple("N", "1", "ada")
    two, other = (("id", 23), ("email", 25)), (("email", 25), ("id", 23))
    begin = _frame("S", struct.pack(">IB", 5, 1))
    again = _frame("S", struct.pack(">IB", 5, 0))
    end, commit = _frame("E", b""), _frame("c", struct.pack(">IBQQQ", 5, 0, 0, 0, 0))
    own = _hashed(hasher, _relation(two), begin, _relation(other, xid=5), _change("I", row, xid=5), end)
    assert own.endswith(_change("I", _tuple("N", _hash("1"), "ada"), xid=5) + end)
    assert _hashed(hasher, _change("I", row)) == _change("I", _tuple("N", "1", _hash("ada")))
    assert _hashed(hasher, again, _change("I", row, xid=5)).endswith(_tuple("N", _hash("1"), "ada"))
    assert _hashed(hasher, end, commit, _change("I", row)).endswith(_tuple("N", _hash("1"), "ada"))
