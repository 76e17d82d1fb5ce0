"""queue: whole rows, as PL/pgSQL writes them, to the text columns that COPY would give.

texts of rows ── composite ──▶ text columns ──▶ values, as for every source

framing     the frames of the stream: to which tick an event belongs, what it says, where its row's text is
composite   the texts of one table's rows, split into their fields
"""
