"""Preflight of privileges: may this user lock tables, read the log, and read whole tables?

If the server can answer without doing anything, we ask it: its answer includes roles, wildcards, partly
revoked privileges, and whatever a later version adds.

    LOCK TABLES          of a table that does not exist. If the server says "denied to database", we may not.
                         If it says that there is no table, or that it may not be read, we may lock the
                         tables that we may read
    REPLICATION SLAVE    SHOW REPLICAS (MySQL). MariaDB has no harmless statement for it: we read SHOW GRANTS
    REPLICATION CLIENT   the statement that shows the newest file of the log (MariaDB: BINLOG MONITOR)
    SELECT               `information_schema.columns`, as `catalog` reads it. It shows the columns that we may
                         read and hides the others. So with a right on some columns we see a smaller table,
                         and only SHOW GRANTS tells. If that names columns of a table, the table is refused,
                         unless the whole table is granted too

Lines of SHOW GRANTS are never shown: MariaDB's hold a hash of the password.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from headrace.core.errors import Misconfigured, RightWithheld
from headrace.core.names import TableName
from headrace.sources.contract.findings import Finding, Level, hint_of
from headrace.sources.mysql.catalog.table_def import TableLook
from headrace.sources.mysql.copy.locks import LockDenied, may_lock
from headrace.sources.mysql.preflight.variables import ON
from headrace.sources.mysql.session.statements import MysqlConnection, query, quote
from headrace.sources.shared.refusals import PrivilegeMissing

_NAME = r"`(?:[^`]|``)*`"
_GRANT = re.compile(rf"GRANT (?P<what>.+) ON (?P<schema>\*|{_NAME})\.(?P<table>\*|{_NAME}) TO ", re.DOTALL)
_PRIVILEGE = re.compile(rf"(?P<name>[A-Z_ ]+[A-Z_])(?P<columns> \((?:{_NAME}|[^`)])*\))?(?:, |$)")
_WILD = {"%": ".*", "_": "."}


class ReplicationDenied(RightWithheld):
    """We may not follow the log."""

    codes = ("MY_REPLICATION_PRIVILEGE",)


@dataclass(frozen=True, slots=True)
class Grant:
    """One line of SHOW GRANTS: privileges on everything (None, None), on a database, or on a table."""

    privileges: frozenset[str]
    of_columns: frozenset[str]  # the privileges that are granted on some columns only
    schema: str | None
    table: str | None

    def has(self, privilege: str) -> bool:
        return privilege in self.privileges or "ALL PRIVILEGES" in self.privileges


def parse(line: str) -> Grant | None:
    """Parse a line of SHOW GRANTS; None if it grants a role, or a right that does not concern tables."""
    match = _GRANT.match(line)
    if match is None:
        return None
    found = [(each["name"].strip(), bool(each["columns"])) for each in _PRIVILEGE.finditer(match["what"])]
    return Grant(
        privileges=frozenset(name for name, columns in found if not columns),
        of_columns=frozenset(name for name, columns in found if columns),
        schema=_unquote(match["schema"]),
        table=_unquote(match["table"]),
    )


def _unquote(name: str) -> str | None:
    return None if name == "*" else name[1:-1].replace("``", "`")


@dataclass(frozen=True, slots=True)
class Rights:
    """Our account, and its rights by SHOW GRANTS."""

    user: str  # as in a statement
    grants: tuple[Grant, ...]
    literal: bool  # the name of a database in a grant is no pattern
    has_revokes: bool  # a privilege on everything may be revoked on single databases

    def everywhere(self, privilege: str) -> bool:
        return any(each.schema is None and each.has(privilege) for each in self.grants)

    def in_part(self, name: TableName) -> bool:
        """Tell whether we may see only a part of the table's columns, as far as that is known."""
        of_it = [each for each in self.grants if each.schema == name.schema and each.table == name.name]
        if not any("SELECT" in each.of_columns for each in of_it):
            return False
        wider = [each for each in self.grants if each.table is None and self._means(each.schema, name.schema)]
        everywhere = self.everywhere("SELECT") and not self.has_revokes
        return not (everywhere or any(each.has("SELECT") for each in (*of_it, *wider)))

    def _means(self, granted: str | None, database: str) -> bool:
        """Tell whether a grant's database, which may be a pattern, means this one."""
        if granted is None or self.literal:
            return granted == database
        parts = re.findall(r"\\.|.", granted, re.DOTALL)
        pattern = "".join(_WILD.get(part) or re.escape(part[-1]) for part in parts)
        return re.fullmatch(pattern, database, re.DOTALL) is not None

    def grant(self, privileges: str, on: str) -> str:
        return f"GRANT {privileges} ON {on} TO {self.user}"

    def database(self, schema: str) -> str:
        """A database as the target of a grant."""
        if not self.literal:
            schema = re.sub(r"([\\_%])", r"\\\1", schema)
        return f"{quote(schema)}.*"


