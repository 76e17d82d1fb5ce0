"""The places of things in a lake: every folder, key and file name is made here and nowhere else.

    tables/<source>/<schema>/<table>/         Delta: current state
    history/<source>/<schema>/<table>/<k>/    Delta: what changed, one per incompatible schema k
    errors/<source>/                          Delta: values without a faithful lake form
    marks/<source>/                           Delta: the published cuts
    _headrace/format.json                     what makes a directory a lake
    _headrace/epochs/<source>/<N>.json        the plan of epoch N (<N>.<attempt>.json: its withdrawals)
    _headrace/catalog/<source>/<N>.json       the fold of all plans up to epoch N
    _headrace/reach/<source>.json             how far back the source's history reaches
    _headrace/durable/<source>.json           up to which epoch all is known to be on the disk
    _headrace/healing/<source>.json           a lost position is being left, and no durable mark says so yet
    _headrace/requests/<source>/<id>.json     what somebody asks of the source's owner
    _headrace/status/<source>.json            how the source is doing, about once a second
    _headrace/proofs/<source>.json            how each table came out of its last verify
    _headrace/registry/                       sources and views that were created by SQL
    _headrace/iceberg/<source>.json           the Iceberg catalog that marks are exported to, and what it pins
    _headrace/remembered/<source>.json        what the source's last run was configured to do
    _headrace/staged/<source>/tables/<stage>/ Delta: the new copy of a table
    _headrace/depot/<job>/                    what is too large to travel with a Spark job, while it runs

Names are written as they are where every reader can take them. Other characters are spelled as in
SQL/XML (ISO 9075-14): `_xHHHH_`, the code point in hexadecimal, and the `_` of a name that looks like such
a spelling is itself spelled `_x005F_`. So the mapping can be inverted, and `Sales Data` is
`Sales_x0020_Data`. The usual `%20` is no use: delta-rs decodes the path of a table a second time, and an
object store's client encodes it (and `~`) a second time; letters beyond ASCII are lost by Polars and DuckDB.

Columns go the same way, but only for the characters that Delta forbids. Two names that differ only in
case are refused, since neither Delta's columns nor every file system can hold both.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable

from headrace.core.errors import Definite, HeadraceError, Misconfigured
from headrace.core.names import TableName

FORMAT = "_headrace/format.json"
PLACE = "_headrace/place.json"
MARKS = "marks"
_HISTORY = "history"
STATUS_FOLDER = "_headrace/status"
REGISTERED_SOURCES = "_headrace/registry/sources"
DEPOT = "_headrace/depot"
REGISTERED_VIEWS = "_headrace/registry/views"
REMEMBERED_FOLDER = "_headrace/remembered"
_EPOCH_DIGITS = 12
_LONGEST = 255

_IN_PATHS = r"[^A-Za-z0-9_.\-]|^\."
_IN_COLUMNS = r"[ ,;{}()\n\t=]"
_QUOTED = re.compile(r"_x([0-9A-F]{4,6})_")
_DATA_FILE = re.compile(r"e(\d{12})-[0-9a-f]{32}\.parquet\Z")
_PLAN = re.compile(r"(\d{12})(?:\.(\d+))?\.json\Z")


def _quoting(special: str) -> re.Pattern[str]:
    # An underscore must be spelled where it begins what could be read as a spelling; a special character
    # that follows will itself begin with an underscore.
    return re.compile(rf"{special}|_(?=x[0-9A-F]{{4,6}}(?:_|{special}))")


_PATH_QUOTING = _quoting(_IN_PATHS)
_COLUMN_QUOTING = _quoting(_IN_COLUMNS)


def _spell(match: re.Match[str]) -> str:
    return f"_x{ord(match[0]):04X}_"


def unquote(text: str) -> str:
    """The name that `quote` or `lake_column` spelled."""
    return _QUOTED.sub(lambda match: chr(int(match[1], 16)), text)


def quote(name: str) -> str:
    """A name as it stands in a path."""
    quoted = _PATH_QUOTING.sub(_spell, name)
    if len(quoted) > _LONGEST:
        raise Definite(
            "LAKE_NAME_LONG",
            f'the name "{name}" is too long for a folder once its characters are spelled out',
            detail=f"{len(quoted)} characters, {_LONGEST} are possible",
            hint="leave this table out, or rename it in the source",
        )
    return quoted


def lake_column(name: str) -> str:
    """A column's name as it stands in Delta's log and in Parquet."""
    return _COLUMN_QUOTING.sub(_spell, name)


def table_folder(source: str, table: TableName) -> str:
    return f"{tables_folder(source)}/{quote(table.schema)}/{quote(table.name)}"


def history_folder(source: str, table: TableName, k: int) -> str:
    return f"{_HISTORY}/{quote(source)}/{quote(table.schema)}/{quote(table.name)}/{k}"


def histories_folder(source: str) -> str:
    return f"{_HISTORY}/{quote(source)}"


def table_of_history(folder: str) -> TableName | None:
    """The table whose history is kept in this folder; None for a folder of another kind."""
    room, *parts = folder.split("/")
    return TableName(unquote(parts[1]), unquote(parts[2])) if room == _HISTORY and len(parts) == 4 else None


def tables_folder(source: str) -> str:
    return f"tables/{quote(source)}"


def errors_folder(source: str) -> str:
    return f"errors/{quote(source)}"


def marks_folder(source: str) -> str:
    return f"{MARKS}/{quote(source)}"


def folders_of_source(source: str) -> tuple[str, ...]:
    """The folders that hold a source's part of the lake, without what is written over and over."""
    records = (plans_folder(source), checkpoints_folder(source), f"_headrace/staged/{quote(source)}")
    folders = (tables_folder(source), histories_folder(source), errors_folder(source), marks_folder(source))
    return (*folders, *records)


