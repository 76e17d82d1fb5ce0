"""A mirror of the simplest kind: states of the source, recorded one after the other, written as epochs.

Each recording becomes a mark; history is the difference between one and the next. Slow and wasteful, and
right by construction: what the validators are tried on, with the lake's own writer and reader.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pyarrow as pa

from headrace.core.history import own_fields
from headrace.core.names import TableName
from headrace.lake.format import datafile, formatfile, layout, schemas
from headrace.lake.format.plan import Plan, TableStep
from headrace.lake.log.commit import EpochLog
from headrace.lake.log.marks import Mark, Marks
from headrace.lake.log.table import tables_of
from headrace.lake.read.lake import Lake
from headrace.lake.store.open import open_store
from headrace_testing.canonical import counted, difference
from headrace_testing.validators import Recording

SOURCE = "main"


class Handmade:
    """A lake of tables whose columns are all bigint."""

    def __init__(self, path: Path) -> None:
        self._store = open_store(path)
        formatfile.create_lake(self._store)
        self._log = EpochLog(SOURCE, self._store, Marks(self._store, SOURCE), tables_of(self._store))
        self._frames: dict[str, pl.DataFrame] = {}
        self._bases: dict[str, int] = {}
        self._files: dict[str, str] = {}
        self._log.takeover()
        self.lake = Lake(path)

    def publish(self, recording: Recording) -> None:
        """Write what was recorded as the next mark."""
        newest = self._log.newest_mark()
        assert newest is not None
        epoch, time = newest.epoch + 1, recording.position.last
        steps: list[TableStep] = []
        for name, rows in recording.rows.items():
            steps += self._steps(name, rows.names, rows.frame, epoch, time)
        folders = {name: layout.table_folder(SOURCE, TableName.parse(name)) for name in self._frames}
        plan = Plan(
            source=SOURCE,
            epoch=epoch,
            plan_id=f"plan-{epoch}",
            kind="stream",
            incarnation=0,
            frontier=str(recording.position),
            time=time,
            steps=tuple(steps),
            versions={name: self._bases[folder] for name, folder in folders.items()},
        )
        self._log.put_plan(plan)
        assert isinstance(self._log.finish(plan), Mark)

    def _steps(
        self, name: str, columns: Sequence[str], frame: pl.DataFrame, epoch: int, time: int
    ) -> list[TableStep]:
        table = TableName.parse(name)
        folder = layout.table_folder(SOURCE, table)
        steps = [self._step(folder, _arrow(frame, columns, pl.col("n")), epoch, replace=True)]
        if name in self._frames:
            changes = difference(frame, self._frames[name])
            rows = _arrow(changes, columns, pl.col("n").abs())
            diffs = changes.select(pl.col("n").sign().repeat_by(pl.col("n").abs())).explode("n").to_series()
            own = [[time] * len(diffs), diffs, range(len(diffs)), [time] * len(diffs)]
            moment = [datetime.datetime.now(datetime.UTC)] * len(diffs)
            for field, values in zip(own_fields().values(), [*own, moment], strict=True):
                rows = rows.append_column(field, pa.array(values, field.type))
            steps.append(self._step(layout.history_folder(SOURCE, table, 1), rows, epoch, replace=False))
        self._frames[name] = counted(frame)
        return steps

    def _step(self, folder: str, rows: pa.Table, epoch: int, *, replace: bool) -> TableStep:
        file = datafile.write(self._store, folder, layout.file_name(epoch), rows)
        base = self._bases.get(folder, -1)
        step = TableStep(
            path=folder,
            base=base,
            add=(file,),
            remove=(self._files[folder],) if replace and folder in self._files else (),
            schema=schemas.encode(rows.schema) if base < 0 else None,
        )
        self._bases[folder], self._files[folder] = base + 1, file.path
        return step


def _arrow(frame: pl.DataFrame, columns: Sequence[str], times: pl.Expr) -> pa.Table:
    """The rows, each as many times as it is there."""
    numbers = frame.select([pl.col(f"c{i}").cast(pl.Int64) for i in range(len(columns))])
    counts = frame.select(times).to_series().to_list()
    places = [place for place, count in enumerate(counts) for _ in range(count)]
    return pa.table([numbers[places, i].to_arrow() for i in range(len(columns))], names=list(columns))
