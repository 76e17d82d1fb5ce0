"""The key of hashes (`core.hashing`), from a variable of the environment and from nowhere else.

The driver reads it. It reaches the receiver in its orders, by its standard input, and a task sealed, as a
password does. No file, no option and no record has it: a lake holds its fingerprint.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from headrace.core.errors import Misconfigured
from headrace.core.hashing import LEAST_CHARACTERS, HashKey
from headrace.sources.contract.column_rules import ColumnRules
from headrace.sources.contract.findings import Finding, Level

VARIABLE = "HEADRACE_HASH_KEY"
_MAKE = f'make one, export {VARIABLE}="$(openssl rand -hex 32)", and keep it where passwords are kept'


def hash_key(rules: ColumnRules, environment: Mapping[str, str] | None = None) -> HashKey | None:
    """The key that these rules need; None if they hash nothing.

    Raises if it is missing or too short, or if the lake's hashes were made with another one.
    """
    if not rules.has_hashes:
        return None
    text = (os.environ if environment is None else environment).get(VARIABLE, "")
    if not text:
        raise Misconfigured(
            "COLUMNS_HASH_KEY_MISSING",
            f"a rule of columns hashes values, and {VARIABLE} is not set",
            detail="without a key, whoever tries all values out would find those of the hashes",
            hint=_MAKE,
        )
    if len(text) < LEAST_CHARACTERS:
        raise Misconfigured(
            "COLUMNS_HASH_KEY_SHORT",
            f"the key in {VARIABLE} is too short",
            detail=f"it has {len(text)} characters, and needs {LEAST_CHARACTERS}",
            hint=_MAKE,
        )
    key = HashKey(text)
    rules.with_key(key.fingerprint)
    return key


def check_hash_key(rules: ColumnRules) -> list[Finding]:
    """The error of a key that these rules need and that is not there."""
    try:
        hash_key(rules)
    except Misconfigured as error:
        return [Finding(Level.ERROR, error)]
    return []
