"""Parts: tables of which a publication sends a part, by a row filter, a list of columns, or both.

A publication of the user's is used as it is: the lake then holds the part. Where the server would refuse the
application's own UPDATE and DELETE because of it, or end the stream, that is found here, before anything is
copied. In our own publication nobody has asked for a part: `capture` puts the table in anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from headrace.core.errors import Misconfigured
from headrace.core.names import quote_identifier
from headrace.sources.contract.findings import Finding, Level, hint_of
from headrace.sources.postgres.catalog.table_def import TableEntry, deciding
from headrace.sources.postgres.session.statements import Session, query


def limits(entry: TableEntry) -> str | None:
    """Name what the publication leaves out of the table; None where it sends all of it."""
    left_out = {a.name for a in entry.attributes if not a.generation} - {a.name for a in entry.columns}
    said = [
        "rows that its row filter does not let through" if entry.filter else "",
        f"columns that its list lacks: {_quote(left_out)}" if left_out else "",
    ]
    return "; ".join(filter(None, said)) or None


def check_part(connection: Session, name: str, entry: TableEntry) -> Iterator[Finding]:
    """A member of the user's publication: can the part that it sends be followed exactly?"""
    left_out = limits(entry)
    if left_out is not None:
        yield Finding(
            Level.INFO,
            Misconfigured(
                "PG_TABLE_IN_PART",
                f'the publication "{name}" sends a part of table {entry.name}, which the lake will hold',
                detail=f"it leaves out {left_out}",
                hint="nothing to do, if that is meant; else publish it without",
            ),
            table=entry.name,
        )
    yield from _filter_identity(connection, entry)
    yield from _list_identity(name, entry)
    yield from _filter_privileges(connection, entry)


def part_flaw(connection: Session, name: str, entry: TableEntry) -> Finding | None:
    """The first reason why the part of a table can't be followed."""
    return next((each for each in check_part(connection, name, entry) if each.level is Level.ERROR), None)


def _filter_identity(connection: Session, entry: TableEntry) -> Iterator[Finding]:
    member = entry.filter
    if member is None or entry.identity.full:
        return
    asked = {a.name for a in entry.attributes if a.number in member.filter_columns}
    lacking = sorted(asked - set(entry.identity.key))
    if not lacking:
        return
    possible = _could_be_full(entry, connection.info.server_version)
    mend = (f"ALTER TABLE {entry.name} REPLICA IDENTITY FULL",) if possible else ()
    yield Finding(
        Level.ERROR,
        Misconfigured(
            "PG_FILTER_IDENTITY",
            f"the row filter of table {entry.name} asks for what its replica identity lacks: "
            "the server refuses its UPDATE and DELETE",
            detail=_quote(lacking),
            hint=hint_of(mend) or "publish it with a filter on its key, or without one",
        ),
        mend=mend,
        table=entry.name,
    )


def _could_be_full(entry: TableEntry, version: int) -> bool:
    """Tell whether REPLICA IDENTITY FULL would do: no list goes with it, and no column that is not sent."""
    unsent = {a.name for a in entry.attributes} - {a.name for a in entry.columns}
    return not _is_listed(entry) and not (unsent and version >= 180000)


def _is_listed(entry: TableEntry) -> bool:
    return any(member.columns is not None for member in deciding(entry.memberships))


def _list_identity(name: str, entry: TableEntry) -> Iterator[Finding]:
    if not _is_listed(entry):
        return
    sent = {a.name for a in entry.columns}
    lacking = [column for column in entry.identity.key if column not in sent]
    if not lacking and not entry.identity.full:
        return
    mend: tuple[str, ...] = ()
    if not lacking and entry.identity.key:
        mend = (f"ALTER TABLE {entry.name} REPLICA IDENTITY DEFAULT",)
    elif lacking and not entry.identity.full and entry.filter is None and not entry.ancestors:
        alter = f"ALTER PUBLICATION {quote_identifier(name)}"
        listed = [a.name for a in entry.attributes if a.name in {*sent, *lacking}]
        columns = ", ".join(map(quote_identifier, listed))
        mend = (f"{alter} DROP TABLE ONLY {entry.name}", f"{alter} ADD TABLE ONLY {entry.name} ({columns})")
    yield Finding(
        Level.ERROR,
        Misconfigured(
            "PG_COLUMNS_IDENTITY",
            f"the column list of table {entry.name} does not go with its replica identity: "
            "the server refuses its UPDATE and DELETE",
            detail=f"it lacks {_quote(lacking)}" if lacking else "with identity FULL no list is allowed",
            hint=hint_of(mend) or "publish it with all columns of its key, or without a list",
        ),
        mend=mend,
        table=entry.name,
    )


# The functions that the expression's tree names, of operators too: to print it as SQL would lock the table.
_DENIED = r"""
SELECT DISTINCT f.oid::pg_catalog.regprocedure::text
  FROM pg_catalog.pg_publication p JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid
 CROSS JOIN LATERAL pg_catalog.regexp_matches(r.prqual::text, ':(?:op)?funcid ([0-9]+) ', 'g') named(id)
  JOIN pg_catalog.pg_proc f ON f.oid = named.id[1]::oid
 WHERE p.pubname = %s AND r.prrelid = %s AND NOT pg_catalog.has_function_privilege(f.oid, 'EXECUTE')
 ORDER BY 1
"""


def _filter_privileges(connection: Session, entry: TableEntry) -> Iterator[Finding]:
    """A filter is evaluated with the rights of the user who copies and streams."""
    if entry.filter is None:
        return
    user = quote_identifier(connection.info.user)
    denied = [
        str(function) for (function,) in query(connection, _DENIED, [entry.filter.publication, entry.oid])
    ]
    if not denied:
        return
    mend = tuple(f"GRANT EXECUTE ON FUNCTION pg_catalog.{function} TO {user}" for function in denied)
    yield Finding(
        Level.ERROR,
        Misconfigured(
            "PG_FILTER_PRIVILEGE",
            f"the user {user} may not evaluate the row filter of table {entry.name}",
            detail=", ".join(denied),
            hint=hint_of(mend),
        ),
        mend=mend,
        table=entry.name,
    )


def _quote(names: Collection[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
