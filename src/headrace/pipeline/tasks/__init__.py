"""The tasks on executors, and in the driver for an epoch that is tiny: a pickled value in, a value out.

    table_task       the values that travel between the driver and its tasks
    slices           slices of the stream: what a task decodes, wherever the bytes lie
    decode           a slice becomes the events of groups of keys
    partition        which task gets which events
    routing          which files of a table a key can lie in
    merge            the rows of a group into files, by one of
    merge_keyed      the events of a group, folded into its file
    merge_vectors    the events of a whole table, whose files get deletion vectors
    merge_choice     for each file, a vector or a rewrite
    row_cache        where a key is: the rows of files on the local disk
    merge_keyless    the same for a table without a key, by counting
    merge_truncated  rows that a truncation takes
    runs             a large transaction, sorted ahead of its commit; then its runs merged
    copy             pieces of a table at the source become files
    convert          files of the lake become files under other columns
    source_access    how a task reaches the source
    compact          small files put together
    files            how a task writes files, and reads them again
    raw_values       values without a lake form, whose text follows their row
    key_text         a row's key as text
    compare/         two contents of one table

Nothing here commits, and nothing here knows the records of a source (`headrace.pipeline.state`): tasks run
where these are not. Rows travel as opaque bytes between these functions, never through Spark's JVM as rows.
"""
