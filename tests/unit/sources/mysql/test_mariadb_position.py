"""MariaDB's positions: the server's spelling, and what it covers."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.core.errors import Misconfigured
from headrace.sources.mysql.mariadb_position import MariadbGtid, MariadbPosition


@pytest.mark.parametrize(
    "text", ["", "0-1-100", "0-1-100,7-2-5", "0-4294967295-1,4294967295-1-576460752303423487"]
)
def test_the_servers_spelling_is_printed_as_it_was_read(text: str) -> None:
    assert str(MariadbPosition.parse(text)) == text


def test_other_spellings_have_one_canonical_form() -> None:
    assert str(MariadbPosition.parse(" 7-2-5,\n0-1-100 ")) == "0-1-100,7-2-5"


@pytest.mark.parametrize(
    "text",
    [
        "7",
        "0-1",
        "0-1-",
        "0-1-0",
        "0-1-2-3",
        "0-1-100,0-2-101",
        "01-1-1",
        "4294967296-1-1",
        "0-4294967296-1",
        "0-1-9223372036854775808",
        "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5",
    ],
)
def test_what_no_server_prints_is_refused(text: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        MariadbPosition.parse(text)
    assert caught.value.code == "POSITION_MALFORMED"


def test_a_domain_is_covered_up_to_its_last_number_whichever_server_gave_the_others_out() -> None:
    position = MariadbPosition.parse("0-2-100,7-1-5")
    names = ["0-1-99", "0-2-100", "0-1-101", "7-9-1", "7-1-6", "3-1-1"]
    wanted = [True, True, False, True, False, False]
    assert position.mask(pa.array(names)).to_pylist() == wanted
    assert [MariadbGtid.parse(name) in position for name in names] == wanted
    assert MariadbPosition().mask(pa.array(names)).to_pylist() == [False] * 6
    assert position.mask(pa.array([], pa.string())).to_pylist() == []


@pytest.mark.parametrize("name", [None, "", "17", "0-1"])
def test_a_transaction_without_a_gtid_is_refused(name: str | None) -> None:
    with pytest.raises(ValueError, match="without a GTID"):
        MariadbPosition.parse("0-1-1").mask(pa.array(["0-1-1", name]))


def test_two_servers_that_gave_out_one_number_have_parted() -> None:
    one, other = MariadbPosition.parse("0-1-100"), MariadbPosition.parse("0-2-100")
    assert not one <= other
    assert not other <= one
    assert one.union(other) is None
    assert one.union(MariadbPosition.parse("0-2-101,7-1-1")) == MariadbPosition.parse("0-2-101,7-1-1")


def test_what_is_behind_a_position_has_one_transaction_more() -> None:
    position = MariadbPosition.parse("0-1-100,7-1-5")
    assert str(position.behind(MariadbGtid.parse("0-2-101"))) == "0-2-101,7-1-5"
    assert str(position.behind(MariadbGtid.parse("3-1-1"))) == "0-1-100,3-1-1,7-1-5"
