"""Public tools for trying a pipeline against real servers: the room that breaks things on purpose.

Tests and `headrace demo` use it; nothing else of Headrace does. It is a distribution of its own, and promises

    postgres     a real PostgreSQL 15-18 of one's own, that can be crashed, restarted, reconfigured,
                 and that is never left running, whatever happens to the process that asked for it
    mysql        a real MySQL or MariaDB of one's own, likewise
    proxy        a TCP connection that can be cut, stalled, half-opened, delayed, throttled, refused, altered
    names        names of hosts that lead elsewhere while processes run
    nemesis      faults at seeded moments, with a log of what was done when
    workload     writers that run beside the mirror and remember what they committed
    validators   G1, G2 and G3 as functions from a lake (and a server) to a list of violations
    mirror_process
                 a `headrace run` as a process of its own, to be killed and started again
    fixtures     the pytest plugin that hands out servers and databases
    conformance  the behaviours that every source passes, as tests that a source of any package can run
    without_spark
                 mirrors whose jobs run in their own process

    cluster      a primary and a standby that takes over
    absent_standby
                 commits that hang, since they wait for a standby that never comes

    powercut     a disk that forgets what was not synced (`sync_journal`: a command line that it watches)
    memory       how much a process takes with all that it started
    stopwatch    how long something takes, whatever else the machine does
    costs        processor time and memory of a mirror, files and bytes of its lake
    figures      what a bench measured, kept for `python -m bench`
    iceberg_rest a server of Iceberg's REST catalog, over an SQLite catalog; and Apache Iceberg's own
    jars         connectors that other projects made for Spark
    trino        a Trino server that reads Delta tables in local folders
    regression   PostgreSQL's own regression suite as a database to be mirrored
    gcs          the part of Google Cloud Storage that a lake uses, with generations and signed tokens
    azurite      Azure's blob storage: Microsoft's emulator, from npm

Beside them stands `reference`: the slow, obvious twin of every decoder.

Behind the servers stand `binaries` (where PostgreSQL's programs come from) and `cache` (where programs stay),
`postmaster` (its process), `watchdog` and `ports`, `copies` (backups, standbys), `pgbench` and `tls`. Behind
the validators stand `canonical` (rows as text), `timeline` (a table through its marks), `wholeness` and
`violation`. They and the workloads know no server: what it holds and how it spells SQL is said by its
`oracle`.

There are no mocks of a database in here: the server is the oracle. A server that cannot be had is an error
with the code `SERVER_MISSING`, never a skipped test. Nothing here may be imported by the floors below.
"""

__version__ = "0.1.0"
