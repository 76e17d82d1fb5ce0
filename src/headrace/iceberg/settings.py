"""The settings of an export: `[iceberg]` in a configuration, or the options of `headrace iceberg attach`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import urlsplit

from headrace.core.durations import duration
from headrace.core.errors import Misconfigured

EVERY, TAGS = "1m", 60
KINDS = ("sql", "rest")
DEFAULT_CATALOG = "headrace"
DATABASE = "iceberg.db"  # in the lake; of an export whose settings name no catalog


@dataclass(frozen=True, slots=True)
class IcebergConfig:
    """The catalog, by a name in `~/.pyiceberg.yaml` or by pyiceberg's properties, and how marks get there."""

    catalog: str = ""
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold credentials
    namespace: str = ""
    every: str = EVERY
    tags: int = TAGS

    @property
    def pause(self) -> timedelta:
        """The shortest time between two exported marks."""
        return duration(self.every, "every")

    def namespace_of(self, source: str) -> str:
        """The namespace above those of the source's schemas."""
        return self.namespace or source


def check(config: IcebergConfig) -> IcebergConfig:
    """Refuse settings that can't be exported to."""
    duration(config.every, "every")
    kind = config.properties.get("type", "sql")
    if kind not in KINDS:
        raise Misconfigured(
            "ICEBERG_CATALOG_KIND",
            f'marks cannot be exported to a catalog of the type "{kind}"',
            hint='choose one: type = "sql" or "rest", and uri = "..." in [iceberg.catalog]',
        )
    if config.properties and "uri" not in config.properties:
        raise Misconfigured(
            "ICEBERG_CATALOG_URI",
            "the Iceberg catalog has no address",
            hint='add uri = "..." to [iceberg.catalog]; without the section the lake has its own catalog',
        )
    if config.tags < 1:
        raise Misconfigured(
            "ICEBERG_TAGS", "at least one exported mark has to stay", hint="give tags = 1 or more"
        )
    return config


def public(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties that may be written into the lake: no secrets, and an address without its password."""
    found = {name: value for name, value in properties.items() if name in ("type", "uri", "warehouse")}
    if "uri" in found and (password := urlsplit(found["uri"]).password):
        found["uri"] = found["uri"].replace(f":{password}@", "@", 1)
    return found


def secret_in(uri: str) -> bool:
    """Tell whether an address holds a password."""
    return urlsplit(uri).password is not None
