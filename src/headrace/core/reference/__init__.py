"""reference: the algebra in whole tables, as `docs/model.md` writes it, for tests only.

    contents   what the updates below a frontier add up to
    rewind     snapshot minus updates: contents where the stream starts; or skip what is held

The pipeline does the same piece by piece, file by file and key by key; the laws hold it against this. Nothing
outside of tests calls it.
"""
