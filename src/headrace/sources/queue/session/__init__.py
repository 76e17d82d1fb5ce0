"""session: what is a queue's own about a connection; all else is PostgreSQL's.

address    a PostgreSQL's, whose scheme says that it is mirrored by triggers
identity   the proof that two connections reached the same system and database
"""
