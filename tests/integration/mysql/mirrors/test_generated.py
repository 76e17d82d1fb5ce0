"""Generated columns: no session that computes them makes another value in the lake than in the table."""

from __future__ import annotations

from contextlib import suppress

import pytest

from headrace.core.errors import ShapeChanged
from headrace_testing import validators
from headrace_testing.mysql import Database
from tests.conformance.conftest import Mirror
from tests.integration.mysql.mirrors.judging import assert_exact

pytestmark = pytest.mark.server

STORED = (
    "CREATE TABLE {t} (id int PRIMARY KEY, p int, created timestamp NULL, txt text,"
    " day date AS (cast(created AS date)) STORED, KEY (p), KEY (day){more})"
)
BY_HASH = " PARTITION BY HASH (id) PARTITIONS 2"
# Statements of a session of another time zone: each leaves all of a row as it is, but for `day`.
REBUILDS = {
    "with_key": "ALTER TABLE {t} ADD CONSTRAINT f FOREIGN KEY (p) REFERENCES parent (id)",
    "with_check": "ALTER TABLE {t} ADD CHECK (id > 0), ALGORITHM = COPY",
    "copied": "ALTER TABLE {t} FORCE, ALGORITHM = COPY",
    "of_engine": "ALTER TABLE {t} ENGINE = InnoDB, ALGORITHM = COPY",
    "indexed": "ALTER TABLE {t} ADD INDEX i (id, p), ALGORITHM = COPY",
    "index_made": "CREATE INDEX i ON {t} (id, p) ALGORITHM = COPY",
    "index_gone": "DROP INDEX p ON {t} ALGORITHM = COPY",
    "recharged": "ALTER TABLE {t} DEFAULT CHARSET utf8mb4, ALGORITHM = COPY",
    "parted": "ALTER TABLE {t} PARTITION BY HASH (id) PARTITIONS 3",
    "whole_again": "ALTER TABLE {t} REMOVE PARTITIONING",
    "repaired": "REPAIR TABLE {t}",
    "optimized": "OPTIMIZE TABLE other, {t}",
}
MARIADBS = {"index_gone": "DROP INDEX p ON {t}"}


def _made(case: str) -> str:
    made = STORED.format(t=case, more=", FULLTEXT KEY (txt)" if case == "optimized" else "")
    return made + (BY_HASH if case == "whole_again" else "")


@pytest.mark.parametrize("database", ["mysql", "mariadb"], indirect=True)
def test_a_stored_column_that_is_computed_anew_by_harmless_ddl_is_right(
    mirror: Mirror, database: Database
) -> None:
    """Nothing of that is in the log: a statement that may have the table copied counts as an alteration."""
    with database.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute("CREATE TABLE parent (id int PRIMARY KEY)")
        cursor.execute("CREATE TABLE other (id int PRIMARY KEY, double_id int AS (id * 2) STORED)")
        cursor.execute("INSERT INTO parent VALUES (1)")
        cursor.execute("INSERT INTO other (id) VALUES (1)")
        for case in REBUILDS:
            cursor.execute(_made(case))
            cursor.execute(
                f"INSERT INTO {case} (id, p, created) VALUES (1, 1, '2024-01-01 20:00'), (2, 1, NULL)"
            )
        before = mirror.once().marks()
        cursor.execute("SET time_zone = '+10:00'")
        mariadb = database.server.flavour.is_mariadb
        if mariadb:  # whose DROP INDEX has no clause for it
            cursor.execute("SET alter_algorithm = 'COPY'")
        for case, statement in (REBUILDS | (MARIADBS if mariadb else {})).items():
            cursor.execute(statement.format(t=case))
            cursor.execute(f"UPDATE {case} SET p = NULL WHERE id = 2")
    names = set(before[-1].versions)
    for _ in range(3):
        with suppress(ShapeChanged):
            mirror.once()
        if set(mirror.lake.at().mark.versions) == names:
            break
    lake = mirror.lake
    assert set(lake.at().mark.versions) == names
    assert_exact(lake, database.url())
    assert validators.travelled(lake) == []
    # `other` was never away: of what hangs on no session nothing is copied anew.
    assert all(str(mirror.place.table("other")) in mark.versions for mark in lake.marks()[len(before) - 1 :])


