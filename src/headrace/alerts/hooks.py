"""The hooks: where events go, and which of them.

    [alerts]                             the hook "default"
    webhook = "https://chat.example/..."

    [alerts.oncall]                      a hook with a name
    webhook_file = "/run/secrets/oncall"
    command = ["/usr/local/bin/page", "mirror"]
    events = ["source_stopped", "table_stopped"]

A section with a webhook and a command makes two hooks, which know nothing of each other. The address of a
webhook may also come from the environment, which comes first. A file is read anew for each attempt, so a
secret may be exchanged while the run goes on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from headrace.core.durations import duration
from headrace.core.errors import Misconfigured
from headrace.core.near import did_you_mean

KINDS = (
    "source_stopped",
    "source_recovered",
    "table_stopped",
    "table_live",
    "ddl_followed",
    "lag_over",
    "lag_under",
    "log_over",
    "verify_differs",
    "run_started",
    "run_ended",
)
DEFAULT, DEFAULT_LAG, DEFAULT_SHARE = "default", "5m", 0.8
WEBHOOK, COMMAND = "webhook", "command"
_NAME = re.compile(r"[a-z0-9_]{1,40}\Z")  # so that each has an environment variable of its own
_MOST_SECRET = 8192


@dataclass(frozen=True, slots=True)
class HookConfig:
    """One section of the configuration, as it was written."""

    webhook: str | None = field(default=None, repr=False)
    webhook_file: str | None = None
    command: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    lag: str = DEFAULT_LAG
    max_wal: float = DEFAULT_SHARE


@dataclass(frozen=True, slots=True)
class Hook:
    """One receiver of events: a webhook or a command."""

    name: str
    way: str
    kinds: frozenset[str]
    lag: float  # seconds
    max_wal: float  # a share of the log that the source may hold back
    command: tuple[str, ...] = ()
    webhook_file: str | None = None
    _webhook: str | None = field(default=None, repr=False)

    @property
    def label(self) -> str:
        return f"{self.name} ({self.way})"

    def address(self) -> SplitResult:
        """Return the webhook's address as it is by now; raises where there is none, or where it is no URL."""
        text = self._webhook
        if text is None:
            assert self.webhook_file is not None
            text = _secret(self.name, Path(self.webhook_file))
        return check_url(self.name, text)


def hooks_of(sections: Mapping[str, HookConfig], environment: Mapping[str, str]) -> tuple[Hook, ...]:
    """The hooks of these sections, before a run makes anything; raises where a section says nothing."""
    found = dict(sections)
    if DEFAULT not in found and variable_of(DEFAULT) in environment:
        found[DEFAULT] = HookConfig()
    hooks = {name: tuple(_hooks(name, config, environment)) for name, config in found.items()}
    for name, made in hooks.items():
        if not made and (name != DEFAULT or len(hooks) == 1):
            raise Misconfigured(
                "ALERT_INCOMPLETE",
                f"the section [{section_of(name)}] has neither a webhook nor a command",
                hint=f"add webhook_file or command to it, or set {variable_of(name)}",
            )
    return tuple(hook for made in hooks.values() for hook in made)


def check(name: str, config: HookConfig) -> HookConfig:
    """Return a section that means something; raises before anything is made where it does not."""
    if not _NAME.match(name):
        raise Misconfigured(
            "ALERT_NAME",
            f'"{name}" is not a name that a section of [alerts] can have',
            hint="use up to 40 small letters, digits and _",
        )
    for kind in config.events:
        if kind not in KINDS:
            raise Misconfigured(
                "ALERT_EVENT",
                f'"{kind}" in [{section_of(name)}] is not an event',
                detail=did_you_mean(kind, KINDS),
                hint=f"known are: {', '.join(KINDS)}",
            )
    if config.webhook is not None:
        check_url(name, config.webhook)
    duration(config.lag, "lag")
    if not 0 < config.max_wal <= 1:
        raise Misconfigured(
            "ALERT_SHARE",
            f'"max_wal" in [{section_of(name)}] is not a share',
            hint="give a number above 0 and up to 1, such as 0.8",
        )
    return config


def variable_of(name: str) -> str:
    """The environment's variable for the address of a webhook."""
    middle = "" if name == DEFAULT else f"{name.upper()}_"
    return f"HEADRACE_ALERTS_{middle}WEBHOOK"


def section_of(name: str) -> str:
    """The section of the configuration that a hook stands in."""
    return "alerts" if name == DEFAULT else f"alerts.{name}"


def check_url(name: str, text: str) -> SplitResult:
    """Read the address of a webhook; the error does not repeat it, since it is a secret."""
    text = text.strip()
    try:
        url = urlsplit(text)
        sound = url.scheme in ("http", "https") and url.hostname and (url.port or 1) > 0
    except ValueError:
        sound = False
    if not sound or not text.isascii() or not text.isprintable() or " " in text:
        raise Misconfigured(
            "ALERT_URL",
            f'the webhook of "{name}" is not a URL',
            hint="give the whole address, as https://chat.example/PATH; headrace alerts test tries it",
        )
    return url


def _hooks(name: str, config: HookConfig, environment: Mapping[str, str]) -> Iterator[Hook]:
    kinds = frozenset(config.events or KINDS)
    lag = duration(config.lag, "lag").total_seconds()
    webhook = environment.get(variable_of(name), config.webhook)
    if webhook is not None or config.webhook_file is not None:
        yield Hook(name, WEBHOOK, kinds, lag, config.max_wal, (), config.webhook_file, webhook)
    if config.command:
        yield Hook(name, COMMAND, kinds, lag, config.max_wal, config.command)


def _secret(name: str, path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(_MOST_SECRET)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise Misconfigured(
            "ALERT_FILE",
            f'the file with the webhook of "{name}" cannot be read',
            detail=why,
            hint=f"let webhook_file in [{section_of(name)}] name a readable file with the URL",
        ) from None
