"""The site: the answer of each path, and who may ask.

    /healthz      this process answers
    /readyz       tells whether every source of the lakes has tables in its marks, and a run that keeps up
    /metrics      Prometheus' text, or OpenMetrics
    /api/status   what `headrace status --json` prints
    / and below   the page (`pages`); /assets/...: its style sheet, script and icon

Every request passes `refuses` first. It must name a `Host` of ours (which stops DNS rebinding), use GET or
HEAD, and show the token if there is one. A path is looked up in a table; no path names a file. A body is made
at most once a second and shared by all clients.
"""

from __future__ import annotations

import gzip
import hmac
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any

from headrace.core.errors import Misconfigured, Transient
from headrace.core.records import to_record
from headrace.status import faults
from headrace.status.picture import DROPPED, SourcePicture
from headrace.status.watch import View, Watch
from headrace.web import exposition, metrics, pages
from headrace.web.http import HttpRequest, Response, as_json, refusal
from headrace.web.markup import Html
from headrace.web.pages import Place, short_names
from headrace.web.settings import Settings, bare

_BODIES = 64
_SHARED_SECONDS = 1.0
_LEAST_GZIP = 1024
_METHODS = ("GET", "HEAD")


@dataclass(slots=True)
class Site:
    """Answers requests from the pictures of the lakes."""

    settings: Settings
    watches: Sequence[Watch]
    _bodies: dict[tuple[str, ...], tuple[float, Response]] = field(default_factory=dict)

    def refuses(self, request: HttpRequest, local: str) -> Response | None:
        """The refusal of a request; None if it may pass. `local` is the address that the client reached."""
        host = bare(request.header("host"))
        if host not in self.settings.names and host != local:
            return refusal(
                421,
                Misconfigured(
                    "WEB_HOST",
                    "the request names a host that is not this server",
                    hint="ask by the address that it listens at, or add the name to [web] hosts",
                ),
            )
        if request.method not in _METHODS:
            return refusal(
                405,
                Misconfigured("WEB_METHOD", "only GET and HEAD are answered", hint="send GET"),
                Allow="GET, HEAD",
            )
        if request.path != "/healthz" and not self._shows_token(request):
            return refusal(
                401,
                Misconfigured(
                    "WEB_TOKEN",
                    "the request does not show the token",
                    hint="send the header Authorization: Bearer TOKEN",
                ),
                WWW_Authenticate="Bearer",
            )
        return None

    def healthz(self) -> Response:
        """Say that this process answers; it reads no lake."""
        return Response(200, "text/plain; charset=utf-8", b"ok\n")

    def answer(self, request: HttpRequest) -> Response:
        """The response to a request that `refuses` let pass; it may take as long as a look at a lake."""
        make = _ROUTES.get(request.path)
        if make is None:
            return _no_such()
        return self._zip(request, make)

    def views(self) -> list[View]:
        return [watch.view() for watch in self.watches]

    def places(self) -> list[Place]:
        """Every source of every lake, in order."""
        views = self.views()
        shorts = short_names([view.lake for view in views])
        names = Counter(source.name for view in views for source in view.sources)
        return [
            Place(
                index,
                view,
                source,
                watch.samples(source.name),
                watch.rates(source.name),
                source.name if names[source.name] == 1 else f"{source.name} of {shorts[view.lake]}",
            )
            for index, (watch, view) in enumerate(zip(self.watches, views, strict=True))
            for source in view.sources
        ]

    def _shows_token(self, request: HttpRequest) -> bool:
        if self.settings.token is None:
            return True
        scheme, _, shown = request.header("authorization").partition(" ")
        # `compare_digest` takes as long for any token. It needs bytes: a header may hold all of Latin-1.
        given, wanted = shown.strip().encode("latin-1"), self.settings.token.encode()
        return scheme.lower() == "bearer" and hmac.compare_digest(given, wanted)

    def _zip(self, request: HttpRequest, make: _Make) -> Response:
        zips = "gzip" in request.header("accept-encoding")
        asked = (f"{name}={value}" for name, value in sorted(request.query.items()))
        key = (request.path, str(zips), *_wish(request), *asked)
        made_at, response = self._bodies.get(key, (0.0, None))
        if response is not None and time.monotonic() - made_at <= _SHARED_SECONDS:
            return response
        made_at, response = time.monotonic(), make(self, request)
        if zips and len(response.body) >= _LEAST_GZIP:
            body = gzip.compress(response.body, compresslevel=3, mtime=0)
            headers = {**response.headers, "Content-Encoding": "gzip", "Vary": "Accept, Accept-Encoding"}
            response = replace(response, body=body, headers=headers)
        if len(self._bodies) >= _BODIES:
            self._bodies.clear()
        self._bodies[key] = (made_at, response)
        return response


_Make = Callable[[Site, HttpRequest], Response]


def _wish(request: HttpRequest) -> tuple[str, ...]:
    return ("openmetrics",) if exposition.wants_openmetrics(request.header("accept")) else ()


