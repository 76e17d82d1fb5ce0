"""The thread that exports marks while a run lasts.

It looks for a newer mark at most every `every`, and never holds up the run: what goes wrong here is a warning
of the run, tried again at the next look. `close` exports the last mark, if it can within `GRACE_SECONDS`. A
run that is attached to no catalog looks for a record of one now and then, since `headrace iceberg attach` may
be asked of it. This is one of the named supervisors.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from headrace.core.durations import duration
from headrace.core.errors import HeadraceError, Transient, place_of
from headrace.iceberg import catalog
from headrace.iceberg.settings import IcebergConfig
from headrace.lake.format import exportfile
from headrace.lake.format.status import IcebergStatus
from headrace.lake.store.contract import Store
from headrace.lake.store.local import LocalStore

TURN_SECONDS = 0.2
ATTACHED_SECONDS = 5.0  # between two looks for a record where there is none
GRACE_SECONDS = 30.0


class ExportWatch:
    """The export of one source, while its run lasts."""

    def __init__(
        self, store: Store, source: str, lake_id: str, grace: timedelta, config: IcebergConfig | None
    ) -> None:
        self._store, self._source, self._lake_id = store, source, lake_id
        self._grace, self._config = grace, config
        self._exporter: object | None = None
        self._closing = threading.Event()
        self._last_turn = False  # whether the last mark is exported before the thread ends
        self._errors: dict[str, HeadraceError] = {}
        self._status: IcebergStatus | None = None
        self._due = 0.0
        self._thread = threading.Thread(target=self._run, name="headrace-iceberg", daemon=True)
        self._thread.start()

    @property
    def warnings(self) -> dict[str, str]:
        """The troubles of the export by code, for the run's status."""
        texts: defaultdict[str, list[str]] = defaultdict(list)
        for error in list(self._errors.values()):
            texts[error.code].append(error.primary)
        return {code: "; ".join(dict.fromkeys(found)) for code, found in texts.items()}

    @property
    def status(self) -> IcebergStatus | None:
        """The progress of the export; None where there is none."""
        return self._status

    def close(self) -> None:
        """End, once the last mark is exported, or `GRACE_SECONDS` are over; the source is still ours."""
        self._last_turn = not self._closing.is_set()
        self._closing.set()
        self._thread.join(GRACE_SECONDS)

    def abandon(self) -> None:
        """End without a further export."""
        self._closing.set()
        self._thread.join(GRACE_SECONDS)

    def _run(self) -> None:
        while not self._closing.wait(TURN_SECONDS):
            if time.monotonic() >= self._due:
                self._turn()
        if self._last_turn:
            self._turn()

    def _turn(self) -> None:
        """Export once; whatever fails is a warning."""
        self._due = time.monotonic() + ATTACHED_SECONDS
        try:
            if self._config is not None or exportfile.read(self._store, self._source) is not None:
                self._errors = self._export()
            else:
                self._errors, self._status = {}, None
        except HeadraceError as error:
            self._errors = {"": error}
        except Exception as error:  # noqa: BLE001 - the end of a thread, which nobody else would learn of
            self._errors = {"": _fault(error)}
        if "" in self._errors:
            known = self._status or IcebergStatus()
            behind = known.behind_since or datetime.now(UTC).isoformat(timespec="milliseconds")
            self._status = replace(known, behind_since=behind)

    def _export(self) -> dict[str, HeadraceError]:
        # Loaded late: a run without an export needs none of it.
        catalog.require()
        from headrace.iceberg.export import Exporter

        if self._exporter is None:
            self._exporter = Exporter(self._store, self._source, self._lake_id, self._grace, self._config)
        exporter = self._exporter
        assert isinstance(exporter, Exporter)
        record = exporter.attachment()
        assert record is not None
        self._due = time.monotonic() + duration(record.every, "every").total_seconds()
        exporter.export()
        record = exporter.attachment()
        newest = None if record is None else record.newest
        self._status = IcebergStatus(
            epoch=0 if newest is None else newest.epoch,
            exported_at=None if newest is None else newest.at.isoformat(timespec="milliseconds"),
            tables=len([pins for pins in record.folders.values() if pins]) if record else 0,
            left_out={name: error.code for name, error in exporter.left_out.items()},
        )
        return dict(exporter.left_out)


def _fault(error: Exception) -> Transient:
    return Transient(
        "ICEBERG_FAULT",
        f'the export to Iceberg hit a bug of ours: "{place_of(error)}"',
        detail=type(error).__name__,
        hint="report this line; the run goes on",
    )


@contextmanager
def exporting(
    store: Store, source: str, lake_id: str, grace: timedelta, config: IcebergConfig | None
) -> Iterator[ExportWatch | None]:
    """The export of a source while the body runs; none where it can't have one."""
    if config is None and not isinstance(store, LocalStore):
        yield None
        return
    watch = ExportWatch(store, source, lake_id, grace, config)
    try:
        yield watch
    finally:
        watch.abandon()
