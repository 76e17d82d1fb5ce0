"""DDL beneath a queue: its rows are texts, so a look has to tell under which columns each was written.

schema_check  whether tables and triggers are what was recorded of them
following     what becomes of tables whose columns are others
column_times  between which ticks columns came and went
emptiness     which partitions that were attached brought no row
"""
