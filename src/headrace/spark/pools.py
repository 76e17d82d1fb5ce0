"""The threads of the libraries that tasks use: made before any task steps back.

A thread inherits its maker's niceness, and keeps it. Libraries make theirs when they are first used, for as
long as the process lives: made by a thread that has stepped back, they would serve every later task of the
worker behind all others. So a worker has them made when it is warmed, or, where it came later (another one
died, an executor was added), before its first task in the background.
"""

from __future__ import annotations

from functools import cache


@cache
def raise_pools() -> None:
    """Have the libraries make their threads now; once a process."""
    import polars
    import pyarrow
    from pyarrow import parquet

    polars.DataFrame({"a": [1]}).lazy().sort("a").collect()
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table({f"c{number}": [number] for number in range(64)}), sink)
    parquet.read_table(pyarrow.BufferReader(sink.getvalue()))
