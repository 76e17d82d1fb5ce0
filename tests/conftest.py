"""All tests share the seed, the markers that follow from fixtures, and the plugins. No fixtures of data.

The seed (HEADRACE_SEED, or 1) decides everything that is random in a run; it stands at the head of
every run and in every report. Hypothesis tries the same examples each time where no seed was asked for, so
that a commit is judged by its own doing; with a seed it explores, and prints how to repeat a failure.
"""

from __future__ import annotations

import gc
import os
from importlib.util import find_spec
from pathlib import Path

import hypothesis
import pytest

from tests import jvms

SEED_VARIABLE = "HEADRACE_SEED"
_SERVER_FIXTURES = frozenset({"postgres_server", "any_postgres", "mysql_server", "mariadb_server"})

pytest_plugins = [
    "tests.reporting",
    "tests.lakes",
    *(["headrace_testing.fixtures"] if find_spec("headrace_testing.fixtures") else []),
    *(["headrace_testing.mysql.fixtures"] if find_spec("pymysql") else []),
]

# A shared machine makes any single example slow now and then; slow tests have the session's timeout.
hypothesis.settings.register_profile(
    "headrace", deadline=None, print_blob=True, derandomize=SEED_VARIABLE not in os.environ
)
hypothesis.settings.load_profile("headrace")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--minutes", type=float, default=3, help="how long tests last that kill a run again and again"
    )


def pytest_configure() -> None:
    gc.disable()  # until pytest has its tests: garbage collection took a fifth of that time
    # Set, not only read: a test's child processes must see the same seed.
    os.environ.setdefault(SEED_VARIABLE, "1")
    # Spark's JVM is started once in a process, by whichever test comes first, and keeps its environment:
    # its workers must find the functions of tests.
    root = str(Path(__file__).resolve().parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    jvms.shorten()


def pytest_report_header() -> str:
    return f"seed: {os.environ[SEED_VARIABLE]} (repeat with {SEED_VARIABLE}={os.environ[SEED_VARIABLE]})"


@pytest.fixture(scope="session")
def seed() -> int:
    """The seed of this run; mix it with the test's own name where streams must differ."""
    return int(os.environ[SEED_VARIABLE])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that uses a server's fixture is a server test, whether or not its author said so."""
    for item in items:
        if _SERVER_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.server)


def pytest_collection_finish(session: pytest.Session) -> None:
    jvms.have_archive(session.items)
    # Modules and tests live to the end. The garbage collector spent a quarter of the unit tests' CPU on them.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)
    gc.enable()
