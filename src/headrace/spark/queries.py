"""A user's query on Spark: its rows, and Spark's refusals as our errors.

Spark describes an error by a sentence, a place in the text and a page of plan; we keep the sentence and the
place. The text of an error at run time may quote a value of a row, which belongs in no message of ours (G8):
of such an error we report only the code.

    parse, analysis      `plan`     `QueryRefused` with its place, `UnknownRelation`: the caller knows names
    while it runs        `collect`  SQL_FAILED, COLLECTION_NEGATIVE from time travel, an error of `Refusals`
"""

from __future__ import annotations

import importlib
import logging
import re
import secrets
from typing import TYPE_CHECKING, Any

from headrace.core.errors import Definite, HeadraceError, Misconfigured
from headrace.spark.failures import engine_errors, reason

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# How a query is read here, whatever the session's defaults are: "x" is a name, as in PostgreSQL.
SETTINGS = {"spark.sql.ansi.enabled": "true", "spark.sql.ansi.doubleQuotedIdentifiers": "true"}

_PLACE = re.compile(r"\(line (\d+), pos (\d+)\)|; line (\d+) pos (\d+)")
_UNKNOWN = ("TABLE_OR_VIEW_NOT_FOUND", "UNRESOLVABLE_TABLE")


class UnknownRelation(Exception):
    """Spark knows no relation of that name."""


class QueryRefused(Exception):
    """Spark refuses the text; `line` and `column` are where, counted from 1, or 0 where it does not say."""

    def __init__(self, what: str, line: int, column: int, *, syntax: bool) -> None:
        super().__init__(what)
        self.what = what
        self.line = line
        self.column = column
        self.syntax = syntax


class Refusals:
    """Errors of ours that a query raises while it runs, where it comes to an expression made here.

    Spark carries a text alone: it is a number that nobody can guess, and leads back to the error.
    """

    def __init__(self) -> None:
        self._errors: dict[str, HeadraceError] = {}

    def expression(self, error: HeadraceError) -> str:
        """SQL that raises the error when a row is evaluated."""
        token = f"headrace-{secrets.token_hex(16)}"
        self._errors[token] = error
        return f"raise_error('{token}')"

    def raised_error(self, message: str) -> HeadraceError | None:
        return next((error for token, error in self._errors.items() if token in message), None)


def prepare(spark: SparkSession) -> None:
    """Make the session read SQL as we do, and PySpark keep its errors to those whom it raises them to."""
    # It logs each with Java's stack, and with values of rows, on standard error.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    for key, value in SETTINGS.items():
        spark.conf.set(key, value)


def plan(spark: SparkSession, sql: str) -> DataFrame:
    """The query, analysed; raises `QueryRefused` or `UnknownRelation`."""
    try:
        frame = spark.sql(sql)
        # On Connect nothing is analysed before somebody asks.
        _ = frame.columns
    except engine_errors() as error:
        condition = _condition(error)
        if condition.startswith(_UNKNOWN):
            raise UnknownRelation from None
        if not condition:
            raise _failed_error(error) from None
        line, column = _place(str(error))
        raise QueryRefused(_sentence(error, condition), line, column, syntax=_is_syntax(error)) from None
    return frame


def collect(frame: DataFrame, refusals: Refusals) -> Any:
    """The rows, as an Arrow table."""
    try:
        return frame.toArrow()
    except engine_errors() as error:
        raise refusals.raised_error(str(error)) or _failed_error(error) from None


def _failed_error(error: Exception) -> HeadraceError:
    if "COLLECTION_NEGATIVE" in str(error):
        return Definite(
            "COLLECTION_NEGATIVE",
            "a row is there less than zero times",
            detail="history retracts rows that were never there: it is not all of it, or not this table's",
            hint="headrace tables resync copies the table anew",
        )
    condition = _condition(error)
    return Misconfigured(
        "SQL_FAILED",
        "the query failed while it ran",
        detail=condition or reason(error),
        hint="the code is Spark's own, values are not shown; TRY_CAST and try_divide give NULL instead",
    )


def _condition(error: Exception) -> str:
    """Spark's own code of the error; empty where it has none."""
    for name in ("getCondition", "getErrorClass"):
        ask = getattr(error, name, None)
        if callable(ask):
            found = ask()
            if found:
                return str(found)
    match = re.search(r"\[([A-Z][A-Z0-9_.]{5,})\]", str(error))
    return match[1] if match else ""


def _sentence(error: Exception, condition: str) -> str:
    """Take Spark's sentence about the text, without its pages: one line, for the text is the user's own."""
    said = re.search(rf"\[{re.escape(condition)}\]\s*([^\n]*)", str(error))
    text = re.sub(r"\s*SQLSTATE: \w+.*$", "", said[1]) if said else ""
    return f"{condition}: {text}".rstrip(": .")[:400]


def _is_syntax(error: Exception) -> bool:
    return isinstance(error, importlib.import_module("pyspark.errors").ParseException)


def _place(text: str) -> tuple[int, int]:
    match = _PLACE.search(text)
    if match is None:
        return 0, 0
    line, pos = (number for number in match.groups() if number)
    return int(line), int(pos) + 1
