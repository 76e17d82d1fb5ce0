"""Mirrors of MySQL and of MariaDB whose tables are altered, without Spark, on resident servers."""

from __future__ import annotations

from tests.integration.mysql.mirrors.conftest import (
    _in_process,
    database,
    mirror,
    mirrored,
    nursery,
)

__all__ = ["_in_process", "database", "mirror", "mirrored", "nursery"]
