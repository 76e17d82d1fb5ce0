"""The options of `format("headrace")`, parsed once: an unknown one is refused, and so is a secret.

Spark hands options over as texts, and shows them in plans, event logs and its page. So a lake's credentials
are found where `Lake` finds them (the environment, a role), and an option that looks like one is refused,
its value not repeated. Spark asks for a schema before it says whether it reads or streams: `as` tells.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.core.errors import Misconfigured
from headrace.core.near import did_you_mean
from headrace.sources.registry import declaration, kind_of

# Each with the reads that take it, in the order of docs/spark.md.
OPTIONS: Mapping[str, str] = {
    "lake": "both",
    "table": "all",
    "source": "both",
    "columns": "both",
    "epoch": "batch",
    "position": "batch",
    "timestamp": "batch",
    "metadata": "batch",
    "as": "stream",
    "after": "stream",
    "max_marks": "stream",
    "url": "direct",
    "state": "direct",
    "tables": "direct",
    "max_bytes": "direct",
    "max_wal": "direct",
}
BATCH_BYTES = 64 << 20  # of a direct stream
FORMS = ("changes", "feed", "upserts")

_SECRET_NAME = re.compile(
    r"secret|passw|token|credential|(?:access|account|private|sas)_?key|^(?:aws|google|azure)_|^fs\.",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(r"://[^/@\s]*:\S*@")  # a secret key of AWS may hold slashes
_PATTERN = re.compile(r'(?:"[^"]*"|[^,"])+')
_COLUMN = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^",]+?))\s*(?:,|\Z)')


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """A table of a lake, and the moment at which it is read; None: the newest mark."""

    lake: str
    table: str
    source: str | None = None
    columns: tuple[str, ...] | None = None
    epoch: int | None = None
    position: str | None = None
    timestamp: str | None = None
    metadata: bool = False


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The changes of a table, in one of the forms, since a moment; None: its contents come first."""

    lake: str
    table: str
    form: str
    source: str | None = None
    columns: tuple[str, ...] | None = None
    after: str | None = None
    max_marks: int | None = None


@dataclass(frozen=True, slots=True)
class DirectOptions:
    """The tables of a source, streamed without a lake; `own` are the options of its kind of source.

    `table` is one in its own columns; the rows of `tables` are texts.
    """

    url: str
    state: str
    tables: tuple[str, ...] = ()
    table: str | None = None
    own: Mapping[str, str] = field(default_factory=dict)
    max_bytes: int = BATCH_BYTES
    max_wal: int | None = None


AnyOptions = ReadOptions | StreamOptions | DirectOptions


def parse(texts: Mapping[str, str]) -> AnyOptions:
    """Parse the options of a read or a stream; raises before anything is opened."""
    _refuse_secrets(texts)
    options = {name.lower(): value for name, value in texts.items()}
    own = own_options(options["url"]) if "url" in options else frozenset()
    for name in texts:
        if name.lower() not in OPTIONS and name.lower() not in own:
            raise Misconfigured(
                "SPARK_OPTION_UNKNOWN",
                f'format("headrace") has no option "{name}"',
                detail=did_you_mean(name.lower(), own.union(OPTIONS)),
                hint=f"the options are {', '.join(OPTIONS)}: docs/spark.md describes them",
            )
    if own:
        return _direct(options, own)
    if "as" in options:
        _only("stream", options)
        return _stream(options)
    _only("batch", options)
    return ReadOptions(
        lake=_require(options, "lake"),
        table=_require(options, "table"),
        source=options.get("source"),
        columns=_columns(options.get("columns")),
        epoch=_number(options, "epoch"),
        position=options.get("position"),
        timestamp=options.get("timestamp"),
        metadata=_flag(options, "metadata"),
    )


def _stream(options: Mapping[str, str]) -> StreamOptions:
    form, most = options["as"].strip().lower(), _number(options, "max_marks")
    if form not in FORMS:
        raise _malformed_error("as", f"it is {', '.join(FORMS)}", '.option("as", "changes")')
    if most == 0:
        raise _malformed_error("max_marks", "it is 1 or more", '.option("max_marks", 100)')
    return StreamOptions(
        lake=_require(options, "lake"),
        table=_require(options, "table"),
        form=form,
        source=options.get("source"),
        columns=_columns(options.get("columns")),
        after=options.get("after"),
        max_marks=most,
    )


def own_options(url: str) -> frozenset[str]:
    """The options of the kind of source at this address, and `url` itself."""
    declared = declaration(kind_of(url)).options
    return frozenset({"url", *(option.name for option in declared if not option.table)})


