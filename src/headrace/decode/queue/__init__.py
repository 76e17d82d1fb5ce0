"""queue: rows as PL/pgSQL writes them, whole, to the text columns that COPY would give.

texts of rows ── composite ──▶ text columns ──▶ values, as everybody's

framing     the frames of the stream: which tick an event is of, what it says, where its row's text is
composite   the texts of one table's rows, split into their fields
"""
