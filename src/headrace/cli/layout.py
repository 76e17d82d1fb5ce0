"""Lines that fit a terminal: text cut and wrapped by the cells that it takes, columns, bars.

    Sheet.line     one line of parts, cut at the width
    Sheet.wrap     a sentence over several lines
    Sheet.command  a command over several lines that a shell takes as one
    Sheet.grid     columns side by side; if the width is short, the least important ones are left out

Every text passes `Sheet.clean`: no name can control the terminal, and each line is as wide as was counted.
Colours are those of the terminal's palette, and only signs and words of state have them. So the rest can be
read on black and on white. No fact is told by a colour alone.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from headrace.cli.output import in_ascii, printable
from headrace.status.summary import BAD, BUSY, GOOD, IDLE

STYLES = {GOOD: "green", BUSY: "magenta", BAD: "bold red", IDLE: "dim"}
GAP = 2
_SHELL_WORD = re.compile(r"""(?:'[^']*'|"[^"]*"|[^ ])+""")  # as `shlex.quote` writes it

Part = tuple[str, str]  # a text and its style


@dataclass(frozen=True, slots=True)
class GridColumn:
    """A column of a grid; if columns don't fit, the one with the greatest `rank` is left out first."""

    title: str
    rank: int = 0
    is_number: bool = False
    least: int | None = None  # the cells that it needs at least; None: as many as its widest text


Columns = Sequence[GridColumn]


