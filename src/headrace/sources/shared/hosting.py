"""Hosted databases: what a cloud lets nobody do by a statement, in the words of its own documents.

A source recognises its cloud by marks that its server shows, and passes each error of a check through
`in_words_of`. A statement that sets a server's setting becomes the cloud's way to set it; other statements
that the cloud refuses become its own. No test runs on a cloud: each text that comes from here says so, with
the date on which the documents were read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.core.errors import HeadraceError

READ_ON = "2026-11-26"
_SETTING = re.compile(r"(?:ALTER SYSTEM SET|SET (?:PERSIST_ONLY|PERSIST|GLOBAL)) (\w+) = ('[^']*'|[^;,]+)")
_RELOAD = "SELECT pg_reload_conf()"


@dataclass(frozen=True, slots=True)
class Cloud:
    """A cloud's database, and how one does there what statements do elsewhere."""

    name: str
    settings: str  # how to set settings: their names and values stand in the place of {settings}
    names: Mapping[str, str] = field(default_factory=dict)  # the cloud's own settings, by the server's
    statements: Mapping[str, str] = field(
        default_factory=dict
    )  # its own, by patterns of those that it refuses
    hints: Mapping[str, str] = field(default_factory=dict)  # by code, where no statement is mended

    @property
    def origin(self) -> str:
        """The origin of all that is said of it, with its date."""
        return f"from the documents of {self.name}, read on {READ_ON}; no test ran there"


def in_words_of(
    cloud: Cloud, error: HeadraceError, mend: tuple[str, ...]
) -> tuple[HeadraceError, tuple[str, ...]]:
    """The error, with a hint that holds on the cloud, and the statements that can run there."""
    said = (*mend, error.hint)
    settings = dict.fromkeys(
        _of_cloud(cloud, *match.groups()) for text in said for match in _SETTING.finditer(text)
    )
    own = tuple(_own(cloud, each) for each in mend if not _SETTING.match(each) and each != _RELOAD)
    hint = cloud.hints.get(error.code)
    if hint is None and settings:
        hint = cloud.settings.format(settings=", ".join(settings))
        hint = "; ".join((*own, hint))
    if hint is None and own != mend:
        hint = "; ".join(own)
    if hint is None:
        return error, mend
    detail = cloud.origin if error.detail is None else f"{error.detail}; {cloud.origin}"
    return type(error)(error.code, error.primary, detail=detail, hint=hint), own


def _of_cloud(cloud: Cloud, name: str, value: str) -> str:
    return cloud.names.get(name) or f"{name} = {value.strip()}"


def _own(cloud: Cloud, statement: str) -> str:
    for pattern, own in cloud.statements.items():
        if re.fullmatch(pattern, statement):
            return re.sub(pattern, own, statement)
    return statement
