"""MariaDB as it introduces itself (`sources.contract.values`)."""

from headrace.sources.mysql.declaration import MARIADB as DECLARATION

__all__ = ["DECLARATION"]
