"""The kind as it introduces itself; loaded before anything else of it."""

from headrace.sources.contract.values import Declaration

DECLARATION = Declaration(
    kind="toy", title="a SQLite file with a change table", schemes=("toy",), password="it has none"
)
