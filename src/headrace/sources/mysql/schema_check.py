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
    changes   it is not what was recorded (`catalog.alteration`)
    news      what is new about it and means nothing

The stream tells of DDL by itself, at its place (`stream.alterations`), so that this look is the second that
has to be passed; the first one cannot see what a session kept out of the log. Neither server gives a table a
number that everybody may see: a table that was renamed is gone, and one that took its name is meant.

Called before each mark; it takes no lock, and waits a moment for those of others.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.core.errors import HeadraceError
from headrace.sources.contract.tables import Change, SchemaCheck, TableDef
from headrace.sources.mysql.catalog.alteration import differs, is_news
from headrace.sources.mysql.catalog.definitions import look_apart
from headrace.sources.mysql.catalog.table_def import TableLook, definition, from_record, to_record
from headrace.sources.mysql.session import log_end
from headrace.sources.mysql.session.statements import Session
from headrace.sources.mysql.upstream import Upstream


def check(connection: Session, upstream: Upstream, known: Mapping[str, TableDef]) -> SchemaCheck:
    """Look how far the server is, then at these tables."""
    end = log_end.position(connection, upstream.log)
    looks, hidden = look_apart(connection, sorted({table.name for table in known.values()}))
    changes, news = {}, {}
    for key, table in known.items():
        if table.name in hidden:
            continue
        last, seen = from_record(table.details), looks.get(table.name)
        if seen is None or not seen.columns:
            changes[key] = Change("it was dropped or renamed, or we may not see it any more", None)
        elif (what := differs(last, seen, table.schema.key)) is not None:
            changes[key] = Change(what, _defined(seen))
        elif is_news(last, seen):
            news[key] = TableDef(table.name, table.number, table.schema, to_record(seen))
    return SchemaCheck(
        end=end,
        reference=0,
        changes=changes,
        news=news,
        locked=frozenset(key for key, table in known.items() if table.name in hidden),
    )


def _defined(seen: TableLook) -> TableDef | None:
    """The table as it is now; None of one that the lake cannot hold, as if it were gone."""
    try:
        return definition(seen)
    except HeadraceError:
        return None
