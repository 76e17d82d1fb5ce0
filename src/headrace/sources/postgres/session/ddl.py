"""DDL of ours: our publication, the queue with its triggers. The database's event triggers run with it.

An event trigger is the application's code, and runs in our session. It finds its tables by `search_path`,
which is empty in our sessions, and may read tables with row-level security. So while the statement runs, both
settings have the database's own values, as in a session of the application. If the trigger meets a lock, a
deadlock or a cancellation, we try again. Any other failure is the trigger's own (`EventTriggerFailed`), and
never counts as a failure of our statement: a table that the trigger does not find is not the table that we
mirror.
"""

from __future__ import annotations

from collections.abc import Sequence

import psycopg

from headrace.core.errors import HeadraceError, Transient
from headrace.sources.postgres.session.connection import BY_DEFAULT, PINS
from headrace.sources.postgres.session.statements import Session, in_transaction, query
from headrace.sources.shared.refusals import StatementRefused

_DEFAULTS = "; ".join(f"SET LOCAL {name} TO DEFAULT" for name in BY_DEFAULT)
# Look types up in the catalog first, as the server does unless `search_path` gives another order.
_CATALOG_FIRST = (
    "SELECT pg_catalog.set_config('search_path', pg_catalog.concat('pg_catalog, ', path), true)"
    " FROM pg_catalog.current_setting('search_path') path"
    " WHERE pg_catalog.strpos(path, 'pg_catalog') OPERATOR(pg_catalog.>) 0"
)
_PINNED = "; ".join(f"SET LOCAL {name} = '{PINS[name]}'" for name in BY_DEFAULT)

_EVENT_TRIGGERS = """
SELECT t.evtname || ' (' || n.nspname || '.' || p.proname || ')' FROM pg_catalog.pg_event_trigger t
  JOIN pg_catalog.pg_proc p ON p.oid = t.evtfoid JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
 WHERE t.evtenabled IN ('O', 'A') AND t.evtevent <> 'login' AND (t.evttags IS NULL OR t.evttags && %s::text[])
 ORDER BY t.evtname
"""


class EventTriggerFailed(StatementRefused):
    """An event trigger of the database failed, and with it our statement that it ran for."""

    codes = ("PG_EVENT_TRIGGER_FAILED",)


def event_triggers(connection: Session, tags: Sequence[str]) -> list[str]:
    """Name the event triggers that run with commands of these tags, each with its function."""
    return [name for (name,) in query(connection, _EVENT_TRIGGERS, [list(tags)])]


def execute_ddl(connection: Session, statement: str) -> None:
    """Run one statement, in the open transaction or in one of its own.

    Raises the errors of `query`, and `EventTriggerFailed`.
    """
    with in_transaction(connection):
        query(connection, _DEFAULTS.encode())
        query(connection, _CATALOG_FIRST)
        try:
            with in_transaction(connection):
                query(connection, statement.encode())
        except HeadraceError as error:
            refusal = error.__context__
            # An error's context names a function, and our statements call none: it is the trigger's.
            in_function = isinstance(refusal, psycopg.Error) and refusal.diag.context
            if isinstance(error, Transient) or not in_function:
                raise
            raise _failed_error(connection, statement, error) from None
        query(connection, _PINNED.encode())


def _failed_error(connection: Session, statement: str, error: HeadraceError) -> HeadraceError:
    tag = _tag(statement)
    names = ", ".join(event_triggers(connection, [tag])) or "one that is gone by now"
    return EventTriggerFailed(
        "PG_EVENT_TRIGGER_FAILED",
        f'an event trigger of the database made our "{tag}" fail',
        detail=f"{names}: {error.detail}",
        hint="mend the trigger's function so that every role may run it, or leave our command out of it: "
        f"DROP EVENT TRIGGER, then CREATE EVENT TRIGGER ... WHEN TAG IN (...) without '{tag}'",
    )


def _tag(statement: str) -> str:
    """The command tag of our statement."""
    words = statement.replace("OR REPLACE ", "", 1).split(maxsplit=2)
    return words[0] if words[0] in ("GRANT", "REVOKE") else " ".join(words[:2])
