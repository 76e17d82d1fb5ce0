"""Files and bytes that a mirror of a small shop writes in an hour, with the defaults.

    python bench/shop.py [--hours N] [--rate N] [--merge auto rewrite ...]

The shop has 38 MB in seven tables, and each of its transactions touches all of them. Time is compressed: what
the shop commits between two marks of `every = "auto"` is committed at once, and the next mark is awaited. The
time between two marks is what the run would choose by the cost of those before (`cadence.interval`). The lake
is not maintained within the first hour, as in a run; each further hour begins with maintenance.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from headrace.core.names import TableName
from headrace.lake.format import layout
from headrace.lake.log.table import LakeTable
from headrace.lake.store.open import open_store
from headrace.pipeline.commands import ask
from headrace.pipeline.stream.cadence import MarkCost, interval
from headrace_testing.costs import contents, processor
from headrace_testing.figures import keep
from headrace_testing.mirror_process import Mirrored
from headrace_testing.postgres import Database, postgres

HOUR = 3600.0
CUSTOMERS, PRODUCTS, ORDERS = 30_000, 2_000, 40_000
SCHEMA = f"""
CREATE TABLE customers (id int PRIMARY KEY, name text, email text, orders int, at timestamptz);
CREATE TABLE products (id int PRIMARY KEY, name text, price numeric(10, 2), sold int);
CREATE TABLE stock (product int PRIMARY KEY, pieces int, at timestamptz);
CREATE TABLE orders (id bigint PRIMARY KEY, customer int, state text, total numeric(10, 2), at timestamptz);
CREATE TABLE lines (order_id bigint, number int, product int, price numeric(10, 2), PRIMARY KEY (order_id, number));
CREATE TABLE payments (id bigint PRIMARY KEY, order_id bigint, method text, reference text, at timestamptz);
CREATE TABLE events (id bigint PRIMARY KEY, order_id bigint, what text, details text, at timestamptz);
INSERT INTO customers SELECT i, 'customer ' || i, md5(i::text) || '@example.com', 1, now() FROM generate_series(1, {CUSTOMERS}) i;
INSERT INTO products SELECT i, 'product ' || md5(i::text), i % 90 + 9.99, 0 FROM generate_series(1, {PRODUCTS}) i;
INSERT INTO stock SELECT i, 1000, now() FROM generate_series(1, {PRODUCTS}) i;
INSERT INTO orders SELECT i, i % {CUSTOMERS} + 1, 'paid', 19.98, now() FROM generate_series(1, {ORDERS}) i;
INSERT INTO lines SELECT i, n, (i * 7 + n) % {PRODUCTS} + 1, 9.99 FROM generate_series(1, {ORDERS}) i, generate_series(1, 2) n;
INSERT INTO payments SELECT i, i, 'card', md5(i::text), now() FROM generate_series(1, {ORDERS}) i;
INSERT INTO events SELECT i, i, 'ordered', md5(i::text) || md5(i::text), now() FROM generate_series(1, {ORDERS}) i;
CREATE FUNCTION sell(first bigint, count int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE i bigint; piece int; buyer int;
BEGIN
  FOR i IN first .. first + count - 1 LOOP
    piece := floor(random() * {PRODUCTS}) + 1;
    buyer := floor(random() * {CUSTOMERS}) + 1;
    INSERT INTO orders VALUES (i, buyer, 'new', 19.98, clock_timestamp());
    INSERT INTO lines VALUES (i, 1, piece, 9.99), (i, 2, i % {PRODUCTS} + 1, 9.99);
    INSERT INTO payments VALUES (i, i, 'card', md5(i::text), clock_timestamp());
    INSERT INTO events VALUES (i, i, 'ordered', md5(i::text) || md5(i::text), clock_timestamp());
    UPDATE stock SET pieces = pieces - 1, at = clock_timestamp() WHERE product IN (piece, i % {PRODUCTS} + 1);
    UPDATE products SET sold = sold + 1 WHERE id = piece;
    UPDATE customers SET orders = orders + 1, at = clock_timestamp() WHERE id = buyer;
    UPDATE orders SET state = 'sent' WHERE id = i - 50;
  END LOOP;
END $$;
"""  # noqa: E501
TABLES = ("customers", "products", "stock", "orders", "lines", "payments", "events")
_KINDS = {  # of the files of a lake, by their paths
    "log lines": r"_delta_log/\d+\.json$",
    "checkpoints": r"_delta_log/",
    "marks": r"^marks/",
    "history": r"history",
    "plans": r"epochs/",
    "tables": r"\.parquet$",
}


@dataclass(slots=True)
class Shop:
    """The shop, its mirror, and what an hour of it came to."""

    database: Database
    mirror: Mirrored
    rate: float
    next_order: int = ORDERS + 1
    costs: list[MarkCost] = field(default_factory=list)
    marks: int = 0

    def sell(self, seconds: float) -> None:
        """Sell what is sold in so many seconds, and wait for its mark."""
        count = max(1, round(self.rate * seconds))
        driver = processor(self.mirror.pid)["driver"]
        files = contents(self.mirror.lake_path)[0]
        self.database.execute(f"SELECT sell({self.next_order}, {count})", user="app")
        self.next_order += count
        [(lsn,)] = self.database.execute("SELECT (pg_current_wal_lsn() - '0/0')::bigint")
        self.mirror.until(lambda: self.mirror.lake.at().mark.position.time >= lsn, "the mark", within=120)
        self.marks += 1
        used = processor(self.mirror.pid)["driver"] - driver
        self.costs = [*self.costs[-4:], MarkCost(used, contents(self.mirror.lake_path)[0] - files)]

    def hour(self) -> None:
        """Sell for an hour of the shop's time."""
        passed, self.marks = 0.0, 0
        while passed < HOUR:
            seconds = interval(self.costs)
            self.sell(seconds)
            passed += seconds

    def maintain(self) -> None:
        """Do what a run does each hour."""
        ask.ask(str(self.mirror.lake_path), "maintain", {"auto": True})

    def files(self) -> tuple[int, int, float]:
        """The files of the tables, the number of tables, and the share of rows that are dead."""
        store, found = open_store(self.mirror.lake_path), []
        for name in TABLES:
            table = LakeTable(store, layout.table_folder("main", TableName("public", name)))
            table.refresh()
            found.append(list(table.files().values()))
        rows = sum(file.rows for files in found for file in files)
        dead = rows - sum(file.alive for files in found for file in files)
        return sum(map(len, found)), len(found), dead / max(rows, 1)


def written(lake: Path) -> dict[Path, int]:
    """The files of a lake that stay as they are, each with its size."""
    return {
        path: path.stat().st_size
        for path in lake.rglob("*")
        if path.is_file() and not re.search(r"_headrace/(spool|status|requests)", str(path))
    }


def kinds(lake: Path, files: dict[Path, int]) -> tuple[Counter[str], Counter[str]]:
    """The number of files and of bytes of each kind."""
    count, size = Counter[str](), Counter[str]()
    for path, each in files.items():
        name = path.relative_to(lake).as_posix()
        kind = next((kind for kind, pattern in _KINDS.items() if re.search(pattern, name)), "others")
        count[kind] += 1
        size[kind] += each
    return count, size


def measured(database: Database, merge: str, hours: int, rate: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lake = Path(folder) / "lake"
        options = {"merge": merge, "every": "0s"}
        with Mirrored(lake, database.url(user="app"), "public.*", options=options) as mirror:
            mirror.until_live()
            shop = Shop(database, mirror, rate)
            for _ in range(3):
                shop.sell(10.0)
            for hour in range(hours):
                if hour:
                    shop.maintain()
                before = written(lake)
                shop.hour()
                new = {path: size for path, size in written(lake).items() if path not in before}
                count, size = kinds(lake, new)
                files, tables, dead = shop.files()
                parts = [f"{kind} {count[kind]} ({size[kind] / 1e6:.1f} MB)" for kind in sorted(count)]
                print(
                    f"{merge:>8} {hour + 1:>5} {shop.marks:>6} {len(new):>7} {sum(new.values()) / 1e6:>7.1f}"
                    f" {files / tables:>12.1f} {100 * dead:>7.1f}   {', '.join(parts)}",
                    flush=True,
                )
                keep(**{f"files_{merge}": len(new), f"megabytes_{merge}": sum(new.values()) / 1e6})


def main() -> None:
    parser = argparse.ArgumentParser(description="what a mirror of a small shop writes in an hour")
    parser.add_argument("--hours", type=int, default=1)
    parser.add_argument("--rate", type=float, default=5)
    parser.add_argument("--merge", nargs="+", default=["auto", "rewrite"])
    args = parser.parse_args()
    print(f"{args.rate:g} transactions a second, each over {len(TABLES)} tables")
    print("   merge  hour  marks   files      MB  files/table  dead %")
    with postgres() as server:
        for merge in args.merge:
            with server.database() as database:
                database.execute(SCHEMA, user="app")
                measured(database, merge, args.hours, args.rate)


if __name__ == "__main__":
    main()
