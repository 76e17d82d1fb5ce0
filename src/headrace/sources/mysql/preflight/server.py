"""Preflight of the server: its release, its settings, and our privileges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headrace.core.errors import Misconfigured
from headrace.sources.contract.findings import Finding, Level
from headrace.sources.mysql.flavour import Flavour, Number, Release
from headrace.sources.mysql.preflight import binlog, replication
from headrace.sources.mysql.preflight.grants import Rights, check_replication_rights
from headrace.sources.mysql.preflight.variables import ON, variables
from headrace.sources.mysql.session.statements import MysqlConnection

# The oldest tested releases. The logs of older ones were never tested.
OLDEST: Mapping[Flavour, Number] = {Flavour.MYSQL: Number(9, 7), Flavour.MARIADB: Number(10, 11)}
NEWEST: Mapping[Flavour, Number] = {Flavour.MYSQL: Number(9, 7), Flavour.MARIADB: Number(10, 11)}


def as_integer(number: Number) -> int:
    """A release's number as one integer, as in MySQL: 9.7.4 is 90704."""
    return number.major * 10000 + number.minor * 100 + number.patch


def check_version(release: Release) -> Iterator[Finding]:
    """Check that this release can be mirrored."""
    label, number = release.flavour.label, release.number
    oldest, newest = OLDEST[release.flavour], NEWEST[release.flavour]
    if number < oldest:
        yield Finding(
            Level.ERROR,
            Misconfigured(
                "MY_VERSION_UNSUPPORTED",
                f"the server is {label} {number}, the oldest supported is {oldest.major}.{oldest.minor}",
                hint=f"upgrade the server to {label} {oldest.major}.{oldest.minor} or later, or give the "
                "address of a replica that is",
            ),
        )
    if (number.major, number.minor) > (newest.major, newest.minor):
        yield Finding(
            Level.WARNING,
            Misconfigured(
                "MY_VERSION_NEW",
                f"the server is {label} {number}, the newest that was tried is {newest.major}.{newest.minor}",
                hint="watch the first run, and see whether a newer headrace knows this version",
            ),
        )


def logs_generated(release: Release) -> bool:
    """Tell whether row images have generated columns: those of MariaDB 10.11 do, those of 11.8 do not."""
    return not release.at_least(mariadb=Number(11))


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