@dataclass(frozen=True, slots=True)
class Sheet:
    """A terminal's width, and whether it takes ASCII alone."""

    width: int
    ascii: bool = False

    def clean(self, text: str) -> str:
        """The text without characters that control the terminal, or that it can't show."""
        return in_ascii(printable(text)) if self.ascii else printable(text)

    def fit(self, text: str, cells: int, *, keep_end: bool = False) -> str:
        """Cut a clean text to at most so many cells; an ellipsis shows the cut."""
        if cell_len(text) <= cells:
            return text
        dots = self.clean("…")
        letters, kept, room = (reversed(text) if keep_end else iter(text)), [], cells - cell_len(dots)
        for letter in letters:
            room -= cell_len(letter)
            if room < 0:
                break
            kept.append(letter)
        if keep_end:
            return (dots + "".join(reversed(kept))) if cells > 0 else ""
        return ("".join(kept) + dots) if cells > 0 else ""

    def line(self, *parts: Part | str) -> Text:
        """One line, cut at the width."""
        made, room = Text(no_wrap=True, overflow="crop"), self.width
        for part in parts:
            text, style = (part, "") if isinstance(part, str) else part
            shown = self.fit(self.clean(text), room)
            made.append(shown, style)
            room -= cell_len(shown)
        return made

    def wrap(self, text: str, indent: int = 0, style: str = "") -> list[Text]:
        """A sentence over as many lines as it needs; a word that is too long is broken."""
        room = max(1, self.width - indent)
        lines = [""]
        for word in self.clean(text).split(" "):
            joined = f"{lines[-1]} {word}" if lines[-1] else word
            if cell_len(joined) <= room:
                lines[-1] = joined
                continue
            pieces = list(_pieces(word, room))
            lines = lines[:-1] + [line for line in lines[-1:] if line] + pieces
        return [self.line((" " * indent + line, style)) for line in lines]

    def command(self, text: str, indent: int = 0) -> list[Text]:
        """A command that can be copied: a line that goes on ends with a backslash."""
        begin = " " * indent if indent + 8 < self.width else ""
        start, current, lines = begin, "", []
        if cell_len(start + self.clean(text)) <= self.width:
            return [self.line((start + text, "bold"))]
        for word in _SHELL_WORD.findall(self.clean(text)):
            joined = f"{current} {word}" if current else word
            if cell_len(start + joined) + 2 <= self.width:
                current = joined
                continue
            if current:
                lines.append(f"{start}{current} \\")
                start = begin
            *broken, current = _shell_pieces(word, max(1, self.width - 2 - cell_len(start)))
            if broken:  # a shell joins pieces of a word only if the next one begins its line
                lines += [f"{start}{broken[0]}\\", *(f"{piece}\\" for piece in broken[1:])]
                start = ""
        return [self.line((line, "bold")) for line in [*lines, start + current]]

    def grid(self, columns: Columns, rows: Sequence[Sequence[Part]]) -> tuple[list[Text], list[int]]:
        """The head and a line for each row; then the columns without room. The first one is always shown."""
        cells = [[(self.clean(text), style) for text, style in row] for row in rows]
        widest = [
            max([cell_len(column.title), *(cell_len(row[at][0]) for row in cells)])
            for at, column in enumerate(columns)
        ]
        shown = list(range(len(columns)))
        while len(shown) > 1 and self._least(columns, widest, shown) > self.width:
            shown.remove(max(shown[1:], key=lambda at: (columns[at].rank, at)))
        widths = self._widths(columns, widest, shown)
        head = [(columns[at].title, "dim") for at in shown]
        lines = [self._row(columns, shown, widths, head, keep_end=False)]
        lines += [self._row(columns, shown, widths, [row[at] for at in shown]) for row in cells]
        return lines, [at for at in range(len(columns)) if at not in shown]

    def bar(self, share: float, cells: int) -> str:
        """A bar that is filled to this share."""
        full = int(cells * min(1.0, max(0.0, share)))
        return "█" * full + "░" * (cells - full)

    def _least(self, columns: Columns, widest: Sequence[int], shown: Sequence[int]) -> int:
        needs = [min(widest[at], columns[at].least or widest[at]) for at in shown]
        return sum(needs) + GAP * (len(shown) - 1)

    def _widths(self, columns: Columns, widest: Sequence[int], shown: Sequence[int]) -> list[int]:
        """The cells of each shown column; the one that has most to spare shrinks first."""
        widths = [widest[at] for at in shown]
        leasts = [min(widest[at], columns[at].least or widest[at]) for at in shown]
        leasts[0] = min(leasts[0], self.width)
        while (over := sum(widths) + GAP * (len(shown) - 1) - self.width) > 0:
            spare = [width - least for width, least in zip(widths, leasts, strict=True)]
            if max(spare) <= 0:
                break
            widths[spare.index(max(spare))] -= min(over, max(spare))
        return widths

    def _row(
        self,
        columns: Columns,
        shown: Sequence[int],
        widths: Sequence[int],
        cells: Sequence[Part],
        *,
        keep_end: bool = True,
    ) -> Text:
        parts: list[Part] = []
        for at, width, (text, style) in zip(shown, widths, cells, strict=True):
            fitted = self.fit(text, width, keep_end=keep_end and at == 0)
            blank = " " * (width - cell_len(fitted))
            parts += (
                [(blank, ""), (fitted, style)] if columns[at].is_number else [(fitted, style), (blank, "")]
            )
            parts.append((" " * GAP, ""))
        made = self.line(*parts[:-1])
        made.rstrip()
        return made


def _shell_pieces(word: str, room: int) -> Iterator[str]:
    """Cut a shell word into pieces, each with its own quotes: inside quotes a backslash joins no lines."""
    try:
        plain = "".join(shlex.split(word)) if "'" in word else None
    except ValueError:  # it is no shell word
        plain = None
    if plain is None:
        yield from _pieces(word, room)
        return
    piece = ""
    for letter in plain:
        if piece and cell_len(shlex.quote(piece + letter)) > room:
            yield shlex.quote(piece)
            piece = ""
        piece += letter
    yield shlex.quote(piece)


def _pieces(word: str, room: int) -> Iterator[str]:
    """Cut a word into pieces of at most so many cells."""
    piece = ""
    for letter in word:
        if piece and cell_len(piece + letter) > room:
            yield piece
            piece = ""
        piece += letter
    yield piece
