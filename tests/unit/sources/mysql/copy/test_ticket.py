"""The names by which a leader and its readers meet."""

from __future__ import annotations

import json

from headrace.core.records import to_record
from headrace.sources.mysql.copy.ticket import Ticket


def test_no_name_is_longer_than_a_server_takes_one() -> None:
    ticket = Ticket.new(connection=1, readers=1)
    largest = (1 << 64) - 1
    names = [ticket.leader, ticket.closing_lock, ticket.member(largest)]
    names += [make(9999) for make in (ticket.place, ticket.gate, ticket.view)]
    assert max(map(len, names)) <= 64


def test_no_two_names_are_one_where_letter_case_means_nothing() -> None:
    one, other = Ticket.new(7, 3), Ticket.new(7, 3)
    names = [
        name.casefold()
        for ticket in (one, other)
        for name in (
            ticket.leader,
            ticket.closing_lock,
            ticket.member(1),
            *(make(number) for make in (ticket.place, ticket.gate, ticket.view) for number in range(3)),
        )
    ]
    assert len(set(names)) == len(names)


def test_a_ticket_travels_as_json() -> None:
    ticket = Ticket.new(7, 3)
    assert Ticket.of(json.loads(json.dumps(to_record(ticket)))) == ticket
