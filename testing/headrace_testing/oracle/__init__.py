"""The source's server as the judge of its mirror, and as the place where workloads write.

    contract        what tests may ask of any server: rows as text, a state with its position, writing
    registry        the oracle of an address, by its scheme; the only importer of those below
    postgres        PostgreSQL's answer
    postgres_rows   its rows as text, made by the server itself
    queue           the same where it is mirrored by triggers, told by ticks
    mysql           the answer of MySQL and MariaDB
    mysql_rows      their rows as text

`validators`, `workload`, `mirror_process`, `timeline` and `wholeness` know the contract and no server. A
further source is a module here, and its line in the registry.
"""
