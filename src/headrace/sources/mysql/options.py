"""The options that a mirror of MySQL or MariaDB has beside those of every source.

`unlogged_cascades` is the one way to mirror what we cannot see to be exact: a table that has a foreign key by
whose rule the server changes or removes its rows, and writes nothing of it into its log. Whoever accepts that
answers for it that the application never changes a row to which such a rule applies.
"""

from __future__ import annotations

from headrace.sources.contract.declaration import Option

REFUSE, ACCEPT = "refuse", "accept"
UNLOGGED_CASCADES = Option(
    "unlogged_cascades",
    "tables whose foreign keys change rows without a word in the log; accept: no such change ever happens",
    default=REFUSE,
    choices=(REFUSE, ACCEPT),
)
