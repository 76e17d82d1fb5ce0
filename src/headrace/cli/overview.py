"""The page in a terminal: is the mirror true, what is wrong, what to type; then sources, copies, tables.

    overview       the whole page, cut to the terminal's height or in full
    source_lines   a line for each source: state, lag, newest mark, marks and changes a minute, log held back
    copy_lines     a bar for each copy, with rate and time left

It uses the words of the web page (`status.summary`, `status.problems`). Problems come first, and their
commands can be copied. Problems, copies and tables that have no room are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from rich.text import Text

from headrace.cli.layout import STYLES, GridColumn, Part, Sheet
from headrace.core.durations import duration_text
from headrace.lake.format.status import TableStatus, seconds_since
from headrace.status import sentences, summary, words
from headrace.status.pace import Rates
from headrace.status.picture import SourcePicture
from headrace.status.problems import GRAVE, Problem, problems
from headrace.status.summary import BAD, BUSY, SIGNS
from headrace.status.watch import View

MOST_PROBLEMS = 20
BUSY_SECONDS = 3.0
_ALTERATIONS = 5
_OLD_SECONDS = 3.0  # the page tells the view's age if it is greater
_BAR = 20
_HIGH = 28  # a terminal with at least so many lines has blank ones between the parts

Named = tuple[SourcePicture, str, TableStatus]


def overview(
    view: View, rates: Mapping[str, Rates], sheet: Sheet, height: int | None = None, *, keys: str = ""
) -> list[Text]:
    """The page of a lake, cut to a height if there is one. The last line names the `keys`."""
    wrong = problems(view)
    head, foot = _head(wrong, view, sheet), _foot(view, sheet, keys)
    sources = source_lines(view.sources, rates, sheet)
    details = [line for source in view.sources for line in _details(source, sheet, len(view.sources) > 1)]
    copies = [each for each in _tables_of(view) if summary.is_copied(each[2])]
    if height is None:
        parts = [
            _problems(wrong, sheet, None),
            [*sources, *details, *_upstream(view, sheet)],
            copy_lines(copies, rates, sheet),
            _tables(view, sheet, None),
            _notes(view, sheet),
        ]
        return _join([head, *parts, foot], blank=True)
    blank = height >= _HIGH
    room = height - len(head) - len(foot) - blank
    sources = [*sources, *details][: max(2, room // 3)]
    room -= _height(sources, blank)
    shown_copies = copy_lines(copies, rates, sheet, max(2, room // 3))
    room -= _height(shown_copies, blank)
    least = min(len(_tables_of(view)) + 1, max(2, room // 2)) + blank  # kept free for the tables
    shown_problems = _problems(wrong, sheet, room - least - blank)
    room -= _height(shown_problems, blank)
    tables = _tables(view, sheet, room - blank)
    room -= _height(tables, blank)
    notes = _notes(view, sheet)[: max(0, room - blank)]
    body = _join([head, shown_problems, sources, shown_copies, tables, notes], blank)
    return _join([body[: height - len(foot) - blank], foot], blank)


def _height(lines: Sequence[Text], blank: bool) -> int:
    return len(lines) + blank if lines else 0


def _join(parts: Sequence[Sequence[Text]], blank: bool) -> list[Text]:
    """Join the parts that have lines, with blank lines between them if asked."""
    lines: list[Text] = []
    for part in parts:
        lines += [Text()] if blank and lines and part else []
        lines += part
    return lines


# --- the first and the last lines -----------------------------------------------------------------


def _head(wrong: Sequence[Problem], view: View, sheet: Sheet) -> list[Text]:
    said = summary.verdict(wrong, view.sources)
    lines = sheet.wrap(f"{SIGNS[said.kind]} {said.line}", style="bold")
    lines[0].stylize(STYLES[said.kind], 0, 1)
    return lines + ([] if said.more is None else sheet.wrap(said.more, 2))


def _foot(view: View, sheet: Sheet, keys: str) -> list[Text]:
    old = f" · last looked at {words.span(view.age)} ago" if view.age > _OLD_SECONDS else ""
    parts = [words.clock(datetime.now(UTC)) + old, *([keys] if keys else []), view.lake]
    return [sheet.line((" · ".join(parts), "dim"))]


# --- what is wrong --------------------------------------------------------------------------------


def _problems(wrong: Sequence[Problem], sheet: Sheet, room: int | None) -> list[Text]:
    """The problems that fit, each in full; the first one always."""
    lines: list[Text] = []
    for at, problem in enumerate(wrong):
        made = _problem(problem, sheet)
        more = len(wrong) - at
        full = room is not None and len(lines) + len(made) + (more > 1) > room
        if lines and (full or at >= MOST_PROBLEMS):
            return [*lines, sheet.line(f"  and {words.count_of(more, 'more problem')}")]
        lines += made
    return lines


def _problem(problem: Problem, sheet: Sheet) -> list[Text]:
    kind = BAD if problem.weight == GRAVE else BUSY
    code = f" ({problem.code})" if problem.code else ""
    first, *others = sheet.wrap(f"{SIGNS[kind]} {problem.place}: {problem.primary}{code}")
    first.stylize(STYLES[kind], 0, 1)
    lines = [first, *(sheet.line(f"  {line.plain}") for line in others)]
    lines += sheet.wrap(problem.detail, 2) if problem.detail else []
    if problem.advice:
        lines += sheet.wrap(f"what to do: {problem.advice}", 2)
    return lines + [line for each in problem.commands for line in sheet.command(each, 4)]


# --- sources --------------------------------------------------------------------------------------

_SOURCE = (
    GridColumn("source", least=10),
    GridColumn("state", least=11),
    GridColumn("behind"),
    GridColumn("newest mark", 1),
    GridColumn("a minute", 3),
    GridColumn("log held back", 2),
)


def source_lines(sources: Sequence[SourcePicture], rates: Mapping[str, Rates], sheet: Sheet) -> list[Text]:
    """A head and a line for each source; columns that have no room are written below the line."""
    if not sources:
        return []
    rows = [_source_row(source, rates.get(source.name, Rates())) for source in sources]
    (head, *lines), absent = sheet.grid(_SOURCE, rows)
    made = [head]
    for line, row in zip(lines, rows, strict=True):
        said = [f"{_SOURCE[at].title}: {row[at][0]}" for at in absent if row[at][0]]
        made += [line, *(sheet.wrap(" · ".join(said), 2) if said else [])]
    return made


def _source_row(source: SourcePicture, rates: Rates) -> list[Part]:
    word, kind = summary.source_state(source)
    return [
        (source.name, "bold"),
        (f"{SIGNS[kind]} {word}", STYLES[kind]),
        (
            ""
            if source.position is None
            else summary.behind(source).removesuffix(" of log").partition(":")[0],
            "",
        ),
        (summary.newest_mark(source) if source.epoch else "none yet", ""),
        (summary.last_minute(rates) or "", ""),
        (summary.held_back(source) or "", ""),
    ]


def standing_lines(source: SourcePicture, sheet: Sheet, with_name: bool) -> list[Text]:
    """The sentences of `standing` as lines that fit, with the source's name if asked."""
    name = f"{source.name}: " if with_name else ""
    return [line for said in standing(source) for line in sheet.wrap(f"{name}{said}", 2)]


