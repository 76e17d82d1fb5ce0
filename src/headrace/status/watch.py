"""A watch over one lake: its newest picture, shared by all callers, and an hour of samples.

    ask ─► young enough? ─► the last picture
              └─ no ─► the watch's own thread looks; the caller waits up to `PATIENCE_SECONDS` for it

However many clients there are, the watch looks at most once a second; without clients, once in
`SAMPLE_SECONDS`. A store that hangs blocks this thread alone: callers get the last picture with its age, or
an error. The watch never writes, and calls no source.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from headrace.core.errors import HeadraceError, Transient, place_of
from headrace.status.details import Details
from headrace.status.pace import Pace, Rates
from headrace.status.picture import SourcePicture, open_lake, pictures_in

YOUNG_SECONDS = 1.0
PATIENCE_SECONDS = 2.0
SAMPLE_SECONDS = 10.0
SAMPLES = 360  # an hour


@dataclass(frozen=True, slots=True)
class View:
    """A lake as of one look; if the look failed, its error and the sources of the look before."""

    lake: str
    looked_at: float  # monotonic
    sources: Sequence[SourcePicture] = ()
    error: HeadraceError | None = None

    @property
    def age(self) -> float:
        return time.monotonic() - self.looked_at

    def now(self) -> View:
        """Return this view with the ages of its statuses by now."""
        return replace(self, sources=[_older(source, self.age) for source in self.sources])


def _older(source: SourcePicture, seconds: float) -> SourcePicture:
    return replace(source, age=None if source.age is None else source.age + seconds, now=datetime.now(UTC))


@dataclass(frozen=True, slots=True)
class Sample:
    """The figures of a source for the curves."""

    at: float  # seconds since 1970
    lag_seconds: float
    lag_bytes: int
    changes: int | None
    retained_bytes: int | None


@dataclass(slots=True)
class Watch:
    """Looks at one lake for all callers."""

    lake: str
    details: Details | None = None  # once the lake could be opened
    _samples: dict[str, deque[Sample]] = field(default_factory=dict)
    _paces: dict[str, Pace] = field(default_factory=dict)
    _change: threading.Condition = field(default_factory=threading.Condition)
    _view: View | None = None
    _is_wanted: bool = True
    _over: bool = False

    def __post_init__(self) -> None:
        threading.Thread(target=self._repeat, name="headrace-web-watch", daemon=True).start()

    def view(self) -> View:
        """The newest view; if a look takes too long, the last one, or an error if there is none."""
        asked = time.monotonic()
        with self._change:
            if self._view is None or asked - self._view.looked_at > YOUNG_SECONDS:
                self._is_wanted = True
                self._change.notify_all()
                self._change.wait_for(self._is_young, PATIENCE_SECONDS)
            found = self._view
        return View(self.lake, asked, error=_slow(self.lake)) if found is None else found.now()

    def samples(self, source: str) -> Sequence[Sample]:
        """The last hour of a source, oldest first."""
        with self._change:
            return tuple(self._samples.get(source, ()))

    def rates(self, source: str) -> Rates:
        """The rates of a source over the last minute."""
        with self._change:
            return self._paces[source].rates() if source in self._paces else Rates()

    def stop(self) -> None:
        with self._change:
            self._over = True
            self._change.notify_all()

    def _is_young(self) -> bool:
        return self._view is not None and time.monotonic() - self._view.looked_at <= YOUNG_SECONDS

    def _repeat(self) -> None:
        sampled_at = -SAMPLE_SECONDS
        while True:
            with self._change:
                due = sampled_at + SAMPLE_SECONDS - time.monotonic()
                self._change.wait_for(lambda: self._is_wanted or self._over, max(0.0, due))
                if self._over:
                    return
                self._is_wanted = False
            view = self._look()
            with self._change:
                self._view = view
                self._see(view)
                if time.monotonic() - sampled_at >= SAMPLE_SECONDS:
                    sampled_at = time.monotonic()
                    self._keep_samples(view)
                self._change.notify_all()

    def _look(self) -> View:
        """Look once. One of the named supervisors: the view shows any error, and later looks go on."""
        begun = time.monotonic()
        before: Mapping[str, SourcePicture] = (
            {} if self._view is None else {s.name: s for s in self._view.now().sources}
        )
        try:
            if self.details is None:
                self.details = Details(open_lake(self.lake))
            return View(self.lake, begun, pictures_in(self.details.store))
        except HeadraceError as error:
            return View(self.lake, begun, tuple(before.values()), error)
        except Exception as error:  # noqa: BLE001 - else the thread would end, and nobody would know
            return View(self.lake, begun, tuple(before.values()), _strange(self.lake, error))

    def _see(self, view: View) -> None:
        for source in view.sources if view.error is None else ():
            if source.runs:
                self._paces.setdefault(source.name, Pace()).see(view.looked_at, source.status)
            else:
                self._paces.pop(source.name, None)

    def _keep_samples(self, view: View) -> None:
        if view.error is not None:
            return
        for source in view.sources:
            position, totals, upstream = source.position, source.status.totals, source.status.upstream
            if position is not None and source.runs:
                kept = self._samples.setdefault(source.name, deque(maxlen=SAMPLES))
                kept.append(
                    Sample(
                        time.time(),
                        source.lag_seconds or 0.0,
                        position.lag_bytes,
                        None if totals is None else totals.changes,
                        None if upstream is None else upstream.retained_bytes,
                    )
                )


def _slow(lake: str) -> HeadraceError:
    return Transient(
        "WEB_LAKE_SLOW",
        f'the lake at "{lake}" does not answer',
        hint="look at the disk or the object store; the page shows the lake once it answers",
    )


def _strange(lake: str, error: Exception) -> HeadraceError:
    return Transient(
        "WEB_LAKE_UNREADABLE",
        f'what stands in the lake at "{lake}" cannot be read',
        detail=place_of(error),
        hint="headrace status --lake DIR says more; a newer headrace may have written it",
    )
