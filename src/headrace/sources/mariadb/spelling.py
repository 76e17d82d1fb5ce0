"""The spelling of MariaDB's positions."""

from headrace.sources.mysql.spelling import SPELLING

__all__ = ["SPELLING"]
