"""The user's wishes: `headrace.toml`, or the command line's few words, parsed once.

Everything inward takes these values; the options of one kind of source, which it declares
(`sources.contract.values`), are handed on to it as they were given. An unknown key is an error, so
that a misspelt option can't be silently without effect. Passwords may stand in a URL here; the value
is kept in `SourceConfig.url`, which is never printed and never written to the lake. Nor is the origin of a
password (`PASSWORDS`): whoever may write a lake would choose a command that a run executes.

Variables (`environment`) win over a file, and a command line wins over them.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.alerts import hooks
from headrace.alerts.hooks import HookConfig
from headrace.core.credential import Credential
from headrace.core.durations import AUTO, duration, pace
from headrace.core.errors import Misconfigured
from headrace.core.near import did_you_mean
from headrace.core.records import on_disk
from headrace.iceberg import settings as iceberg
from headrace.iceberg.settings import IcebergConfig
from headrace.lake.retain.thinning import GRACE, MARKS, Keeping
from headrace.pipeline.state import environment
from headrace.sources import registry
from headrace.sources.contract.values import Option

if TYPE_CHECKING:  # it loads Arrow
    from headrace.sources.contract.mirror import Address

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LakeConfig:
    """The place of the lake, and how it is kept."""

    path: str
    retention: str | None = None
    marks: str = MARKS
    grace: str = GRACE
    maintain: str = "auto"


@dataclass(frozen=True, slots=True)
class SourceConfig:
    """One database to mirror."""

    url: str = field(repr=False)
    tables: tuple[str, ...] = ()
    every: str = AUTO
    streaming: str = "auto"
    strict: bool = False
    snapshot_connections: int = 4
    chunk_bytes: int = 64 << 20
    driver_epochs: int = 20_000
    merge: str = field(default="auto", metadata=on_disk(sparse=True))
    row_cache: int = field(default=8 << 30, metadata=on_disk(sparse=True))
    reconcile: str = "ask"
    on_ddl: str = "follow"
    new_tables: str = "ask"
    max_wal: int | None = None
    on_max_wal: str = "warn"
    password_command: tuple[str, ...] = field(default=(), repr=False)
    password_file: str | None = None
    password_ttl: str = "0s"
    options: Mapping[str, str] = field(default_factory=dict)  # those of its kind that were given

    @property
    def credential(self) -> Credential | None:
        """The origin of its password; None if the address or the environment has it."""
        if not self.password_command and self.password_file is None:
            return None
        ttl = duration(self.password_ttl, "password_ttl").total_seconds()
        return Credential(self.password_command, self.password_file, ttl)

    def address(self) -> Address:
        """The address that its connections are made with."""
        return registry.by_address(self.url).address(self.url, self.credential)


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The Spark that does the work; without any setting, the one that is there, else `local[*]`."""

    master: str | None = None
    remote: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WebConfig:
    """The web server of a run, or of `headrace serve`: where it listens, and who may ask (`web.settings`)."""

    listen: str | None = None
    ready_lag: str = "5m"
    hosts: tuple[str, ...] = ()
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Config:
    """A whole configuration."""

    lake: LakeConfig
    sources: Mapping[str, SourceConfig]
    spark: SparkSettings = field(default_factory=SparkSettings)
    web: WebConfig = field(default_factory=WebConfig)
    alerts: Mapping[str, HookConfig] = field(default_factory=dict)  # by their names
    iceberg: IcebergConfig | None = None


PASSWORDS = ("password_command", "password_file", "password_ttl")

CHOICES: Mapping[str, tuple[str, ...]] = {
    "streaming": ("auto", "off"),
    "on_max_wal": ("warn", "stop"),
    "maintain": ("auto", "off"),
    "merge": ("auto", "rewrite", "vectors"),
    "reconcile": ("ask", "auto"),
    "on_ddl": ("follow", "stop"),
    "new_tables": ("ask", "add"),
}


LEAST: Mapping[str, int] = {
    "snapshot_connections": 1,
    "chunk_bytes": 1,
    "driver_epochs": 0,
    "row_cache": 0,
    "max_wal": 1,
}


def read(path: str | Path) -> Config:
    """Read a configuration file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise Misconfigured(
            "CONFIG_UNREADABLE",
            f'the configuration "{path}" cannot be read',
            detail=error.strerror,
            hint="give the path of a headrace.toml with --config",
        ) from None
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Misconfigured(
            "CONFIG_MALFORMED",
            f'the configuration "{path}" is not TOML',
            detail=str(error).rpartition("(")[2].rstrip(")"),
            hint="see docs/configure.md for an example",
        ) from None
    return parse(_complete(raw))


def _complete(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Replace `${NAME}` in what a person wrote, and add the keys that variables give."""
    return with_environment(environment.expand(raw, os.environ))


