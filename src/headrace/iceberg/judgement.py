"""The judgement of our rows in a catalog: is each as the last export left it?

A row names a metadata file, whose name has the epoch of its mark if we wrote it (`metadata.epoch_of`):

    below our folder, our name, the epoch of the last export     ours
    below our folder, our name, an earlier epoch                 the catalog was set back
    below our folder, another name                               another program committed
    elsewhere, our name                                          the lake has moved
    elsewhere                                                    somebody else's table
    no row, though one was exported                              set back, or dropped by another program
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from headrace.core.errors import Definite, Misconfigured
from headrace.iceberg import metadata
from headrace.iceberg.catalog import Identifier
from headrace.iceberg.contents import Content
from headrace.iceberg.shapes import Json
from headrace.lake.format.exportfile import Export

_REBUILD = "headrace iceberg rebuild --lake DIR makes the tables of the source anew"


@dataclass(frozen=True, slots=True)
class Judgement:
    """The rows of a catalog beside the record of the export; in a rebuild only others' tables are refused."""

    here: Mapping[Identifier, str]  # the metadata files that the rows name
    record: Export
    is_rebuild: bool
    is_below: Callable[[str], bool]  # our folder
    load: Callable[[str], Json]  # a metadata file

    @property
    def epochs(self) -> list[int]:
        """The exported marks that the catalog has, as far as the record says."""
        return [mark.epoch for mark in self.record.marks if mark.is_done and mark.gone_at is None]

    def check(self, content: Content) -> None:
        """Refuse a table whose row is not as the last export left it."""
        at, last = self.here.get(content.table), self._last_export(content.folder)
        if at is None:
            if last is not None and not self.is_rebuild:
                raise _set_back_error(content, "its table is gone")
            return
        epoch = metadata.epoch_of(at)
        if f"/{content.home}/metadata/" not in at or (epoch is None and last is None):
            raise Misconfigured(
                "ICEBERG_TABLE_TAKEN",
                f'the Iceberg catalog has a table "{content.name}" that is not ours',
                hint="drop or rename it there, or give another namespace; all other tables are exported",
            )
        if self.is_rebuild:
            return
        if not self.is_below(at):
            raise Misconfigured(
                "ICEBERG_LAKE_MOVED",
                f'the Iceberg table "{content.name}" names files where the lake was before',
                hint=_REBUILD,
            )
        if epoch is None:
            raise Definite(
                "ICEBERG_FOREIGN_COMMIT",
                f'another program committed to the Iceberg table "{content.name}"',
                detail=at.rpartition("/")[2],
                hint="headrace iceberg rebuild --lake DIR drops that commit; all other tables are exported",
            )
        if last is not None and epoch < last:
            raise _set_back_error(content, f"it is at mark {epoch}, and mark {last} was exported")
        self.load(at)

    def _last_export(self, folder: str) -> int | None:
        """The last exported mark that showed a folder."""
        pins = self.record.folders.get(folder, ())
        shown = (epoch for epoch in self.epochs if any(pin.first <= epoch <= pin.last for pin in pins))
        return max(shown, default=None)

    def with_completed(self, contents: Iterable[Content]) -> Export | None:
        """The record with an export that was ended between its commit and its note; None without one.

        The catalog has it only if all tables are there: some move one table after another.
        """
        rows = (self.here.get(each.table) for each in contents)
        epochs = {metadata.epoch_of(at) for at in rows if at is not None}
        ended = [mark.epoch for mark in self.record.marks if not mark.is_done and mark.epoch in epochs]
        if not ended or self.is_rebuild or len(epochs) > 1:
            return None
        marks = (replace(m, is_done=True) if m.epoch == max(ended) else m for m in self.record.marks)
        return replace(self.record, marks=tuple(marks))

    def is_news(self, epoch: int, contents: list[Content]) -> bool:
        """Tell whether the mark of an epoch differs from what the catalog has."""
        if self.is_rebuild or not self.epochs:
            return True
        if epoch <= self.epochs[-1]:
            return False
        names = {each.table for each in contents}
        last = (at for table, at in self.here.items() if table not in names and self.is_below(at))
        has_left = any(metadata.epoch_of(at) == self.epochs[-1] for at in last)
        return has_left or any(self.version(each) != each.version for each in contents)

    def is_incomplete(self, epoch: int, contents: Iterable[Content]) -> bool:
        """Tell whether the mark of an epoch was exported, and the catalog has a table at an earlier one."""
        rows = (self.here.get(each.table) for each in contents)
        shown = (metadata.epoch_of(at) for at in rows if at is not None)
        return epoch in self.epochs and any(each is not None and each < epoch for each in shown)

    def version(self, content: Content) -> int | None:
        """The version of its folder that a table shows; None where it is made anew."""
        at = self.here.get(content.table)
        snapshot = None if at is None or self.is_rebuild else metadata.current(self.load(at))
        return None if snapshot is None else int(snapshot["summary"]["headrace.version"])


def _set_back_error(content: Content, why: str) -> Misconfigured:
    return Misconfigured(
        "ICEBERG_SET_BACK",
        f'the Iceberg table "{content.name}" is older than what was exported',
        detail=why,
        hint=_REBUILD,
    )
