"""Real MySQL and MariaDB servers for a test or a bench: `with mysql() as server: ...`, `with mariadb() ...`

    with mysql({"binlog_expire_logs_seconds": 60}) as server, server.database() as db:
        db.execute("CREATE TABLE t (id int PRIMARY KEY)", user="app")
        mirror(db.url(user="app"))
        server.crash()
        server.start()

The rooms, upper ones over lower ones:

    event_faults the events of a binlog, altered on their way through a proxy
    replica      a second server that replicates from a first one
    server       a server of one's own and its databases: connect, execute, crash, restart, set
    process      the process of one server, which is never left behind
    programs     where the programs and a data folder come from: the machine's cache
    debian       packages of a Debian suite, fetched and unpacked without installing anything
    maven        servers that a JAR of Maven Central packs
    flavours     what MySQL and MariaDB differ in, as data

`fixtures` is the pytest plugin that hands them out.

The programs are fetched once for a machine, when the first server is asked for. Nobody who asks for none ever
fetches any. What cannot be had is an error, `SERVER_MISSING`, and never a skipped test.
"""

from headrace_testing.mysql.programs import tool
from headrace_testing.mysql.replica import Replica, replica
from headrace_testing.mysql.server import Database, Server, mariadb, mysql

__all__ = ["Database", "Replica", "Server", "mariadb", "mysql", "replica", "tool"]
