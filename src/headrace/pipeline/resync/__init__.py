"""A new copy in place of an old table, with the difference in its history.

    new_copy      the work of each turn of the loop on new copies
    replacement   the new copy and its epoch: the difference, in one mark
    comparison    finds the ranges of keys in which the two contents differ, beside the loop

The copy itself is made like any other (`headrace.pipeline.copy`). Nothing here commits.
"""
