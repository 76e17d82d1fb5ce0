"""Mirrors that are bound to a session of a test's own."""

from __future__ import annotations

from headrace.core.names import TableName
from headrace.core.schema import TableSchema
from headrace.sources.contract.values import TableDef
from headrace.sources.mysql.mirror import MysqlMirror, MysqlServerConnection
from headrace.sources.mysql.session.identity import identify as identify_mysql
from headrace.sources.mysql.session.statements import MysqlConnection
from headrace.sources.mysql.upstream import MysqlUpstream
from headrace.sources.postgres.mirror import PostgresConnection, PostgresMirror
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.identity import identify
from headrace.sources.postgres.session.statements import Session
from headrace.sources.postgres.upstream import PostgresUpstream


def postgres_mirror(session: Session, upstream: PostgresUpstream) -> PostgresMirror:
    """A mirror that remembers nothing of another one's looks."""
    return PostgresMirror(
        PostgresConnection(session, PostgresAddress(session.info.dsn), identify(session)), upstream
    )


def mysql_mirror(session: MysqlConnection, upstream: MysqlUpstream) -> MysqlMirror:
    return MysqlMirror(MysqlServerConnection(session, session.address, identify_mysql(session)), upstream)


def named_only(*names: TableName) -> list[TableDef]:
    """Tables of which only the names matter."""
    return [TableDef(name, 0, TableSchema((), (), full=True), {}) for name in names]
