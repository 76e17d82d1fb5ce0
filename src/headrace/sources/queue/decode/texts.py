"""Texts: whether values without a lake form are ones that the types of their columns print.

No event says under which definition its row was printed. A column that was given another type between two
looks, and its own one back, differs in nothing by the end if no row was written anew. The server does so for
types that have one form in its files, and these print what the column's own type never does:

    integers                      what is no number of theirs: under oid and its like
    bytea                         what is not in hexadecimal: under the server's types of statistics
    timestamp, and with a zone    one with UTC's zone, one without: under each other

What both types print alike is right.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.sources.postgres.catalog.table_def_record import types_of

_ENDLESS = r"-?infinity|"
# The texts without a lake form that a type prints, by its oid.
_WITHOUT_FORM = {
    **dict.fromkeys((17, 20, 21, 23), re.compile("(?!)")),
    1114: re.compile(_ENDLESS + r"[\d :.-]+( BC)?"),
    1184: re.compile(_ENDLESS + r"[\d :.-]+\+00( BC)?"),
}


def printed_otherwise(bad: pa.Table, details: Mapping[str, Any]) -> bool:
    """Tell whether one of these texts is of another type than its column has on record."""
    if not len(bad):
        return False
    known = enumerate(_WITHOUT_FORM.get(oid) for oid, _ in types_of(details))
    return any(
        printed.fullmatch(text) is None
        for number, printed in known
        if printed is not None
        for text in pc.unique(bad.filter(pc.equal(bad["column"], number))["raw"]).to_pylist()
    )
