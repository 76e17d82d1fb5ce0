"""The page: is the mirror true, how far behind is it, what is wrong, what do I type?

    /          every source: its state, its lag, what is wrong above all else, copies under way
    /tables    the tables of a source, to be filtered and sorted
    /table     one table: why it stopped, its columns, its last changes, how to read it
    /marks     the newest marks of a source, each with the statement that reads all tables at it

Whole documents, made here: they work without JavaScript. The script asks for the same document once a second
and puts in what changed (`assets/page.js`).
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import headrace
from headrace.status import words
from headrace.status.details import Details, MarkSummary
from headrace.status.picture import SourcePicture, TableStatus
from headrace.status.problems import GRAVE, Problem, problems
from headrace.status.watch import Sample, View
from headrace.web import curves
from headrace.web.markup import Html, join, tag
from headrace.web.metrics import state_of

SHOWN_PROBLEMS = 20

# Of sources and tables: the word that is shown, and its kind: good, busy, bad, idle.
_SOURCE_WORDS: Mapping[str, tuple[str, str]] = {
    "starting": ("starting", "busy"),
    "running": ("running", "good"),
    "waiting": ("waiting", "busy"),
    "stopped": ("stopped", "bad"),
    "failed": ("failed", "bad"),
    "silent": ("silent: no run answers", "bad"),
    "dropped": ("dropped", "idle"),
    "never run": ("never run", "bad"),
}
_TABLE_KINDS: Mapping[str, str] = {
    "live": "good",
    "ready": "good",
    "copying": "busy",
    "rewriting": "busy",
    "pending": "busy",
    "catching_up": "busy",
    "joining": "busy",
    "stopped": "bad",
}
_SIGNS = {"good": "✓", "busy": "…", "bad": "✕", "idle": "–"}
_COPYING = ("copying", "rewriting", "pending")


@dataclass(frozen=True, slots=True)
class Place:
    """A source of one of the lakes that are served."""

    index: int
    view: View
    source: SourcePicture
    samples: Sequence[Sample]
    copy_rates: Mapping[str, float]

    @property
    def lake(self) -> str:
        return self.view.lake

    def link(self, path: str, **more: str | int) -> str:
        return f"{path}?{urlencode({'lake': self.index, 'source': self.source.name, **more})}"


def overview(views: Sequence[View], places: Sequence[Place]) -> Html:
    """The first page."""
    wrong = [problem for view in views for problem in problems(view)]
    return _document(
        "Headrace",
        _nav(places, None),
        _verdict(wrong, places),
        _problems(wrong, places),
        *(_card(place) for place in places),
    )


def tables(place: Place, places: Sequence[Place], query: Mapping[str, str]) -> Html:
    """The tables of a source, those that the query asks for."""
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
        f"Tables of {place.source.name}",
        _nav(places, place, "/tables"),
        tag("h1", f"Tables of {place.source.name}"),
        _filter(place, wish, state, sorted({table.state for table in known.values()})),
        tag("p", f"{len(names):,} of {words.count_of(len(known), 'table')}", id="count", class_="quiet"),
        _grid(f"Tables of {place.source.name}", heads, rows, id="rows"),
    )


def table(place: Place, places: Sequence[Place], name: str, details: Details) -> Html:
    """One table."""
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
        tag("h2", "Columns"),
        _columns(place, name, details),
        tag("h2", "Changes of its shape that this run followed"),
        _alterations(source, name),
        tag("h2", "Newest marks that changed it"),
        _marks(place, changed),
    )


def marks(place: Place, places: Sequence[Place], query: Mapping[str, str], details: Details) -> Html:
    """The newest marks of a source, and one that was chosen."""
    newest = details.marks(place.source.name, place.source.epoch)
    chosen = next((mark for mark in newest if str(mark.epoch) == query.get("epoch")), None)
    return _document(
        f"Marks of {place.source.name}",
        _nav(places, place, "/marks"),
        tag("h1", f"Marks of {place.source.name}"),
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
            links.append(tag("span", place.source.name, class_="quiet"))
        for target, word in (("/tables", "Tables"), ("/marks", "Marks")):
            current = here is not None and here.index == place.index and here.source.name == place.source.name
            links.append(
                tag(
                    "a",
                    word,
                    href=place.link(target),
                    aria_current="page" if current and target == path else None,
                    aria_label=f"{word} of {place.source.name}",
                )
            )
    return tag("nav", *links, aria_label="Pages")


def _badge(kind: str, word: str) -> Html:
    return tag("span", tag("span", _SIGNS[kind], aria_hidden="true"), f" {word}", class_=f"badge {kind}")


def _table_badge(table: TableStatus) -> Html:
    word = table.state.replace("_", " ") or "unknown"
    if table.copied_anew:
        word += ", copied anew"
    if table.unseen_since is not None:
        return _badge("busy", f"{word}, locked")
    return _badge(_TABLE_KINDS.get(table.state, "idle"), word)


def _facts(facts: Iterator[tuple[str, str | None]]) -> Html:
    parts = [tag("div", tag("dt", name), tag("dd", value)) for name, value in facts if value is not None]
    return tag("dl", *parts)


def _grid(label: str, heads: Sequence[Html], rows: Sequence[Html], **attributes: object) -> Html:
    """A table that scrolls by itself where the screen is narrow."""
    body = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows, **attributes))
    return tag("div", body, class_="scroll", tabindex="0", role="region", aria_label=label)


def _command(text: str) -> Html:
    return tag(
        "div",
        tag("pre", tag("code", text), tabindex="0"),
        tag("button", "Copy", type="button", hidden=True, data_copy=text, aria_label=f"Copy: {text}"),
        class_="command",
    )


# --- what is wrong --------------------------------------------------------------------------------


def _verdict(wrong: Sequence[Problem], places: Sequence[Place]) -> Html:
    """The answer to whoever asks first: is the mirror true?"""
    grave = [problem for problem in wrong if problem.weight == GRAVE]
    exact, others = _exact(grave, places)
    lag = max((place.source.lag_seconds or 0.0 for place in places), default=0.0)
    living = bool(places) and all(place.source.runs for place in places)
    behind = f"{words.span(lag)} behind the database" if living else "as of the newest mark"
    if grave:
        kind, first = "bad", grave[0]
        line = f"{first.place}: {first.brief}" if len(grave) == 1 else f"{len(grave):,} problems"
        more = f"{words.count_of(exact, 'table')} can be read exactly, {behind}" if exact else None
    else:
        kind = "busy" if wrong or others else "good"
        tables = f"{exact:,} of {exact + others:,} tables" if others else words.count_of(exact, "table")
        line = f"The mirror is true: {tables}, {behind}" if exact else "Nothing can be read yet"
        waiting = f"{words.count_of(others, 'table')} not exact yet" if others else None
        known = f"{words.count_of(len(wrong), 'thing')} to know below" if wrong else None
        more = "; ".join(filter(None, (waiting, known))) or None
    return tag(
        "div",
        tag("h1", tag("span", _SIGNS[kind], aria_hidden="true"), f" {line}"),
        tag("p", more) if more else None,
        class_=f"verdict {kind}",
    )


def _exact(grave: Sequence[Problem], places: Sequence[Place]) -> tuple[int, int]:
    """The tables that follow their source and of which nothing is wrong, and the others."""
    bad = {(problem.source, problem.table) for problem in grave if problem.table is not None}
    exact = others = 0
    for place in places:
        for name, table in place.source.tables.items():
            follows = _TABLE_KINDS.get(table.state) == "good" and table.unseen_since is None
            fine = follows and (place.source.name, name) not in bad
            exact, others = exact + fine, others + (not fine)
    return exact, others


def _problems(wrong: Sequence[Problem], places: Sequence[Place]) -> Html | None:
    if not wrong:
        return None
    shown = [_problem(problem, places) for problem in wrong[:SHOWN_PROBLEMS]]
    if len(wrong) > SHOWN_PROBLEMS:
        shown.append(tag("li", f"and {len(wrong) - SHOWN_PROBLEMS:,} more: filter the tables by their state"))
    return tag("ul", *shown, class_="problems")


def _problem(problem: Problem, places: Sequence[Place]) -> Html:
    place = next((each for each in places if each.source.name == problem.source), None)
    where: Html | str = problem.place
    if problem.table is not None and place is not None and problem.table in place.source.tables:
        where = tag("a", problem.place, href=place.link("/table", name=problem.table))
    kind = "bad" if problem.weight == GRAVE else "busy"
    label = tag("b", where, f": {problem.primary}")
    return tag(
        "li",
        tag("p", tag("span", _SIGNS[kind], aria_hidden="true"), " ", label),
        tag("p", problem.detail) if problem.detail else None,
        tag("p", "What to do: ", None if problem.hint_is_command else problem.hint) if problem.hint else None,
        *(_command(each) for each in problem.commands),
        tag("p", "code ", tag("code", problem.code), class_="quiet") if problem.code else None,
        class_=kind,
    )


# --- a source -------------------------------------------------------------------------------------


def _card(place: Place) -> Html:
    source, samples = place.source, place.samples
    word, kind = _SOURCE_WORDS[state_of(source)]
    lag = curves.curve("Lag", curves.levels(samples, lambda each: each.lag_seconds), words.span)
    rate = curves.rates(curves.levels(samples, lambda each: each.changes))
    changes = curves.curve("Changes a second", rate, words.number)
    held = curves.levels(samples, lambda each: each.retained_bytes)
    log = curves.curve("Log held back", held, words.size) if held else Html("")
    title = tag("h2", f"Source {source.name} ", _badge(kind, word))
    return tag(
        "section",
        title,
        tag("p", f"in {place.lake}", class_="quiet"),
        _facts(_source_facts(place)),
        curves.curves(samples, [lag, changes, log]),
        _copies(place),
        class_="card",
    )


def _source_facts(place: Place) -> Iterator[tuple[str, str | None]]:
    source = place.source
    position, marked = source.position, words.moment(source.status.marked_at)
    if position is not None and source.runs:
        bytes_behind = f", {words.size(position.lag_bytes)} of log" if position.lag_bytes else ""
        yield "Behind the database", f"{words.span(source.lag_seconds)}{bytes_behind}"
    else:
        yield "Behind the database", "unknown: no run is alive"
    yield "Newest mark", f"{source.epoch:,}, {words.ago(marked)}" if marked else f"{source.epoch:,}"
    yield "Last minute", _last_minute(place)
    yield "Tables", tag("a", _states(source), href=place.link("/tables"))
    yield "Proved by verify", _proof(place)
    yield "Log held back", _held_back(source)
    yield "Run", _run(source)
    work = source.status.work or source.status.spark
    yield "Does now", work.what if work is not None and source.runs else None


def _states(source: SourcePicture) -> str:
    counts = Counter(table.state.replace("_", " ") for table in source.tables.values())
    return ", ".join(f"{count:,} {state}" for state, count in counts.most_common()) or "none"


def _last_minute(place: Place) -> str | None:
    recent = [each for each in place.samples if place.samples[-1].at - each.at <= 65]
    if len(recent) < 2 or recent[0].changes is None or recent[-1].changes is None:
        return None
    return f"{words.number(max(0, recent[-1].changes - recent[0].changes))} changes"


def _proof(place: Place) -> str | Html:
    proofs = place.source.proofs
    if not proofs:
        return tag("code", f"headrace verify --lake {shlex.quote(place.lake)}")
    counts = Counter(proof.outcome for proof in proofs.values())
    newest = max((at for proof in proofs.values() if (at := words.moment(proof.at))), default=None)
    said = ", ".join(f"{count:,} {outcome}" for outcome, count in counts.most_common())
    return f"{said}, {words.ago(newest)}"


def _held_back(source: SourcePicture) -> str | Html | None:
    upstream = source.status.upstream
    if upstream is None or upstream.retained_bytes is None:
        return None
    held, limit = upstream.retained_bytes, upstream.limit_bytes
    if not limit:
        return f"{words.size(held)}, and there is no limit"
    if not source.runs:
        return f"{words.size(held)} of {words.size(limit)}, when it was last heard of"
    said = f"{words.size(held)} of {words.size(limit)}"
    return join(said, " ", tag("meter", value=held, min=0, max=limit, high=0.8 * limit, aria_label=said))


def _run(source: SourcePicture) -> str:
    owner = source.status.owner
    where = f"process {owner.get('pid')} on {owner.get('host')}" if owner.get("pid") else "none"
    return f"{where}, heard {words.span(source.age)} ago" if source.age is not None else where


def _copies(place: Place) -> Html | None:
    copying = {
        name: table
        for name, table in place.source.tables.items()
        if table.state in _COPYING or table.copied_anew is not None
    }
    if not copying:
        return None
    heads = [
        tag("th", word, scope="col") for word in ("Table", "State", "Copied", "Rows", "Rate", "Time left")
    ]
    rows = [_copy_row(place, name, table) for name, table in list(copying.items())[:50]]
    more = len(copying) - len(rows)
    return join(
        tag("h3", "Copies under way"),
        _grid(f"Copies of {place.source.name}", heads, rows),
        tag("p", f"and {more:,} more", class_="quiet") if more else None,
    )


def _copy_row(place: Place, name: str, table: TableStatus) -> Html:
    copy, rate = table.copy, place.copy_rates.get(name)
    done: Html | str = "waits"
    rows = left = ""
    if copy is not None:
        share = copy.bytes_done / copy.bytes_known if copy.bytes_known else 0.0
        said = f"{min(1.0, share):.0%} of {words.size(copy.bytes_known)}"
        done = join(tag("progress", value=min(copy.bytes_done, copy.bytes_known), max=copy.bytes_known or 1,
                        aria_label=f"{name}: {said}"), f" {said}")  # fmt: skip
        rows = f"{copy.rows_done:,} of about {copy.rows_known:,}"
        left = words.span(max(0, copy.bytes_known - copy.bytes_done) / rate) if rate else ""
    said_rate = f"{words.size(rate)}/s" if rate else ""
    cells: tuple[Html | str, ...] = (
        _table_link(place, name),
        _table_badge(table),
        done,
        rows,
        said_rate,
        left,
    )
    return tag(
        "tr", *(tag("td", cell) for cell in cells), id=f"copy-{place.index}-{place.source.name}-{name}"
    )


# --- tables ---------------------------------------------------------------------------------------

_SORTS: Mapping[str, Callable[[str, TableStatus], Any]] = {
    "table": lambda name, table: name,
    "state": lambda name, table: (_TABLE_KINDS.get(table.state) != "bad", table.state),
    "rows": lambda name, table: table.rows if table.rows is not None else -1,
    "columns": lambda name, table: table.schema_version or 0,
    "last change": lambda name, table: table.last_change or "",
}


def _table_link(place: Place, name: str) -> Html:
    return tag("a", name, href=place.link("/table", name=name))


def _table_row(place: Place, name: str, table: TableStatus) -> Html:
    changed = words.moment(table.last_change)
    version = "" if table.schema_version is None else f"version {table.schema_version}"
    cells: tuple[Html | str, ...] = (
        _table_link(place, name), _table_badge(table), words.number(table.rows), version, words.clock(changed)
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
    changed = words.moment(table.last_change)
    yield "Last change", None if changed is None else f"{words.clock(changed)}, {words.ago(changed)}"
    yield "Exact from", None if table.since is None else str(table.since)
    yield "Stopped at", None if table.stopped_at is None else str(table.stopped_at)
    proof = place.source.proofs.get(name)
    yield "Last verify", None if proof is None else f"{proof.outcome}, {words.ago(words.moment(proof.at))}"
    if table.copy is not None and table.state in _COPYING:
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


def _columns(place: Place, name: str, details: Details) -> Html:
    known = details.columns(place.source.name, place.source.epoch, name)
    if not known:
        return tag("p", "Nothing is recorded of them yet.")
    heads = [tag("th", word, scope="col") for word in ("Column", "Type at the source", "Key", "NULL")]
    rows = [
        tag(
            "tr",
            tag("td", column.name),
            tag("td", column.source_type),
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
