"""Spark's door to Headrace: `format("headrace")` without a `register` call.

Spark looks through all importable top-level modules named `pyspark_*` for a class `DefaultSource` and
registers it under its name. This module exists for that search alone and will hand out the data source
of `headrace.spark`; until there is one it defines nothing, and Spark passes it by.

It must stay cheap and safe to import: Spark imports it in every session of every user who has
Headrace installed, also of those who never use it.
"""
