"""`headrace verify`: what it is told, what it shows, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.cli import verify
from headrace.cli.main import main, parser
from headrace.core.errors import Misconfigured, Transient
from headrace.pipeline.verify.verdicts import Difference, TableVerdict, Verdict, objection

LOCKED = Transient("VERIFY_LOCKED", "somebody holds public.c exclusively", hint="verify it again")
CHANGED = Difference(
    "changed",
    {"id": "7", "day": "2016-11-04"},
    ("name", "odd name"),
    source={"id": "7", "name": "a\x1b[2J"},
    lake={"id": "7", "name": None},
)
TABLES = (
    TableVerdict("public.a", "equal", rows=1000, lake_rows=1000, buckets=4, epoch=7),
    TableVerdict(
        "public.b",
        "different",
        rows=10,
        lake_rows=12,
        texts=3,
        buckets=2,
        different_buckets=2,
        narrowed_buckets=1,
        differences=(
            CHANGED,
            Difference("extra", {}, copies=2),
            Difference("missing", {"id": "NULL"}, ("t",), raw=True),
        ),
        unlisted_rows=5,
        epoch=7,
    ),
    TableVerdict("public.c", "not compared", error=LOCKED),
)


def _verdict(*tables: TableVerdict) -> Verdict:
    return Verdict("main", "752:760:755", "0/1A2B3C8", 1.25, tables)


def test_the_page_names_what_differs_and_bears_any_text() -> None:
    page = "\n".join(verify.page(_verdict(*TABLES)))
    assert page.isprintable() or set(page) - set("\n") == {c for c in page if c.isprintable()}
    assert page.splitlines() == [
        'main: compared at position "0/1A2B3C8", snapshot 752:760:755, 1.2 s',
        "  public.a: equal (1,000 rows; 4 checksums; epoch 7)",
        "  public.b: different "
        "(10 rows at the source, 12 in the lake, 3 texts of errors/; 2 checksums; epoch 7)",
        '    changed: id=7 day=2016-11-04, column name, "odd name"',
        '      source  id=7 name="a\\u001b[2J"',
        "      lake    id=7 name=NULL",
        "    only in the lake: a row without a key, 2 copies",
        '    missing in the lake: id="NULL", in errors/, column t',
        "    and 5 more",
        "    1 more of 2 checksums differ and were not looked into",
        "  public.c: not compared",
        "    VERIFY_LOCKED: somebody holds public.c exclusively",
        "    hint: verify it again",
    ]


def test_a_record_says_the_same_to_a_program() -> None:
    record = json.loads(json.dumps(_verdict(*TABLES).to_json()))
    assert list(record["tables"]) == ["public.a", "public.b", "public.c"]
    changed, extra, _ = record["tables"]["public.b"]["differences"]
    assert (changed["kind"], changed["key"]["id"], changed["lake"]["name"]) == ("changed", "7", None)
    assert "source" not in extra
    assert record["tables"]["public.c"]["error"]["code"] == "VERIFY_LOCKED"


def test_only_a_proof_is_a_success() -> None:
    equal, different, left_out = TABLES
    assert objection([_verdict(equal)]) is None
    for tables, code, family in (
        ((equal, different, left_out), "VERIFY_DIFFERENT", "definite"),
        ((equal, left_out), "VERIFY_INCOMPLETE", "misconfigured"),
    ):
        said = objection([_verdict(equal), _verdict(*tables)])
        assert said is not None
        assert (said.code, said.family) == (code, family)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], "RUN_INCOMPLETE"),
        (["--lake", "x", "--config", "y.toml"], "RUN_TWO_CONFIGURATIONS"),
        (["host=a", "--config", "y.toml"], "RUN_TWO_CONFIGURATIONS"),
        (["--config", "/nowhere/y.toml"], "CONFIG_UNREADABLE"),
        (["--lake", "/nowhere"], "LAKE_ABSENT"),
    ],
)
def test_what_does_not_say_what_to_verify_is_refused(arguments: list[str], code: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        verify.parse_config(parser().parse_args(["verify", *arguments]))
    assert caught.value.code == code


@pytest.mark.parametrize("wait", ["-1", "nan", "inf", "soon", ""])
def test_a_wait_that_is_no_time_is_refused(
    wait: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["verify", "--lake", str(tmp_path), "--wait", wait])
    assert ended.value.code == 2
    assert "--wait" in capsys.readouterr().err
