"""Columns whose values are of the session that reads them: they cannot be mirrored.

A virtual column is computed at every read. The server writes into its log what the writer's session makes of
it, and a copy reads what ours does. Where the expression asks for the time, the user or a random number, or
depends on the session's time zone or language, no two of them need be equal. (A stored column holds what the
writer's session made of it, whoever reads it.)

The functions are those that MariaDB refuses in a stored column, asked one by one; MySQL allows fewer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from headrace.sources.mysql.catalog.column_row import ColumnRow

_WORDS = re.compile(r"'(?:[^'\\]|\\.|'')*'|`((?:[^`]|``)*)`|([\w$]+)(\s*\()?", re.DOTALL)

_OF_THE_SESSION = frozenset(
    """benchmark binlog_gtid_pos connection_id convert_tz curdate current_date current_role current_time
    current_timestamp current_user curtime database date_format dayname found_rows from_unixtime get_lock
    is_free_lock is_used_lock last_insert_id load_file localtime localtimestamp master_gtid_wait
    master_pos_wait monthname now rand random_bytes release_all_locks release_lock row_count schema
    session_user sleep sys_guid sysdate system_user to_char unix_timestamp user utc_date utc_time
    utc_timestamp uuid uuid_short version week""".split()
)
# These stand without parentheses, too.
_BARE = frozenset(
    """curdate current_date current_role current_time current_timestamp current_user localtime localtimestamp
    utc_date utc_time utc_timestamp""".split()
)


def volatile(columns: Sequence[ColumnRow]) -> list[str]:
    """The virtual columns whose values depend on the session, in order."""
    moments = {column.name.lower() for column in columns if column.data_type == "timestamp"}
    virtual = [column for column in columns if column.generated == "v"]
    found: set[str] = set()
    while more := [each for each in virtual if each.name not in found and _depends(each, moments)]:
        found |= {column.name for column in more}
        moments |= {column.name.lower() for column in more}  # what is made of one is as volatile
    return [column.name for column in virtual if column.name in found]


def _depends(column: ColumnRow, moments: set[str]) -> bool:
    return any(_is_volatile(word, moments) for word in _WORDS.finditer(column.expression))


def _is_volatile(found: re.Match[str], moments: set[str]) -> bool:
    name, word, opened = found.groups()
    if name is not None:
        return name.replace("``", "`").lower() in moments
    if word is None:
        return False  # a text
    return word.lower() in (_BARE if opened is None else _OF_THE_SESSION)
