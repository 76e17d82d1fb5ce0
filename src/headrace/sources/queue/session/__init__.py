"""session: the queue's own part of a connection; all else is PostgreSQL's.

address    a PostgreSQL address whose scheme says that the database is mirrored by triggers
identity   the proof that two connections reached the same system and database
"""
