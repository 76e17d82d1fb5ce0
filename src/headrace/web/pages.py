"""The page: is the mirror true, how far behind is it, what is wrong, what do I type?

    /          what is wrong; then every source: its state, its lag, copies under way
    /tables    the tables of a source, to be filtered and sorted
    /table     one table: why it stopped, its columns, its last changes, how to read it
    /marks     the newest marks of a source, each with the statement that reads all tables at it

Each page is a whole document that works without JavaScript. The script (`assets/page.js`) requests the same
document once a second and replaces what changed.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

import headrace
from headrace.status import summary, words
from headrace.status.details import Details, MarkSummary, ReadableInterval
from headrace.status.pace import Rates
from headrace.status.picture import SourcePicture, TableStatus
from headrace.status.problems import GRAVE, Problem, problems
from headrace.status.summary import BAD, SIGNS
from headrace.status.watch import Sample, View
from headrace.web import curves
from headrace.web.markup import Html, join, tag

SHOWN_PROBLEMS = 20


@dataclass(frozen=True, slots=True)
class Place:
    """A source of one of the served lakes."""

    index: int
    view: View
    source: SourcePicture
    samples: Sequence[Sample]
    rates: Rates
    label: str  # the source's name; with the lake's if another lake has a source of that name

    @property
    def lake(self) -> str:
        return self.view.lake

    def link(self, path: str, **more: str | int) -> str:
        return f"{path}?{urlencode({'lake': self.index, 'source': self.source.name, **more})}"


def short_names(lakes: Sequence[str]) -> dict[str, str]:
    """The shortest ends of the lakes' addresses that differ from each other."""
    parts = {lake: lake.rstrip("/").split("/") for lake in lakes}
    found = {}
    for lake, mine in parts.items():
        ends = ("/".join(mine[-count:]) for count in range(1, len(mine) + 1))
        others = [f"/{other}".rstrip("/") for other in lakes if other != lake]
        found[lake] = next(
            (end for end in ends if not any(other.endswith(f"/{end}") for other in others)), lake
        )
    return found


def overview(views: Sequence[View], places: Sequence[Place]) -> Html:
    """The first page."""
    shorts = short_names([view.lake for view in views])
    wrong = [problem for view in views for problem in problems(view)]
    if len(views) > 1:
        wrong = [
            problem
            if problem.source is None
            else replace(problem, place=f"{problem.place} of {shorts[problem.lake]}")
            for problem in sorted(wrong, key=lambda problem: problem.weight != GRAVE)
        ]
    return _document(
        "Headrace",
        _nav(places, None),
        _verdict(wrong, places),
        _problems(wrong, places),
        *(_card(place) for place in places),
    )


def tables(place: Place, places: Sequence[Place], query: Mapping[str, str]) -> Html:
    """The page of a source's tables, filtered and sorted by the query."""
    known = place.source.tables
    wish, state = query.get("q", ""), query.get("state", "")
    names = [
        name for name, table in known.items() if wish.lower() in name.lower() and state in ("", table.state)
    ]
    by, down = query.get("sort", ""), "down" in query
    key = _SORTS.get(by, _SORTS["table"])
    names.sort(key=lambda name: (key(name, known[name]), name), reverse=down)
    heads = [_head(place, query, title, by, down) for title in _SORTS]
    rows = [_table_row(place, name, known[name]) for name in names]
    return _document(
        f"Tables of {place.label}",
        _nav(places, place, "/tables"),
        tag("h1", f"Tables of {place.label}"),
        _filter(place, wish, state, sorted({table.state for table in known.values()})),
        tag("p", f"{len(names):,} of {words.count_of(len(known), 'table')}", id="count", class_="quiet"),
        _grid(f"Tables of {place.label}", heads, rows, id="rows"),
    )


def table(place: Place, places: Sequence[Place], name: str, details: Details) -> Html:
    """The page of one table."""
    status, source = place.source.tables[name], place.source
    wrong = [
        problem for problem in problems(place.view) if problem.table == name and problem.source == source.name
    ]
    marks = details.marks(source.name, source.epoch)
    changed = [mark for mark in marks if name in mark.tables][:20]
    at = next((mark for mark in marks if name in mark.versions), None)
    return _document(
        name,
        _nav(places, place),
        tag("h1", name, " ", _table_badge(status)),
        _problems(wrong, places) if wrong else None,
        _facts(_table_facts(place, name, status)),
        tag("h2", "Read it"),
        _reading(place, name, at),
        tag("h2", "When it can be read"),
        _intervals(details.intervals(source.name, source.epoch, name)),
        tag("h2", "Columns"),
        _columns(place, name, details),
        tag("h2", "Changes of its shape that this run followed"),
        _alterations(source, name),
        tag("h2", "Newest marks that changed it"),
        _marks(place, changed),
    )


