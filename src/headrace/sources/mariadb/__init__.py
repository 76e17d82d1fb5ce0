"""MariaDB: the kind of source that `sources.mysql` implements for both servers, under its own name.

declaration, spelling, stream_source, source    what the registry asks of every folder
"""
