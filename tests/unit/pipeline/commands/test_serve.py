"""Requests are carried out in order, answered once, and never end a run; on a real lake, without a server."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from headrace.core.errors import Definite, HeadraceError, Misconfigured, Transient
from headrace.core.records import to_record
from headrace.lake.format import formatfile, requests, statusfile
from headrace.lake.format.status import SourceStatus
from headrace.lake.store.contract import Store
from headrace.lake.store.open import open_store
from headrace.pipeline.commands import ask, serve
from headrace.pipeline.commands.serve import CommandQueue, Deed
from headrace.pipeline.state.epoch import Epoch
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.owner import Answer, Owner, Steps
from headrace.spool.process import this_process
from headrace_testing.postmaster import wait_for
from tests.places import place_at
from tests.records import source_record

SOURCE = source_record(start=place_at(100))


@dataclass
class _Place:
    store: Store


@dataclass
class _Holder:
    """The part of an owner that needs no server."""

    place: _Place
    ledger: Ledger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A lake that has met a source."""
    store = open_store(tmp_path / "lake")
    formatfile.create_lake(store)
    Ledger(store, "main").publish(Epoch("open", SOURCE.start, source=SOURCE))
    return tmp_path / "lake"


@pytest.fixture
def owner(path: Path) -> Owner:
    store = open_store(path)
    return cast(Owner, _Holder(_Place(store), Ledger(store, "main")))


def _served(owner: Owner, deeds: Mapping[str, Deed], kind: str, **arguments: Any) -> Mapping[str, Any]:
    """Leave a request, and turn a commands until it is answered."""
    store, commands = owner.place.store, CommandQueue(deeds)
    request = requests.ask(store, "main", kind, arguments)

    def over() -> bool:
        commands.turn(owner)
        return requests.answer_to(store, "main", request) is not None

    wait_for(over, "the answer")
    return requests.answer_to(store, "main", request) or {}


def _echo(_owner: Owner, arguments: Mapping[str, Any]) -> Answer:
    return {"heard": arguments["word"]}


def test_a_request_is_answered_with_what_its_deed_returns(owner: Owner) -> None:
    assert _served(owner, {"echo": _echo}, "echo", word="ahoy") == {"heard": "ahoy"}


def test_a_request_of_a_kind_that_nobody_knows_is_answered_so(owner: Owner) -> None:
    assert _served(owner, {}, "dance")["error"]["code"] == "REQUEST_UNKNOWN"


@pytest.mark.parametrize("family", [Definite, Transient, Misconfigured])
def test_an_error_of_a_deed_is_an_answer_and_does_not_end_the_run(
    owner: Owner, family: type[HeadraceError]
) -> None:
    def fail(_owner: Owner, _arguments: Mapping[str, Any]) -> Answer:
        raise family("SO_IT_IS", "it cannot be", hint="leave it")

    error = _served(owner, {"fail": fail}, "fail")["error"]
    assert (error["code"], error["hint"]) == ("SO_IT_IS", "leave it")


def test_an_error_in_the_midst_of_an_epoch_ends_the_attempt_and_the_request_waits(
    path: Path, owner: Owner
) -> None:
    def publish(owner: Owner, _arguments: Mapping[str, Any]) -> Answer:
        owner.ledger.publish(Epoch("empty", owner.ledger.frontier))
        return {}

    store = owner.place.store
    Ledger(store, "main")  # a newer writer took the source over
    request = requests.ask(store, "main", "publish", {})
    with pytest.raises(Misconfigured) as caught:
        CommandQueue({"publish": publish}).turn(owner)
    assert caught.value.code == "LAKE_FENCED"
    assert requests.pending(store, "main") == [request]