def marks(place: Place, places: Sequence[Place], query: Mapping[str, str], details: Details) -> Html:
    """The page of a source's newest marks, with the mark that the query chose."""
    newest = details.marks(place.source.name, place.source.epoch)
    chosen = next((mark for mark in newest if str(mark.epoch) == query.get("epoch")), None)
    return _document(
        f"Marks of {place.label}",
        _nav(places, place, "/marks"),
        tag("h1", f"Marks of {place.label}"),
        tag("p", "A mark is a state that the database really had, over all tables at once."),
        _chosen_mark(place, chosen) if chosen is not None else None,
        _marks(place, newest),
    )


# --- the frame ------------------------------------------------------------------------------------


def _document(title: str, nav: Html, *parts: Html | None) -> Html:
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("link", rel="icon", href="/assets/icon.svg"),
        tag("link", rel="stylesheet", href=f"/assets/page.css?v={headrace.__version__}"),
        tag("script", src=f"/assets/page.js?v={headrace.__version__}", defer=True),
    )
    stale = tag("p", id="stale", role="status", hidden=True)
    main = tag("main", *parts, id="main")
    foot = tag(
        "footer",
        f"headrace {headrace.__version__} · ",
        tag("a", "metrics", href="/metrics"),
        " · ",
        tag("a", "status as JSON", href="/api/status"),
        " · ",
        tag("a", "ready?", href="/readyz"),
    )
    skip = tag("a", "Skip to the content", href="#main", class_="skip")
    body = tag("body", skip, nav, stale, main, foot)
    return join(Html("<!DOCTYPE html>"), tag("html", head, body, lang="en"))


def _nav(places: Sequence[Place], here: Place | None, path: str = "") -> Html:
    links = [tag("a", "Headrace", href="/", class_="brand", aria_current="page" if here is None else None)]
    for place in places:
        if len(places) > 1:
            links.append(tag("span", place.label, class_="quiet"))
        for target, word in (("/tables", "Tables"), ("/marks", "Marks")):
            current = here is not None and here.index == place.index and here.source.name == place.source.name
            links.append(
                tag(
                    "a",
                    word,
                    href=place.link(target),
                    aria_current="page" if current and target == path else None,
                    aria_label=f"{word} of {place.label}",
                )
            )
    return tag("nav", *links, aria_label="Pages")


def _badge(kind: str, word: str) -> Html:
    return tag("span", tag("span", SIGNS[kind], aria_hidden="true"), f" {word}", class_=f"badge {kind}")


def _table_badge(table: TableStatus) -> Html:
    word, kind = summary.table_state(table)
    return _badge(kind, word)


def _facts(facts: Iterator[tuple[str, str | None]]) -> Html:
    parts = [tag("div", tag("dt", name), tag("dd", value)) for name, value in facts if value is not None]
    return tag("dl", *parts)


def _grid(label: str, heads: Sequence[Html], rows: Sequence[Html], **attributes: object) -> Html:
    """A table that scrolls on its own if the screen is narrow."""
    body = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows, **attributes))
    return tag("div", body, class_="scroll", tabindex="0", role="region", aria_label=label)


def _command(text: str) -> Html:
    return tag(
        "div",
        tag("pre", tag("code", text), tabindex="0"),
        tag("button", "Copy text", type="button", hidden=True, data_copy=text, aria_label=f"Copy: {text}"),
        class_="command",
    )


# --- what is wrong --------------------------------------------------------------------------------


def _verdict(wrong: Sequence[Problem], places: Sequence[Place]) -> Html:
    said = summary.verdict(wrong, [place.source for place in places])
    return tag(
        "div",
        tag("h1", tag("span", SIGNS[said.kind], aria_hidden="true"), f" {said.line}"),
        tag("p", said.more) if said.more else None,
        class_=f"verdict {said.kind}",
    )


