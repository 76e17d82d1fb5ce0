"""A lake with everything that a reader may stumble over, and what each table holds at each of its marks.

public.kinds          one column of each type, with the extremes of each; two files are made of others' column
                      chunks
"Sales Data"."Order"  names that need quoting, on disk and in Delta
public.grown          a column that was added after the first file
public.replaced       another schema altogether since mark 3, of types that need a feature of Delta
public.empty          no rows, no files
public.worn           files with deleted rows, and more of them at mark 3
public.stopped        in the marks up to 2 only
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.core.change_batch import TIMESTAMP
from headrace.core.conversion import Conversion, Take, Value
from headrace.core.history import own_fields
from headrace.core.names import TableName
from headrace.lake.format import datafile, formatfile, layout, schemas
from headrace.lake.format.column_chunks import Shape, convert
from headrace.lake.format.plan import DataFile, Plan, TableStep
from headrace.lake.format.vector import Vector
from headrace.lake.log import unknown_moments
from headrace.lake.log.commit import open_log
from headrace.lake.log.marks import Mark
from headrace.lake.store.contract import Store

SOURCE = "main"

KINDS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("bool", pa.bool_()),
        pa.field("i8", pa.int8()),
        pa.field("i16", pa.int16()),
        pa.field("i32", pa.int32()),
        pa.field("f32", pa.float32()),
        pa.field("f64", pa.float64()),
        pa.field("text", pa.string()),
        pa.field("bytes", pa.binary()),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us")),
        pa.field("instant", TIMESTAMP),
        pa.field("dec", pa.decimal128(38, 10)),
        pa.field("unsigned", pa.decimal128(20, 0)),
        pa.field("list", pa.list_(pa.string())),
        pa.field("days", pa.list_(pa.date32())),
    ]
)
_HIGH: tuple[Any, ...] = (
    *(2**63 - 1, True, 127, 2**15 - 1, 2**31 - 1, 1.5, 1.7976931348623157e308, "\U0010ffff" * 40 + "ü"),
    *(b"\xff\x00", date(9999, 12, 31), datetime(9999, 12, 31, 23, 59, 59, 999999)),
    datetime(2026, 11, 20, 12, 0, 0, 123456, tzinfo=UTC),
    *(
        Decimal("9999999999999999999999999999.9999999999"),
        Decimal(2**64 - 1),
        ["a", None, ""],
        [date(1, 1, 1)],
    ),
)
_LOW: tuple[Any, ...] = (
    *(-(2**63), False, -128, -(2**15), -(2**31), -0.0, float("-inf"), "", b""),
    *(date(1, 1, 1), datetime(1, 1, 1), datetime(1582, 10, 4, tzinfo=UTC)),
    *(Decimal("-9999999999999999999999999999.9999999999"), Decimal(0), [], None),
)
_NOTHING: tuple[Any, ...] = (0, *[None] * (len(KINDS) - 1))

QUOTED = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("a b,c", pa.string())])
GROWN = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("n", pa.int32())])
GROWN_LATER = GROWN.append(pa.field("new at", pa.timestamp("us")))
OTHER = pa.schema(
    [pa.field("id", pa.string()), pa.field("z", pa.float64()), pa.field("at", pa.timestamp("us"))]
)
WORN = pa.schema(
    [pa.field("id", pa.int64()), pa.field("file", pa.string()), pa.field("position", KINDS.types[3])]
)
HISTORY = pa.schema([*QUOTED, *own_fields().values()])

Table = list[dict[str, Any]]
PLAIN = ["public.kinds", '"Sales Data"."Order"', "public.grown", "public.replaced", "public.empty"]
NAMES = [*PLAIN, "public.worn"]


def _worn(*without: int, only: int | None = None) -> pa.Table:
    ids = [only] if only is not None else [id for id in range(30) if id not in without]
    return _rows(WORN, *((id, f"f{id}", id % 4) for id in ids))


def _rows(schema: pa.Schema, *rows: tuple[Any, ...]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


class Sample:
    """The lake, while it is made, and what readers must find in it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.expected: dict[tuple[int, str], pa.Table] = {}
        formatfile.create_lake(store)
        self._log = open_log(store, SOURCE)
        self._mark = self._log.takeover().mark
        self._versions: dict[str, int] = {}
        self._first_mark()
        self._second_mark()

    @property
    def newest(self) -> Mark:
        return self._mark

    def _first_mark(self) -> None:
        kinds = _rows(KINDS, _HIGH, _LOW, _NOTHING)
        order = _rows(QUOTED, (1, "x"), (2, None))
        grown = _rows(GROWN, (1, 10), (2, None))
        replaced = _rows(GROWN, (7, 7))
        steps = [
            self._make("public.kinds", kinds.slice(2), chunks=kinds.slice(0, 2)),
            self._make('"Sales Data"."Order"', order),
            self._make("public.grown", grown),
            self._make("public.replaced", replaced),
            self._make("public.stopped", replaced),
            self._make("public.empty", schema=GROWN),
            *self._worn(),
            self._history(order),
        ]
        self._publish(steps, "0/20")
        tables = [kinds, order, grown, replaced, GROWN.empty_table(), _worn(3, 7), replaced]
        self._expect(dict(zip([*NAMES, "public.stopped"], tables, strict=True)))

    def _second_mark(self) -> None:
        grown = _rows(GROWN_LATER, (1, 10, None), (2, None, None), (3, 30, datetime(2026, 1, 2, 3, 4, 5, 6)))
        replaced = _rows(OTHER, ("a", 0.5, datetime(2026, 1, 2, 3, 4, 5, 6)))
        before = {name: self.expected[self._mark.epoch, name] for name in NAMES}
        path = _folder("public.replaced")
        dead = tuple(self._log_files(path))
        steps = [
            TableStep(_folder("public.grown"), 0, schema=schemas.encode(GROWN_LATER)),
            TableStep(_folder("public.grown"), 1, (self._file("public.grown", grown.slice(2)),)),
            TableStep(path, 0, (self._file("public.replaced", replaced),), dead, schemas.encode(OTHER)),
        ]
        new = self._file("public.worn", _worn(only=3))
        steps.append(self._deletion(1, {0: [3, 7, 0, 9], 1: [*range(10)], 2: [9]}, new))
        self._versions |= {"public.grown": 2, "public.replaced": 1, "public.worn": 2}
        del self._versions["public.stopped"]
        self._publish(steps, "0/30")
        worn = _worn(7, 0, 9, *range(10, 20), 29)
        self._expect({**before, "public.grown": grown, "public.replaced": replaced, "public.worn": worn})

    def _log_files(self, folder: str) -> list[str]:
        names = [key.rsplit("/", 1)[1] for key in self.store.list(folder)]
        return [name for name in names if name.endswith(".parquet")]

    def _make(
        self, name: str, *parts: pa.Table, schema: pa.Schema | None = None, chunks: pa.Table | None = None
    ) -> TableStep:
        self._versions[name] = 0
        files = [self._file(name, part) for part in parts]
        if chunks is not None:
            files.extend(self._of_chunks(name, chunks.slice(place, 1)) for place in range(len(chunks)))
        return TableStep(_folder(name), -1, tuple(files), schema=schemas.encode(schema or parts[0].schema))

    def _worn(self) -> Iterator[TableStep]:
        """Three files of ten rows, and two rows of the first one deleted."""
        parts = [_worn().slice(start, 10) for start in (0, 10, 20)]
        made = self._make("public.worn", *parts)
        self._worn_files = list(made.add)
        yield made
        yield self._deletion(0, {0: [3, 7]})
        self._versions["public.worn"] = 1

    def _deletion(self, base: int, deleted: dict[int, list[int]], *new: DataFile) -> TableStep:
        """Delete rows of some files, by their positions."""
        vectors = {number: Vector.of(np.array(rows)) for number, rows in deleted.items()}
        changed = [replace(self._worn_files[number], vector=vector) for number, vector in vectors.items()]
        return TableStep(_folder("public.worn"), base, (*changed, *new), tuple(file.path for file in changed))

    def _history(self, rows: pa.Table) -> TableStep:
        """One row that came at time 5, and one of an epoch that never got its mark."""
        folder = layout.history_folder(SOURCE, TableName("Sales Data", "Order"), 1)
        moment = datetime(2026, 1, 1, tzinfo=UTC)
        own = [(5, 1, 1, 77, moment), (2**62, 1, 1, 78, moment)]
        table = _rows(
            HISTORY, *[(*row.values(), *mine) for row, mine in zip(rows.to_pylist(), own, strict=True)]
        )
        file = datafile.write(self.store, folder, layout.file_name(2), table)
        return TableStep(folder, -1, (file,), schema=schemas.encode(HISTORY))

    def _file(self, name: str, rows: pa.Table) -> DataFile:
        return datafile.write(self.store, _folder(name), layout.file_name(self._mark.epoch + 1), rows)

    def _of_chunks(self, name: str, rows: pa.Table) -> DataFile:
        """A row out of a file with other names, one of another type, one not yet, one too many."""
        folder, old = _folder(name), layout.file_name(self._mark.epoch + 1)
        before = rows.rename_columns([f"old {name}" for name in rows.column_names])
        before = before.drop_columns(["old dec"]).append_column("old gone", pa.array(["gone"] * len(rows)))
        before = before.set_column(4, "old i32", before["old i32"].cast(pa.int64()))
        datafile.write(self.store, folder, old, before, sort_range=(b"", b""))
        taken = {
            name: Take(before.column_names.index(f"old {name}"))
            for name in rows.column_names
            if name != "dec"
        }
        parts = [taken.get(name) or Value.of(rows[name][0]) for name in rows.column_names]
        shape = Shape(before.schema, rows.schema, Conversion(tuple(before.column_names), tuple(parts)))
        made = convert(
            self.store, folder, old, layout.file_name(self._mark.epoch + 1), shape, at_most=1 << 20
        )
        self.store.delete(f"{folder}/{old}")
        assert made is not None
        return made[0]

    def _publish(self, steps: list[TableStep], frontier: str) -> None:
        epoch = self._mark.epoch + 1
        time = int(frontier.split("/")[1], 16) - 1
        plan = Plan(SOURCE, epoch, f"p{epoch}", "stream", 0, frontier, time, steps=tuple(steps))
        until = f"2026-01-{epoch:02}T00:00:00+00:00"
        plan = replace(plan, versions=dict(self._versions), state=self._records(), complete_until=until)
        self._log.put_plan(plan)
        mark = self._log.finish(plan)
        assert isinstance(mark, Mark)
        self._mark = mark

    def _records(self) -> dict[str, Any]:
        begun = (unknown_moments.TimeGap(None, datetime(2026, 1, 1, tzinfo=UTC)),)
        tables = {f"table/{name}": {"since": None} for name in self._versions}
        return {"source": {"kind": "postgres"}, unknown_moments.KEY: unknown_moments.record(begun), **tables}

    def _expect(self, tables: dict[str, pa.Table]) -> None:
        self.expected |= {(self._mark.epoch, name): table for name, table in tables.items()}


def _folder(name: str) -> str:
    return layout.table_folder(SOURCE, TableName.parse(name))


def in_order(table: pa.Table) -> Table:
    """Rows as values, in one order, with one kind of NaN and instants in UTC."""
    return sorted(table.to_pylist(), key=lambda row: str(row["id"]))
