"""Number of examples that costly laws try: few in every run, many in the full one.

`make integration` sets the variable. A law with slow or many examples asks this module; the others state
their own number. Without a seed of its own a run tries the same examples as the run before.
"""

from __future__ import annotations

import os

import hypothesis

VARIABLE = "HEADRACE_EXAMPLES"


def examples(number: int) -> hypothesis.settings:
    """The settings of a law that tries so many, or so many times that."""
    return hypothesis.settings(max_examples=number * int(os.environ.get(VARIABLE, "1")), deadline=None)
