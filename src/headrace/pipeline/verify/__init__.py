"""The proof that source and lake agree, while both go on.

    proof        the comparison of a source with its lake: a snapshot there, a mark here
    sides        both sides of one table, each reduced to sums
    waiting      waits for a mark that holds all that the snapshot shows
    drill_down   the rows behind sums that differ
    verdicts     what was found, as values

Nothing is locked but what a reader locks, and nothing is written but the request for a mark.
"""
