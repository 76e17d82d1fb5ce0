"""A drop removes our objects to the last row of the catalog, or leaves them to the lakes that still read."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from headrace.core.errors import Misconfigured, Transient
from headrace.core.names import TableName
from headrace.core.records import to_record
from headrace.sources.contract.mirror import StreamOrder
from headrace.sources.contract.values import Waiting
from headrace.sources.queue import capture
from headrace.sources.queue.creation import ensure_queue
from headrace.sources.queue.readers import list_readers
from headrace.sources.queue.removal import drop_reader
from headrace.sources.queue.source import SOURCE
from headrace.sources.queue.upstream import Objects
from headrace_testing.postgres import Database
from tests.bound import named_only
from tests.integration.queue.capturing import LAKE, Capturing, capturing, executed

pytestmark = pytest.mark.server

OTHER = replace(LAKE, lake="headrace_ffffffff_main")
T = TableName("public", "t")


def catalogs(database: Database) -> Counter[tuple[Any, ...]]:
    """Everything that an object of ours would leave something in, without what only counts."""
    found: Counter[tuple[Any, ...]] = Counter()
    for catalog, columns in {
        "pg_class": "oid, relname, relnamespace, relkind, relhastriggers, relnatts, relacl::text",
        "pg_attribute": "attrelid, attname, atttypid, attnum",
        "pg_proc": "oid, proname, pronamespace",
        "pg_trigger": "oid, tgname, tgrelid",
        "pg_namespace": "oid, nspname, nspacl::text",
        "pg_depend": "classid, objid, refclassid, refobjid, deptype::text",
        "pg_shdepend": "classid, objid, refclassid, refobjid, deptype::text",
        "pg_description": "objoid, classoid",
        "pg_type": "oid, typname",
        "pg_constraint": "oid, conname",
        "pg_sequence": "seqrelid",
        "pg_default_acl": "oid",
        "pg_db_role_setting": "setdatabase, setrole, setconfig::text",
        "pg_largeobject_metadata": "oid",
        "pg_publication": "oid",
        "pg_replication_slots": "slot_name",
    }.items():
        rows = database.execute(f"SELECT '{catalog}', {columns} FROM {catalog}")
        found.update(rows)
    # A table that had a trigger is marked until it is vacuumed.
    return Counter(
        {(*row[:5], *row[6:]) if row[0] == "pg_class" else row: count for row, count in found.items()}
    )


def read(queue: Capturing, lake: str, tick: int = 1) -> None:
    queue.session.execute(
        "INSERT INTO headrace.reader (queue, lake, tick, seen) VALUES ('main', %s, %s, now())", [lake, tick]
    )


def test_a_drop_leaves_nothing(database: Database) -> None:
    executed(database, ["CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE u (id int)"])
    before = catalogs(database)
    with capturing(database) as queue:
        queue.capture("t", "u")
        read(queue, LAKE.lake)
        assert catalogs(database) != before
        executed(database, ["INSERT INTO t VALUES (1)", "DROP TABLE u"])
        assert drop_reader(queue.session, LAKE) == [
            "triggers of public.t",
            f'reader "{LAKE.lake}" of the queue "main"',
            'queue "main"',
            'schema "headrace"',
        ]
        assert drop_reader(queue.session, LAKE) == []
    left = catalogs(database) - before
    assert not left
    assert all(row[1] != "t" for row in before - catalogs(database)), "but what went with u"


def test_the_last_lake_takes_the_queue_and_the_last_queue_the_schema(database: Database) -> None:
    executed(database, ["CREATE TABLE t (id int PRIMARY KEY)"])
    with capturing(database) as queue:
        second = Objects("headrace", "second")
        ensure_queue(queue.session, second)
        for upstream in (LAKE, OTHER):
            capture.capture(queue.session, upstream, [T])
        read(queue, LAKE.lake, 5)
        read(queue, OTHER.lake, 3)
        assert [each.lake for each in list_readers(queue.session, LAKE.objects)] == [OTHER.lake, LAKE.lake]
        with pytest.raises(Misconfigured) as refused:
            drop_reader(queue.session, replace(LAKE, lake="nobody"), is_known=True)
        assert refused.value.code == "QUEUE_READER_UNKNOWN"
        assert drop_reader(queue.session, OTHER, is_known=True)[1:] == [
            f'reader "{OTHER.lake}" of the queue "main"'
        ]
        executed(database, ["INSERT INTO t VALUES (1)"])
        queue.agree("t")
        assert drop_reader(queue.session, LAKE)[-1] == 'queue "main"'
        assert drop_reader(queue.session, replace(LAKE, queue="second")) == [
            'queue "second"',
            'schema "headrace"',
        ]


def test_triggers_of_tables_that_are_not_ours_go_with_the_function(database: Database) -> None:
    database.execute("CREATE TABLE t (id int); GRANT SELECT, TRIGGER ON t TO app")
    before = catalogs(database)
    with capturing(database) as queue:
        queue.capture("t")
        drop_reader(queue.session, LAKE)
    assert catalogs(database) == before


def test_what_somebody_else_put_into_our_schema_stays(database: Database) -> None:
    with capturing(database) as queue:
        executed(database, ["CREATE TABLE headrace.mine (id int)"])
        assert drop_reader(queue.session, LAKE) == ['queue "main"']
        assert database.execute("SELECT count(*) FROM headrace.mine") == [(0,)]


@pytest.mark.parametrize("made_before", [False, True])
def test_a_stream_that_could_not_begin_takes_back_what_it_made(database: Database, made_before: bool) -> None:
    """While no lake names it nobody would find it; what somebody else made stays."""
    executed(database, ["CREATE TABLE a (id int)", "CREATE TABLE b (id int)"])

    def unwanted() -> None:
        raise Transient("STOPPED", "the run was stopped", hint="run again")

    if made_before:
        with capturing(database) as queue:
            queue.capture("a")
    before = catalogs(database)
    address = SOURCE.address(f"queue+{database.url(user='app')}")
    names = [TableName("public", "a"), TableName("public", "b")]
    with closing(SOURCE.connect(address, role="test")) as session, database.connect(user="app") as holder:
        holder.execute("BEGIN; INSERT INTO b VALUES (1)")
        order = StreamOrder(named_only(*names), undo=True)
        mirror = session.mirror(to_record(OTHER))
        with pytest.raises(Transient, match="STOPPED"):
            mirror.establish(order, Waiting(check=unwanted))
        holder.execute("COMMIT")
    assert catalogs(database) - before == Counter()
    assert before - catalogs(database) == Counter()
