"""The copy of tables that wait for it, beside the stream.

    scheduler      the running copies, and the connections that they share
    snapshot       one snapshot of the source, held open and read in parallel
    by_chunks      key ranges, each under a short snapshot of its own
    from_lake      tables whose columns changed, rewritten from the rows in the lake
    context        the inputs that all copies need, their threads, and the events that they bring
    copied_parts   finished parts of copies, made into one epoch

The loop takes finished parts and publishes them. Nothing here commits.
"""
