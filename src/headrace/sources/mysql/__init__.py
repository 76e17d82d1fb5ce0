"""MySQL and MariaDB by their binlogs.

    gtid_set           the transactions that a MySQL server has executed: a set of names, only partly ordered
    mariadb_position   the place that a MariaDB server has reached: the last transaction of each domain

Called by nobody above `sources` but through the contract; it knows no source beside it.
"""
