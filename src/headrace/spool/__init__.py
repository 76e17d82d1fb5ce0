"""The spool: what the source has sent and the lake does not hold yet, on the driver's disk.

    receiver process                       driver
    ────────────────                       ──────
    SpoolWriter.append(bytes)   ──►  segments of raw bytes   ──►  SpoolReader.read(start, stop)
    SpoolWriter.commit(...)     ──►  index of transactions   ──►  SpoolReader.transactions(after)
    SpoolWriter.full            ◄──  whole segments deleted  ◄──  SpoolReader.discard(before)

The room knows no source: it keeps bytes, and of each committed transaction where its bytes lie, its
time, and how far the stream is complete (the frontier, exclusive). `pipeline.ingest.worker` puts the two
together.

It promises that what a reader gets is exactly what was appended: every block of bytes and every
record of the index carries a checksum, records are numbered without a gap, and what does not fit is
`SPOOL_DAMAGED`, a transient error, because the server still has it all. The spool is a *cache*: nothing
is acknowledged before it is in the lake, so nothing here is ever fsynced and all of it may be
erased whenever no process uses it.

It must never interpret a row, never hold memory that grows with its contents, and never delete bytes
that the driver did not give up.

    layout    the files of the folder, their records and checksums; `erase`
    private   a folder for it where all users of a machine share the place
    origin    whether what is there goes on to be used, asked before anything opens it
    writer    the one process that appends
    places    positions of the stream, where it alone knows them
    segment   one segment as it is read, verified
    running_files the files of transactions that are streamed while they run
    reader    the one process that reads and discards
"""
