"""Retention: the marks, the history and the files that stay in a lake, and for how long.

thinning    which marks stay
mark_files  the files of a marks table, put in order
compaction  which small files are put together
sweep       deleting what nobody needs: neither the newest version nor a mark that a reader may have open
"""
