"""The requests of a mirror whose lake is in a bucket: for a mark, and for a minute in which nothing happens.

    python bench/bucket_requests.py [--tables N] [--marks N] [--minutes N]

The bucket is moto's server, in this process, which writes down what it is asked. A mark is of one transaction
that inserts a row into each of the tables, and nobody reads the lake meanwhile.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.request import Request, urlopen

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from headrace_testing.figures import keep
from headrace_testing.mirror_process import Mirrored
from headrace_testing.postgres import postgres

BUCKET = "lakes"
AT_ONCE = "0s"  # between two marks
SETTLED = 5.0  # seconds after a commit, in which its mark comes and the status is written


@contextmanager
def bucket(asked: list[str]) -> Iterator[dict[str, str]]:
    """A server with a bucket; how it is reached."""
    application = DomainDispatcherApplication(create_backend_app)

    def noting(environ: Any, start_response: Any) -> Any:
        path = environ["PATH_INFO"].removeprefix(f"/{BUCKET}").strip("/")
        method = "LIST" if not path and environ["REQUEST_METHOD"] == "GET" else environ["REQUEST_METHOD"]
        asked.append(f"{method} {path or environ['QUERY_STRING']}")
        return application(environ, start_response)

    server = make_server("127.0.0.1", 0, noting, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    with urlopen(Request(f"{address}/{BUCKET}", method="PUT")) as answer:
        assert answer.status == 200
    yield {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "bench",
        "AWS_SECRET_ACCESS_KEY": "bench",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    server.shutdown()
    thread.join()


def say(what: str, asked: list[str], of: float, bar: int) -> float:
    """Print the requests of a time, of so many marks or minutes; how many come to one."""
    found = Counter(each.split()[0] for each in asked)
    methods = ", ".join(f"{method} {count / of:.1f}" for method, count in sorted(found.items()))
    print(f"{what:16} {len(asked) / of:>6.1f} requests (bar {bar}): {methods}", flush=True)
    return len(asked) / of


def main() -> None:
    parser = argparse.ArgumentParser(description="requests of a mirror whose lake is in a bucket")
    parser.add_argument("--tables", type=int, default=3)
    parser.add_argument("--marks", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=6)
    parser.add_argument(
        "--list", action="store_true", help="print the requests of the last mark, and of the last minute"
    )
    args = parser.parse_args()
    asked: list[str] = []
    with bucket(asked) as options, postgres() as server, server.database() as database:
        os.environ |= options  # for `mirror.until_live`, and for the mirror itself
        tables = [f"t{number}" for number in range(args.tables)]
        for table in tables:
            database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, t text)", user="app")
        insert = "; ".join(
            f"INSERT INTO {table} SELECT coalesce(max(id), 0) + 1 FROM {table}" for table in tables
        )
        with Mirrored(
            f"s3://{BUCKET}/lake", database.url(user="app"), "public.*", options={"every": AT_ONCE}
        ) as mirror:
            mirror.until_live()
            for _ in range(3):  # what is made once is there by then
                database.execute(insert)
                time.sleep(SETTLED)
            before = len(asked)
            for _ in range(args.marks):
                last = len(asked)
                database.execute(insert)
                time.sleep(SETTLED)
            a_mark = say("a mark", asked[before:], args.marks, bar=10)
            if args.list:
                print("\n".join(asked[last:]))
            time.sleep(60)
            before = len(asked)
            for _ in range(round(args.minutes)):
                last = len(asked)
                time.sleep(60)
            a_minute = say("an idle minute", asked[before:], args.minutes, bar=4)
            if args.list:
                print("\n".join(asked[last:]))
    keep(requests_a_mark=a_mark, requests_an_idle_minute=a_minute)


if __name__ == "__main__":
    main()
