"""The script: the statements that mend the findings, in an order that works.

`headrace check --sql` prints it. The statements of a finding stay together and in order. Settings come before
privileges, and MySQL's settings for its next start come before the restart.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.sources.contract.findings import Finding


def script(findings: Iterable[Finding]) -> list[str]:
    """The statements of all findings, each once, in an order that works."""
    found = list(findings)
    now = [each for finding in found if not finding.restart for each in finding.mend]
    later = [each for finding in found if finding.restart for each in finding.mend]
    restart = ["-- restart the server"] if later else []
    then = [each for finding in found for each in finding.then]
    in_order = sorted(dict.fromkeys(now), key=lambda statement: statement.startswith("GRANT "))
    return [*in_order, *dict.fromkeys(later), *restart, *dict.fromkeys(then)]
