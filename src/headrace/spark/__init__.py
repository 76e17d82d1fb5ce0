"""Spark: sessions, and jobs over opaque blobs. The only room that knows PySpark.

    java        a runtime that Spark starts on, from the machine or from pip; its archive of classes
    jvm         its process: started from an archive of classes, if there is one, with its output held back
    session     which Spark: the user's active one, a remote one, a cluster, else this machine's cores
    lazy        a session or a runner that is made when it is first needed
    jobs        one job for a batch of work: items in, results out, in order, errors as themselves
    worker      the code inside a Python worker, and for tiny epochs in the driver
    wire        rows between the two
    depot       payloads too large for that, through a store
    queries     a user's query: its rows, and Spark's refusals as our errors
    priority    tasks that leave the processors to others, and threads of libraries, which must not
    allocators  gives memory that a task freed back to the machine
    warmth      workers loaded before the first job and kept alive between jobs
    secrets     passwords on their way to tasks, so that nothing that Spark prints shows them
    paths       the proof that executors and driver see the same lake
    failures    the meaning of Spark's exceptions
    source      format("headrace"): a lake as a data source of somebody's Spark

`pipeline` calls `session`, `warmth` and `paths` once, and `jobs` for each epoch and each piece of a copy;
it hands in functions and bytes, and never meets a DataFrame. To Spark a payload is a binary: rows of
users' tables live in Arrow inside the blobs, in Parquet files and in Python, never in the JVM.

Promises: results do not depend on scheduling, retries or on whether Spark ran at all (`DriverRunner`);
a worker's memory does not grow with the amount of work; a borrowed session is as it was afterwards.
Must never: import PySpark at the top of a module (`headrace` must start, and say what to install, where
there is none; but for `source.readers`, which Spark imports itself), print or raise a row's value or a
secret, decide anything about epochs.

Import from the modules above; the room itself has no names.
"""
