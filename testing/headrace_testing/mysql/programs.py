"""The programs of MySQL and MariaDB, and the data folder that every server begins with.

`server` asks `locate(flavour)`; the first to do so on a machine has both made in the cache
(`testing.cache`), which takes seconds; a server then starts from a copy of the folder. An entry is

    root/          the packages, unpacked
    data/          a new server's data folder: `root`, with no password, from anywhere, and nothing else
    entry.json     the version found, the packages, and each file with its size

and is made anew when a file is gone or has another size. Programs run under the loader and the C library of
their own suite, so they don't depend on the machine's: `command(program)` has the words to begin with.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from headrace.core.errors import Misconfigured
from headrace_testing.cache import announce, cached, server_missing
from headrace_testing.mysql.debian import FetchError, fetch
from headrace_testing.mysql.flavours import MARIADB, MYSQL, Flavour
from headrace_testing.mysql.maven import unpack

RECIPE = 1  # how an entry is made; another one fetches anew
LIST = "entry.json"  # in an entry
_DEADLINE = 300.0

_USERS = """
CREATE USER 'root'@'%' IDENTIFIED BY '';
GRANT ALL PRIVILEGES ON *.* TO 'root'@'%' WITH GRANT OPTION;
"""
# As `mariadb-install-db` runs them; that is a shell script, which knows nothing of a loader.
_MARIADB_TABLES = (
    "*_system_tables.sql",  # "mysql_" before MariaDB 11, "mariadb_" since
    "*_performance_tables.sql",
    "*_system_tables_data.sql",
    "fill_help_tables.sql",
    "maria_add_gis_sp_bootstrap.sql",
    "*_sys_schema.sql",  # since MariaDB 10.6
)


@dataclass(frozen=True, slots=True)
class Programs:
    """The programs of one kind of server, and its first data folder."""

    flavour: Flavour
    entry: Path
    version: str

    @property
    def root(self) -> Path:
        return self.entry / "root"

    @property
    def data(self) -> Path:
        return self.entry / "data"

    @property
    def share(self) -> Path:
        """The folder of messages, charsets and the statements that make system tables."""
        known = (self.root / "usr/share/mariadb", self.root / "usr/share/mysql")
        return next(folder for folder in known if (folder / "charsets").is_dir())

    def command(self, program: str) -> list[str]:
        """The words that run a program: its loader, its libraries, itself."""
        for folder in ("usr/sbin", "usr/bin"):
            path = self.root / folder / program
            if path.exists():
                return [*_loader(self.root), str(path)]
        raise missing(self.flavour, f'its packages have no "{program}"')

    def places(self, data: Path) -> dict[str, str]:
        """The settings that tell the server where its files are."""
        named = {
            "basedir": self.root / "usr",
            "datadir": data,
            "lc_messages_dir": self.share,
            "character_sets_dir": self.share / "charsets",
            "plugin_dir": self.root / "usr/lib/mysql/plugin",
        }
        user = {"user": "root"} if os.geteuid() == 0 else {}
        return {**{name: str(path) for name, path in named.items()}, **user}


def missing(flavour: Flavour, why: str, *, detail: str | None = None) -> Misconfigured:
    """The error of a MySQL or MariaDB that cannot be had here."""
    return server_missing(
        flavour.label,
        why,
        detail=detail,
        hint=f"it comes from the packages of Debian {flavour.suite}: see that `apt-get update` works here, "
        "on Debian, then run this again",
    )


@cache
def locate(flavour: Flavour) -> Programs:
    """The programs, fetched first if this machine's cache has none that are whole."""
    entry = cached(
        f"{flavour.name}{flavour.release}-{RECIPE}", lambda into: _make(flavour, into), is_whole=is_whole
    )
    return Programs(flavour, entry, json.loads((entry / LIST).read_text())["version"])


def tool(program: str) -> list[str]:
    """The words that run a client program: `mysqlbinlog`, `mysqldump`, `mysql`, `mariadb-binlog`, ..."""
    return locate(MARIADB if program.startswith("mariadb") else MYSQL).command(program)


