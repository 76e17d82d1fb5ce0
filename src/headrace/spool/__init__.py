"""The spool: the part of the stream that the lake does not hold yet, on the driver's disk.

    receiver process                       driver
    ────────────────                       ──────
    SpoolWriter.append(bytes)   ──►  segments of raw bytes   ──►  SpoolReader.read(start, stop)
    SpoolWriter.commit(...)     ──►  index of transactions   ──►  SpoolReader.transactions(after)
    SpoolWriter.full            ◄──  whole segments deleted  ◄──  SpoolReader.discard(before)

The room knows no source: it keeps bytes, and for each committed transaction the place of its bytes, its
time, and how far the stream is complete (the frontier, exclusive). `ingest.worker` joins a source's
stream to it.

It promises that a reader gets exactly the appended bytes: every block of bytes and every record of the index
has a checksum, and records are numbered without a gap. A mismatch is `SPOOL_DAMAGED`, a transient error,
because the server still has all the bytes. The spool is a *cache*: nothing is acknowledged before it is in
the lake, so nothing here is ever fsynced, and all of it may be erased whenever no process uses it.

It must never interpret a row, never hold memory that grows with its contents, and never delete bytes
that the driver did not give up.

    layout    the files of the folder, their records and checksums; `erase`
    private   a folder for it in a place that all users of a machine share
    process   does the process that a record names still live?
    writer    the one process that appends
    places    positions of the stream, for sources where only the stream knows them
    cut_places  the places at which the stream may be cut
    segment   one segment as it is read, verified
    running_files the files of transactions that are streamed while they run
    reader    the one process that reads and discards; `prepare` decides whether an old spool goes on
"""
