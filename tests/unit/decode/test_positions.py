"""Begins, commits and keepalives of a buffer, as arrays."""

from __future__ import annotations

import struct

import numpy as np

from headrace.decode import pgoutput
from tests.laws.decode.wire import array, begin, commit, keepalive, plugin

# 2026-11-20 00:00:00 UTC, as the server counts and as we do.
SERVER_TIME, UNIX_TIME = 848_448_000_000_000, 1_795_132_800_000_000


def test_a_begin_tells_the_commit_it_leads_to() -> None:
    data = array(keepalive() + plugin(begin(0x16B374D848, SERVER_TIME, 0xFFFFFFFE)))
    found = pgoutput.begins(data, pgoutput.scan(data))
    assert found.row.tolist() == [1]
    assert found.commit_lsn.tolist() == [0x16B374D848]
    assert found.commit_ts.tolist() == [UNIX_TIME]
    assert found.xid.tolist() == [0xFFFFFFFE]


def test_a_commit_tells_where_it_is_and_where_it_ends() -> None:
    data = array(plugin(commit(100, 130, SERVER_TIME)) + plugin(commit(130, 160, SERVER_TIME + 1)))
    found = pgoutput.commits(data, pgoutput.scan(data))
    assert found.commit_lsn.tolist() == [100, 130]
    assert found.end_lsn.tolist() == [130, 160]
    assert found.commit_ts.tolist() == [UNIX_TIME, UNIX_TIME + 1]


def test_a_stream_commit_tells_its_transaction_too() -> None:
    message = b"c" + struct.pack(">IBqqq", 900, 0, 100, 130, SERVER_TIME)
    data = array(plugin(message))
    found = pgoutput.stream_commits(data, pgoutput.scan(data))
    fields = (found.xid, found.commit_lsn, found.end_lsn, found.commit_ts)
    assert [field.tolist() for field in fields] == [[900], [100], [130], [UNIX_TIME]]


def test_a_keepalive_tells_how_far_the_server_has_read() -> None:
    data = array(keepalive(500, SERVER_TIME, 1) + keepalive(600, SERVER_TIME, 0))
    found = pgoutput.keepalives(data, pgoutput.scan(data))
    assert found.wal_end.tolist() == [500, 600]
    assert found.time.tolist() == [UNIX_TIME] * 2
    assert found.reply_requested.tolist() == [True, False]


def test_the_time_of_the_epoch_is_the_calendars() -> None:
    assert np.datetime64("2026-11-20", "us").astype(np.int64) == UNIX_TIME
