"""protocol: the walsender's protocol, as messages and as bytes on a connection.

    messages        the frames that we write and read, without a connection
    wire            bytes off a connection in large reads, and a few bytes back
    stream_errors   what ends a stream, or makes a slot unfit for one

Nothing here looks into a change: what is inside of a frame is `headrace.decode`'s to read.
"""
