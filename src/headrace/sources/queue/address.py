"""The address of a queue: a PostgreSQL's, whose scheme says how it is mirrored."""

from __future__ import annotations

from headrace.sources.postgres.session.address import Address

_PREFIX = "queue+"


def parse(text: str) -> Address:
    """Read `queue+postgresql://...`, or what was made of it."""
    return Address.parse(text.removeprefix(_PREFIX))
