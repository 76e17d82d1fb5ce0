"""Options of `format("headrace")`: what is wrong is refused with a code, before anything is read."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.core.errors import HeadraceError
from headrace.spark.source import load
from headrace.spark.source.options import ReadOptions, parse
from headrace.spark.source.planning import tasks
from tests.laws.lake.chronicle import AWKWARD, Chronicle, Transaction

DIRECT = {"url": "postgresql://app@h/d", "state": "./state", "tables": "public.*"}
NAMES = {"lake": "./lake", "table": "t"}


def code(given: dict[str, str]) -> str:
    with pytest.raises(HeadraceError) as raised:
        load.plan(given)
    assert raised.value.hint
    assert "canary" not in str(raised.value)
    return raised.value.code


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"lake": "./lake"}, "SPARK_OPTION_MISSING"),
        ({"table": "t"}, "SPARK_OPTION_MISSING"),
        ({**NAMES, "path": "./lake"}, "SPARK_OPTION_UNKNOWN"),
        ({**NAMES, "epoch": "new"}, "SPARK_OPTION_VALUE"),
        ({**NAMES, "metadata": "yes"}, "SPARK_OPTION_VALUE"),
        ({**NAMES, "columns": "a,,b"}, "SPARK_OPTION_VALUE"),
        ({**NAMES, "columns": ""}, "SPARK_OPTION_VALUE"),
        ({**NAMES, "password": "x"}, "SPARK_OPTION_SECRET"),
        ({**NAMES, "lake": "s3://key:secret@bucket/lake"}, "SPARK_OPTION_SECRET"),
        ({**NAMES, "lake": "s3://key:sec/ret@bucket/lake"}, "SPARK_OPTION_SECRET"),
        ({**NAMES, "fs.s3a.secret.key": "x"}, "SPARK_OPTION_SECRET"),
        ({**NAMES, "GOOGLE_SERVICE_ACCOUNT": "x"}, "SPARK_OPTION_SECRET"),
        ({**NAMES, "account_key": "x"}, "SPARK_OPTION_SECRET"),
        ({**NAMES, "lake": "/nowhere"}, "LAKE_ABSENT"),
        ({**NAMES, "state": "./state"}, "SPARK_OPTION_WAY"),
        ({**NAMES, **DIRECT}, "SPARK_OPTION_MIXED"),
        ({**DIRECT, "tables": " , "}, "SPARK_OPTION_MISSING"),
        ({**DIRECT, "state": ""}, "SPARK_OPTION_MISSING"),
        ({**DIRECT, "max_bytes": "1 GB"}, "SPARK_OPTION_VALUE"),
        ({**DIRECT, "url": "postgresql://app:canary@h/d"}, "SPARK_OPTION_SECRET"),
        ({**DIRECT, "url": "postgresql://app@h/d?password=canary"}, "SPARK_OPTION_SECRET"),
        ({**DIRECT, "url": "host=h password=canary"}, "SPARK_OPTION_SECRET"),
        ({**DIRECT, "url": "mysql://app:canary@h/d"}, "SPARK_OPTION_SECRET"),
        ({**DIRECT, "url": "mysql://app@h/d", "publication": "p"}, "SPARK_OPTION_UNKNOWN"),
        ({**DIRECT, "url": "odd://h/d"}, "SOURCE_UNKNOWN"),
    ],
)
def test_an_option_that_is_wrong_is_refused(given: dict[str, str], expected: str) -> None:
    assert code(given) == expected


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ({**NAMES, "epcoh": "2"}, "epoch"),
        ({**DIRECT, "max_byte": "1"}, "max_bytes"),
        ({**DIRECT, "Publicaton": "p"}, "publication"),
    ],
)
def test_options_near_to_an_unknown_one_are_named(given: dict[str, str], near: str) -> None:
    with pytest.raises(HeadraceError) as raised:
        load.plan(given)
    assert raised.value.code == "SPARK_OPTION_UNKNOWN"
    assert f'"{near}"' in (raised.value.detail or "")


def test_columns_are_parted_by_commas_outside_quotes() -> None:
    wishes = parse({**NAMES, "columns": 'id, "a, b" ,"say ""hi""",c d'})
    assert isinstance(wishes, ReadOptions)
    assert wishes.columns == ("id", "a, b", 'say "hi"', "c d")


