"""SQL over a lake: any query of Spark's at one cut, and the statements that register sources and views.

    tokens       text to tokens, each with its place
    statements   which statement is meant: ours, parsed here, or a query for Spark
    relations    the tables that a query names, and the query with Spark's names put in
    rawrows      a source as a relation: one array of text per row, as the source prints it
    session      one lake, one Spark: runs a statement and returns rows
    register     carries out our own statements

It imports `pipeline`: it reads its records and calls its commands. Only the command line imports it. A query
never changes anything. Our own statements change the registry of the lake; DROP SOURCE also removes the
objects upstream. Each table gets a name of its own in Spark. So `schema.table` and `source.schema.table` mean
the lake's table, whatever else the session holds.
"""
