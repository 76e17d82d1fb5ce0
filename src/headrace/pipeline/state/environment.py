"""The environment beside a `headrace.toml`: a variable for each of its keys, and `${NAME}` in its values.

    HEADRACE_LAKE__PATH=s3://bucket/lake            [lake] path
    HEADRACE_SOURCE__MAIN__URL=postgresql://db/shop     [source.main] url
    HEADRACE_SOURCE__MAIN__TABLES=["public.*"]      a key that is no text, as TOML writes its value
    HEADRACE_ALERTS__ONCALL__WEBHOOK=https://hook.example/    [alerts.oncall] webhook

A variable with two underscores in a row names a key; one that names none is refused, since it would have no
effect. No error shows the value of a variable: it may be a secret.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from headrace.core.errors import Misconfigured
from headrace.core.near import did_you_mean

PREFIX, JOINT = "HEADRACE_", "__"
Keys = Mapping[str, Mapping[str, str]]  # section: key: its type, as a dataclass has it
NAMED = ("source", "alerts")  # sections that have sections of their own

# Variables of their own, which say the same as a key in another way.
_OTHERS = re.compile(r"HEADRACE_(WEB_TOKEN|ALERTS_([A-Z0-9_]+_)?WEBHOOK)")
_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)(\}?)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def expand(raw: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Replace `${NAME}` in all values by the variable; `$${` stays `${`."""
    return {key: _expand_value(value, environment) for key, value in raw.items()}


def _expand_value(value: Any, environment: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return _REFERENCE.sub(lambda found: _resolve(found, environment), value)
    if isinstance(value, list):
        return [_expand_value(each, environment) for each in value]
    return expand(value, environment) if isinstance(value, Mapping) else value


def _resolve(reference: re.Match[str], environment: Mapping[str, str]) -> str:
    name = reference[1]
    if name is None:
        return "${"
    if name in environment and reference[2]:
        return environment[name]
    if not _NAME.fullmatch(name) or not reference[2]:  # not quoted: it may be a part of a password
        raise Misconfigured(
            "CONFIG_VARIABLE_UNSET",
            "a value of the configuration has a ${ that does not begin the name of a variable",
            hint="write ${NAME}, or $${ for the two characters ${",
        )
    raise Misconfigured(
        "CONFIG_VARIABLE_UNSET",
        f'the configuration asks for the variable "{name}", which is not set',
        detail=did_you_mean(name, environment),
        hint=f"set {name}, or write $${{ for the two characters ${{",
    )


def overlay(
    raw: Mapping[str, Any], environment: Mapping[str, str], keys_of: Keys, *, wins: bool = True
) -> dict[str, Any]:
    """Add what variables say to a configuration; what it says already is replaced if they win."""
    made = {section: dict(keys) if isinstance(keys, Mapping) else keys for section, keys in raw.items()}
    for variable in sorted(environment):
        path = _path(variable, made, keys_of)
        if path is None:
            continue
        *sections, key = path
        place: Any = made
        for section in sections:
            kept = place.get(section, {})
            if not isinstance(kept, Mapping):
                break  # the section is a value, which is refused later
            place[section] = place = dict(kept)
        else:
            if wins or key not in place:
                place[key] = _value(variable, environment[variable], keys_of[sections[0]][key])
    return made


def _path(variable: str, raw: Mapping[str, Any], keys_of: Keys) -> list[str] | None:
    """The sections and the key that a variable names; None if it is none of these variables."""
    if not variable.startswith(PREFIX):
        return None
    section, *rest = variable.removeprefix(PREFIX).split(JOINT)
    section = section.lower()
    keys = keys_of.get(section, {})
    if rest and rest[-1].lower() in keys:
        if len(rest) == 1 and section != "source":
            return [section, rest[0].lower()]
        if len(rest) == 2 and section in NAMED and rest[0]:
            return [section, _name(rest[0], raw.get(section)), rest[1].lower()]
    names = list(_names(raw, keys_of))
    if rest or (_flat(variable) in map(_flat, names) and not _OTHERS.fullmatch(variable)):
        raise Misconfigured(
            "CONFIG_UNKNOWN_VARIABLE",
            f'the variable "{variable}" names no key of a configuration',
            detail=did_you_mean(variable, names),
            hint="write HEADRACE_SECTION__KEY or HEADRACE_SOURCE__NAME__KEY, or unset it",
        )
    return None


def _name(written: str, sections: Any) -> str:
    """The name of the section that a variable means: variables have capitals and underscores alone."""
    there = [name for name in sections or () if _capital(name) == written]
    if len(there) > 1:
        raise Misconfigured(
            "CONFIG_UNKNOWN_VARIABLE",
            f'a variable means the sections "{there[0]}" and "{there[1]}" alike',
            hint="give one of them another name",
        )
    return there[0] if there else written.lower()


def _names(raw: Mapping[str, Any], keys_of: Keys) -> Iterator[str]:
    """The variables that there may be."""
    for section, keys in keys_of.items():
        inner = raw.get(section)
        named = [name for name in inner or () if isinstance(inner, Mapping)] if section in NAMED else []
        for key in keys:
            if section != "source":
                yield PREFIX + JOINT.join((section, key)).upper()
            for name in named or (["main"] if section == "source" else []):
                yield PREFIX + JOINT.join((section, _capital(name), key)).upper()


def _capital(name: str) -> str:
    return re.sub(r"[^A-Z0-9]", "_", name.upper())


def _flat(variable: str) -> str:
    return re.sub("_+", "_", variable)


def _value(variable: str, text: str, declared: str) -> Any:
    if declared.startswith("str"):
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        raise Misconfigured(
            "CONFIG_VARIABLE_MALFORMED",
            f'the value of the variable "{variable}" cannot be read',
            hint=f"write it as in headrace.toml: {_EXAMPLES.get(declared.split('[')[0], '4')}",
        ) from None


_EXAMPLES = {"tuple": '["public.*"]', "Mapping": '{ "spark.ui.enabled" = "false" }', "bool": "true"}
