"""The writer's half of a lake: from a plan to commits and a mark, whoever dies.

table         one Delta table by delta-rs: one commit at one version
commit        plan → tables → mark; the fence; takeover and withdrawal
marks         the published cuts
catalog       what is known of a source: the fold of its plans
histories     which files hold the updates between two times
errors_table  values without a lake form, and errors of whole tables
horizon       how far back history is whole
syncing       from what the operating system holds to what the disk holds; durable: how far that is
recovery      what a power cut tears, and how it is taken back; foreign: what another program did there
log_lines     a table's log line by line, where one is torn
unknown_moments        moments of the source's clock of which the lake can't tell
"""
