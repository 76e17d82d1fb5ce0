"""The two kinds of server, MySQL and MariaDB, and all their differences, as data.

`session` finds the release once for each connection, from the server's own answer, and returns it as
`MysqlConnection.release`. All other rooms use that, and never compare the texts of versions.

MariaDB may be configured to report any version. But its greeting lacks one capability that every MySQL has
(`CLIENT_LONG_PASSWORD`), and so shows that it is not MySQL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

_MARIADB_PREFIX = "5.5.5-"  # for old clients that refuse a version 10
_CAPABILITY_OF_MYSQL = 1
_NUMBER = re.compile(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?")


class Flavour(Enum):
    """A kind of server."""

    MYSQL = "mysql"
    MARIADB = "mariadb"

    @property
    def label(self) -> str:
        """The name for people."""
        return "MySQL" if self is Flavour.MYSQL else "MariaDB"


@dataclass(frozen=True, slots=True, order=True)
class Number:
    """A release's number, for example 8.0.36."""

    major: int
    minor: int = 0
    patch: int = 0

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


@dataclass(frozen=True, slots=True)
class Release:
    """The kind and version that a server reports."""

    flavour: Flavour
    number: Number
    text: str  # as the server spells it, for a person

    @classmethod
    def of_greeting(cls, version: str, capabilities: int) -> Release:
        """The release of a server that greets with this version and these capabilities."""
        is_mariadb = "mariadb" in version.lower() or not capabilities & _CAPABILITY_OF_MYSQL
        text = version.removeprefix(_MARIADB_PREFIX) if is_mariadb else version
        number = _NUMBER.match(text)
        return cls(
            Flavour.MARIADB if is_mariadb else Flavour.MYSQL,
            Number(*(int(part or 0) for part in number.groups())) if number else Number(0),
            text,
        )

    @property
    def is_mariadb(self) -> bool:
        return self.flavour is Flavour.MARIADB

    @property
    def words(self) -> FlavourWords:
        """The words that the two kinds spell differently, in this server's spelling."""
        return WORDS[self.flavour]

    def at_least(self, mysql: Number | None = None, mariadb: Number | None = None) -> bool:
        """Tell whether it is its kind's given release or a later one; False if none is given for its kind."""
        least = mariadb if self.is_mariadb else mysql
        return least is not None and self.number >= least

    def __str__(self) -> str:
        return f"{self.flavour.label} {self.number}"


@dataclass(frozen=True, slots=True)
class FlavourWords:
    """Variables and statements that mean the same on both kinds and have different names."""

    isolation: str
    read_only: str
    executed_variable: str  # the variable that holds what the server has committed
    log_status: str  # the statement that shows its newest file
    replicas: str  # the statement that lists the readers of the binlog


WORDS: Mapping[Flavour, FlavourWords] = {
    Flavour.MYSQL: FlavourWords(
        isolation="transaction_isolation",
        read_only="transaction_read_only",
        executed_variable="gtid_executed",
        log_status="SHOW BINARY LOG STATUS",
        replicas="SHOW REPLICAS",
    ),
    Flavour.MARIADB: FlavourWords(
        isolation="tx_isolation",
        read_only="tx_read_only",
        executed_variable="gtid_binlog_pos",
        log_status="SHOW MASTER STATUS",
        replicas="SHOW REPLICA HOSTS",
    ),
}
