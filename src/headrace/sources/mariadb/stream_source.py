"""MariaDB's half of the contract that a receiver needs."""

from headrace.sources.mysql.stream_source import STREAM_SOURCE

__all__ = ["STREAM_SOURCE"]
