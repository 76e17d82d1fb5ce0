"""Bytes and messages of the walsender's protocol."""

from __future__ import annotations

import struct

import pytest

from headrace.sources.postgres.position import Lsn
from headrace.sources.postgres.session import wire
from headrace.sources.postgres.session.stream_errors import refusal, warning


def test_the_command_quotes_names_as_the_walsender_reads_them() -> None:
    command = wire.start_replication("s", ["p", "it's", 'a"b'], wire.Options())
    assert command == (
        "START_REPLICATION SLOT s LOGICAL 0/0 "
        """(proto_version '1', publication_names '"p","it''s","a""b"')"""
    )
    assert "messages 'true'" in wire.start_replication("s", ["p"], wire.Options(messages=True))


def test_a_status_update_has_the_bytes_of_the_manual() -> None:
    frame = wire.status_update(Lsn(7), Lsn(5), 946_684_800_000_001, reply=True)
    assert frame == b"d" + struct.pack(">i", 38) + b"r" + struct.pack(">QQQqB", 7, 5, 5, 1, 1)


def test_fields_survive_a_round_trip() -> None:
    said = {"C": "55006", "M": 'replication slot "s" is active', "V": "ERROR"}
    frame = wire.error_frame(b"E", said)
    assert frame[:1] == b"E"
    assert struct.unpack(">i", frame[1:5])[0] == len(frame) - 1
    assert wire.fields(frame[5:]) == said


@pytest.mark.parametrize(
    ("sqlstate", "code", "family"),
    [
        ("55006", "PG_SLOT_ACTIVE", "transient"),
        ("55000", "PG_SLOT_LOST", "definite"),
        ("58P01", "PG_SLOT_LOST", "definite"),
        ("42704", "PG_PUBLICATION_MISSING", "misconfigured"),
        ("57P01", "PG_CONNECTION_LOST", "transient"),
        ("42501", "PG_PRIVILEGE_MISSING", "misconfigured"),
    ],
)
def test_refusals_are_told_apart_by_sqlstate(sqlstate: str, code: str, family: str) -> None:
    error = refusal({"C": sqlstate, "M": "in any language"}, "s")
    assert (error.code, error.family) == (code, family)


def test_only_a_skipped_publication_among_warnings_is_an_error() -> None:
    skipped = warning({"V": "WARNING", "C": "55000", "M": "skipped"})
    assert skipped is not None
    assert skipped.code == "PG_PUBLICATION_MISSING"
    assert warning({"V": "NOTICE", "C": "00000"}) is None
    assert warning({"V": "WARNING", "C": "55000", "R": "StandbySlotsHaveCaughtup"}) is None
