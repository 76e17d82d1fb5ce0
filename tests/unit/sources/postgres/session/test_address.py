"""Addresses show where they lead and never what opens the door."""

from __future__ import annotations

import pickle

import pytest

from headrace.core.errors import Misconfigured
from headrace.sources.postgres.session.address import PostgresAddress

SECRET = "hunter2 %&/"
URL = "postgresql://ann:hunter2%20%25%26%2F@db.example:5433/shop?sslmode=verify-full"
PAIRS = "host=db.example port=5433 user=ann dbname=shop password='hunter2 %&/' sslmode=verify-full"


@pytest.mark.parametrize("text", [URL, PAIRS])
def test_both_spellings_are_one_address(text: str) -> None:
    address = PostgresAddress.parse(text)
    assert address == PostgresAddress.parse(URL)
    assert address.parameters["password"] == SECRET
    assert address.parameters["sslmode"] == "verify-full"


@pytest.mark.parametrize("text", [URL, PAIRS])
def test_an_address_shows_no_password(text: str) -> None:
    address = PostgresAddress.parse(text)
    assert address.safe() == "ann@db.example:5433/shop"
    for shown in (repr(address), str(address), f"{address}", repr([address]), repr({"a": address})):
        assert "hunter2" not in shown


@pytest.mark.parametrize(
    "text",
    [
        "host=/run/pg user=a@b password=hunter?2@ dbname=shop",
        "postgresql://ann:hunt%40er%2F2@db/shop?application_name=a@b/c",
        "postgresql://",
    ],
)
def test_special_characters_stand_where_they_part_nothing(text: str) -> None:
    assert PostgresAddress.parse(text).parameters.keys() >= (
        {"user", "password"} if "hunt" in text else set()
    )


def test_an_address_travels_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(PostgresAddress.parse(URL))) == PostgresAddress.parse(URL)


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://ann:hunter2%zz@db/shop",
        "hunter2",
        "host=db pasword=hunter2",
        "postgresql://ann:hunter2@[db/shop",
        "mysql://ann:hunter2@db/shop",
        "postgresql://ann:odd@hunter2@db/shop",
        "postgres://ann:odd/hunter2@db:5432/shop",
        "postgresql://ann:1/hunter2@db/shop?sslmode=require",
    ],
)
def test_a_malformed_address_is_refused_without_being_quoted(text: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        PostgresAddress.parse(text)
    assert caught.value.code == "PG_ADDRESS_MALFORMED"
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
