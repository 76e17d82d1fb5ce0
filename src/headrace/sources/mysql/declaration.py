"""MySQL and MariaDB as they introduce themselves (`sources.contract.values`): two kinds, of one folder.

The address says which of the two a server is, since a lake's records do: its positions are spelled otherwise.
"""

from __future__ import annotations

from headrace.sources.contract.values import Declaration
from headrace.sources.mysql.options import HANDOFF, UNLOGGED_CASCADES

_PASSWORD = "MYSQL_PWD, or defaults-file=... in it"
_OPTIONS = (HANDOFF, UNLOGGED_CASCADES)

MYSQL = Declaration("mysql", "MySQL", schemes=("mysql",), password=_PASSWORD, options=_OPTIONS)
MARIADB = Declaration("mariadb", "MariaDB", schemes=("mariadb",), password=_PASSWORD, options=_OPTIONS)
DECLARATION = MYSQL
