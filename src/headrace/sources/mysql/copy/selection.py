"""The rows of a SELECT as rows of the lake, with a proof that no value was lost.

    fetch               runs a statement and takes all of its rows as they come
    FetchedRows.decode  makes rows of the lake from them, after the server is done

A server keeps the tables of a SELECT open until the last row is sent. `FLUSH TABLES WITH READ LOCK` and DDL
wait for it, and writers wait behind these. So we only fetch, and decode later: rows stay in memory up to
`MEMORY_BYTES`, and the rest goes to an unnamed file, enciphered: values that leave as hashes alone may be
among them, and nobody may find them on a disk.

Not every warning is a loss: a virtual column may raise one for each row, for the application as well. But a
function whose result exceeds `max_allowed_packet` gives NULL with a warning, and a text that can't be
converted gives another text: that stops the table. A server lists only some warnings. For the others, a count
of the values proves that none was lost.
"""

from __future__ import annotations

import hashlib
import secrets
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import IO

import numpy as np

from headrace.core.errors import Definite, Transient
from headrace.core.names import TableName
from headrace.core.schema import Column
from headrace.decode.copyrows import CopiedRows
from headrace.decode.kernel import Bytes
from headrace.decode.mysql import result_rows
from headrace.sources.mysql.session.result_set import ResultRows
from headrace.sources.mysql.session.statements import COPY_SECONDS, MysqlConnection, nobody, query, rows
from headrace.sources.mysql.types.columns import quote, select_expression

MEMORY_BYTES = 64 << 20
_PROOF_SECONDS = 600.0  # to count the values of a table, or of a part of it
_NUMBERS = np.dtype(np.int64)
# A result larger than a packet; a text that is not valid in its charset, or that another charset lacks.
_TOO_LARGE = 1301
_LOSSES = frozenset((_TOO_LARGE, 1300, 1977, 3854))


def list_columns(columns: Sequence[Column]) -> str:
    """The columns as a SELECT lists them."""
    return ", ".join(map(select_expression, columns))


@dataclass(slots=True)
class FetchedRows:
    """The rows of an answer as they came. They can be decoded once."""

    columns: Sequence[Column]
    count: int = 0
    size: int = 0  # in bytes
    _blocks: deque[ResultRows] = field(default_factory=deque)
    _file: IO[bytes] | None = None
    _secret: bytes = field(default_factory=partial(secrets.token_bytes, 32), repr=False)  # of the file

    def add(self, block: ResultRows) -> None:
        """Keep one more block."""
        self.count += len(block)
        self.size += len(block.data)
        if self.size <= MEMORY_BYTES:
            self._blocks.append(block)
            return
        try:
            self._file = self._file or tempfile.TemporaryFile(prefix="headrace-")  # noqa: SIM115 -- `decode` closes it
            self._file.write(np.array([len(block.starts), len(block.data)], _NUMBERS).tobytes())
            self._file.write(block.starts.astype(_NUMBERS).tobytes())
            self._file.write(self._encipher(block.data, self._file.tell()))
        except OSError as error:
            raise Transient(
                "MY_COPY_NO_ROOM",
                "the rows of a table that has to be read in one go cannot be kept on this machine's disk",
                detail=error.strerror,
                hint=f'free space in "{tempfile.gettempdir()}", or set TMPDIR to a folder that has it',
            ) from None

    def decode(self) -> Iterator[CopiedRows]:
        """Decode the rows, block by block; a decoded block is freed."""
        while self._blocks:
            yield self._decode_rows(self._blocks.popleft())
        if self._file is not None:
            with self._file as file:
                file.seek(0)
                while head := file.read(2 * _NUMBERS.itemsize):
                    starts, size = map(int, np.frombuffer(head, _NUMBERS))
                    edges = np.frombuffer(file.read(starts * _NUMBERS.itemsize), _NUMBERS)
                    data = np.frombuffer(file.read(size), np.uint8)
                    plain = self._encipher(data, file.tell() - size)
                    yield self._decode_rows(ResultRows(np.frombuffer(plain, np.uint8), edges))

    def _encipher(self, data: Bytes, place: int) -> bytes:
        """The bytes under a pad for this place of the file; the same again makes them plain."""
        pad = hashlib.shake_256(self._secret + place.to_bytes(8, "big")).digest(len(data))
        return np.bitwise_xor(data, np.frombuffer(pad, np.uint8)).tobytes()

    def _decode_rows(self, block: ResultRows) -> CopiedRows:
        return result_rows.decode(result_rows.RowBlock(block.data, block.starts), self.columns)


def fetch(
    session: MysqlConnection,
    table: TableName,
    columns: Sequence[Column],
    origin: str,
    *,
    before: str = "",
    silence: float = COPY_SECONDS,
    check: Callable[[], None] = nobody,
) -> FetchedRows:
    """Read all rows of a SELECT of these columns `origin`, which is its text from FROM on.

    If the first columns are not the table's own, `before` lists their expressions.
    """
    own = columns[bool(before) :]
    statement = f"SELECT {before}{', ' if before else ''}{list_columns(own)} {origin}"
    found = FetchedRows(columns)
    with rows(session, statement, silence=silence, check=check) as answer:
        for block in answer.blocks():
            found.add(block)
    if answer.warnings and (losses := _losses(session, own, origin, answer.warnings)):
        raise _warned_error(table, losses)
    return found


def _losses(session: MysqlConnection, columns: Sequence[Column], origin: str, warnings: int) -> list[int]:
    """The codes of the last statement's warnings that mean a loss."""
    codes = [int(str(code)) for _, code, _ in query(session, "SHOW WARNINGS")]
    known = sorted(_LOSSES.intersection(codes))
    if known or warnings <= len(codes):
        return known
    # Values of the other columns are sent as they are stored.
    converted = [column for column in columns if select_expression(column) != quote(column.name)]
    if not converted:
        return []
    pairs = ", ".join(
        f"{quote(c.name)} AS v{n}, {select_expression(c)} AS s{n}" for n, c in enumerate(converted)
    )
    alike = " AND ".join(f"COUNT(v{n}) = COUNT(s{n})" for n in range(len(converted)))
    counted = f"SELECT {alike} FROM (SELECT {pairs} {origin}) AS counted"
    [(same,)] = query(session, counted, seconds=_PROOF_SECONDS)
    return [] if same else [_TOO_LARGE]


def _warned_error(table: TableName, codes: Sequence[int]) -> Definite:
    mend = "SET GLOBAL max_allowed_packet = 1073741824"
    if _TOO_LARGE not in codes:
        mend = "correct the texts that are none in the charset of their column"
    return Definite(
        "MY_COPY_WARNED",
        f"{table} cannot be read without a loss: the server warns of its values",
        detail=", ".join(f"warning {code}" for code in codes),
        hint=f"{mend}; then headrace tables resync {table}",
    )
