"""The shapes of all that a lake keeps.

    layout      names on disk
    schemas     between Arrow, Delta and Spark
    datafile    Parquet files: written once, described for Delta's log
    column_chunks  files made of the column chunks of others, under other columns
    thrift      the encoding of a Parquet file's footer
    statistics  bounds that let readers skip files, never wrongly
    vector      deletion vectors: the rows of a file that are deleted
    roaring     their encoding, roaring bitmaps
    plan        what an epoch will do, as it is written down before it is done
    delta_line  a line of a Delta log, written by hand
    formatfile  what makes a directory a lake; placefile: where it lies, and whether it is a copy
    status      how a source is doing, as values
    statusfile  what the owner of a source last said
    prooffile   how each table came out of its last verify
    exportfile  where marks are exported to, and which versions that pins
    mark_log    the number of a source's newest mark, without Arrow
    requests    what is asked of that owner, and its answers
    registry    what was registered by SQL

Nothing here commits, and nothing here knows what a mark is.
"""
