"""The writer's half of a lake: from a plan to commits and a mark, despite any crash.

table         one Delta table by delta-rs: one commit at one version
table_errors  the errors of a table
replay        the live files of a table with deletion vectors, by its log's own lines
commit        plan → tables → mark; the fence; takeover and withdrawal
marks         the published cuts
catalog       the records of a source: the fold of its plans
histories     the files that hold the updates between two times
errors_table  values without a lake form, and errors of whole tables
horizon       how far back history is whole
durable       makes epochs durable on the disk, and notes the last one
recovery      takes back epochs that a power cut has torn; foreign: the same for other programs' commits
log_lines     a table's log line by line, for logs with a torn line
unknown_moments        moments of the source's clock for which the lake has no answer
"""