def child_environment() -> dict[str, str]:
    """The variables of a program that brings its own libraries."""
    strange = ("LD_LIBRARY_PATH", "LD_PRELOAD", "NOTIFY_SOCKET")
    return {name: value for name, value in os.environ.items() if name not in strange}


def _loader(root: Path) -> list[str]:
    libraries = sorted({*root.glob("lib/*-linux-gnu"), *root.glob("usr/lib/*-linux-gnu")})
    loaders = [path for folder in libraries for path in folder.glob("ld-linux-*.so.*")]
    return [str(loaders[0]), "--library-path", ":".join(map(str, libraries))]


def _make(flavour: Flavour, into: Path) -> None:
    try:
        packages = fetch(flavour.suite, flavour.packages, into / "root")
        if flavour.pack is not None:
            unpack(flavour.pack, into / "root")
    except FetchError as error:
        raise missing(flavour, "its packages cannot be fetched", detail=str(error)) from None
    said = _run(flavour, [*Programs(flavour, into, "").command(flavour.server), "--no-defaults", "--version"])
    found = re.search(r"Ver (\d+(\.\d+)+)", said)
    programs = Programs(flavour, into, found[1] if found else "unknown")
    programs.data.mkdir(mode=0o700)
    (_begin_mariadb if flavour.is_mariadb else _begin_mysql)(programs)
    files = _sizes(into)
    (into / LIST).write_text(
        json.dumps({"version": programs.version, "packages": packages, "files": files}, indent=1)
    )
    announce(f"{flavour.label} {programs.version} is ready")


def _begin_mysql(programs: Programs) -> None:
    (programs.entry / "users.sql").write_text(_USERS)
    initialize(programs, programs.data)


def initialize(programs: Programs, data: Path, **settings: str) -> None:
    """Make the data folder of a MySQL server, with settings that it keeps for ever."""
    redo = next(
        name
        for name in ("innodb_redo_log_capacity", "innodb_log_file_size")
        if name in programs.flavour.settings
    )
    wanted = {redo: "32M", "init_file": str(programs.entry / "users.sql"), **settings}
    _run(programs.flavour, [*_server(programs, wanted, data), "--initialize-insecure"])
    # A server that finds no identity gives itself one: no two of ours are the same.
    (data / "auto.cnf").unlink()


def _begin_mariadb(programs: Programs) -> None:
    begun = "CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket = NULL;\n"
    files = [file for name in _MARIADB_TABLES for file in programs.share.glob(name)]
    tables = "".join(file.read_text(encoding="utf-8") for file in files)
    settings = {"innodb_log_file_size": "8M", "max_allowed_packet": "8M"}
    command = _server(programs, settings, programs.data)
    _run(
        programs.flavour,
        [*command, "--bootstrap", "--enforce-storage-engine="],
        f"{begun}{tables}FLUSH PRIVILEGES;\n{_USERS}",
    )


def _server(programs: Programs, settings: Mapping[str, str], data: Path) -> list[str]:
    places = {**programs.places(data), **settings}
    return [
        *programs.command(programs.flavour.server),
        "--no-defaults",
        *(f"--{name.replace('_', '-')}={value}" for name, value in places.items()),
    ]


def _run(flavour: Flavour, command: list[str], statements: str = "") -> str:
    done = subprocess.run(
        command,
        input=statements,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
        timeout=_DEADLINE,
        env=child_environment(),
    )
    if done.returncode:
        said = (done.stdout + done.stderr).strip()[-1000:]
        raise missing(flavour, f'"{flavour.server}" of the fetched packages does not run here', detail=said)
    return done.stdout


def _sizes(entry: Path) -> dict[str, int]:
    """Each regular file below, with its size."""
    return {
        str(path.relative_to(entry)): path.stat().st_size
        for path in sorted(entry.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def is_whole(entry: Path) -> bool:
    """Tell whether each file is there, as long as it was made."""
    try:
        files = json.loads((entry / LIST).read_text())["files"]
        return all((entry / name).stat().st_size == size for name, size in files.items())
    except (OSError, ValueError, KeyError):
        return False
