"""Fetch MySQL and MariaDB into the cache before tests ask for them: `python -m headrace_testing.mysql`."""

from __future__ import annotations

import sys

from headrace.core.errors import HeadraceError
from headrace_testing.cache import announce
from headrace_testing.mysql.flavours import MARIADB, MYSQL
from headrace_testing.mysql.programs import locate


def main() -> int:
    """Both of them; 1 if one cannot be had."""
    try:
        for flavour in (MYSQL, MARIADB):
            locate(flavour)
    except HeadraceError as error:
        announce(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
