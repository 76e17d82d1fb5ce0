"""The stream of a MySQL or MariaDB server: from its binlog to whole transactions of the wanted tables.

events         one event of a binlog: its header, kind and checksum, and the parts that count
unpacking      events that came compressed
statements     what a statement does to tables; it is read here, and nowhere kept
frames         what is written to the spool
"""