def test_the_run_goes_on_while_a_deed_waits_and_its_next_step_is_on_the_runs_thread(owner: Owner) -> None:
    go_on, where = threading.Event(), []

    def slow(_owner: Owner, _arguments: Mapping[str, Any]) -> Steps:
        found = yield partial(go_on.wait, 30)
        where.append(threading.current_thread())
        return {"found": found}

    store, commands = owner.place.store, CommandQueue({"slow": slow, "echo": _echo})
    first = requests.ask(store, "main", "slow", {}, now=datetime(2026, 1, 1, tzinfo=UTC))
    second = requests.ask(store, "main", "echo", {"word": "later"}, now=datetime(2026, 1, 2, tzinfo=UTC))
    assert commands.turn(owner)
    assert not commands.turn(owner)  # nothing to do now, and no waiting for it
    assert requests.answer_to(store, "main", first) is None
    go_on.set()
    wait_for(
        lambda: commands.turn(owner) and requests.answer_to(store, "main", second) is not None, "the answer"
    )
    assert requests.answer_to(store, "main", first) == {"found": True}
    assert where == [threading.current_thread()]


def test_an_error_of_the_part_that_was_handed_out_is_the_answer(owner: Owner) -> None:
    def fail() -> None:
        raise Transient("WEATHER", "it rains", hint="wait")

    def slow(_owner: Owner, _arguments: Mapping[str, Any]) -> Steps:
        yield fail
        return {}

    assert _served(owner, {"slow": slow}, "slow")["error"]["code"] == "WEATHER"


@pytest.fixture
def deeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind whose deed tells of the process that did it."""

    def where(_owner: Owner, _arguments: Mapping[str, Any]) -> Steps:
        pid = yield os.getpid
        return {"pid": pid}

    monkeypatch.setitem(serve.DEEDS, "where", where)


@pytest.mark.usefixtures("deeds")
def test_a_command_that_finds_no_owner_does_it_itself(path: Path) -> None:
    before = Ledger(open_store(path), "main").mark.epoch
    assert ask.ask(str(path), "where", {}) == {"pid": os.getpid()}
    assert Ledger(open_store(path), "main").mark.epoch == before + 2  # both took the fence
    assert requests.pending(open_store(path), "main") == []


@pytest.mark.usefixtures("deeds")
def test_a_command_takes_its_request_back_when_the_owner_ends_without_an_answer(path: Path) -> None:
    """The owner lives on this machine, as the test's parent does, and then says that it has stopped."""
    store = open_store(path)
    owner = this_process("2026-01-01") | {"pid": os.getppid()}
    statusfile.write(store, "main", SourceStatus("main", "running", owner))

    def end() -> None:
        wait_for(lambda: bool(requests.pending(store, "main")), "the request")
        statusfile.write(store, "main", SourceStatus("main", "stopped", owner))

    thread = threading.Thread(target=end)
    thread.start()
    assert ask.ask(str(path), "where", {}) == {"pid": os.getpid()}
    thread.join()
    assert requests.pending(store, "main") == []


def test_a_living_owner_is_asked_and_its_error_is_raised(path: Path) -> None:
    store = open_store(path)
    owner = this_process("2026-01-01") | {"pid": os.getppid()}
    statusfile.write(store, "main", SourceStatus("main", "running", owner))

    def answer() -> None:
        wait_for(lambda: bool(requests.pending(store, "main")), "the request")
        [request] = requests.pending(store, "main")
        error = Definite("SO_IT_IS", "it cannot be", hint="leave it")
        requests.answer(store, "main", request, {"error": to_record(error)})

    thread = threading.Thread(target=answer)
    thread.start()
    with pytest.raises(Definite) as caught:
        ask.ask(str(path), "anything", {})
    thread.join()
    assert caught.value.code == "SO_IT_IS"


def test_a_source_that_the_lake_does_not_know_is_named_back(path: Path) -> None:
    with pytest.raises(Misconfigured) as caught:
        ask.ask(str(path), "where", {}, source="other")
    assert caught.value.code == "LAKE_SOURCE_UNKNOWN"
    assert "main" in caught.value.hint
