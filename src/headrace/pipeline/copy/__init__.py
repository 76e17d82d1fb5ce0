"""The copy of tables that wait for it, beside the stream.

    scheduler      the copies that are under way, and the connections that they share
    snapshot       one moment of the source, held open and read in parallel
    by_chunks      key ranges, each under a short snapshot of its own
    from_lake      tables whose columns changed, out of the rows that the lake has
    thread         a copy as a thread of the driver
    context        what both share: where from, where to, and what comes out
    copied_parts   what came out, made into one epoch

The loop takes what is finished and publishes it. Nothing here commits.
"""