def _details(source: SourcePicture, sheet: Sheet, with_name: bool) -> list[Text]:
    """Positions, the owner, and what takes long."""
    position, name = source.position, f"{source.name}: " if with_name else ""
    told = [] if position is None else [f"mark at {position.frontier}", f"received {position.received_until}"]
    if position is not None and position.acknowledged_until:
        told.append(f"acknowledged {position.acknowledged_until}")
    told.append(summary.owner(source).partition(", ")[0] if source.runs else summary.owner(source))
    told += storage(source)
    lines = sheet.wrap(f"{name}{' · '.join(told)}", 2, "dim")
    return lines + standing_lines(source, sheet, with_name)


def storage(source: SourcePicture) -> list[str]:
    """Say how large the source's part of the lake is, and how often marks come."""
    size, pace = summary.storage(source), summary.pace(source)
    return [*([f"lake {size}"] if size else []), *([f"marks {pace}"] if pace else [])]


def standing(source: SourcePicture) -> list[str]:
    """Say what takes long: a source that does not answer, a step of the loop, Spark."""
    said, now, silent = source.status, source.now, source.contact_age
    lines = []
    if silent is not None and said.unheard(now):
        lines.append(f"the source last answered {duration_text(silent)} ago")
    if not source.runs:
        return lines
    stands = source.turn_age is not None and source.turn_age > BUSY_SECONDS
    if said.work is not None and stands:
        lines.append(
            f"busy for {duration_text(seconds_since(said.work.since, now) or 0.0)}: {said.work.what}"
        )
    elif stands:
        lines.append(f"its loop last came round {duration_text(source.turn_age or 0.0)} ago")
    if said.spark is not None:
        age = seconds_since(said.spark.since, now)
        lines.append(said.spark.what + ("" if age is None else f" (for {duration_text(age)})"))
    return lines


def _upstream(view: View, sheet: Sheet) -> list[Text]:
    known = [source.status.upstream for source in view.sources if source.status.upstream is not None]
    return [line for upstream in known for said in upstream.lines for line in sheet.wrap(said, 2, "dim")]


# --- copies ---------------------------------------------------------------------------------------

_COPY = (
    GridColumn("copy of", least=12),
    GridColumn("", 2),
    GridColumn("done"),
    GridColumn("rows", 4),
    GridColumn("rate", 3),
    GridColumn("time left", 1),
)


