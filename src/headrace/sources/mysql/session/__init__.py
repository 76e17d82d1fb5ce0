"""session: how a connection to a MySQL or MariaDB server is made, pinned, proved, asked and bounded.

    address   where a server is and who we are there; alone it holds the password

All other rooms of this source stand on this one. Nothing here knows a table or a position.
"""
