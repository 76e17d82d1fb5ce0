"""A scene for preflight: a database, and a user who has what docs/mysql.md asks for and nothing else."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from headrace.core.names import TableName
from headrace.sources.contract.findings import CheckReport, Finding, Level
from headrace.sources.mysql.preflight import MysqlWish, examine
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.connection import connect
from headrace.sources.mysql.session.statements import MysqlConnection
from headrace_testing.mysql import Database, Server
from headrace_testing.mysql.flavours import OF_TABLES, OF_THE_LOG


@dataclass(frozen=True, slots=True)
class Scene:
    """A database, and `reader`."""

    db: Database
    reader: str
    password: str = field(repr=False)

    @property
    def server(self) -> Server:
        return self.db.server

    @property
    def is_mariadb(self) -> bool:
        return self.server.flavour.is_mariadb

    @property
    def pattern(self) -> str:
        """The database as the target of a grant, where its name is a pattern."""
        return "`" + self.db.name.replace("_", r"\_") + "`"

    def name(self, table: str) -> TableName:
        return TableName(self.db.name, table)

    def execute(self, *statements: str) -> None:
        """Run statements as root, in the database."""
        with self.db.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def grant(self, *privileges: str) -> None:
        """Privileges of `reader`: "SELECT ON t"."""
        self.execute(*(f"GRANT {each} TO {self.reader}" for each in privileges))

    def address(self) -> MysqlAddress:
        return MysqlAddress.parse(self.server.url(user=self.reader, password=self.password))

    def connect(self) -> MysqlConnection:
        return connect(self.address(), role="test")

    def check(self, *patterns: str) -> CheckReport:
        """Check the tables as `reader`; check the whole database if none is named."""
        return examine(self.address(), MysqlWish(patterns or (f"{self.db.name}.*",)))

    def mend(self, statements: Sequence[str]) -> None:
        """Run what a finding says, as root, without a database at hand."""
        for statement in statements:
            self.server.execute(statement)


@contextmanager
def scene(server: Server) -> Iterator[Scene]:
    """A database of its own, with one good table, and the least privileges on it."""
    server.start()
    with server.database(f"p_{secrets.token_hex(4)}") as db:
        made = Scene(db, f"reader_{secrets.token_hex(4)}", secrets.token_hex(16))
        server.execute(f"CREATE USER {made.reader} IDENTIFIED BY '{made.password}'")
        try:
            made.grant(f"{OF_THE_LOG} ON *.*", f"{OF_TABLES} ON {made.pattern}.*")
            made.execute("CREATE TABLE good (id int PRIMARY KEY, v varchar(10))")
            yield made
        finally:
            server.start()
            server.execute(f"DROP USER {made.reader}")


def serious(report: CheckReport) -> list[str]:
    """The codes of what is found, but for what is merely good to know."""
    return [finding.code for finding in report.findings if finding.level is not Level.INFO]


def the(report: CheckReport, code: str) -> Finding:
    (finding,) = [finding for finding in report.findings if finding.code == code]
    return finding