def with_environment(raw: Mapping[str, Any], *, wins: bool = True) -> dict[str, Any]:
    """A configuration with the keys that variables give; a command line wins over them."""
    options = chain.from_iterable(registry.declaration(kind).options for kind in registry.kinds())
    source = _types(SourceConfig) | {o.name: "Mapping" if o.table else "str" for o in options}
    known = {
        "lake": _types(LakeConfig),
        "source": source,
        "spark": _types(SparkSettings),
        "web": _types(WebConfig),
        "alerts": _types(HookConfig),
    }
    return environment.overlay(raw, os.environ, known, wins=wins)


def add_variables(config: Config) -> Config:
    """Add the keys that variables give to what a lake remembers: it never remembers a password."""
    sources = {name: _section_of(each) | dict(each.options) for name, each in config.sources.items()}
    raw = {"lake": _section_of(config.lake), "source": sources}
    changed = with_environment(raw)
    return config if changed == raw else parse(changed)


def beside_sources() -> tuple[WebConfig, dict[str, HookConfig]]:
    """The sections that need no source, without a file: as variables give them."""
    raw = with_environment({})
    return _value(WebConfig, "web", raw.get("web", {})), _alerts(raw.get("alerts", {}))


def _types(kind: type[Any]) -> dict[str, str]:
    return {each.name: str(each.type) for each in fields(kind) if each.name != "options"}


def _section_of(value: LakeConfig | SourceConfig) -> dict[str, Any]:
    """The options as a file would have them, without those that are as by default."""
    said = {each.name: (getattr(value, each.name), each.default) for each in fields(value)}
    return {
        name: list(given) if isinstance(given, tuple) else given
        for name, (given, default) in said.items()
        if name != "options" and given != default
    }


def parse(raw: Mapping[str, Any]) -> Config:
    """A configuration from its parsed TOML."""
    _refuse_unknown("", raw, {"lake", "source", "spark", "web", "alerts", "iceberg"})
    if "lake" not in raw or not raw.get("source"):
        missing = "lake" if "lake" not in raw else "source.main"
        raise Misconfigured(
            "CONFIG_INCOMPLETE",
            f"the configuration has no [{missing}]",
            hint='write [lake] with path = "..." and [source.main] with url = "..." and tables = [...]',
        )
    _table("source", raw["source"])
    lake = _value(LakeConfig, "lake", raw["lake"])
    Keeping.of(lake.retention, lake.marks, lake.grace)
    return Config(
        lake=lake,
        sources={name: parse_source(name, section) for name, section in raw["source"].items()},
        spark=_value(SparkSettings, "spark", raw.get("spark", {})),
        web=_value(WebConfig, "web", raw.get("web", {})),
        alerts=_alerts(raw.get("alerts", {})),
        iceberg=_iceberg(raw["iceberg"]) if "iceberg" in raw else None,
    )


def _alerts(raw: Mapping[str, Any]) -> dict[str, HookConfig]:
    """The sections of hooks; `[alerts]` is one itself, and what it says of events holds for the others."""
    _table("alerts", raw)
    named = {name: section for name, section in raw.items() if isinstance(section, Mapping)}
    ours = {key: value for key, value in raw.items() if key not in named}
    shared = {key: value for key, value in ours.items() if key in ("events", "lag", "max_wal")}
    if hooks.DEFAULT in named:
        raise Misconfigured(
            "ALERT_NAME",
            f"[alerts.{hooks.DEFAULT}] is another name of [alerts]",
            hint="write its options into [alerts], or give it another name",
        )
    sections = {name: {**shared, **section} for name, section in named.items()}
    if ours.keys() - shared.keys() or (ours and not named):
        sections = {hooks.DEFAULT: ours, **sections}
    return {
        name: hooks.check(name, _value(HookConfig, hooks.section_of(name), section))
        for name, section in sections.items()
    }


def _iceberg(raw: Mapping[str, Any]) -> IcebergConfig:
    """The section of the export to Iceberg; `catalog` is a name, or a section of pyiceberg's properties."""
    _table("iceberg", raw)
    named = dict(raw)
    if isinstance(raw.get("catalog"), Mapping):
        properties = _check_value("iceberg", "catalog", named.pop("catalog"), "Mapping[str, str]")
        named["properties"] = properties
    elif "properties" in raw:
        _refuse_unknown("iceberg", raw, {"catalog", "namespace", "every", "tags"})
    return iceberg.check(_value(IcebergConfig, "iceberg", named))


def parse_source(name: str, raw: Mapping[str, Any]) -> SourceConfig:
    """The section of one source: the options of every one, and those that its kind declares."""
    section = f"source.{name}"
    _table(section, raw)
    declared = {option.name: option for option in _options_of(raw)}
    source = _value(
        SourceConfig,
        section,
        {key: value for key, value in raw.items() if key not in declared},
        frozenset(declared),
    )
    pace(source.every, "every")
    _refuse_two_passwords(section, source)
    own = {key: _own(section, declared[key], value) for key, value in raw.items() if key in declared}
    return replace(source, options=own)


def _refuse_two_passwords(section: str, source: SourceConfig) -> None:
    duration(source.password_ttl, "password_ttl")
    if source.password_command and source.password_file is not None:
        raise Misconfigured(
            "PASSWORD_TWICE",
            f"[{section}] has both a password_command and a password_file",
            hint="leave one of them out",
        )


