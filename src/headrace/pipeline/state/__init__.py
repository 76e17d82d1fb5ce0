"""The state of a source in the lake, and who may change it: the only room that commits.

    ledger        all that the lake knows of a source; publishes an epoch, acknowledges its mark
    epoch         the changes of an epoch, the steps of its plan, and room behind its mark
    live_tables   the source's Delta tables, and the facts about their files
    records       the catalog's records of a source, its tables, and the kept stream of those being copied
    table_state   the life of a table
    owner         who has a source's fence, and the context of its run: lake, spool, who does the work
    ownership     whether an owner is alive; takes back epochs that a power cut has torn
    config        the user's configuration; environment: variables that give its keys
    last_config   the part of it that a lake remembers, and what becomes of a copied lake
    choice        which tables of a source are mirrored
    schema_check  compares tables with their records before a mark; the way back
    policy        the reaction to each family of errors; the only place where reactions live
    table_epochs  the epochs in which tables arrive in the marks, or stop

Only the owner of the fence changes a source, and only one of its threads at a time.
"""
