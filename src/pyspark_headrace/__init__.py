"""Spark's door to Headrace: `format("headrace")` without a `register` call.

Spark looks through all importable top-level modules named `pyspark_*` for a class `DefaultSource` and
registers it under its name. It does so in every session of everybody who has Headrace installed, also of
those who never use it. So this module imports nothing; the class is made when it is asked for, of what Spark
has loaded by then, and `headrace.spark.source` is loaded by the first `load()` of the format.

    import pyspark_headrace      nothing else
    DefaultSource                a class that has a name
    .load()                      headrace.spark.source: options, schema, readers
"""


def __getattr__(name: str) -> object:
    if name != "DefaultSource":
        raise AttributeError(f"module 'pyspark_headrace' has no attribute {name!r}")
    return _define()


def _define() -> type:
    """Define the class that Spark looks for, once, as a member of this module: Spark pickles it by name."""
    try:
        from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
    except ImportError:
        from headrace.spark.session import require_pyspark

        require_pyspark()
        raise

    class DefaultSource(DataSource):
        """A lake of Headrace: see `headrace.spark.source`."""

        @classmethod
        def name(cls) -> str:
            return "headrace"

        def schema(self):  # type: ignore[no-untyped-def]
            from headrace.spark.source import load

            self.plan = load.plan(self.options)
            return load.schema(self.plan)

        def reader(self, schema) -> DataSourceReader:  # type: ignore[no-untyped-def]
            from headrace.spark.source import load

            return load.reader(vars(self).get("plan"))

        def streamReader(self, schema) -> DataSourceStreamReader:  # type: ignore[no-untyped-def]
            from headrace.spark.source import load

            return load.stream_reader(vars(self).get("plan"))

    DefaultSource.__qualname__ = "DefaultSource"
    globals()["DefaultSource"] = DefaultSource
    return DefaultSource