def _direct(options: Mapping[str, str], own: frozenset[str]) -> DirectOptions:
    for name in options:
        if OPTIONS.get(name, "direct") not in ("direct", "all"):
            raise Misconfigured(
                "SPARK_OPTION_MIXED",
                f'"{name}" is of a lake, and "url" streams a source without one',
                hint='give "url" with "state" and "tables" or "table"; or "lake" and "table" alone',
            )
    if {"table", "tables"} <= options.keys():
        raise Misconfigured(
            "SPARK_OPTION_MIXED",
            '"table" streams one table in its columns, and "tables" streams tables as texts',
            hint="give one of the two",
        )
    tables = tuple(text.strip() for text in _PATTERN.findall(options.get("tables", "")) if text.strip())
    given = {name: value for name, value in options.items() if name in own - {"url"}}
    if not tables and not given and "table" not in options:
        _require({}, "tables", _DIRECT)  # patterns that name none are missing, too
    return DirectOptions(
        url=_require(options, "url", _DIRECT),
        state=_require(options, "state", _DIRECT),
        tables=tables,
        table=_require(options, "table", _DIRECT) if "table" in options else None,
        own=given,
        max_bytes=_number(options, "max_bytes") or BATCH_BYTES,
        max_wal=_number(options, "max_wal"),
    )


def _only(way: str, options: Mapping[str, str]) -> None:
    """Refuse the options of the other way; whether `as` is there is how the ways are told apart."""
    for name in options:
        if OPTIONS[name] == "direct":
            raise _without_url_error(name)
        if OPTIONS[name] not in (way, "both", "all"):
            raise wrong_way_error(name, streams=OPTIONS[name] == "stream")


def wrong_way_error(name: str, *, streams: bool) -> Misconfigured:
    """The error for an option, or a use, of a read where a stream is asked for, and the other way round."""
    return Misconfigured(
        "SPARK_OPTION_WAY",
        f'"{name}" belongs to a stream, and a stream has the option "as" or "url"'
        if streams
        else f'"{name}" is read at a mark: a stream has the option "as", and no moment',
        detail="Spark asks for the columns before it tells whether it reads or streams",
        hint='spark.readStream.format("headrace").option("as", "changes"), or spark.read without "as"',
    )


def _refuse_secrets(given: Mapping[str, str]) -> None:
    for name, value in given.items():
        if _SECRET_NAME.search(name) or _SECRET_VALUE.search(value):
            raise secret_error(name)


def secret_error(name: str) -> Misconfigured:
    """The error of an option that holds a secret."""
    return Misconfigured(
        "SPARK_OPTION_SECRET",
        f'the option "{name}" holds a password or a credential',
        detail="Spark shows options in plans, event logs and its page",
        hint="leave it out; the driver reads the password of a source from its environment or a password file"
        if name.lower() == "url"
        else "leave it out; a bucket's credentials are read from AWS_ACCESS_KEY_ID, GOOGLE_..., AZURE_... in "
        "the environment of driver and executors, or from a role",
    )


def _without_url_error(name: str) -> Misconfigured:
    return Misconfigured(
        "SPARK_OPTION_WAY",
        f'"{name}" belongs to a stream straight from a source, which has the option "url"',
        hint=_DIRECT,
    )


_LAKE = '.option("lake", PATH).option("table", "schema.table")'
_DIRECT = '.option("url", URL).option("state", DIR).option("tables", "schema.*")'


def _require(options: Mapping[str, str], name: str, example: str = _LAKE) -> str:
    if not options.get(name, "").strip():
        raise Misconfigured(
            "SPARK_OPTION_MISSING",
            f'format("headrace") needs the option "{name}"',
            hint=example,
        )
    return options[name]


def _number(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,18}", text.strip()):
        raise _malformed_error(name, "it is a whole number", f'.option("{name}", 42)')
    return int(text)


def _flag(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name, "false").strip().lower()
    if text not in ("true", "false"):
        raise _malformed_error(name, "it is true or false", f'.option("{name}", "true")')
    return text == "true"


def _columns(text: str | None) -> tuple[str, ...] | None:
    """Split at commas; a name with a comma or a quote in it stands in double quotes."""
    if text is None:
        return None
    names: list[str] = []
    at = 0
    while at < len(text) or not names:
        match = _COLUMN.match(text, at)
        if match is None:
            raise _malformed_error(
                "columns", "it is names, parted by commas", """.option("columns", 'id, "a, b"')"""
            )
        quoted, bare = match.groups()
        names.append(quoted.replace('""', '"') if quoted is not None else bare)
        at = match.end()
    return tuple(dict.fromkeys(names))


def _malformed_error(name: str, rule: str, example: str) -> Misconfigured:
    return Misconfigured(
        "SPARK_OPTION_VALUE", f'the option "{name}" cannot be read: {rule}', hint=f"write {example}"
    )