def _problems(wrong: Sequence[Problem], places: Sequence[Place]) -> Html | None:
    if not wrong:
        return None
    shown = [_problem(problem, places) for problem in wrong[:SHOWN_PROBLEMS]]
    if len(wrong) > SHOWN_PROBLEMS:
        shown.append(tag("li", f"and {len(wrong) - SHOWN_PROBLEMS:,} more: filter the tables by their state"))
    return tag("ul", *shown, class_="problems")


def _problem(problem: Problem, places: Sequence[Place]) -> Html:
    whose = (problem.lake, problem.source)
    place = next((each for each in places if (each.lake, each.source.name) == whose), None)
    where: Html | str = problem.place
    if problem.table is not None and place is not None and problem.table in place.source.tables:
        where = tag("a", problem.place, href=place.link("/table", name=problem.table))
    kind = "bad" if problem.weight == GRAVE else "busy"
    label = tag("b", where, f": {problem.primary}")
    return tag(
        "li",
        tag("p", tag("span", SIGNS[kind], aria_hidden="true"), " ", label),
        tag("p", problem.detail) if problem.detail else None,
        tag("p", tag("b", "What to do: "), problem.advice) if problem.hint else None,
        *(_command(each) for each in problem.commands),
        tag("p", "code ", tag("code", problem.code), class_="quiet") if problem.code else None,
        class_=kind,
    )


# --- a source -------------------------------------------------------------------------------------


def _card(place: Place) -> Html:
    source, samples = place.source, place.samples
    word, kind = summary.source_state(source)
    lag = curves.curve("Lag", curves.levels(samples, lambda each: each.lag_seconds), words.span)
    rate = curves.rates(curves.levels(samples, lambda each: each.changes))
    changes = curves.curve("Changes a second", rate, words.number)
    held = curves.levels(samples, lambda each: each.retained_bytes)
    log = curves.curve("Log held back", held, words.size) if held else Html("")
    title = tag("h2", f"Source {place.label} ", _badge(kind, word))
    return tag(
        "section",
        title,
        tag("p", f"lake {place.lake}", class_="quiet"),
        _facts(_source_facts(place)),
        curves.curves(samples, [lag, changes, log]),
        _copies(place),
        class_="card",
    )


def _source_facts(place: Place) -> Iterator[tuple[str, str | None]]:
    source = place.source
    yield "Behind the database", summary.behind(source)
    yield "Newest mark", summary.newest_mark(source)
    yield "Last minute", summary.last_minute(place.rates)
    yield "Tables", tag("a", summary.states(source.tables.values()), href=place.link("/tables"))
    yield "Proved by verify", _proof(place)
    yield "Log held back", _held_back(source)
    yield "Lake", summary.storage(source)
    yield "Marks", summary.pace(source)
    yield "Run", summary.owner(source)
    work = source.status.work or source.status.spark
    yield "Does now", work.what if work is not None and source.runs else None


def _proof(place: Place) -> str | Html:
    proofs = place.source.proofs
    if not proofs:
        return tag("code", f"headrace verify --lake {shlex.quote(place.lake)}")
    # A table that stopped may differ from its source by now.
    tables = {name: table.state for name, table in place.source.tables.items()} or dict.fromkeys(proofs, "")
    going_on = [
        proofs[name].outcome for name, state in tables.items() if state != "stopped" and name in proofs
    ]
    counts = Counter(going_on)
    equal = counts.pop("equal", 0)
    of = "" if equal == len(tables) else f" of {len(tables):,}"
    rest = (f"{count:,} {outcome}" for outcome, count in counts.most_common())
    said = ", ".join([f"{equal:,}{of} equal", *rest])
    newest = max((at for proof in proofs.values() if (at := words.moment(proof.at))), default=None)
    return f"{said}, {words.ago(newest)}"


def _held_back(source: SourcePicture) -> str | Html | None:
    said, upstream = summary.held_back(source), source.status.upstream
    if said is None or upstream is None or not upstream.limit_bytes or not source.runs:
        return said
    held, limit = upstream.retained_bytes, upstream.limit_bytes
    return join(said, " ", tag("meter", value=held, min=0, max=limit, high=0.8 * limit, aria_label=said))


