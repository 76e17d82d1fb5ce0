"""A new copy in an old one's place, with history that says what differed.

    new_copy      what the loop does about new copies, once a turn
    replacement   the new copy and its epoch: the difference, in one mark
    comparison    in which ranges of keys the two contents differ, known beside the loop

The copy itself is made like any other (`headrace.pipeline.copy`). Nothing here commits.
"""
