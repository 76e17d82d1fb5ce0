"""PostgreSQL's own regression suite, as a database to be mirrored: hundreds of tables that nobody makes up.

    with postgres("15") as server, server.database("regression") as database:
        load(database)              runs the suite's scripts, in the order of its schedule
        change(database, seed=1)    then inserts, updates and deletes in each table

The scripts come with Debian's source package of the server (`apt-get source`, from where this machine has its
packages, checked by apt against their keys) into the cache of `testing.binaries`; they are never part of this
repository. They are run for what they leave behind, not for what they print: statements that fail are part
of them, and those that want the suite's compiled library fail here, too.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

import psycopg
from psycopg import sql

from headrace.core.names import TableName
from headrace_testing.binaries import missing, tool
from headrace_testing.cache import cached
from headrace_testing.postgres import Database

PACKAGE = "postgresql-15"
_APT = Path("/etc/apt")
_FOLDER = "src/test/regress"
_SCRIPT_SECONDS = 300


def suite() -> Path:
    """The suite's folder, fetched first if it is not in the cache: `sql`, `data`, `parallel_schedule`."""
    return cached(f"regress-{PACKAGE}", _fetch)


def _fetch(into: Path) -> None:
    lists = into / "lists"
    (lists / "partial").mkdir(parents=True)
    sources = into / "sources"
    sources.mkdir()
    for name, text in _sources().items():
        (sources / name).write_text(text)
    options = [
        "Dir::Etc::sourcelist=/dev/null",
        f"Dir::Etc::sourceparts={sources}",
        f"Dir::State::lists={lists}",
        "APT::Sandbox::User=root",
    ]
    apt = ["apt-get", "--quiet", *(part for option in options for part in ("-o", option))]
    for command in (["update"], ["source", "--download-only", PACKAGE]):
        try:
            done = subprocess.run([*apt, *command], cwd=into, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise missing("its regression suite comes by apt-get, which is not here") from None
        if done.returncode:
            raise missing(f'apt-get could not fetch the source of "{PACKAGE}"', detail=done.stderr[-500:])
    [archive] = into.glob("*.orig.tar.*")
    _unpack(archive, into)


def _sources() -> dict[str, str]:
    """Ask where this machine has its packages for their sources; any release of the version will do."""
    found = {}
    for path in (_APT / "sources.list", *sorted((_APT / "sources.list.d").glob("*.*"))):
        text = path.read_text() if path.is_file() else ""
        if path.suffix == ".sources":
            stanzas = [part for part in text.split("\n\n") if "-security" not in part]
            found[path.name] = "\n\n".join(stanzas).replace("Types: deb\n", "Types: deb-src\n")
        elif path.suffix == ".list":
            lines = [
                line for line in text.splitlines() if line.startswith("deb ") and "-security" not in line
            ]
            found[path.name] = "".join(f"deb-src {line.removeprefix('deb ')}\n" for line in lines)
    return found


def _unpack(archive: Path, into: Path) -> None:
    """The suite alone, without the folders above it."""
    with tarfile.open(archive) as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        for member in tar:
            _, _, name = member.name.partition(f"/{_FOLDER}/")
            if member.isfile() and name and name.split("/")[0] in ("sql", "data", "parallel_schedule"):
                member.name = name
                tar.extract(member, into)
    for path in into.iterdir():
        if path.name in ("lists", "sources"):
            shutil.rmtree(path)
        elif path.name.startswith("postgresql-"):
            path.unlink()


def load(database: Database) -> None:
    """Run all scripts, one after another; the database must be called "regression"."""
    folder = suite()
    environment = os.environ | {
        "PG_ABS_SRCDIR": str(folder),
        "PG_ABS_BUILDDIR": str(folder),
        "PG_LIBDIR": str(folder),
        "PG_DLSUFFIX": ".so",
        "PGTZ": "PST8PDT",
        "PGDATESTYLE": "Postgres, MDY",
        "PGOPTIONS": "-c intervalstyle=postgres_verbose",
    }
    for name in scripts(folder):
        subprocess.run(
            [tool("psql"), "-X", "-q", "-d", database.conninfo, "-f", folder / "sql" / f"{name}.sql"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_SCRIPT_SECONDS,
            check=False,
        )


def scripts(folder: Path) -> list[str]:
    """The names of the scripts, in an order in which they find what they need."""
    lines = (folder / "parallel_schedule").read_text().splitlines()
    return [name for line in lines if line.startswith("test:") for name in line.split()[1:]]


def change(database: Database, tables: Sequence[TableName], *, seed: int) -> int:
    """Update, delete and insert in each of these tables, a transaction each; how many statements did.

    Constraints and triggers of the suite refuse some: those change nothing.
    """
    rng = random.Random(seed)
    changed = 0
    with psycopg.connect(database.conninfo, autocommit=True) as connection:
        connection.execute("SET statement_timeout = '20s'")
        for table in tables:
            statements = _statements(connection, table, rng)
            rng.shuffle(statements)
            with connection.transaction():
                changed += sum(_done(connection, statement) for statement in statements)
    return changed


def _done(connection: psycopg.Connection, statement: sql.Composed) -> bool:
    try:
        with connection.transaction():
            return connection.execute(statement).rowcount > 0
    except psycopg.Error:
        return False


def _statements(connection: psycopg.Connection, table: TableName, rng: random.Random) -> list[sql.Composed]:
    name = sql.Identifier(table.schema, table.name)
    rows = connection.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"
        " AND attgenerated = '' ORDER BY attnum",
        [str(table)],
    ).fetchall()
    columns = [sql.Identifier(column) for (column,) in rows]
    if not columns:
        return []
    listed = sql.SQL(", ").join(columns)
    some = sql.SQL("WHERE ctid IN (SELECT ctid FROM ONLY {} ORDER BY md5(ctid::text || {}) LIMIT {})")
    pick = [some.format(name, sql.Literal(str(rng.random())), sql.Literal(n)) for n in (20, 5, 10)]
    other = rng.choice(columns)
    return [
        sql.SQL("UPDATE ONLY {} SET {} = {} {}").format(name, other, other, pick[0]),
        sql.SQL("UPDATE ONLY {} SET {} = NULL {}").format(name, rng.choice(columns), pick[1]),
        sql.SQL("DELETE FROM ONLY {} {}").format(name, pick[1]),
        sql.SQL("INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE SELECT {} FROM ONLY {} {}").format(
            name, listed, listed, name, pick[2]
        ),
    ]
