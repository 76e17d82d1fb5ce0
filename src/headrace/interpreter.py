"""The interpreter that Headrace needs: checked before anything else is imported.

`headrace/__init__.py` imports this module first, so that an older Python meets one clear line and not a
syntax error somewhere in our depths. Therefore it, and what is imported before it, must be readable
by any Python 3.6: `tests/meta/test_public_surface.py` parses them so.
"""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

OLDEST = (3, 11)


def refuse_old(version: "Sequence[int]") -> None:
    """End the program if `version` is older than what we are written for."""
    if tuple(version[:2]) < OLDEST:
        raise SystemExit(
            f"PYTHON_TOO_OLD: headrace needs Python {OLDEST[0]}.{OLDEST[1]} or later\n"
            f"detail: this is Python {version[0]}.{version[1]} ({sys.executable})\n"
            "hint: install headrace into an environment of a newer Python"
        )


refuse_old(sys.version_info[:2])
