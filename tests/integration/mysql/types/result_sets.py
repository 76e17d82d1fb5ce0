"""A table of every type of the cases, and its rows as the packets of a result set.

`EveryType` makes a table with a column for each type, the values of all in turn over its rows; `rows` selects
them as a copy does, and hands over the payloads of the packets as they came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from pymysql.constants import COMMAND

from headrace.core.schema import Column
from headrace.decode.mysql.result_rows import RowBlock
from headrace.sources.mysql.types.columns import column_of, quote, select_expression
from headrace_testing.mysql import Database, Server
from headrace_testing.mysql.fixtures import RELEASES
from tests.cases.types.cases import Type, Value, types

NULL = "NULL"


KINDS = ["mysql", "mariadb", *(pytest.param(each, marks=pytest.mark.full) for each in RELEASES)]


def of_kind(server: Server) -> list[Type]:
    """The types of a server."""
    found = types("mysql.txt", f"{server.flavour.name}_alone.txt")
    return [each for each in found if server.version.startswith("9.") or not each.name.startswith("vector")]


@dataclass
class EveryType:
    """The table `every` of a database: a key, and a column for each type."""

    db: Database
    types: Sequence[Type]

    @property
    def count(self) -> int:
        """The rows: each value of each type at least once, and at least one NULL of each."""
        return max(len(of.values) for of in self.types) + 1

    def column_values(self, of: Type) -> list[Value]:
        return [of.turn(number) for number in range(self.count)]

    def create(self) -> None:
        declared = ", ".join(f"c{i} {of.name} NULL" for i, of in enumerate(self.types))
        self.db.execute(f"CREATE TABLE every (id int PRIMARY KEY, {declared}) CHARACTER SET utf8mb4")

    def insert(self) -> None:
        """All rows in one statement, by a session that takes zero dates."""
        rows = []
        for number in range(self.count):
            values = [of.turn(number).literal or NULL for of in self.types]
            rows.append(f"({number}, {', '.join(values)})")
        with self.db.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION sql_mode = '', time_zone = '+00:00'")
            cursor.execute(f"INSERT INTO every VALUES {', '.join(rows)}")

    @cached_property
    def columns(self) -> list[Column]:
        """The columns as the lake has them."""
        found = self.db.execute(
            "SELECT column_name, column_type, character_set_name FROM information_schema.columns"
            " WHERE table_schema = %s AND table_name = 'every' ORDER BY ordinal_position",
            [self.db.name],
        )
        return [column_of(*row) for row in found]

    def rows(self) -> RowBlock:
        """The rows as a copy selects them."""
        what = ", ".join(map(select_expression, self.columns))
        with self.db.connect() as connection:
            with connection.cursor() as cursor:
                cursor.execute("SET SESSION time_zone = '+00:00', character_set_results = utf8mb4")
            return packets(connection, f"SELECT {what} FROM every ORDER BY {quote('id')}")


def packets(connection: Any, statement: str) -> RowBlock:
    """The rows of a result set, packet by packet."""
    connection._execute_command(COMMAND.COM_QUERY, statement)
    for _ in range(connection._read_packet().read_length_encoded_integer()):
        connection._read_packet()
    connection._read_packet()
    payloads = []
    while not (packet := connection._read_packet()).is_eof_packet():
        payloads.append(packet.get_all_data())
    starts = np.concatenate([[0], np.cumsum([len(payload) for payload in payloads], dtype=np.int64)])
    return RowBlock(np.frombuffer(b"".join(payloads), np.uint8), starts)
