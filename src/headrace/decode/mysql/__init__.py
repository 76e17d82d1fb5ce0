"""mysql: the values of MySQL and MariaDB, from result sets and from the binlog, to Arrow.

    packets of rows ── result_rows ──▶ texts ──────────┐
                                                       ├── forms ──▶ Arrow, and what is bad
    spooled frames ── table_map ─────▶ layouts

    result_rows    the rows of a text result set
    table_map      how a table's rows are laid out in the binlog
    forms          the table of forms: which decoder reads which, in both ways
    charsets, single_byte, collations    texts that are not UTF-8
    vectors        VECTOR

Both ways give the same bits for every value that a server accepts, whatever the settings of the session that
wrote it. What the numbers of a type mean on the wire is said where it is read.
"""
