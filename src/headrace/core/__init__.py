"""core: the algebra. What updates, times, snapshots and rows are, apart from any server, file or engine.

    names · schema · errors  the words: tables, columns, failures
    records                  the codec of what is written down: dataclasses as JSON holds them, and back
    position                 a place in a source's stream: our time for it, and the source's text
    handoff, chunks          which transactions of the stream a snapshot, or each range of one, already holds
    collection               updates `(row, time, diff)`; consolidate, negate, between
    difference, checksum     the updates from one contents to another; what two sides compare instead of rows
    transaction_id           by what names changes and history tell transactions apart
    change_batch             the batch in which changes travel from a decoder to the lake, and its rows
    keycode                  a tuple of values as one byte string: the identity of rows
    key_events               what a batch means for each key
    net_events               what is left of events that have no order within their time
    fold                     events onto rows: the end state and the exact history
    origins                  the key under which an epoch found a row that changes its key
    truncation               where a table was emptied, and which rows that took
    history                  the history of changes that carry whole old rows
    multiset                 the same for tables without a key
    conversion, evolve       rows under other columns: a pure function of the row, and whether there is one
    credential               the origin of a password that may change
    hashing                  keyed hashes in the place of values that must not leave
    durations                durations as people write them
    portions                 neighbours taken together, as many as a bound allows
    near                     names that are like one that nobody knows
    spark_types              Arrow types as Spark's SQL names them
    columns, row_groups      columns as numpy, rows that share a code
    reference/               contents and the rewind in whole tables, as the model writes them: for the laws

Everything above calls this room; it calls nobody. It promises to be pure: no I/O, no clock, no globals,
the same values from the same values, whichever process asks (`failpoint`, which tests stop and kill us
with, is the one exception). It works on whole columns: loops run over columns, or over rounds that halve
what is left, never over rows. Its laws stand in `docs/model.md` and, to be run, in `tests/laws/core/`.

It must never import anything but numpy, pyarrow and polars, decide what to do about an error, put a
value of a row into one, or take a time for a number where an order is enough.
"""
