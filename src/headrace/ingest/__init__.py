"""From the source's connection into the spool: a process of its own, and who watches over it.

    supervisor         the driver's end: starts the process, hears what it says, acknowledges through it
    worker             the process itself
    store_stream       what the source sends, into segments and their index of transactions
    replay_check       what the source sends again must be what it sent before
    last_commits       the newest commits, by which that is told

No row is interpreted here. The process starts with what it is handed, and reads no record of the lake.
"""
