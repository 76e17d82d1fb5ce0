"""The catalog of MySQL and MariaDB: information_schema, as far as a mirror depends on it.

column_row    one column as the server describes it
types         from that to a column of the lake, and how a copy selects it
"""
