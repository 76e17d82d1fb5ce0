"""SQL over a lake: any query of Spark's at one cut, and the statements that register sources and views.

    tokens       text to tokens, each with its place
    statements   which statement is meant: ours, parsed here, or a query for Spark
    relations    the tables that a query names, and the query with Spark's names put in
    definitions  the view that CREATE VIEWS makes of a table: casts over the source's rows
    rawrows      a source as a relation: one array of text per row, as the source prints it
    session      one lake, one Spark: runs a statement and returns rows
    register     what our own statements do

It stands above `pipeline`, whose records it reads and whose `drop` it calls, and below nothing but the
command line. A query never changes anything; our own statements change the registry of the lake and, for DROP
SOURCE, what was made upstream. Spark sees names of its own for tables, made here, so that `schema.table` and
`source.schema.table` mean the lake's whatever else a session holds.
"""
