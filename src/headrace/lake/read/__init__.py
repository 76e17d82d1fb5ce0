"""Reading a lake at a mark or between two, in any engine: `headrace.Lake`.

    lake       a lake, and who opens it
    catalogs   what was known of the tables at a mark, remembered
    positions  how a source spells its positions
    resolve    which place among the marks somebody means
    cut        the tables at that place
    intervals  which mark a table is read from there
    travel     what history adds to it
    changes    the updates between two times
    frames     files as DataFrames
    views      a cut's tables as statements of other engines
    pruning    the files that Spark skips by Delta's statistics

Nothing here writes.
"""
