"""Key ranges: every row is in one chunk, and for the server it is the same one as for us.

The server decides by its comparison which rows a chunk has; we decide by keycodes to which chunk a change
belongs. If the two ever differed, a row would be lost or be there twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pyarrow as pa
import pytest

from headrace.core.chunks import Bound, ByChunk, Chunk, KeySpan
from headrace.core.errors import Definite, Transient
from headrace.core.handoff import ByXid
from headrace.core.keycode import keycode
from headrace.core.names import TableName
from headrace.core.schema import TableSchema
from headrace.decode import copyrows
from headrace.decode.values import decode_column
from headrace.pipeline.copy.by_chunks import Walk
from headrace.sources.contract.copying import KeyRange
from headrace.sources.contract.errors import StepTooLong
from headrace.sources.contract.findings import Level
from headrace.sources.postgres.catalog.definitions import read_entries_by_name
from headrace.sources.postgres.catalog.table_def import definition, schema_of
from headrace.sources.postgres.copy.follower import PostgresFollower
from headrace.sources.postgres.copy.key_range import bounds, chunk, disorder, next_bound, prepare
from headrace.sources.postgres.copy.plan import PostgresKeyWalk
from headrace.sources.postgres.copy.reader import PostgresReader
from headrace.sources.postgres.preflight import PostgresWish, examine
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.identity import identify
from headrace.sources.postgres.session.statements import Session, query
from headrace_testing.postgres import Database

pytestmark = pytest.mark.server

T = TableName("public", "t")
MIXED = "md5(g::text) || repeat(chr(1 + g % 300), g % 3)"
KEYS = {
    "int": ("a int", "a", "SELECT (g * 7919) % 2000003 - 1000000 FROM generate_series(1, 3000) g"),
    "smallint": ("a smallint", "a", "SELECT g - 1500 FROM generate_series(1, 3000) g"),
    "bigint": ("a bigint", "a", "SELECT (g - 1500) * 6000000000000000 FROM generate_series(1, 3000) g"),
    "date": ("a date", "a", "SELECT date '0001-01-01' + g * 400 FROM generate_series(1, 3000) g"),
    "bc": ("a date", "a", "SELECT date '4000-01-01 BC' + g * 400 FROM generate_series(1, 3000) g"),
    "timestamptz": (
        "a timestamptz",
        "a",
        "SELECT timestamptz '2000-02-29 23:59:59.999999+13' + g * interval '1.000001 h' - interval '1000 y'"
        " FROM generate_series(1, 3000) g",
    ),
    "uuid": ("a uuid", "a", "SELECT md5(g::text)::uuid FROM generate_series(1, 3000) g"),
    "bytea": (
        "a bytea",
        "a",
        "SELECT decode(left(md5(g::text), 2 * (g % 16)), 'hex') || int4send(g)"
        " || decode(repeat('00', g % 3), 'hex') FROM generate_series(1, 3000) g",
    ),
    "text": ('a text COLLATE "C"', "a", f"SELECT {MIXED} FROM generate_series(1, 3000) g"),
    "odd": (
        'a varchar(99) COLLATE "C"',
        "a",
        r"SELECT x || g || E'\\ \t\n\r''%s{}' FROM generate_series(1, 300) g,"
        r" unnest('{ä,€,😀,z,\"\",\\\\}'::text[]) x",
    ),
    "composite": (
        'a text COLLATE "C", b date, c int',
        "c, a, b",
        f"SELECT {MIXED}, date '2020-01-01' + g % 7, g % 5 FROM generate_series(1, 3000) g",
    ),
}


@pytest.fixture
def session(database: Database) -> Iterator[Session]:
    with closing(connect(PostgresAddress.parse(database.url(user="app")), role="test")) as made:
        yield made


def _table(database: Database, session: Session, kind: str) -> TableSchema:
    columns, key, rows = KEYS[kind]
    database.execute(f"CREATE TABLE t ({columns}, v int DEFAULT 1, PRIMARY KEY ({key}))", user="app")
    names = ", ".join(column.split()[0] for column in columns.split(", "))
    database.execute(f"INSERT INTO t ({names}) {rows} ON CONFLICT DO NOTHING", user="app")
    entry = read_entries_by_name(session, [T])[T]
    assert disorder(session, [entry]) == {}
    return schema_of(entry)


def _spans(session: Session, schema: TableSchema, rows: int) -> list[KeySpan]:
    prepare(session)
    low: Bound | None = None
    spans: list[KeySpan] = []
    while not spans or spans[-1].high is not None:
        spans.append(KeySpan(low, next_bound(session, schema, T, KeySpan(low), rows)))
        low = spans[-1].high
    return spans


def _keys(database: Database, session: Session, schema: TableSchema, *spans: KeySpan) -> pa.Table:
    """The keys that the server has in these spans, as the lake has them."""
    piece = KeyRange(T, read_entries_by_name(session, [T])[T].oid, schema.key, spans, 0, 0)
    with (
        closing(connect(PostgresAddress.parse(database.url(user="app")), role="chunk")) as connection,
        chunk(connection, schema.key, piece) as (_, buffers),
    ):
        data = np.concatenate([np.zeros(0, np.uint8), *buffers])
    columns = [next(c for c in schema.columns if c.name == name) for name in schema.key]
    texts = copyrows.text_columns(data, len(columns))
    arrays = [decode_column(t, c.form, c.type).array for t, c in zip(texts, columns, strict=True)]
    return pa.table(dict(zip(schema.key, arrays, strict=True)))


def _codes(schema: TableSchema, keys: pa.Table) -> pa.Array:
    return keycode([keys.column(name) for name in schema.key])


def _handoff(spans: list[KeySpan]) -> ByChunk:

    return ByChunk(tuple(Chunk(span, ByXid(1, 1, ())) for span in spans))


@pytest.mark.parametrize("kind", KEYS)
def test_the_server_and_we_put_every_key_into_the_same_chunk(
    database: Database, session: Session, kind: str
) -> None:
    schema = _table(database, session, kind)
    spans = _spans(session, schema, 190)
    assert len(spans) > 8
    handoff = _handoff(spans)
    assert handoff.complete
    total = 0
    for number, span in enumerate(spans):
        keys = _keys(database, session, schema, span)
        assert set(handoff.numbers(_codes(schema, keys)).tolist()) == {number}
        assert keys.num_rows == 190 or number == len(spans) - 1
        total += keys.num_rows
    assert database.execute("SELECT count(*) FROM t") == [(total,)]


@pytest.mark.parametrize("kind", [kind for kind in KEYS if kind != "bc"])
def test_single_keys_leave_their_chunks_and_are_found_again(
    database: Database, session: Session, kind: str
) -> None:
    schema = _table(database, session, kind)
    everything = _keys(database, session, schema, KeySpan())
    some = everything.slice(0, 12)
    points = bounds(schema, some)
    assert points is not None
    rest = _handoff(_spans(session, schema, 500)).without(points)
    gaps = list(rest.gaps())
    assert all(gap.one_key for gap in gaps)
    found = _codes(schema, _keys(database, session, schema, *gaps)).to_pylist()
    assert sorted(found) == sorted(_codes(schema, some).to_pylist())
    left = [_keys(database, session, schema, part.span).num_rows for part in rest.chunks]
    assert sum(left) == everything.num_rows - 12


def test_keys_before_our_era_are_not_written_as_texts(database: Database, session: Session) -> None:
    schema = _table(database, session, "bc")
    assert bounds(schema, _keys(database, session, schema, KeySpan())) is None


def test_a_key_without_a_lake_form_bounds_no_chunk(database: Database, session: Session) -> None:
    database.execute("CREATE TABLE t (a date PRIMARY KEY); INSERT INTO t VALUES ('infinity')", user="app")
    schema = schema_of(read_entries_by_name(session, [T])[T])
    assert next_bound(session, schema, T, KeySpan(), 0) is None


def test_a_walk_that_takes_too_long_is_cancelled_and_goes_half_as_far(
    database: Database, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("CREATE TABLE t (a int PRIMARY KEY)", user="app")
    database.execute("INSERT INTO t SELECT generate_series(1, 1500000)", user="app")
    entry = read_entries_by_name(session, [T])[T]
    schema = schema_of(entry)
    prepare(session)
    monkeypatch.setattr("headrace.sources.postgres.copy.key_range.BOUND_SECONDS", 0.03)
    with pytest.raises(StepTooLong):
        next_bound(session, schema, T, KeySpan(), 1_499_999)
    walk = Walk(PostgresKeyWalk(session, {}), definition(entry), 1_499_999, lambda: None)
    bound = walk.next(KeySpan(), 0)
    assert bound is not None
    assert walk.step < 1_499_999
    assert bound.texts == (str(walk.step + 1),)


def test_a_walk_ends_at_the_server_when_the_copy_is_stopped(database: Database, session: Session) -> None:
    schema = _table(database, session, "int")

    def stopped() -> None:
        raise Transient("STOPPED", "stopped", hint="")

    with database.connect(user="app") as holder:
        holder.execute("BEGIN; LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(Transient) as caught:
            next_bound(session, schema, T, KeySpan(), 10, stopped)
        assert caught.value.code == "STOPPED"
        assert query(session, "SELECT 1") == [(1,)]


# Any collation of the operating system that is not called C; every system has this one.
LANGUAGE = "CREATE COLLATION lang (provider = libc, locale = 'C.UTF-8')"
WHOLE = {
    "none": "CREATE TABLE t (a int); ALTER TABLE t REPLICA IDENTITY FULL",
    "language": f"{LANGUAGE}; CREATE TABLE t (a text COLLATE lang PRIMARY KEY)",
    "numeric": "CREATE TABLE t (a numeric(5, 2) PRIMARY KEY)",
    "domain": "CREATE DOMAIN d AS int; CREATE TABLE t (a d PRIMARY KEY)",
    "second": f"{LANGUAGE}; CREATE TABLE t (a int, b text COLLATE lang, PRIMARY KEY (a, b))",
}


@pytest.mark.parametrize("kind", WHOLE)
def test_of_other_tables_check_says_that_they_are_copied_in_one_snapshot(
    database: Database, kind: str
) -> None:
    database.execute(WHOLE[kind], user="app")
    database.execute("CREATE TABLE u (a int PRIMARY KEY)", user="app")
    address = PostgresAddress.parse(database.url(user="app"))
    report = examine(address, PostgresWish(("*.*",), handoff="chunks"))
    told = [(f.level, f.table) for f in report.findings if f.code == "PG_COPIED_WHOLE"]
    assert told == [(Level.INFO, T)]
    assert not [f for f in examine(address, PostgresWish(("*.*",))).findings if f.code == "PG_COPIED_WHOLE"]


def test_a_chunk_is_not_read_in_the_order_of_a_language(database: Database, session: Session) -> None:
    """Between two chunks the collation changes: no row is rewritten, but others lie between the bounds."""
    schema = _table(database, session, "text")
    spans = _spans(session, schema, 1000)
    assert _keys(database, session, schema, spans[0]).num_rows
    database.execute(f"{LANGUAGE}; ALTER TABLE t ALTER a TYPE text COLLATE lang", user="app")
    with pytest.raises(Definite) as refused:
        _keys(database, session, schema, spans[1])
    assert refused.value.code == "TABLE_CHANGED"


def test_ddl_does_not_wait_for_what_is_done_with_the_rows_of_a_chunk(
    database: Database, session: Session
) -> None:
    schema = _table(database, session, "text")
    piece = KeyRange(T, read_entries_by_name(session, [T])[T].oid, schema.key, (KeySpan(),), 0, 0)
    follower = PostgresFollower(
        PostgresAddress.parse(database.url(user="app")), identify(session), role="copy"
    )
    with (
        PostgresReader(follower, {"base": 0, "publication": ""}) as reader,
        reader.read(schema.columns, piece) as reading,
    ):
        database.execute("SET lock_timeout = '3s'; ALTER TABLE t ADD w int", user="app")
        found = sum(copied.rows.num_rows for copied in reading.rows)
    assert [(found,)] == database.execute("SELECT count(*) FROM t")