def copy_lines(
    copies: Sequence[Named], rates: Mapping[str, Rates], sheet: Sheet, room: int | None = None
) -> list[Text]:
    """A bar for each copy, the furthest first; copies that have no room, or wait, are counted."""
    if not copies:
        return []
    known = [
        (source, name, table, summary.copy_words(table, _rate(rates, source, name)))
        for source, name, table in copies
    ]
    begun = sorted(
        (each for each in known if each[3].share is not None), key=lambda each: -(each[3].share or 0)
    )
    shown = begun if room is None else begun[: max(1, room - 2)]
    rows: list[list[Part]] = [
        [
            (name, ""),
            (sheet.bar(said.share or 0.0, min(_BAR, sheet.width // 8)), STYLES[BUSY]),
            (said.progress, ""),
            (said.rows, ""),
            (said.rate, ""),
            (said.time_left, ""),
        ]
        for _, name, _, said in shown
    ]
    lines = sheet.grid(_COPY, rows)[0] if rows else []
    waiting, more = len(known) - len(begun), len(begun) - len(shown)
    counted = [f"{more:,} more are copied"] * (more > 0) + [f"{waiting:,} wait for their turn"] * (
        waiting > 0
    )
    return lines + ([sheet.line(("; ".join(counted), ""))] if counted else [])


def _rate(rates: Mapping[str, Rates], source: SourcePicture, name: str) -> float | None:
    return rates.get(source.name, Rates()).copies.get(name)


# --- tables ---------------------------------------------------------------------------------------

_Show = Callable[[SourcePicture, str, TableStatus], Part]


def _state_cell(source: SourcePicture, name: str, table: TableStatus) -> Part:
    word, kind = summary.table_state(table)
    return f"{SIGNS[kind]} {word}", STYLES[kind]


def _proof_cell(source: SourcePicture, name: str, table: TableStatus) -> Part:
    proof = source.proofs.get(name)
    if proof is None:
        return "", ""
    style = "" if proof.outcome == "equal" else STYLES[BAD]
    return f"{proof.outcome}, {words.ago(words.moment(proof.at))}", style


def _size_cell(source: SourcePicture, name: str, table: TableStatus) -> Part:
    return ("" if table.size_bytes is None else words.size(table.size_bytes)), ""


def _columns_cell(source: SourcePicture, name: str, table: TableStatus) -> Part:
    return ("" if table.schema_version is None else f"version {table.schema_version}"), ""


_TABLE: Sequence[tuple[GridColumn, _Show]] = (
    (GridColumn("table", least=12), lambda source, name, table: (name, "")),
    (GridColumn("source", 3), lambda source, name, table: (source.name, "")),
    (GridColumn("state"), _state_cell),
    (GridColumn("rows", 1, is_number=True), lambda source, name, table: (words.number(table.rows), "")),
    (
        GridColumn("last change", 2),
        lambda source, name, table: (words.clock(words.moment(table.last_change)), ""),
    ),
    (GridColumn("size", 3, is_number=True), _size_cell),
    (GridColumn("verified", 4), _proof_cell),
    (GridColumn("columns", 5), _columns_cell),
)


def _tables_of(view: View) -> list[Named]:
    """Every table of every source, in the order of `by_weight`."""
    known = {(source.name, name): (source, name, table) for source, name, table in _all(view)}
    order = summary.by_weight({key: table for key, (_, _, table) in known.items()})
    return [known[key] for key in order]


def _all(view: View) -> list[Named]:
    return [(source, name, table) for source in view.sources for name, table in source.tables.items()]


def _tables(view: View, sheet: Sheet, room: int | None) -> list[Text]:
    tables = _tables_of(view)
    if not tables or (room is not None and room < 1):
        return []
    shown = tables if room is None or len(tables) < room else tables[: max(0, room - 2)]
    columns = [each for each in _TABLE if len(view.sources) > 1 or each[0].title != "source"]
    rows = [[show(*each) for _, show in columns] for each in shown]
    lines = sheet.grid([column for column, _ in columns], rows)[0] if rows else []
    more = tables[len(shown) :]
    counted = f"{f'and {len(more):,} more' if shown else words.count_of(len(more), 'table')}: "
    counted += summary.states(table for _, _, table in more)
    return lines + ([sheet.line(counted)] if more else [])


# --- what else is to know -------------------------------------------------------------------------


def _notes(view: View, sheet: Sheet) -> list[Text]:
    """The columns and tables that are not mirrored, and the last DDL that was followed."""
    lines: list[str] = []
    for source in view.sources:
        lines += sentences.columns_left_out(source.tables)
        lines += sentences.unmirrored_lines(source.unmirrored_tables)
        lines += map(sentences.alteration, source.status.alterations[-_ALTERATIONS:])
    return [line for said in lines for line in sheet.wrap(said)]
