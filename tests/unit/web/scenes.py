"""Scenes of the page: every state of a source and of a table, as a run would have written them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from headrace.lake.format import layout, prooffile
from headrace.lake.format.plan import Plan, TableStep
from headrace.lake.format.prooffile import TableProof
from headrace.lake.format.status import (
    AlterationStatus,
    CopyStatus,
    EpochStatus,
    PositionStatus,
    SourceStatus,
    TableStatus,
    TotalsStatus,
    UpstreamStatus,
)
from headrace.lake.store.open import open_store
from tests.unit.web.lakes import a_lake

REASON = {
    "code": "TABLE_CHANGED",
    "primary": 'table "public.invoices" was altered in a way that is not followed',
    "detail": 'column "total" became text <script>alert(1)</script>',
    "hint": "headrace tables resync public.invoices",
}
LOST = {
    "code": "PG_SLOT_LOST",
    "primary": 'slot "headrace_shop" is lost',
    "detail": "wal_status lost, reason wal_removed",
    "hint": "headrace run --reconcile",
}
BIG = CopyStatus(50_000_000, 12_000_000, 9 << 30, 2 << 30)
COLUMNS = (
    ("id", "bigint", "bigint"),
    ("total", "numeric(12,2)", "decimal(12,2)"),
    ("note", "text", "string"),
)
START = 0x16_B370_0000
AWAY = "public.items_0"  # is in no mark for a while
NAMES = "customers orders lines items prices stock carts payments refunds shipments".split()


def _table(number: int, **known: object) -> TableStatus:
    now = datetime.now(UTC) - timedelta(seconds=37 * number)
    table = TableStatus("live", "rewind", since="0/15D0A8", rows=4711 * number, schema_version=1,
                        files=1 + number % 5, size_bytes=73_000 * number)  # fmt: skip
    return replace(table, last_change=now.isoformat(), **known)  # type: ignore[arg-type]


def healthy() -> SourceStatus:
    """Thirty live tables, a second behind."""
    now = datetime.now(UTC)
    return SourceStatus(
        "shop",
        "running",
        owner={"pid": 4711, "host": "mirror-1"},
        position=PositionStatus(
            "16/B374D848", "16/B3751000", "16/B3752000", "16/B374D848", None, 1_843_200, 0.8
        ),
        upstream=UpstreamStatus({}, (), None, 1_200_000_000, 10_000_000_000),
        epochs=EpochStatus(40, 8, 0, 48),
        tables={f"public.{NAMES[at // 3]}_{at % 3}": _table(at) for at in range(30)},
        marked_at=(now - timedelta(seconds=1.2)).isoformat(),
        totals=TotalsStatus(48, 12_345, 98_765, {"stream": 40}),
        alterations=(
            AlterationStatus("public.items_0", 44, "16/B3740000", "added", "column note text was added"),
        ),
    )


def stopped_table() -> SourceStatus:
    said = healthy()
    assert said.tables is not None
    stopped = _table(7, state="stopped", error=REASON, stopped_at="16/B3700000", stopped_since=_ago(47 * 60))
    return replace(said, tables={**said.tables, "public.invoices": stopped})


def copying() -> SourceStatus:
    said = healthy()
    held = {"public.big": _table(1, state="copying", rows=None, copy=BIG),
            "public.next": _table(2, state="pending", rows=None),
            "public.again": _table(3, copied_anew="joining"),
            "public.wide": _table(4, state="rewriting", copy=CopyStatus(1000, 900, 1 << 20, 900_000)),
            "public.late": _table(5, state="catching_up"),
            "public.seen": _table(6, unseen_since="12:00", holder='process 77 ("psql" of bob)')}  # fmt: skip
    waits = {"PG_SLOT_WAITS": 'open transactions are waited for: process 4712 ("report" of ann) since 12:04'}
    assert said.tables is not None
    return replace(said, tables={**said.tables, **held}, warnings=waits)


def ended(state: str) -> SourceStatus:
    error = LOST if state in ("failed", "waiting") else None
    return replace(healthy(), state=state, error=error)


def _ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()


def returning() -> SourceStatus:
    """Tables that the run takes up again by itself: one of them is gone, one is tried again."""
    said = healthy()
    assert said.tables is not None
    held = {"public.new": _table(1, state="stopped", error=REASON, follows=True),
            "public.gone": _table(2, state="stopped", error=REASON, follows=True, is_missing=True),
            "public.later": _table(3, state="stopped", error=REASON,
                                   follows=True, retry_at=_ago(-60))}  # fmt: skip
    return replace(said, tables={**said.tables, **held})


def near_limit() -> SourceStatus:
    return replace(healthy(), upstream=UpstreamStatus({}, (), None, 9_100_000_000, 10_000_000_000))


# Made when they are used: their times are ages, and a run of all tests may last an hour.
SCENES: Mapping[str, tuple[Callable[[], SourceStatus], float]] = {
    "healthy": (healthy, 0.0),
    "stopped-table": (stopped_table, 0.0),
    "copying": (copying, 0.0),
    "near-limit": (near_limit, 0.0),
    "returning": (returning, 0.0),
    "dropped": (partial(ended, "dropped"), 3600.0),
    "starting": (partial(SourceStatus, "shop", "starting", owner={"pid": 1, "host": "mirror-1"}), 0.0),
    "waiting": (partial(ended, "waiting"), 0.0),
    "stopped": (partial(ended, "stopped"), 3600.0),
    "failed": (partial(ended, "failed"), 600.0),
    "silent": (healthy, 60.0),
    "killed": (partial(ended, "waiting"), 60.0),
}


def scene(folder: Path, name: str) -> str:
    """A lake in which this is to be seen."""
    status, age = SCENES[name]
    said = status()
    if said.position is not None:
        said = replace(said, position=replace(said.position, waiting_since=_ago(0.8 + age)))
    lake = a_lake(folder, said, age=age)
    store = open_store(lake)
    tables = sorted(said.tables or {})
    for epoch in range(1, 49):
        changed = tables[epoch % 7 : epoch % 7 + 4]
        steps = tuple(TableStep(f"tables/shop/{each.replace('.', '/')}", epoch) for each in changed)
        state: dict[str, object] = {f"table/{each}": _record(each) for each in tables} if epoch == 1 else {}
        state |= {"source": {"kind": "postgres"}} if epoch == 1 else {}
        state |= {f"table/{AWAY}": _record(AWAY, since=_time(31))} if epoch == 31 and AWAY in tables else {}
        named = [each for each in tables if each != AWAY or epoch not in range(20, 31)]
        plan = Plan(
            "shop", epoch, f"{epoch:032x}", "stream" if epoch > 1 else "copy", 1, f"16/B37{epoch:05X}",
            _time(epoch) - 1, datetime.now(UTC).isoformat(), 3 * epoch, 17 * epoch, steps,
            dict.fromkeys(named, epoch), state,
        )  # fmt: skip
        store.put_if_absent(layout.plan_key("shop", epoch), plan.to_json().encode())
    published = '{"txn":{"appId":"headrace/shop","version":48}}\n{"add":{"path":"e"}}'
    store.put_if_absent(f"{layout.marks_folder('shop')}/_delta_log/{47:020d}.json", published.encode())
    if name != "starting":
        at = (datetime.now(UTC) - timedelta(hours=3)).isoformat()
        prooffile.write(store, "shop", {each: TableProof("equal", at, "16/B3700000") for each in tables})
    return lake


def differing(folder: Path) -> str:
    """A healthy lake of which verify said that a table differs."""
    lake = scene(folder, "healthy")
    at = datetime.now(UTC).isoformat()
    prooffile.write(open_store(lake), "shop", {"public.items_0": TableProof("different", at, "16/B3700000")})
    return lake


def _time(epoch: int) -> int:
    return START + epoch


def two_lakes(folder: Path) -> list[str]:
    """Two lakes of which each has a source of the same name; in one of them a table stopped."""
    return [scene(folder / "billing" / "lake", "stopped-table"), scene(folder / "search" / "lake", "healthy")]


def _record(name: str, since: int = START) -> dict[str, object]:
    columns = [
        {"name": column, "source_type": kind, "lake_type": lake, "nullable": column != "id", "type": ""}
        for column, kind, lake in COLUMNS
    ]
    return {
        "name": name,
        "state": "live",
        "since": since,
        "schema": {"columns": columns, "key": ["id"], "full": True, "version": 1},
    }
