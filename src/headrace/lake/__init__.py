"""The lake: the mirrored rows in open tables, with marks that name the versions which belong together.

    read/  retain/   reading at a mark or between two · keeping, compacting and deleting files
    log/             tables, plans, marks: the writer's half, and its repair after a power cut
    format/          names on disk, schemas, files: the shapes of all that is kept
    store/           bytes under keys, on a directory or a bucket

Each floor knows those below it. Only the owner of a source writes: the pipeline makes data files (on
executors, through `format.datafile`) and plans, and `log.commit` carries them out. Everybody may read, at any
time, without a lock and without the source's password: the versions that a mark names never change.

The room promises that a mark, once published, is exact and whole, on whatever kind of store and after
whatever crash; its tests try every order of steps. It knows no source and no Spark: positions are text
and a number here, a DataFrame is made by the session that is handed in. It never decides what an epoch
holds or when to retry, and never puts a row's value into an error.
"""