def rights(connection: MysqlConnection) -> Rights:
    """Read our account and its rights, with those of active roles."""
    ((user,),) = query(connection, "SELECT CURRENT_USER()")
    name, _, host = str(user).rpartition("@")
    lines = [str(line) for (line,) in query(connection, "SHOW GRANTS")]
    literal = query(connection, "SHOW GLOBAL VARIABLES LIKE 'partial_revokes'")
    return Rights(
        user=f"{quote(name)}@{quote(host)}",
        grants=tuple(grant for line in lines if (grant := parse(line)) is not None),
        literal=[value for _, value in literal] == [ON],
        has_revokes=any(line.startswith("REVOKE ") for line in lines),
    )


# --- the log ------------------------------------------------------------------------------------


def check_replication_rights(connection: MysqlConnection, ours: Rights) -> Iterator[Finding]:
    """Check that we may read the log, and list its files."""
    release = connection.release
    lacking = [
        *(["REPLICATION SLAVE"] if not _may_follow(connection, ours) else []),
        *(
            ["BINLOG MONITOR" if release.is_mariadb else "REPLICATION CLIENT"]
            if not _is_allowed(connection, release.words.log_status)
            else []
        ),
    ]
    if lacking:
        mend = (ours.grant(", ".join(lacking), "*.*"),)
        yield Finding(
            Level.ERROR,
            ReplicationDenied(
                "MY_REPLICATION_PRIVILEGE",
                f"the user {ours.user} may not follow the server's log",
                detail=f"missing: {', '.join(lacking)}",
                hint=hint_of(mend),
            ),
            mend=mend,
        )


def _may_follow(connection: MysqlConnection, ours: Rights) -> bool:
    if connection.release.is_mariadb:
        return ours.everywhere("REPLICATION SLAVE")
    return _is_allowed(connection, connection.release.words.replicas)


def _is_allowed(connection: MysqlConnection, statement: str) -> bool:
    try:
        query(connection, statement)
    except PrivilegeMissing:
        return False
    return True


# --- the tables ---------------------------------------------------------------------------------


def check_reading(looks: Iterable[TableLook], ours: Rights) -> Iterator[Finding]:
    """Check that we may read whole tables."""
    for look in looks:
        if look.readable and not ours.in_part(look.name):
            continue
        target = f"{quote(look.name.schema)}.{quote(look.name.name)}"
        mend = (ours.grant("SELECT", target),)
        yield Finding(
            Level.ERROR,
            Misconfigured(
                "MY_TABLE_PRIVILEGE",
                f"the user {ours.user} may not read all of table {look.name}",
                detail="SELECT on single columns hides the others from us" if look.readable else None,
                hint=hint_of(mend),
            ),
            mend=mend,
            table=look.name,
        )


def check_locking(connection: MysqlConnection, names: Sequence[TableName], ours: Rights) -> Iterator[Finding]:
    """Check that we may lock the tables of each database, as a copy needs."""
    for schema in sorted({name.schema for name in names}):
        if may_lock(connection, schema):
            continue
        mend = (ours.grant("LOCK TABLES", ours.database(schema)),)
        yield Finding(
            Level.ERROR,
            LockDenied(
                "MY_LOCK_PRIVILEGE",
                f"the user {ours.user} may not lock tables of database {quote(schema)}, "
                "for the moment in which their copy begins",
                hint=hint_of(mend),
            ),
            mend=mend,
            tables=tuple(name for name in names if name.schema == schema),
        )
