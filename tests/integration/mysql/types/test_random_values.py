"""Random values of every family: the binlog and a result set agree; text is read as the server reads it."""

from __future__ import annotations

import datetime
import random
import struct
from collections.abc import Callable

import numpy as np
import pytest

from headrace.core.names import TableName
from headrace.core.schema import TableSchema
from headrace.core.transaction_id import TransactionId
from headrace.decode.mysql import result_rows
from headrace.sources.contract.decoder import TableChanges, TableFilter
from headrace.sources.mysql.catalog.table_def import table_number
from headrace.sources.mysql.decode.decoder import MysqlDecoder
from headrace.sources.mysql.flavour import Flavour
from headrace_testing.mysql import Server
from tests.integration.mysql.types.binlogs import Tail, executed
from tests.integration.mysql.types.result_sets import EveryType

pytestmark = pytest.mark.server
ROWS, SEED = 1500, 20261123
Dice = random.Random


def _digits(dice: Dice, precision: int, scale: int) -> str:
    number = str(dice.randrange(10 ** dice.randint(1, precision))).zfill(scale + 1)
    return f"{dice.choice(['', '-'])}{number[: len(number) - scale]}.{number[len(number) - scale :]}"


def _date(dice: Dice) -> str:
    return f"{dice.randrange(10_000):04}-{dice.randrange(13):02}-{dice.randrange(29):02}"


def _clock(dice: Dice, hours: int) -> str:
    minutes, seconds = dice.randrange(60), dice.randrange(60)
    return f"{dice.randrange(hours):02}:{minutes:02}:{seconds:02}.{dice.randrange(10**6):06}"


def _moment(dice: Dice) -> str:
    moment = datetime.datetime(1970, 1, 3) + datetime.timedelta(seconds=dice.randrange(2**31 - 400_000))
    return f"{moment}.{dice.randrange(10**6):06}"


def _double(dice: Dice) -> str:
    number = struct.unpack("<d", dice.randbytes(8))[0]
    return repr(number) if abs(number) < 1e308 else "0"


def _text(dice: Dice) -> str:
    return "".join(
        chr(dice.choice([65, 0xE9, 0x4E00, 0x1F600]) + dice.randrange(20)) for _ in range(dice.randrange(60))
    )


FAMILIES: list[tuple[str, Callable[[Dice], object]]] = [
    ("bigint", lambda dice: dice.randint(-(2**63), 2**63 - 1)),
    ("bigint unsigned", lambda dice: dice.randrange(2**64)),
    ("mediumint", lambda dice: dice.randint(-(2**23), 2**23 - 1)),
    ("decimal(38,10)", lambda dice: _digits(dice, 38, 10)),
    ("decimal(9,9)", lambda dice: "0." + str(dice.randrange(10**9)).zfill(9)),
    ("decimal(65,30)", lambda dice: _digits(dice, 65, 30)),
    ("float", lambda dice: struct.unpack("<f", struct.pack("<f", dice.uniform(-1e9, 1e9)))[0]),
    ("double", _double),
    ("date", _date),
    ("datetime(3)", lambda dice: f"{_date(dice)} {_clock(dice, 24)}"),
    ("datetime(6)", lambda dice: f"{_date(dice)} {_clock(dice, 24)}"),
    ("timestamp(5) NULL", _moment),
    ("time(4)", lambda dice: dice.choice(["", "-"]) + _clock(dice, 838)),
    ("varchar(100) character set utf8mb4", _text),
    ("varchar(100) character set latin1", lambda dice: dice.randbytes(dice.randrange(60))),
    ("char(60) character set utf16", _text),
    ("binary(12)", lambda dice: dice.randbytes(dice.randrange(13))),
    ("blob", lambda dice: dice.randbytes(dice.randrange(600))),
    ("bit(37)", lambda dice: dice.randrange(2**37)),
    ("set('a','b','c','d','e','f','g','h','i')", lambda dice: dice.randrange(2**9)),
]
MYSQL_FAMILIES: list[tuple[str, Callable[[Dice], object]]] = [
    (
        "json",
        lambda dice: '{{"k": [{}, {}, "{}"], "n": {{"a": {}}}}}'.format(
            _double(dice),
            dice.randint(-(2**63), 2**64 - 1),
            "x" * dice.randrange(300),
            dice.choice(["null", "true", "1"]),
        ),
    )
]


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_random_values_have_the_same_bits_both_ways(request: pytest.FixtureRequest, kind: str) -> None:
    server: Server = request.getfixturevalue(f"{kind}_server")
    families = [*FAMILIES, *(MYSQL_FAMILIES if kind == "mysql" else [])]
    dice = Dice(SEED)
    with server.database() as db:
        columns = ", ".join(f"c{i} {name}" for i, (name, _) in enumerate(families))
        db.execute(f"CREATE TABLE every (id int PRIMARY KEY, {columns}) CHARACTER SET utf8mb4")
        table, tail = EveryType(db, []), Tail.of(server)
        rows = [
            [number, *(None if dice.random() < 0.1 else draw(dice) for _, draw in families)]
            for number in range(ROWS)
        ]
        with db.connect() as connection, connection.cursor() as cursor:
            executed(connection, "SET SESSION sql_mode = 'ALLOW_INVALID_DATES', time_zone = '-07:30'")
            cursor.executemany(f"INSERT INTO every VALUES ({', '.join(['%s'] * len(rows[0]))})", rows)
        schema = TableSchema(tuple(table.columns), ("id",), True, transaction=TransactionId.GTID)
        name, decoder = TableName(db.name, "every"), MysqlDecoder(Flavour(kind))
        data = np.frombuffer(tail.frames(db.name), np.uint8)
        copied = result_rows.decode(table.rows(), table.columns)
    found = list(
        decoder.decode(data, decoder.between([]), {table_number(name): TableFilter(name, schema, 0)})
    )
    [changes] = found
    assert isinstance(changes, TableChanges), f"seed {SEED}"
    wrong = [
        families[i - 1][0]
        for i in range(1, len(families) + 1)
        if not changes.batch[f"n{i}"].equals(copied.rows.column(i).combine_chunks())
    ]
    assert wrong == [], f"seed {SEED}"
    texts = {(each.column, text) for each in copied.unrepresentable for text in each.texts.to_pylist()}
    assert {(row["column"], row["raw"]) for row in changes.bad.to_pylist()} == texts != set()
