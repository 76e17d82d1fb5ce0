"""A query straight from a source without Spark: offsets, tasks and commits as Spark asks for them."""

from __future__ import annotations

import pickle
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.core.errors import HeadraceError
from headrace.core.keycode import keycode
from headrace.lake.store.open import open_store
from headrace.spark.source.direct.beginning import plan_direct
from headrace.spark.source.direct.offsets import DirectOffset
from headrace.spark.source.direct.rows import DirectPlan, read
from headrace.spark.source.direct.state import StateFolder, read_state
from headrace.spark.source.direct.stream import DirectStream
from headrace.spark.source.options import DirectOptions, parse
from headrace_testing.postgres import Database

Sums = Counter[Any]  # by (oid, texts) of a raw row, by the code of a typed one


def direct_plan(url: str, state: Path | str, **options: Any) -> DirectPlan:
    """The plan of these options."""
    if "table" not in options:
        options = {"tables": "public.*", **options}
    texts = {name: str(value) for name, value in options.items() if value is not None}
    wishes = parse({"url": url, "state": str(state), **texts})
    assert isinstance(wishes, DirectOptions)
    return plan_direct(wishes)


class Query:
    """A raw query that reads until now, batch by batch; the sums of all that it read."""

    def __init__(self, plan: DirectPlan, at: DirectOffset | None = None) -> None:
        self.plan = plan
        self.stream = DirectStream(plan)
        self.at = self.stream.initial() if at is None else at
        self.sums: Sums = Counter()

    @property
    def state(self) -> StateFolder:
        """The state folder as it is now."""
        found = read_state(open_store(self.plan.state))
        assert found is not None
        found.load()
        return found

    def catch_up(self, *, commit: bool = True) -> list[Sums]:
        """Read up to where the source is now; what each batch brought."""
        self.stream.end_at_newest()
        found = []
        while (end := self.stream.latest(self.at)) != self.at:
            found.append(self.rows(self.at, end))
            self.sums.update(found[-1])
            if commit:
                self.stream.commit(self.at)
            self.at = end
        if commit:
            self.stream.commit(self.at)
        self.stream.go_on()
        return found

    def rows(self, start: DirectOffset, end: DirectOffset) -> Sums:
        """The rows of the batches between."""
        found: Sums = Counter()
        for batch in self.batches(start, end):
            for row in batch.to_pylist():
                found[row["oid"], tuple(row["row_data"])] += row["_diff"]
        return found

    def batches(self, start: DirectOffset, end: DirectOffset) -> Iterator[pa.RecordBatch]:
        """The batches between, as Arrow."""
        for task in self.stream.tasks(start, end):
            yield from read(self.plan, task)

    def contents(self) -> Sums:
        """All rows that are there by now."""
        assert min(self.sums.values(), default=0) >= 0
        return +self.sums

    def close(self) -> None:
        """End as Spark ends the process of a query: without a word."""
        if self.stream.reception is not None:
            self.stream.reception.abandon()


class TypedQuery(Query):
    """A query of one table in its own columns; the sums are of encoded rows."""

    def __init__(self, plan: DirectPlan, at: DirectOffset | None = None) -> None:
        super().__init__(plan, at)
        self.by_code: dict[Any, pa.Table] = {}  # by the encoded row

    def rows(self, start: DirectOffset, end: DirectOffset) -> Sums:
        found: Sums = Counter()
        for batch in self.batches(start, end):
            rows = pa.Table.from_batches([batch])
            users = rows.select(rows.column_names[:-2])
            for at, (code, diff) in enumerate(
                zip(keycode(users.columns).to_pylist(), rows.column(-1).to_pylist(), strict=True)
            ):
                found[code] += diff
                self.by_code[code] = users.slice(at, 1)
        return found

    def table(self) -> pa.Table:
        """All rows that are there by now."""
        rows = [self.by_code[code] for code in self.contents().elements()]
        empty = self.plan.batch_schema().empty_table()
        return pa.concat_tables([empty.select(empty.column_names[:-2]), *rows])


class Checkpointed:
    """A query with Spark's two logs in files, so that a process that comes later goes on with it.

    offsets/7   the end of batch 7, before it is read
    rows/7      what the query's sink has of it
    commits/7   the sink has all of it; the source is told when batch 8 is planned
    """

    def __init__(self, plan: DirectPlan, folder: Path) -> None:
        self._plan, self._folder = plan, folder
        for name in ("offsets", "rows", "commits"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def catch_up(self) -> None:
        """Read up to where the source is now."""
        query = Query(self._plan, self._ends()[-1] if self._ends() else None)
        stream = query.stream
        if not self._ends():
            self._write("offsets/0", query.at)
            self._write("commits/0", None)
        stream.end_at_newest()
        self._read(query)
        while (end := stream.latest(self._ends()[-1])) != self._ends()[-1]:
            self._write(f"offsets/{len(self._ends())}", end)
            stream.commit(self._ends()[-2])
            self._read(query)
        query.close()

    def sums(self) -> Sums:
        """All rows that the sink has."""
        found: Sums = Counter()
        for path in (self._folder / "rows").iterdir():
            found.update(pickle.loads(path.read_bytes()))
        return +found

    def _read(self, query: Query) -> None:
        """Read the last batch that was planned, unless its rows are there."""
        ends = self._ends()
        number = len(ends) - 1
        if len(list((self._folder / "commits").iterdir())) <= number:
            rows = query.rows(ends[-2], ends[-1])
            path = self._folder / "rows" / str(number)
            assert not path.exists() or pickle.loads(path.read_bytes()) == rows
            self._write(f"rows/{number}", rows)
            self._write(f"commits/{number}", None)

    def _ends(self) -> list[DirectOffset]:
        paths = sorted((self._folder / "offsets").iterdir(), key=lambda path: int(path.name))
        return [pickle.loads(path.read_bytes()) for path in paths]

    def _write(self, key: str, value: object) -> None:
        new = self._folder / "new"
        new.write_bytes(pickle.dumps(value))
        new.rename(self._folder / key)


def collected(rows: Any) -> Sums:
    """The sums of a batch of Spark, raw or typed."""
    found: Sums = Counter()
    for *row, _, diff in rows.collect():
        found[tuple(tuple(each) if isinstance(each, list) else each for each in row)] += diff
    return found


def held(database: Database, *tables: str) -> Sums:
    """The rows of tables as the server prints them: by COPY, so that no cast changes a text."""
    found: Sums = Counter()
    with database.connect() as connection:
        for table in tables:
            answer = connection.execute("SELECT %s::regclass::oid::int8", [table]).fetchone()
            assert answer is not None
            with connection.cursor().copy(f"COPY {table} TO STDOUT") as copy:
                found.update((answer[0], _texts(line)) for line in copy.rows())
    return found


def _texts(row: tuple[Any, ...]) -> tuple[str | None, ...]:
    return tuple(None if value is None else str(value) for value in row)


def refused(code: str) -> Any:
    """Expect the error of this code."""
    return pytest.raises(HeadraceError, match=f"^{code}: ")


if __name__ == "__main__":  # a process that a test kills
    Checkpointed(direct_plan(sys.argv[1], sys.argv[2]), Path(sys.argv[3])).catch_up()
