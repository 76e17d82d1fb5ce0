"""Number of examples that the costliest laws try: few in every run, many in the full one.

`make integration` sets the variable. A law whose examples are slow asks this module; the others state their
own number.
"""

from __future__ import annotations

import os

import hypothesis

VARIABLE = "HEADRACE_EXAMPLES"


def examples(number: int) -> hypothesis.settings:
    """The settings of a law that tries so many, or so many times that."""
    return hypothesis.settings(max_examples=number * int(os.environ.get(VARIABLE, "1")), deadline=None)
