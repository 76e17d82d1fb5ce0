"""DDL beneath a queue: its rows are texts, so a look has to tell under which columns each was written.

schema_check  whether tables and triggers are what was recorded of them
following     what becomes of tables whose columns are others
column_times  between which ticks columns came and went

The server's stream tells nothing of it: a look at the catalog is compared with the last one.
"""
