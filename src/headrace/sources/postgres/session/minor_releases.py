"""Minor releases whose stream is not to be trusted in some way, and from which one on it is.

Before 15.13, 16.9 and 17.5 a walsender that decodes a transaction which was open while its table got into the
publication goes on taking the table for unpublished: changes of *later* transactions are left out, of which W
(`writers`) knows nothing. A first run is safe: its slot is made after its publication, and waits for all who
are open. A table that is added to a stream which runs is not, whatever command adds it.
"""

from __future__ import annotations

from headrace.core.errors import Misconfigured

LATE_TABLES_WHOLE = {15: 150013, 16: 160009, 17: 170005}


def late_tables_lost(version: int) -> Misconfigured | None:
    """Say why no table can be added to a stream of this server that runs already; None where it can."""
    major = version // 10000
    whole = LATE_TABLES_WHOLE.get(major, 0)
    if version >= whole:
        return None
    return Misconfigured(
        "PG_VERSION_LOSES",
        f"PostgreSQL {major}.{version % 10000} may leave out changes of a table that is added to a source "
        "which runs",
        hint=f"install PostgreSQL {major}.{whole % 10000} or a later minor release before; "
        "nothing has to be copied for it",
    )