@pytest.fixture
def chronicle(tmp_path: Path) -> Chronicle:
    made = Chronicle(str(tmp_path / "lake"))
    row = (1, *[None] * (len(AWKWARD) - 1))
    made.copy({"public.orders": [row]}, 1000)
    made.publish([Transaction(lsn, 1, {"public.orders": [(row, 1)]}) for lsn in (1010, 1020)])
    return made


def test_a_moment_or_a_table_that_cannot_be_read_is_refused(chronicle: Chronicle) -> None:
    here = {"lake": chronicle.path, "table": "orders"}
    assert code({**here, "epoch": "2", "position": "0/3F3"}) == "LAKE_AT_AMBIGUOUS"
    assert code({**here, "epoch": "9"}) == "LAKE_NO_MARK"
    assert code({**here, "source": "other"}) == "LAKE_SOURCE_UNKNOWN"
    assert code({**here, "timestamp": "yesterday"}) == "TIMESTAMP_MALFORMED"
    assert code({**here, "table": "order"}) == "LAKE_TABLE_UNKNOWN"
    assert code({**here, "table": "history.order"}) == "LAKE_TABLE_UNKNOWN"
    assert code({**here, "table": "errors.other"}) == "LAKE_TABLE_UNKNOWN"
    assert code({**here, "as": "changes", "after": "²"}) == "TIMESTAMP_MALFORMED"
    assert code({**here, "columns": "idd"}) == "LAKE_COLUMN_UNKNOWN"
    (Path(chronicle.path) / "_headrace" / "format.json").write_text('{"format": 99, "lake_id": "x"}')
    assert code(here) == "LAKE_TOO_NEW"


def test_between_two_marks_the_hint_is_the_call_that_reads_it(chronicle: Chronicle) -> None:
    with pytest.raises(HeadraceError) as raised:
        load.plan({"lake": chronicle.path, "table": "orders", "position": "0/3F3"})
    assert raised.value.code == "LAKE_READ_BETWEEN_MARKS"
    assert f"Lake({chronicle.path!r}).at(position='0/3F3').table(spark, 'orders')" in raised.value.hint


def test_a_plan_travels_and_holds_no_option(chronicle: Chronicle) -> None:
    plan = load.plan({"lake": chronicle.path, "table": "orders", "columns": "id", "metadata": "true"})
    there = pickle.loads(pickle.dumps(plan))
    assert there == plan
    rows = [batch.to_pylist() for files in tasks(there) for batch in there.read(files)]
    assert rows == [[{"id": 1, "_epoch": 3, "_position": "0/3FD"}] * 3]


_LOOK = """
import sys, time
before = set(sys.modules)
started = time.process_time()
import pyspark_headrace
took = time.process_time() - started
print(took / started, *(set(sys.modules) - before))
"""


def test_the_module_that_every_session_imports_costs_nothing() -> None:
    """Nothing, beside the start of the interpreter."""
    shares = []
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", _LOOK], capture_output=True, text=True, check=True)
        share, *modules = done.stdout.split()
        assert modules == ["pyspark_headrace"]
        shares.append(float(share))
    assert min(shares) <= 0.15


_OTHER_SPARK = """
import sys, types
sys.modules["pyspark"] = other = types.ModuleType("pyspark") if len(sys.argv) > 1 else None
if other:
    other.__version__ = sys.argv[1]  # from before there were data sources in Python
import pyspark_headrace
try:
    pyspark_headrace.DefaultSource
except Exception as error:
    print(error.code, error.hint)
"""


@pytest.mark.parametrize(
    ("version", "expected"), [((), "SPARK_MISSING"), (("3.5.8",), "SPARK_TOO_OLD")], ids=["none", "old"]
)
def test_without_a_pyspark_of_data_sources_the_hint_says_what_to_install(
    version: tuple[str, ...], expected: str
) -> None:
    command = [sys.executable, "-c", _OTHER_SPARK, *version]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{expected} pip install 'headrace[local]'")