# Columns of which generated ones are made, and values that servers convert in odd ways.
OF = (
    "id int PRIMARY KEY, touched int, i int, u int unsigned, n decimal(12,3), f double, s varchar(40),"
    " l varchar(20) CHARACTER SET latin1 COLLATE latin1_german1_ci, e enum('a','B','é'), b varbinary(20),"
    " d date, m datetime, m6 datetime(6), h time, j json, y year, z decimal(9,2) unsigned"
)
VALUES = (
    "NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL",
    "-7, 7, 12.345, 1.5, 'Ab ', 'straße', 'B', x'00ff', '2024-02-29', '2024-02-29 13:14:15',"
    " '1999-12-31 23:59:59.999999', '-27:01:02', '{\"a\": \"Ab\", \"n\": 12.5}', 2024, 0.05",
    "3, 4294967295, -0.001, 1e300, '2024-01-01 23:00:00-03:00', 'É', 'é', '', '0000-00-00',"
    " '0000-00-00 00:00:00', '2023-02-31 10:11:12.5', '838:59:59', '{\"a\": null, \"n\": \"x\"}', 0, 1",
    "0, 0, 0, -0.1, 'abc', 'ab\\\\_c', 'a', 'abc', '2023-02-31', '2024-00-10 01:00:00', '2024-07-00', '0',"
    ' \'[1, "é", {"a": 1}]\', 1999, 99.99',
)
# The type of a column and its expression, of which both servers make the same whoever asks.
STEADY = """
varchar(90): concat(s, '-', i, coalesce(d, ''), f, ifnull(l, 'none'))
varchar(90): concat_ws('|', lower(s), upper(l), m6, h, e, z)
varchar(90): trim(replace(s, 'b', '-'))
varchar(90): lpad(i, 6, '0')
varchar(90): substr(left(s, 9), 2, 3)
varchar(90): if(s = 'ab', 'yes', 'no')
varchar(90): case when i < 0 then 'minus' when e in ('b', 'x') then s else l end
varchar(90): case e when 'A' then 'first' else reverse(s) end
varchar(90): hex(b)
char(64): sha2(concat(s, i), 256)
varbinary(64): unhex(sha2(s, 256))
int: char_length(s) + length(l) + ascii(s) + crc32(s)
int: locate('B', s) + instr(s, 'b')
tinyint: s like 'a%' and not (i between 1 and 5) or l is null
tinyint: s in ('AB', 'abc') xor (f <=> 1.5)
bigint: i * 3 + i % 5 - 2 * i
bigint: u * 2 + u % 5
bigint: (u & 15 | 64) << 2 ^ 1
bigint: u div 2
decimal(20,6): round(n * 1.5, 2) + abs(n) - floor(n) + sign(i)
double: f / 3 + sqrt(abs(f)) + pow(2, 3)
double: s + 0
double: n / f
decimal(9,3): s + 0.5
decimal(9,3): greatest(i, n, 0) + least(n, 1)
int: cast(s as signed) + cast(f < 1 as unsigned) + cast(n as decimal(9,1))
varchar(90): cast(i as char)
varchar(90): cast(m6 as char(30))
varchar(90): convert(l using utf8mb4)
varchar(90): nullif(s, 'AB')
int: year(d) * 10000 + month(d) * 100 + dayofmonth(d)
int: quarter(m) + dayofweek(m) + weekday(m) + dayofyear(m6)
int: hour(m6) * 10000 + minute(h) * 100 + second(m) + microsecond(m6)
int: to_days(d)
int: datediff(d, m)
int: timestampdiff(month, m, m6)
int: week(d, 3) + yearweek(m, 1)
int: extract(year from m) + extract(day from d)
date: cast(m as date)
date: date(m6)
date: last_day(d)
date: d + interval 30 day
datetime: m + interval 90 minute
datetime: d - interval 1 hour
datetime(6): if(i > 0, m6, m)
varchar(90): coalesce(m6, m, 'none')
datetime(6): m6
time: h
date: d
tinyint: d > m
tinyint: m6 between m and m6
varchar(90): date_format(m, '%Y-%m-%d %H:%i')
varchar(90): json_unquote(json_extract(j, '$.a'))
varchar(90): json_value(j, '$.a')
tinyint: json_extract(j, '$.n') = 12.5
int: json_length(j) + json_valid(j)
tinyint: json_contains(j, '1', '$')
varchar(90): upper(json_unquote(json_extract(j, '$.a')))
int: y + 1
varchar(90): s collate utf8mb4_bin
"""
MYSQLS_STEADY = "char(64): sha2(concat(i, '-', f), 256)"  # which prints a literal with its charset
# Settings of sessions, one after the other; a server passes over what it does not know.
SESSIONS = (
    "time_zone = '+05:00', lc_time_names = 'de_DE', default_week_format = 3, div_precision_increment = 9,"
    " sql_mode = 'ALLOW_INVALID_DATES', collation_connection = 'latin1_general_cs'",
    "time_zone = '-08:00', sql_mode = 'ANSI,TRADITIONAL,NO_UNSIGNED_SUBTRACTION,NO_BACKSLASH_ESCAPES,"
    "PAD_CHAR_TO_FULL_LENGTH,HIGH_NOT_PRECEDENCE,{rounding}', collation_connection = 'ucs2_general_ci'",
    "sql_mode = 'NO_ZERO_DATE,NO_ZERO_IN_DATE', collation_connection = 'utf8mb4_general_ci'",
    "sql_mode = '', collation_connection = 'utf8mb4_bin'",
)


@pytest.mark.parametrize("database", ["mysql", "mariadb"], indirect=True)
def test_a_column_that_hangs_on_no_session_is_the_same_in_the_log_and_in_the_copy(
    mirror: Mirror, database: Database
) -> None:
    mariadb = database.server.flavour.is_mariadb
    lines = [*STEADY.strip().split("\n"), *([] if mariadb else [MYSQLS_STEADY])]
    steady = [line.split(": ", 1) for line in lines]
    virtual = ", ".join(f"g{at} {kind} AS ({what}) VIRTUAL" for at, (kind, what) in enumerate(steady))
    with database.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE steady ({OF}, {virtual})")
        mirror.once()
        # As our own sessions are set.
        cursor.execute(
            "SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00', collation_connection = utf8mb4_bin"
        )
        for number, values in enumerate(VALUES):
            cursor.execute(
                "INSERT INTO steady (id, touched, i, u, n, f, s, l, e, b, d, m, m6, h, j, y, z)"
                f" VALUES ({number}, 0, {values})"
            )
        for session in SESSIONS:
            rounding = "TIME_ROUND_FRACTIONAL" if mariadb else "TIME_TRUNCATE_FRACTIONAL"
            cursor.execute("SET NAMES utf8mb4")
            cursor.execute(f"SET {session.format(rounding=rounding)}")
            cursor.execute("FLUSH TABLES")  # it is opened by this session, which reads the expressions
            cursor.execute("UPDATE IGNORE steady SET touched = touched + 1")
    assert_exact(mirror.once(), database.url())
    assert validators.travelled(mirror.lake) == []
