"""Time budget of the tests, beside the size budget: how long they take, and how long they may.

    pytest --times FILE ...          a line a test (`tests.reporting`): seconds, load, name
    python -m tests.timing FILE...   what all of them together took, judged; exit code 1 if it is too much
    python -m tests.timing --late FILE...
                                     the tests that failed because a wait ran out of time, a line each;
                                     exit code 1 if any failed for another reason, or none failed

Everybody runs every test every day, so its seconds are paid for a thousand times. `SHARES` says how long a
room may take. A test of more than `LONGEST` seconds stands in
`tests/meta/long-tests.txt`, a list that may only shrink: an entry that is no longer needed is named as well.

The machines are shared. A figure is doubted while others keep them busy: the more, the longer it may be.
`make test` ends with a list of what is too long; whoever reads it mends it.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

LONGEST = 20.0
LIST = Path(__file__).parent / "meta" / "long-tests.txt"
LOAD = 7.0  # of five lanes that have two cores to themselves
LATE = "late"  # outcome of a test that failed because a wait ran out of time
FEW = 5  # tests that may be late in a run
DOUBT = 2.0  # by how much one run differs from another on a machine that others share

# Seconds of a lane, of which there are five. They may only shrink: a lane has twenty minutes for its rooms.
SHARES: Mapping[str, float] = {
    "conformance": 60,  # for each source
    "guarantees": 600,
    "integration/pipeline": 600,
    "integration/lake": 240,
    "integration/mysql": 150,
    "integration/postgres": 120,
    "integration/queue": 60,
    "integration/spark": 120,
    "integration/sql": 90,
    "integration/stream": 60,
    "integration/testing": 60,
    "readers": 90,
    "laws": 90,
    "": 120,  # all others together
}


@dataclass(frozen=True, slots=True)
class Taken:
    """The seconds of a test, with what it sets up and tears down."""

    test: str
    seconds: float
    load: float
    outcome: str = "passed"

    @property
    def line(self) -> str:
        return f"{self.seconds:.1f}\t{self.load:.1f}\t{self.outcome}\t{self.test}\n"

    @property
    def room(self) -> str:
        folder = self.test.removeprefix("tests/")
        return next((room for room in SHARES if room and folder.startswith(f"{room}/")), "")

    @property
    def allowance(self) -> float:
        """Factor by which the test may take longer than alone."""
        return DOUBT * max(1.0, self.load / LOAD)


def read(paths: Iterable[Path]) -> Iterator[Taken]:
    """The tests of some reports."""
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            seconds, load, outcome, test = line.split("\t")
            yield Taken(test, float(seconds), float(load), outcome)


def judged(taken: Iterable[Taken], listed: set[str]) -> list[str]:
    """List what takes too long, a line each."""
    wrong, rooms = [], defaultdict(list)
    for each in taken:
        rooms[each.room].append(each)
        if each.seconds > LONGEST * each.allowance and each.test not in listed:
            wrong.append(f"{each.test} took {each.seconds:.0f} s; {LONGEST:.0f} s are allowed")
        if each.test in listed and each.seconds < LONGEST / DOUBT / 2:
            wrong.append(f"{each.test} took {each.seconds:.0f} s: remove it from {LIST.name}")
    for room, tests in rooms.items():
        seconds = sum(each.seconds / max(1.0, each.load / LOAD) for each in tests)
        if seconds > SHARES[room] * DOUBT:
            wrong.append(f"tests/{room} took {seconds:.0f} s; its share is {SHARES[room]:.0f} s")
    return wrong


def table(taken: Iterable[Taken]) -> Iterator[str]:
    """The rooms and what they took, and the tests that took longest."""
    known = sorted(taken, key=lambda each: -each.seconds)
    for room, share in SHARES.items():
        seconds = sum(each.seconds for each in known if each.room == room)
        yield f"{seconds:8.0f} s of {share:4.0f}  {room or 'all others'}"
    for each in known[:10]:
        yield f"{each.seconds:8.1f} s  {each.test}"


def late(taken: Iterable[Taken]) -> list[str]:
    """List the tests that were late, if no test failed for another reason and they are few."""
    known = list(taken)
    names = [each.test for each in known if each.outcome == LATE]
    wrong = len(names) > FEW or any(each.outcome == "failed" for each in known)
    return [] if wrong else names


def main(paths: list[str]) -> int:
    if paths[:1] == ["--late"]:
        names = late(read(map(Path, paths[1:])))
        print("\n".join(names))
        return 0 if names else 1
    taken = list(read(map(Path, paths)))
    print("\n".join(table(taken)))
    wrong = judged(taken, set(LIST.read_text(encoding="utf-8").splitlines()))
    for line in wrong:
        print(f"time: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
