"""Statements that a cloud refuses become its own words, and all others stay."""

from __future__ import annotations

from headrace.core.errors import Misconfigured
from headrace.sources.shared.hosting import Cloud, in_words_of

CLOUD = Cloud(
    "a cloud",
    settings="set {settings} there",
    names={"wal_level": "logical=on"},
    statements={r"ALTER ROLE (.+) REPLICATION": r"GRANT replicate TO \1"},
    hints={"OFF": "turn it on"},
)


def said(code: str, hint: str, *mend: str) -> tuple[str, tuple[str, ...], bool]:
    error, own = in_words_of(CLOUD, Misconfigured(code, "x", detail="why", hint=hint), mend)
    return error.hint, own, CLOUD.origin in str(error.detail)


def test_settings_become_the_clouds_and_no_statement_is_left() -> None:
    system = "ALTER SYSTEM SET wal_level = logical"
    assert said("A", f"{system}; then restart", system) == ("set logical=on there", (), True)
    slots = "ALTER SYSTEM SET slots = 'a, b'"
    assert said("A", slots, slots, "SELECT pg_reload_conf()") == ("set slots = 'a, b' there", (), True)
    both = ("SET PERSIST a = 1", "SET PERSIST_ONLY b = ON")
    assert said("A", "; ".join(both), *both) == ("set a = 1, b = ON there", (), True)


def test_a_statement_becomes_the_clouds_own() -> None:
    assert said("A", "ask", 'ALTER ROLE "m" REPLICATION') == (
        'GRANT replicate TO "m"',
        ('GRANT replicate TO "m"',),
        True,
    )


def test_a_hint_of_the_cloud_comes_first_and_what_it_allows_stays() -> None:
    assert said("OFF", "write log_bin") == ("turn it on", (), True)
    assert said("A", "GRANT SELECT ON t TO m", "GRANT SELECT ON t TO m") == (
        "GRANT SELECT ON t TO m",
        ("GRANT SELECT ON t TO m",),
        False,
    )
