"""Changes of shape that cost more of a table than of others: for `headrace check` to say beforehand.

What holds for all tables stands in `docs/mysql.md`, by statement. Here is what depends on the table: on its
key, and on columns that the server computes. The verdicts are those of `catalog.evidence`.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.sources.mysql.catalog.table_def import TableLook
from headrace.sources.mysql.ddl.volatile import volatile_stored

_NO_KEY = "written again in the lake by every added column: it has no key"


def costly_ddl(look: TableLook) -> tuple[str, ...]:
    """Say what is special of this table, the dearest first."""
    return tuple(_costs(look))


def _costs(look: TableLook) -> Iterator[str]:
    computed = ", ".join(f'"{row.name}"' for row in look.columns if row.generated)
    if any(row.generated == "s" for row in look.columns):
        yield f"copied anew by every change of its columns: it has stored generated ones ({computed})"
    elif computed:
        yield f"copied anew by every column that is defined anew: it has generated ones ({computed})"
    if named := ", ".join(f'"{name}"' for name in volatile_stored(look.columns)):
        yield (
            "copied anew by every ALTER TABLE, CREATE INDEX, DROP INDEX and OPTIMIZE TABLE: the session that "
            f"does it may compute stored columns anew, by settings of its own ({named})"
        )
    if not look.key:
        yield _NO_KEY
