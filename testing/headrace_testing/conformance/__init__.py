"""The behaviours that every source passes, as a list that a source of any package can run.

    place      what the list asks of a source: a place to write, the codes of its errors, what it lacks
    mirror     a mirror of a place without Spark, and the fixtures of the list
    rows       rows of every shape, by the copy and by the stream; `cases` has the shapes
    tables     tables that come late, are dropped, stop, change their shape, come back
    faults     kills at each durable step, a lost position, another server, a lost login
    proofs     verify, time travel, secrets

A test module imports these four with their fixtures, and has a fixture `source` that returns a
`SourceUnderTest` (docs/write-a-source.md):

    from headrace_testing.conformance.mirror import *
    from headrace_testing.conformance.rows import *
"""

import pytest

pytest.register_assert_rewrite(
    *(f"{__name__}.{part}" for part in ("mirror", "rows", "tables", "faults", "proofs"))
)