def _overview(site: Site, _request: HttpRequest) -> Response:
    return _page(pages.overview(site.views(), site.places()))


def _tables(site: Site, request: HttpRequest) -> Response:
    places = site.places()
    place = _place(places, request)
    return _no_such() if place is None else _page(pages.tables(place, places, request.query))


def _table(site: Site, request: HttpRequest) -> Response:
    places = site.places()
    place, name = _place(places, request), request.query.get("name", "")
    details = None if place is None else site.watches[place.index].details
    if place is None or details is None or name not in place.source.tables:
        return _no_such()
    return _page(pages.table(place, places, name, details))


def _marks(site: Site, request: HttpRequest) -> Response:
    places = site.places()
    place = _place(places, request)
    details = None if place is None else site.watches[place.index].details
    if place is None or details is None:
        return _no_such()
    return _page(pages.marks(place, places, request.query, details))


def _place(places: Sequence[Place], request: HttpRequest) -> Place | None:
    """The source that the request names, or the lake's first; None if there is none."""
    lake, source = request.query.get("lake", "0"), request.query.get("source")
    fits = (place for place in places if str(place.index) == lake and source in (None, place.source.name))
    return next(fits, None)


def _page(document: Html) -> Response:
    return Response(200, "text/html; charset=utf-8", document.encode())


def _no_such() -> Response:
    return refusal(
        404,
        Misconfigured(
            "WEB_PATH", "there is nothing at this path", hint="the page is at /, metrics are at /metrics"
        ),
    )


def _asset(name: str, kind: str) -> _Make:
    """A file of our package, read once."""
    body = files("headrace.web").joinpath("assets", name).read_bytes()
    response = Response(200, kind, body, {"Cache-Control": "max-age=600"})
    return lambda _site, _request: response


def _metrics(site: Site, request: HttpRequest) -> Response:
    openmetrics = exposition.wants_openmetrics(request.header("accept"))
    body = exposition.write_text(metrics.families(site.views()), openmetrics=openmetrics)
    return Response(200, exposition.content_type(openmetrics), body, {"Vary": "Accept, Accept-Encoding"})


def _status(site: Site, _request: HttpRequest) -> Response:
    views = site.views()
    if len(views) == 1 and views[0].error is None:
        return as_json(200, _records(views[0]))
    if len(views) == 1:
        assert views[0].error is not None
        return as_json(503, to_record(views[0].error))
    return as_json(
        200,
        {
            view.lake: _records(view) if view.error is None else {"error": to_record(view.error)}
            for view in views
        },
    )


def _records(view: View) -> dict[str, Any]:
    return {source.name: source.to_json() for source in view.sources}


def _readyz(site: Site, _request: HttpRequest) -> Response:
    reasons = [reason for view in site.views() for reason in unready(view, site.settings.ready_lag)]
    return as_json(503 if reasons else 200, {"ready": not reasons, "reasons": reasons})


def unready(view: View, ready_lag: float) -> list[dict[str, Any]]:
    """The reasons why a lake is not up to date."""
    if view.error is not None:
        return [_reason(view, None, to_record(view.error))]
    if not view.sources:
        none = Transient("WEB_NO_SOURCE", "the lake has no source yet", hint="headrace run begins to mirror")
        return [_reason(view, None, to_record(none))]
    found = [(source, _unready(source, ready_lag)) for source in view.sources]
    return [_reason(view, source.name, why) for source, why in found if why is not None]


def _unready(source: SourcePicture, ready_lag: float) -> Mapping[str, Any] | None:
    if source.status.state == DROPPED:
        return None  # dropped on purpose: no run is needed
    if faults.is_left(source):
        return to_record(faults.not_running(source))
    if source.status.error is not None:
        return source.status.error
    if source.status.state != "running":
        waits = Transient(
            "WEB_NOT_RUNNING",
            f'the run of source "{source.name}" is {source.state}',
            hint="wait; headrace status --lake DIR says what for",
        )
        return to_record(waits)
    states = {table.state for table in (source.status.tables or {}).values()}
    if states and "live" not in states:
        copying = Transient(
            "WEB_COPYING",
            f'no table of source "{source.name}" is in a mark yet',
            hint="wait; headrace status --lake DIR shows how far the first copy is",
        )
        return to_record(copying)
    return to_record(next(faults.behind(source, ready_lag), None))


def _reason(view: View, source: str | None, why: Mapping[str, Any]) -> dict[str, Any]:
    return {"lake": view.lake, "source": source, **why}


_ROUTES: dict[str, _Make] = {
    "/": _overview,
    "/tables": _tables,
    "/table": _table,
    "/marks": _marks,
    "/assets/page.css": _asset("page.css", "text/css; charset=utf-8"),
    "/assets/page.js": _asset("page.js", "text/javascript; charset=utf-8"),
    "/assets/icon.svg": _asset("icon.svg", "image/svg+xml"),
    "/api/status": _status,
    "/metrics": _metrics,
    "/readyz": _readyz,
}