def _copies(place: Place) -> Html | None:
    copying = {name: table for name, table in place.source.tables.items() if summary.is_copied(table)}
    if not copying:
        return None
    heads = [
        tag("th", word, scope="col") for word in ("Table", "State", "Copied", "Rows", "Rate", "Time left")
    ]
    rows = [_copy_row(place, name, table) for name, table in list(copying.items())[:50]]
    more = len(copying) - len(rows)
    return join(
        tag("h3", "Copies under way"),
        _grid(f"Copies of {place.label}", heads, rows),
        tag("p", f"and {more:,} more", class_="quiet") if more else None,
    )


def _copy_row(place: Place, name: str, table: TableStatus) -> Html:
    said = summary.copy_words(table, place.rates.copies.get(name))
    done: Html | str = said.progress
    if said.share is not None:
        bar = tag("progress", value=said.share, max=1, aria_label=f"{name}: {said.progress}")
        done = join(bar, f" {said.progress}")
    cells = (_table_link(place, name), _table_badge(table), done, said.rows, said.rate, said.time_left)
    return tag(
        "tr", *(tag("td", cell) for cell in cells), id=f"copy-{place.index}-{place.source.name}-{name}"
    )


# --- tables ---------------------------------------------------------------------------------------

_SORTS: Mapping[str, Callable[[str, TableStatus], Any]] = {
    "table": lambda name, table: name,
    "state": lambda name, table: (summary.kind_of(table) != BAD, table.state),
    "rows": lambda name, table: table.rows if table.rows is not None else -1,
    "size": lambda name, table: table.size_bytes if table.size_bytes is not None else -1,
    "columns": lambda name, table: table.schema_version or 0,
    "last change": lambda name, table: table.last_change or "",
}


def _table_link(place: Place, name: str) -> Html:
    return tag("a", name, href=place.link("/table", name=name))


def _table_row(place: Place, name: str, table: TableStatus) -> Html:
    changed = words.moment(table.last_change)
    version = "" if table.schema_version is None else f"version {table.schema_version}"
    cells: tuple[Html | str, ...] = (
        _table_link(place, name), _table_badge(table), words.number(table.rows),
        "" if table.size_bytes is None else words.size(table.size_bytes), version, words.clock(changed)
    )  # fmt: skip
    return tag("tr", *(tag("td", cell) for cell in cells), id=f"row-{name}")


def _head(place: Place, query: Mapping[str, str], title: str, by: str, down: bool) -> Html:
    here = by == title or (not by and title == "table")
    asked = {key: query[key] for key in ("q", "state") if query.get(key)}
    turned = {"down": "1"} if here and not down else {}
    sign = (" ↓" if down else " ↑") if here else ""
    order = ("descending" if down else "ascending") if here else None
    link = tag("a", f"{title.capitalize()}{sign}", href=place.link("/tables", sort=title, **asked, **turned))
    return tag("th", link, scope="col", aria_sort=order)


def _filter(place: Place, wish: str, state: str, states: Sequence[str]) -> Html:
    options = [tag("option", "every state", value="", selected=not state)]
    options += [tag("option", each.replace("_", " "), value=each, selected=each == state) for each in states]
    return tag(
        "form",
        tag("input", type="hidden", name="lake", value=place.index),
        tag("input", type="hidden", name="source", value=place.source.name),
        tag("label", "Name contains ", tag("input", type="search", name="q", value=wish, autocomplete="off")),
        tag("label", "State ", tag("select", *options, name="state")),
        tag("button", "Filter", type="submit"),
        id="filter",
        role="search",
    )


def _table_facts(place: Place, name: str, table: TableStatus) -> Iterator[tuple[str, str | None]]:
    yield "Rows", None if table.rows is None else words.number(table.rows)
    if table.size_bytes is not None and table.files is not None:
        yield "Size", f"{words.size(table.size_bytes)} in {words.count_of(table.files, 'file')}"
    yield "Last change", words.clock_and_age(words.moment(table.last_change)) or None
    yield "Exact from", None if table.since is None else str(table.since)
    yield "Stopped", words.clock_and_age(words.moment(table.stopped_since)) or None
    yield "Stopped at", None if table.stopped_at is None else str(table.stopped_at)
    proof = place.source.proofs.get(name)
    yield "Last verify", None if proof is None else f"{proof.outcome}, {words.ago(words.moment(proof.at))}"
    if table.copy is not None and summary.is_copied(table):
        copy = table.copy
        yield "Copied", f"{words.size(copy.bytes_done)} of about {words.size(copy.bytes_known)}"


