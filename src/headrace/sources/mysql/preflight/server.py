"""Preflight of the server: its release, its settings, and our privileges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.core.errors import Misconfigured
from headrace.sources.contract.findings import Finding, Level
from headrace.sources.mysql.flavour import TRIED, Number, Release
from headrace.sources.mysql.preflight import binlog, replication
from headrace.sources.mysql.preflight.grants import Rights, check_replication_rights
from headrace.sources.mysql.preflight.variables import ON, variables
from headrace.sources.mysql.session.statements import MysqlConnection


def as_integer(number: Number) -> int:
    """A release's number as one integer, as in MySQL: 9.7.4 is 90704."""
    return number.major * 10000 + number.minor * 100 + number.patch


def check_version(release: Release) -> Iterator[Finding]:
    """Warn of a release that no test has run. `connect` refuses those that cannot be mirrored."""
    label, number, tried = release.flavour.label, release.number, TRIED[release.flavour]
    if release.unusual_words:
        yield Finding(
            Level.WARNING,
            Misconfigured(
                "MY_FORK_UNKNOWN",
                f'the server calls its version "{release.text}", as no known vendor of {label} does',
                hint="watch the first run, then prove the copy: headrace verify",
            ),
        )
    if any(f"{number}.".startswith(f"{each}.") for each in tried):
        return
    if number < _number(tried[-1]):
        yield Finding(
            Level.WARNING,
            Misconfigured(
                "MY_VERSION_UNTRIED",
                f"the server is {label} {number}, which no test has run: the tests run {_list(tried)}",
                detail="what headrace sends and reads was compared with the manual of this release: "
                "docs/mysql-versions.md",
                hint="watch the first run, then prove the copy: headrace verify",
            ),
        )
    else:
        yield Finding(
            Level.WARNING,
            Misconfigured(
                "MY_VERSION_NEW",
                f"the server is {label} {number}, the newest that was tried is {tried[-1]}",
                hint="watch the first run, and see whether a newer headrace knows this version",
            ),
        )


def _number(text: str) -> Number:
    return Number(*map(int, text.split(".")))


def _list(tried: Sequence[str]) -> str:
    return f"{', '.join(tried[:-1])} and {tried[-1]}"


def logs_generated(release: Release) -> bool:
    """Tell whether row images have generated columns: those of MariaDB 11.4 do, those of 11.8 do not."""
    return not release.at_least(mariadb=Number(11, 5))


def check_server(connection: MysqlConnection, ours: Rights, copy_bytes: int) -> Iterator[Finding]:
    """Check everything about the server that a run depends on."""
    flavour = connection.release.flavour
    known = variables(connection, [*binlog.NAMES, *replication.NAMES, *binlog.RETENTION])
    yield from binlog.check_binlog(flavour, known)
    denied = list(check_replication_rights(connection, ours))
    yield from denied
    if known["log_bin"] == ON and not denied:
        yield from replication.check_filters(connection)
    yield from replication.check_replication(connection, known)
    yield from binlog.check_retention(flavour, known, copy_bytes)
    yield from binlog.check_durability(flavour, known)
    yield from replication.check_prepared(connection)
