"""The commands that whoever owns a source carries out, and those who ask for them.

    ask           the command's side: leave a request, or take the fence where nobody lives
    serve         the owner's side: one request after another, between two epochs
    add_drop      tables that come and go
    resync        tables that get a new copy
    capture       tables whose changes are captured at the source
    upkeep        when a run asks itself to maintain its lake
    iceberg       marks that are exported to Iceberg
    drop_source   what was made upstream, taken back

Everything is done through `headrace.pipeline.state.owner`, so that a run and a command do the same.
"""