def _options_of(raw: Mapping[str, Any]) -> Iterable[Option]:
    """The options of the source at this address; before it is known that there is one, those of all kinds."""
    url = raw.get("url")
    kinds = (registry.kind_of(url),) if isinstance(url, str) else registry.kinds()
    return chain.from_iterable(registry.declaration(kind).options for kind in kinds)


def _own(section: str, option: Option, value: Any) -> str:
    if option.table and isinstance(value, Mapping):
        return json.dumps(value, sort_keys=True)
    if option.number and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return str(_check_value(section, option.name, value, "str", option.choices))


def _value(kind: type[T], section: str, raw: Mapping[str, Any], beside: frozenset[str] = frozenset()) -> T:
    """A section's value; `beside` are options that it has and are read elsewhere."""
    known = {f.name: f for f in fields(kind) if f.name != "options"}  # type: ignore[arg-type]
    _refuse_unknown(section, raw, {*known, *beside})
    for name, spec in known.items():
        if spec.default is MISSING and spec.default_factory is MISSING and name not in raw:
            raise Misconfigured(
                "CONFIG_INCOMPLETE", f'[{section}] has no "{name}"', hint=f'add {name} = "..." to [{section}]'
            )
    checked = {name: _check_value(section, name, value, str(known[name].type)) for name, value in raw.items()}
    return kind(**checked)


def _table(section: str, raw: object) -> None:
    if not isinstance(raw, Mapping):
        raise Misconfigured(
            "CONFIG_BAD_VALUE",
            f'"{section}" is a value, and should be a section',
            hint="see docs/configure.md for an example",
        )


def _refuse_unknown(section: str, raw: Mapping[str, Any], names: set[str]) -> None:
    _table(section, raw)
    for key in raw:
        if key not in names:
            raise Misconfigured(
                "CONFIG_UNKNOWN_KEY",
                f'"{key}" is not an option of [{section}]' if section else f"[{key}] is not a section",
                detail=did_you_mean(key, names),
                hint=f"known are: {', '.join(sorted(names))}",
            )


_TYPES: Mapping[str, type] = {
    "str": str,
    "str | None": str,
    "int": int,
    "int | None": int,
    "bool": bool,
    "float": float,
    "tuple[str, ...]": list,
    "Mapping[str, str]": dict,
}


# What is written for an option of a type, where the option has no value of its own to show.
_EXAMPLES: Mapping[type[Any], str] = {
    str: '"..."',
    int: "4",
    bool: "true",
    float: "0.8",
    list: '["public.*"]',
    dict: '{ "spark.sql.shuffle.partitions" = "4" }',
}
_DURATIONS = {
    "every": "5s",
    "password_ttl": "5m",
    "retention": "30d",
    "marks": MARKS,
    "grace": GRACE,
}  # examples, with their units


def _example(name: str, value: object, wanted: type[Any]) -> str:
    """The option as it may be written; a number is taken for one of the usual unit."""
    if name in _DURATIONS:
        number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        return f'"{value}{_DURATIONS[name][-1]}"' if number else f'"{_DURATIONS[name]}"'
    if wanted is str and (choices := CHOICES.get(name)):
        return f'"{choices[0]}"'
    if wanted is list and isinstance(value, str):
        return f'["{value}"]'
    return _EXAMPLES[wanted]


_SAID: Mapping[type[Any], str] = {
    str: "text",
    int: "a whole number",
    bool: "true or false",
    float: "a number",
    list: "a list of texts",
    dict: "a table of texts",
}


def _check_value(section: str, name: str, value: Any, declared: str, choices: tuple[str, ...] = ()) -> Any:
    wanted: type[Any] = _TYPES[declared]
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    parts = value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()
    if (
        not isinstance(value, wanted)
        or (wanted is int and isinstance(value, bool))
        or not all(isinstance(part, str) for part in parts)
    ):
        raise Misconfigured(
            "CONFIG_BAD_VALUE",
            f'"{name}" in [{section}] is not {_SAID[wanted]}',
            hint=f"write {name} = {_example(name, value, wanted)}",
        )
    choices = choices or CHOICES.get(name, ())
    if choices and value not in choices:
        raise Misconfigured(
            "CONFIG_BAD_VALUE",
            f'"{name}" in [{section}] cannot be "{value}"',
            hint=f"choose one of: {', '.join(choices)}",
        )
    if name in LEAST and value < LEAST[name]:
        raise Misconfigured(
            "CONFIG_BAD_VALUE",
            f'"{name}" in [{section}] cannot be {value}',
            hint=f"give a number from {LEAST[name]} on",
        )
    return tuple(value) if isinstance(value, list) else value


def config_of(config: Config | Mapping[str, Any] | str | Path) -> Config:
    """A configuration, from whatever says it."""
    if isinstance(config, Config):
        return config
    if isinstance(config, Mapping):
        return parse(_complete(config))
    return read(config)
