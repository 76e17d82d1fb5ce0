"""Three tables: one that gets a column, one whose column is renamed, and one beside them."""

from __future__ import annotations

TABLES = (
    "CREATE TABLE a (id int PRIMARY KEY, s text);"
    "CREATE TABLE t (id int PRIMARY KEY, n0 int);"
    "CREATE TABLE other (id int PRIMARY KEY);"
    "INSERT INTO a SELECT i, 'row' FROM generate_series(1, 50) i;"
    "INSERT INTO t SELECT i, i FROM generate_series(1, 50) i;"
)
