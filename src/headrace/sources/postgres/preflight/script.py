"""The script: the statements that mend the findings, in an order that works.

`headrace check --sql` prints it. A statement may need the effect of a statement of an earlier kind.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.sources.contract.findings import Finding

_ORDER = (
    "ALTER SYSTEM",
    "SELECT pg_reload_conf",
    "ALTER ROLE",
    "GRANT",
    "ALTER TABLE",
    "CREATE PUBLICATION",
    "ALTER PUBLICATION",
    "SELECT pg_create_logical_replication_slot",
)


def script(findings: Iterable[Finding]) -> list[str]:
    """The statements of all findings, each once, in an order that works."""
    found = list(findings)
    statements = sorted(dict.fromkeys(each for finding in found for each in finding.mend), key=_rank)
    after = len([each for each in statements if _rank(each) < 2])
    restart = ["-- restart the server"] if any(finding.restart for finding in found) else []
    then = dict.fromkeys(each for finding in found for each in finding.then)
    return [*statements[:after], *restart, *statements[after:], *then]


def _rank(statement: str) -> int:
    return next((number for number, kind in enumerate(_ORDER) if statement.startswith(kind)), len(_ORDER))
