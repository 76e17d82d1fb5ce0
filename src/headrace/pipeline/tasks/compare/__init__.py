"""Two contents of one table, compared by tasks.

    checksums     rows in buckets, summed: where two sides differ, for both of the others
    differences   two sets of files of the lake: which rows differ, and the events that say so; for a resync
    proofs        rows of the source or of the lake, as checksums or as they are; for verify

Nothing here knows what the answer is good for: see `headrace.pipeline.resync` and `headrace.pipeline.verify`.
"""
