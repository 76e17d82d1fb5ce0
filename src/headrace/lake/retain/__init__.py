"""Retention: the marks, the history and the files that stay in a lake, and for how long.

thinning    which marks stay
mark_files  the files of a marks table, put in order
compaction  which small files are put together
marks_there the marks that a reader may still have open
sweep       deleting what nobody needs
"""
