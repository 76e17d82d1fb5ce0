"""mysql: the values of MySQL and MariaDB, from result sets and from the binlog, to Arrow.

    packets of rows ── result_rows ──────────────▶ texts ───┐
                                                            ├── forms ──▶ Arrow, and what is bad
    spooled frames ── framing, table_map, rows ──▶ images ──┘

    result_rows    the rows of a text result set
    framing        where each event of the spool is, and by which table map it is read
    table_map      how a table's rows are laid out in the binlog
    rows           the rows of events, as change batches
    forms          the table of forms: which decoder reads which form, from a result set and from the binlog;
                   also labels, addresses, vectors and compression
    numbers, times        families of values
    json_tree, doubles    JSON as MySQL stores it, printed
    charsets, single_byte, collations    texts that are not UTF-8

Both ways give the same bits for every value that a server accepts, whatever the settings of the session that
wrote it. What a type looks like on the wire is written in the module that reads it.
"""
