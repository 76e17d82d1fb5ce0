"""The lake: what is mirrored, in open tables, with marks that say which of their versions belong together.

    store · s3store     bytes under keys, on a directory or a bucket; put-if-absent
    layout · schemas    names on disk, and schemas between Arrow, Delta and Spark
    statistics          bounds that let readers skip files, never wrongly
    datafile            Parquet files: written once, described for Delta's log
    table               one Delta table by delta-rs: one commit at one version
    plan                what an epoch will do, written down before it is done
    commit              plan → tables → mark, whoever dies; the fence; takeover and withdrawal
    marks · seek        the published cuts, and which place among them somebody means
    catalog             what is known of a source: the fold of its plans
    formatfile          what makes a directory a lake
    history · errors_table · requests · statusfile    the shapes of what else is kept
    cut · reader        reading at a mark or between two, in any engine: `headrace.Lake`
    standing · travel   which mark a table is read from there, and what history adds to it
    histories · changing   the updates between two times
    keeping · compaction · markfiles     which marks stay, which files are put together
    reach · sweeping    how far back history is whole; deleting what nobody needs
    frames · pruning    files as DataFrames, and those that Spark skips by Delta's statistics

Writing is for the one owner of a source: the pipeline makes data files (on executors, through `datafile`)
and plans, and `commit.EpochLog` carries them out. Reading is for everybody, at any time, without a lock
and without the source's password: what a mark names is never changed, only added to.

The room promises that a mark, once published, is exact and whole, on whatever kind of store and after
whatever crash; its tests try every order of steps. It knows no source and no Spark: positions are text
and a number here, a DataFrame is made by the session that is handed in. It never decides what an epoch
holds or when to retry, and never puts a row's value into an error.
"""
