"""A conversion: rows under one set of columns become rows under another, each by itself.

    id  n  s            names   (id, n, s)
    │   ┌──┘            parts   Take(0), Take(2), Value(7)
    id  t  more=7

Every new column takes an old one, under whatever name, or gets one value in all rows. Which conversion a
change of a table is has to be proven by its source (`core.evolve`). It serves the changes that the stream
brings under the columns from before (`TableSchema.earlier`): those come for as long as the stream has not
come to the change of the table, so none is of the time `until`, or later.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.core import records


@dataclass(frozen=True, slots=True)
class Take:
    """The value of an old column, by its place."""

    column: int


@dataclass(frozen=True, slots=True)
class Value:
    """A value that every old row gets: as Arrow bytes, since Python's own types don't hold every date."""

    ipc: bytes

    @classmethod
    def of(cls, scalar: pa.Scalar) -> Value:
        batch = pa.RecordBatch.from_arrays([pa.repeat(scalar, 1)], ["c"])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return cls(sink.getvalue().to_pybytes())

    @property
    def scalar(self) -> pa.Scalar:
        return pa.ipc.open_stream(pa.py_buffer(self.ipc)).read_all().column(0)[0]


Part = Take | Value


@dataclass(frozen=True, slots=True)
class Conversion:
    """A part for each new column; `names` are the old ones."""

    names: tuple[str, ...]
    parts: tuple[Part, ...]
    until: int = 0

    @property
    def places(self) -> tuple[int, ...]:
        """For each old column its place among the new ones, or -1 where it goes."""
        places = {part.column: place for place, part in enumerate(self.parts) if isinstance(part, Take)}
        return tuple(places.get(column, -1) for column in range(len(self.names)))

    @property
    def values(self) -> dict[int, pa.Scalar]:
        """The new columns that take none, by their place, and what they hold where that is not NULL."""
        given = ((place, part.scalar) for place, part in enumerate(self.parts) if isinstance(part, Value))
        return {place: scalar for place, scalar in given if scalar.is_valid}

    @property
    def keeps_files(self) -> bool:
        """Tell whether the old columns stand where they stood, and behind them those that are NULL."""
        count = len(self.names)
        return not self.values and self.parts[:count] == tuple(map(Take, range(count)))

    def then(self, later: Conversion) -> Conversion:
        """Both in one step: this one first."""
        parts = (self.parts[part.column] if isinstance(part, Take) else part for part in later.parts)
        return Conversion(self.names, tuple(parts), self.until)

    def apply(self, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        """Old rows as new ones, of this schema; rows must have the old columns in their order."""
        columns = [self._column(rows, part, field) for part, field in zip(self.parts, schema, strict=True)]
        return pa.Table.from_arrays(columns, schema=schema)

    @staticmethod
    def _column(rows: pa.Table, part: Part, field: pa.Field) -> Any:
        if isinstance(part, Take):
            return rows.column(part.column).cast(field.type)
        if not part.scalar.is_valid:
            return pa.nulls(rows.num_rows, field.type)
        return pa.repeat(part.scalar, rows.num_rows).cast(field.type)


def _write(part: Part) -> int | str:
    return part.column if isinstance(part, Take) else base64.b64encode(part.ipc).decode("ascii")


def _read(record: int | str) -> Part:
    return Take(record) if type(record) is int else Value(base64.b64decode(str(record), validate=True))


records.register(Part, _write, _read)