def _reading(place: Place, name: str, mark: MarkSummary | None) -> Html:
    if mark is None:
        return tag(
            "p", "No mark that is listed here names the table: it is not exact yet, or stopped earlier."
        )
    lake = repr(place.lake)
    said = f"Mark {mark.epoch:,} names it: all tables at this mark are from the same moment."
    ways = (
        ("Spark", f"headrace.Lake({lake}).at(epoch={mark.epoch}).table(spark, {name!r})"),
        ("Polars", f"headrace.Lake({lake}).at(epoch={mark.epoch}).polars({name!r})"),
        ("DuckDB", f"rows = headrace.Lake({lake}).at(epoch={mark.epoch}).arrow({name!r}); "
                   'duckdb.sql("SELECT * FROM rows")'),
        ("SQL", f"headrace sql --lake {shlex.quote(place.lake)} --at {mark.epoch} "
                f"{shlex.quote(f'SELECT * FROM {name} LIMIT 10')}"),
    )  # fmt: skip
    return join(tag("p", said), *(join(tag("h3", way), _command(text)) for way, text in ways))


def _intervals(intervals: Sequence[ReadableInterval]) -> Html:
    if not intervals:
        return tag("p", "At no mark that is known here: it is not exact yet.")
    heads = [tag("th", word, scope="col") for word in ("From", "Until")]
    rows = [
        tag(
            "tr",
            tag("td", tag("code", each.since)),
            tag("td", _until(each)),
            id=f"interval-{each.last_epoch}",
        )
        for each in intervals
    ]
    return _grid("When it can be read", heads, rows)


def _until(interval: ReadableInterval) -> str | Html:
    if interval.goes_on:
        return "now"
    mark = f"mark {interval.last_epoch:,}"
    return f"{mark}, or later" if interval.until is None else join(tag("code", interval.until), f", {mark}")


def _columns(place: Place, name: str, details: Details) -> Html:
    known = details.columns(place.source.name, place.source.epoch, name)
    if not known:
        return tag("p", "Nothing is recorded of them yet.")
    heads = [
        tag("th", word, scope="col") for word in ("Column", "At the source", "In the lake", "Key", "NULL")
    ]
    rows = [
        tag(
            "tr",
            tag("td", column.name),
            tag("td", column.source_type),
            tag("td", column.lake_type),
            tag("td", "key" if column.in_key else ""),
            tag("td", "allowed" if column.nullable else "never"),
        )
        for column in known
    ]
    return _grid("Columns", heads, rows)


def _alterations(source: SourcePicture, name: str) -> Html:
    followed = [each for each in source.status.alterations if each.table == name]
    if not followed:
        return tag("p", "None.")
    return tag("ul", *(tag("li", f"{each.what} (mark {each.epoch:,} at {each.at})") for each in followed))


# --- marks ----------------------------------------------------------------------------------------


def _marks(place: Place, shown: Sequence[MarkSummary]) -> Html:
    if not shown:
        return tag("p", "None is listed: the run has cleaned up the records of older ones.")
    heads = [
        tag("th", word, scope="col")
        for word in ("Mark", "Kind", "Newest commit in it", "Position", "Transactions", "Changes", "Tables")
    ]
    rows = [
        tag(
            "tr",
            tag("td", tag("a", f"{mark.epoch:,}", href=place.link("/marks", epoch=mark.epoch))),
            tag("td", mark.kind),
            tag("td", words.clock(words.moment(mark.committed_at))),
            tag("td", mark.frontier),
            tag("td", words.number(mark.transactions)),
            tag("td", words.number(mark.changes)),
            tag("td", _some(mark.tables)),
            id=f"mark-{mark.epoch}",
        )
        for mark in shown
    ]
    return _grid("Marks", heads, rows)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _chosen_mark(place: Place, mark: MarkSummary) -> Html:
    lake = shlex.quote(place.lake)
    python = f"cut = headrace.Lake({place.lake!r}).at(epoch={mark.epoch}); cut.register(spark)"
    return tag(
        "section",
        tag("h2", f"Mark {mark.epoch:,}"),
        tag("p", f"It names {words.count_of(len(mark.versions), 'table')}, all at position {mark.frontier}."),
        tag("h3", "SQL over all tables at this mark"),
        _command(f"headrace sql --lake {lake} --at {mark.epoch}"),
        tag("h3", "All tables as views, in Spark"),
        _command(python),
        class_="card",
    )