def place(folder: str) -> str:
    """Name a table's folder to a person: `public.orders` for a current state, else the folder."""
    room, _, rest = folder.partition("/")
    parts = [unquote(part) for part in rest.split("/")]
    return str(TableName(parts[1], parts[2])) if room == "tables" and len(parts) == 3 else folder


def plans_folder(source: str) -> str:
    return f"_headrace/epochs/{quote(source)}"


def plan_key(source: str, epoch: int, attempt: int = 0) -> str:
    number = f"{epoch:0{_EPOCH_DIGITS}d}"
    name = f"{number}.{attempt}" if attempt else number
    return f"{plans_folder(source)}/{name}.json"


def plan_of(key: str) -> tuple[int, int]:
    """The epoch and the attempt of a key that `plan_key` made."""
    match = _PLAN.search(key)
    if match is None:
        raise Definite(
            "LAKE_STRAY_FILE",
            f'"{key}" is not the name of a plan',
            hint="move the file out of the lake; only headrace writes under _headrace",
        )
    return int(match[1]), int(match[2] or 0)


def checkpoints_folder(source: str) -> str:
    return f"_headrace/catalog/{quote(source)}"


def checkpoint_key(source: str, epoch: int) -> str:
    return f"{checkpoints_folder(source)}/{epoch:0{_EPOCH_DIGITS}d}.json"


def reach_key(source: str) -> str:
    return f"_headrace/reach/{quote(source)}.json"


def held_key(source: str, folder: str) -> str:
    """The place of what a sweep found out about a table, by the table's folder."""
    return f"_headrace/held/{quote(source)}/{folder}.json"


def sweep_key(source: str) -> str:
    return f"_headrace/held/{quote(source)}/next.json"


def durable_key(source: str) -> str:
    return f"_headrace/durable/{quote(source)}.json"


def ahead_folder(source: str) -> str:
    """The folder of what is decoded of transactions that still run: a cache of the owner's."""
    return f"_headrace/staged/{quote(source)}/ahead"


def staged_folder(source: str, stage: str) -> str:
    """The folder of a table that is copied anew; the folders of its rows, history and errors lie in it."""
    return f"{staged_tables_folder(source)}/{stage}"


def staged_tables_folder(source: str) -> str:
    return f"_headrace/staged/{quote(source)}/tables"


def late_folder(source: str) -> str:
    """The folder of the stream's files for tables that are still being copied."""
    return f"_headrace/staged/{quote(source)}/late"


def late_key(source: str, name: str) -> str:
    return f"{late_folder(source)}/{name}"


def recovery_note_key(source: str) -> str:
    return f"_headrace/healing/{quote(source)}.json"


def requests_folder(source: str) -> str:
    return f"_headrace/requests/{quote(source)}"


def status_key(source: str) -> str:
    return f"{STATUS_FOLDER}/{quote(source)}.json"


def proof_key(source: str) -> str:
    return f"_headrace/proofs/{quote(source)}.json"


def export_key(source: str) -> str:
    return f"_headrace/iceberg/{quote(source)}.json"


def iceberg_folder(source: str) -> str:
    """The folder of the metadata of a source's Iceberg tables."""
    return f"iceberg/{quote(source)}"


def remembered_key(source: str) -> str:
    return f"{REMEMBERED_FOLDER}/{quote(source)}.json"


def file_name(epoch: int) -> str:
    """A new name for a data file of this epoch; no two calls return the same."""
    return f"e{epoch:0{_EPOCH_DIGITS}d}-{uuid.uuid4().hex}.parquet"


def epoch_of(path: str) -> int | None:
    """The epoch that a data file was written for, or None where another program named it."""
    match = _DATA_FILE.search(path)
    return int(match[1]) if match else None


def unfit_tables(
    tables: Iterable[TableName], beside: Iterable[TableName] = ()
) -> dict[TableName, HeadraceError]:
    """Find the tables that can have no folder of their own, with the reason; the first of two keeps it."""
    folders = {_fold_case(table): table for table in beside}
    unfit: dict[TableName, HeadraceError] = {}
    for table in tables:
        try:
            other = folders.setdefault(_fold_case(table), table)
        except Definite as error:
            unfit[table] = error
            continue
        if other != table:
            unfit[table] = Misconfigured(
                "LAKE_NAME_CASE",
                "two chosen tables have names that differ only in case",
                detail=f"{other} and {table}",
                hint="choose one of them with --tables, or rename one in the source",
            )
    return unfit


def _fold_case(table: TableName) -> str:
    return f"{quote(table.schema)}/{quote(table.name)}".lower()
