"""The schema check: whether tables are what was recorded of them, and who may be changing one just now.

    end of the log  ─►  the catalog          the order is the proof

MySQL    DDL on an InnoDB table is one transaction of its dictionary and its log, and is among the executed
         once it is visible. So what lies before the end that is read first is seen by the look behind it.
MariaDB  DDL changes the catalog and writes its log while it holds the table for itself alone. If it is before
         the end, then by the look it has let go, and is seen; or the server leaves the table out of its
         answer and says so (`catalog.busy`): the table is *locked*.

DDL behind the end may be seen or not. A look is several statements: with DDL between them it may show a state
that never was, even a table without columns, of which it is certain all the same that it was changed.

    locked    the server does not show it now
    denied    the same, since we lost a privilege: nothing can be said of what becomes of it
    changes   it is not what was recorded (`catalog.alteration`)
    news      what is new about it and means nothing

The stream tells of DDL by itself, at its place (`stream.alterations`), so that this look is the second that
has to be passed; the first one cannot see what a session kept out of the log. Neither server gives a table a
number that everybody may see: a table that was renamed is gone, and one that took its name is meant.

Called before each mark; it takes no lock, and waits a moment for those of others.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from headrace.core.errors import HeadraceError, Transient
from headrace.core.names import TableName
from headrace.sources.contract.tables import Change, SchemaCheck, TableDef
from headrace.sources.mysql.catalog.alteration import differs, is_news
from headrace.sources.mysql.catalog.definitions import look_apart
from headrace.sources.mysql.catalog.denials import denial
from headrace.sources.mysql.catalog.table_def import TableLook, definition, from_record, to_record
from headrace.sources.mysql.session import log_end
from headrace.sources.mysql.session.connection import connect
from headrace.sources.mysql.session.refusals import PrivilegeMissing
from headrace.sources.mysql.session.statements import Session
from headrace.sources.mysql.upstream import Upstream


def check(connection: Session, upstream: Upstream, known: Mapping[str, TableDef]) -> SchemaCheck:
    """Look how far the server is, then at these tables."""
    end = log_end.position(connection, upstream.log)
    looks, hidden = look_apart(connection, sorted({table.name for table in known.values()}))
    changes, news, locked = _compared(known, looks, hidden)
    denied: dict[str, PrivilegeMissing] = {}
    if changes:
        doubtful = {key: known[key] for key in changes}
        again, hidden, denied = _looked_again(connection, doubtful)
        _see_whether_stale(connection, doubtful, denied)
        changes, more, still = _compared(doubtful, again, hidden)
        news, locked = news | more, locked | still
    return SchemaCheck(
        end=end,
        reference=0,
        changes={key: change for key, change in changes.items() if key not in denied},
        news=news,
        locked=locked | denied.keys(),
        denied=denied,
    )


_Looks = Mapping[TableName, TableLook]
_Compared = tuple[dict[str, Change], dict[str, TableDef], frozenset[str]]


def _compared(known: Mapping[str, TableDef], looks: _Looks, hidden: Set[TableName]) -> _Compared:
    """The changes, the news, and those that the server does not show."""
    changes, news = {}, {}
    for key, table in known.items():
        if table.name in hidden:
            continue
        last, seen = from_record(table.details), looks.get(table.name)
        if seen is None or not seen.columns:
            changes[key] = Change("it was dropped or renamed", None)
        elif (what := differs(last, seen, table.schema.key)) is not None:
            changes[key] = Change(what, _defined(seen))
        elif is_news(last, seen):
            news[key] = TableDef(table.name, table.number, table.schema, to_record(seen))
    return changes, news, frozenset(key for key, table in known.items() if table.name in hidden)


def _looked_again(
    connection: Session, known: Mapping[str, TableDef]
) -> tuple[_Looks, frozenset[TableName], dict[str, PrivilegeMissing]]:
    """Look at tables that seem to be others, between two proofs that nothing of them is hidden from us."""
    denied = _denied(connection, known)
    left = {key: table for key, table in known.items() if key not in denied}
    looks, hidden = look_apart(connection, sorted({table.name for table in left.values()}))
    return looks, hidden, denied | _denied(connection, left)


def _see_whether_stale(
    connection: Session, known: Mapping[str, TableDef], denied: Mapping[str, PrivilegeMissing]
) -> None:
    """Raise if a new session is denied less: what was given back since is not always given to an old one."""
    if not denied:
        return
    with connect(connection.address, role=connection.role) as fresh:
        now = _denied(fresh, {key: known[key] for key in denied})
    if now.keys() < denied.keys():
        raise Transient(
            "MY_SESSION_STALE",
            "this session was denied a right that a new one has",
            detail=f"a role, or a user who was made again; {len(denied)} tables, {len(now)} of a new session",
            hint="nothing to do: the connection is made anew",
        )


def _denied(connection: Session, known: Mapping[str, TableDef]) -> dict[str, PrivilegeMissing]:
    asked = {
        key: denial(connection, table.name, [column.name for column in table.schema.columns])
        for key, table in known.items()
    }
    return {key: error for key, error in asked.items() if error is not None}


def _defined(seen: TableLook) -> TableDef | None:
    """The table as it is now; None of one that the lake cannot hold, as if it were gone."""
    try:
        return definition(seen)
    except HeadraceError:
        return None
