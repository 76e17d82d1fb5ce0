"""protocol: the packets of a connection after its login, read by ourselves.

    result_set     the answer to a statement: columns, rows one by one or in blocks of their raw bytes
    packets        the socket: whole packets in, commands out, each wait with an end
    framing        where the packets of a buffer are; the kernels of this room
    server_error   a server's ERR packet, before anybody has judged it

`session` asks statements over it, a snapshot and a stream read what is large. It knows no statement.
"""
