"""The lake: what is mirrored, in open tables, with marks that say which of their versions belong together.

    read/  retain/   reading at a mark or between two · what is kept, put together, deleted
    log/             tables, plans carried out, marks: the writer's half, and what a power cut tears of it
    format/          names on disk, schemas, files: the shapes of all that is kept
    store/           bytes under keys, on a directory or a bucket

Each knows those below it. Writing is for the one owner of a source: the pipeline makes data files (on
executors, through `format.datafile`) and plans, and `log.commit` carries them out. Reading is for everybody,
at any time, without a lock and without the source's password: what a mark names is never changed, only added
to.

The room promises that a mark, once published, is exact and whole, on whatever kind of store and after
whatever crash; its tests try every order of steps. It knows no source and no Spark: positions are text
and a number here, a DataFrame is made by the session that is handed in. It never decides what an epoch
holds or when to retry, and never puts a row's value into an error.
"""
