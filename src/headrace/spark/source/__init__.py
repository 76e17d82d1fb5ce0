"""`format("headrace")`: a lake as a data source of somebody's Spark.

    load         the door: options in, a plan, its schema and its readers out
    options      the options, parsed once; what is unknown or secret is refused
    planning     from options to a mark and a table of it, and to its files
    table_read   a table at a mark: what a plan carries, and what a task reads
    changes      a stream of changes: which mark is next, what a batch is made of, when it would not be whole
    change_rows  the rows of a batch, in the three forms: what a stream's plan carries, and what a task reads
    offsets      marks, as Spark's checkpoint keeps them
    direct       a stream straight from a source, without a lake
    types        schemas as Spark and its Arrow spell them
    readers      the classes that Spark calls

`pyspark_headrace` hands the source to Spark, which calls it in processes of its own:

    driver's Python worker     schema()       options ──▶ plan      (pickled, part of Spark's plan)
    driver's Python worker     partitions()   plan ──▶ files
    executors                  read()         file ──▶ Arrow batches

Promises: a plan reads one mark however often and wherever it runs; rows travel as Arrow batches alone; no
option, plan or error holds a secret; a lake is only read.
Must never: write into a lake, or be imported before somebody asks for the format. `readers` alone imports
PySpark at its top, since Spark itself imports it.
"""
