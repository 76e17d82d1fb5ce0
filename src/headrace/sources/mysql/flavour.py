"""The two kinds of server, MySQL and MariaDB, and the differences of kinds and releases, as data.

`session` finds the release once for each connection, from the server's own answer, and returns it as
`MysqlConnection.release`. All other rooms use that, and never compare the texts of versions.

MariaDB may be configured to report any version. But its greeting lacks one capability that every MySQL has
(`CLIENT_LONG_PASSWORD`), and so shows that it is not MySQL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

_MARIADB_PREFIX = "5.5.5-"  # for old clients that refuse a version 10
_CAPABILITY_OF_MYSQL = 1
_NUMBER = re.compile(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?")
# Aurora 3 may report itself as "8.0.mysql_aurora.3.05.2". The oldest of these is MySQL 8.0.23.
_AURORA_3 = re.compile(r"8\.0\.mysql_aurora\.3\.")

# Servers that speak MySQL's protocol and do not write MySQL's binlog, by a word of their version.
_STRANGERS = {
    "tidb": "TiDB",
    "vitess": "Vitess",
    "oceanbase": "OceanBase",
    "memsql": "SingleStore",
    "singlestore": "SingleStore",
    "doris": "Doris",
    "starrocks": "StarRocks",
    "dolt": "Dolt",
    "clickhouse": "ClickHouse",
}
# The words that vendors of MySQL and MariaDB put behind the number.
_USUAL = re.compile(
    r"log|debug|valgrind|asan|enterprise|commercial|community|cluster|azure|google|rds|percona|server|fips|"
    r"mysql_aurora|mysql|mariadb|maria|aurora|u?buntu|debian|deb|lts|innovation|standard|el|amzn"
)


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
        found = Number(*(int(part or 0) for part in number.groups())) if number else Number(0)
        if _AURORA_3.match(text):
            found = Number(8, 0, 23)
        return cls(Flavour.MARIADB if is_mariadb else Flavour.MYSQL, found, text)

    @property
    def stranger(self) -> str | None:
        """The name of another server that only speaks the protocol; None if it is none that is known."""
        return next((name for word, name in _STRANGERS.items() if word in self.text.lower()), None)

    @property
    def unusual_words(self) -> tuple[str, ...]:
        """The words of its version that no vendor known here puts there."""
        words = re.findall(r"[a-z_]{2,}", self.text.lower())
        return tuple(word for word in words if not _USUAL.fullmatch(word.strip("_")))

    @property
    def is_mariadb(self) -> bool:
        return self.flavour is Flavour.MARIADB

    @property
    def words(self) -> FlavourWords:
        """The words that kinds and releases spell differently, in this server's spelling."""
        return next(words for since, words in WORDS[self.flavour] if self.number >= since)

    def at_least(self, mysql: Number | None = None, mariadb: Number | None = None) -> bool:
        """Tell whether it is its kind's given release or a later one; False if none is given for its kind."""
        least = mariadb if self.is_mariadb else mysql
        return least is not None and self.number >= least

    def __str__(self) -> str:
        return f"{self.flavour.label} {self.number}"


@dataclass(frozen=True, slots=True)
class FlavourWords:
    """Variables and statements that mean the same on all servers and have different names."""

    executed_variable: str  # the variable that holds what the server has committed
    log_status: str  # the statement that shows its newest file
    replicas: str  # the statement that lists the readers of the binlog
    replica_status: str  # the statement that shows the replications of a replica
    replica: str  # the word for a replica in START and STOP
    replica_variables: str  # how the variables about replicas begin
    log_updates: str  # the variable that has a replica log what it applies


_MYSQL_9 = FlavourWords(
    executed_variable="gtid_executed",
    log_status="SHOW BINARY LOG STATUS",
    replicas="SHOW REPLICAS",
    replica_status="SHOW REPLICA STATUS",
    replica="REPLICA",
    replica_variables="replica_",
    log_updates="log_replica_updates",
)
_MYSQL_8_0_26 = replace(_MYSQL_9, log_status="SHOW MASTER STATUS")
_MYSQL_8_0_22 = replace(_MYSQL_8_0_26, replica_variables="slave_", log_updates="log_slave_updates")
_MYSQL_8_0 = replace(
    _MYSQL_8_0_22, replicas="SHOW SLAVE HOSTS", replica_status="SHOW SLAVE STATUS", replica="SLAVE"
)
_MARIADB = FlavourWords(
    executed_variable="gtid_binlog_pos",
    log_status="SHOW MASTER STATUS",
    replicas="SHOW REPLICA HOSTS",
    replica_status="SHOW ALL SLAVES STATUS",
    replica="SLAVE",
    replica_variables="slave_",
    log_updates="log_slave_updates",
)

# The oldest releases that are mirrored. Older logs lack what a mirror needs, or their servers were not run.
OLDEST: Mapping[Flavour, Number] = {Flavour.MYSQL: Number(8, 0, 15), Flavour.MARIADB: Number(10, 6)}
# The releases that the tests run. A series that gets new features in its patches counts by its patch.
TRIED: Mapping[Flavour, tuple[str, ...]] = {
    Flavour.MYSQL: ("8.0.15", "9.7"),
    Flavour.MARIADB: ("10.11", "11.4", "11.8"),
}

# By the first release that spells them so, the newest first. MySQL 8.4 has removed the words of before 8.2.
WORDS: Mapping[Flavour, Sequence[tuple[Number, FlavourWords]]] = {
    Flavour.MYSQL: (
        (Number(8, 2), _MYSQL_9),
        (Number(8, 0, 26), _MYSQL_8_0_26),
        (Number(8, 0, 22), _MYSQL_8_0_22),
        (Number(0), _MYSQL_8_0),
    ),
    Flavour.MARIADB: ((Number(0), _MARIADB),),
}
