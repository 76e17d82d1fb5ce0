"""DDL beneath a queue: its rows are texts, so we must find out under which columns each was written.

schema_check  do tables and triggers match their records?
following     tables with other columns, and their older rows
column_times  the ticks between which columns came and went

The queue brings no DDL, so a look at the catalog is compared with the last one.
"""
