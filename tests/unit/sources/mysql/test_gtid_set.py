"""GTID sets: MySQL's spelling, read and printed."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.core.errors import Misconfigured
from headrace.sources.mysql.gtid_set import Gtid, GtidOrigin, GtidSet

ONE = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
TWO = "ed102faf-eb00-11eb-8f20-0c5415bfaa1d"


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"{ONE}:7",
        f"{ONE}:1-5:7",
        f"{ONE}:audit:1-3",
        f"{ONE}:1-3:audit:1-2:5:batch_2:1",
        f"{ONE}:1-3,{TWO}:2-9223372036854775806",
    ],
)
def test_the_servers_spelling_is_printed_as_it_was_read(text: str) -> None:
    assert str(GtidSet.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        (f"{ONE.upper()}:1-5", f"{ONE}:1-5"),
        (f" {TWO}:1,\n{ONE}:1-2", f"{ONE}:1-2,{TWO}:1"),
        (f"{ONE}:3-4:1-2:9:7-8", f"{ONE}:1-4:7-9"),
        (f"{ONE}:1-10:4", f"{ONE}:1-10"),
        (f"{ONE}:AUDIT:2,{ONE}:audit:1", f"{ONE}:audit:1-2"),
    ],
)
def test_other_spellings_have_one_canonical_form(text: str, canonical: str) -> None:
    assert str(GtidSet.parse(text)) == canonical


@pytest.mark.parametrize(
    "text",
    [
        "7",
        ONE,
        f"{ONE}:",
        f"{ONE}:0",
        f"{ONE}:5-3",
        f"{ONE}:1-",
        f"{ONE}:audit",
        f"{ONE}:1:audit",
        f"{ONE}:audit:batch:1",
        f"{ONE}:9audit:1",
        f"{ONE}x:1",
        "0-1-100",
    ],
)
def test_what_no_server_prints_is_refused(text: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        GtidSet.parse(text)
    assert caught.value.code == "POSITION_MALFORMED"


def test_a_gap_is_no_part_of_the_set() -> None:
    held = GtidSet.parse(f"{ONE}:1-5:7")
    assert Gtid(GtidOrigin(ONE), 5) in held
    assert Gtid(GtidOrigin(ONE), 6) not in held
    assert Gtid(GtidOrigin(ONE), 7) in held
    assert not GtidSet.parse(f"{ONE}:5-7") <= held
    assert held <= GtidSet.parse(f"{ONE}:1-7")


def test_a_tag_and_its_server_are_different_origins() -> None:
    assert Gtid.parse(f"{ONE}:audit:1") not in GtidSet.parse(f"{ONE}:1")


def test_two_histories_may_hold_neither_the_other() -> None:
    one, two = GtidSet.parse(f"{ONE}:1-5"), GtidSet.parse(f"{TWO}:1-5")
    assert not one <= two
    assert not two <= one
    assert one | two == GtidSet.parse(f"{ONE}:1-5,{TWO}:1-5")


def test_a_single_gtid_is_read_and_printed() -> None:
    assert str(Gtid.parse(f"{ONE}:audit:7")) == f"{ONE}:audit:7"
    with pytest.raises(Misconfigured):
        Gtid.parse(f"{ONE}:7-8")


def test_a_set_masks_what_it_names_and_not_its_gaps() -> None:
    executed = GtidSet.parse(f"{ONE}:1-2:4:audit:1")
    names = [f"{ONE}:{n}" for n in (1, 2, 3, 4, 5)] + [f"{ONE}:audit:1", f"{ONE}:audit:2", f"{TWO}:1"]
    parsed = [Gtid.parse(name) for name in names]
    wanted = [True, True, False, True, False, True, False, False]
    assert executed.mask(pa.array(names)).to_pylist() == wanted == [name in executed for name in parsed]
    assert GtidSet().mask(pa.array(names)).to_pylist() == [False] * 8
    assert executed.mask(pa.array([], pa.string())).to_pylist() == []


@pytest.mark.parametrize("name", [None, "", "17", ":5"])
def test_a_transaction_without_a_gtid_is_refused(name: str | None) -> None:
    with pytest.raises(ValueError, match="without a GTID"):
        GtidSet.parse(f"{ONE}:1-2").mask(pa.array([f"{ONE}:1", name]))
