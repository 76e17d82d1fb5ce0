"""The rows of a SELECT as rows of the lake, none of which has lost a value.

Called by the readers of a copy, and by who walks along a key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from headrace.core.errors import Definite, HeadraceError
from headrace.core.names import TableName
from headrace.core.schema import Column
from headrace.decode.copyrows import CopiedRows
from headrace.decode.mysql import result_rows
from headrace.sources.mysql.catalog.types import selected
from headrace.sources.mysql.protocol.result_set import Answer
from headrace.sources.mysql.session.statements import Session, query, rows
from headrace.sources.mysql.session.timeouts import COPY_SECONDS, nobody


def listed(columns: Sequence[Column]) -> str:
    """The columns as a SELECT lists them."""
    return ", ".join(map(selected, columns))


@contextmanager
def selection(
    session: Session,
    table: TableName,
    statement: str,
    columns: Sequence[Column],
    *,
    silence: float = COPY_SECONDS,
    check: Callable[[], None] = nobody,
) -> Iterator[Iterator[CopiedRows]]:
    """The rows of a statement that lists these columns; what is not taken is read all the same.

    A session that is left amid an answer ends, and with it the view of all that is still to be read.
    """
    with rows(session, statement, silence=silence, check=check) as answer:
        try:
            yield _decoded(columns, answer)
        except (HeadraceError, GeneratorExit):
            for _ in answer.blocks():
                pass
            raise
    if answer.warnings:
        raise _warned(table, [(int(str(code)),) for _, code, _ in query(session, "SHOW WARNINGS")])


def _decoded(columns: Sequence[Column], answer: Answer) -> Iterator[CopiedRows]:
    for block in answer.blocks():
        yield result_rows.decode(result_rows.RowBlock(block.data, block.starts), columns)


def _warned(table: TableName, codes: Sequence[tuple[int]]) -> Definite:
    return Definite(
        "MY_COPY_WARNED",
        f"{table} cannot be read without a loss: the server warns of its values",
        detail=", ".join(f"warning {code}" for (code,) in codes[:5]),
        hint=f"1301: SET GLOBAL max_allowed_packet = 1073741824; then headrace tables resync {table}",
    )
