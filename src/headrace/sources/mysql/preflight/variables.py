"""The server's variables and status: their present values, and the statement that sets one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.sources.mysql.flavour import Flavour
from headrace.sources.mysql.session.statements import MysqlConnection, query, rows

Variables = Mapping[str, str]

ON, OFF = "ON", "OFF"


def variables(connection: MysqlConnection, names: Iterable[str]) -> Variables:
    """Read those of these variables that this server has, as it prints them."""
    wanted = list(names)
    listed = ", ".join(["%s"] * len(wanted))
    found = query(connection, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({listed})", wanted)
    return {str(name).lower(): str(value) for name, value in found}


def status(connection: MysqlConnection, statement: str) -> list[dict[str, str]]:
    """Read the rows of a SHOW ... STATUS: the values that are not NULL, by column."""
    with rows(connection, statement) as answer:
        names = [column.name for column in answer.columns]
        lines = [zip(names, row, strict=True) for row in answer.rows()]
    return [{name: value.decode() for name, value in line if value is not None} for line in lines]


def setting(flavour: Flavour, name: str, value: str | int) -> str:
    """The statement that sets a variable; on MySQL the value survives a restart."""
    scope = "PERSIST" if flavour is Flavour.MYSQL else "GLOBAL"
    return f"SET {scope} {name} = {value}"


def remark(flavour: Flavour) -> str:
    """The end of a hint after such statements."""
    if flavour is Flavour.MYSQL:
        return ""
    return "; and write it in the server's configuration file, or a restart undoes it"
