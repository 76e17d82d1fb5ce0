"""Committed files are true on any machine: no path of one, no address of a package index, no secret."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.meta.tracked import ROOT, files, relative

# Folders that are one machine's own. Written so that this file does not contain them.
_OWN = "|".join(["wo" + "rk", "ro" + "ot", "ho" + "me", "op" + "t", "tm" + "p", "Use" + "rs", "mn" + "t"])
MACHINE_PATH = re.compile(rf"(?<![\w.$}}>*~])/(?:{_OWN})/[\w.-]")
ADDRESS = re.compile(r"\bhttps?://([A-Za-z0-9.-]+)")
HOSTS = re.compile(
    r"localhost|127\.0\.0\.\d+|([\w-]+\.)*example(\.(com|org|net))?|([\w-]+\.)*(invalid|test)"
    r"|(www\.)?(apache|postgresql|python|spdx|keepachangelog|semver|json-schema|w3)\.org|github\.com|delta\.io"
    # Sources that pages cite: what a hosted database asks of its users.
    r"|docs\.aws\.amazon\.com|cloud\.google\.com|neon\.com|supabase\.com|learn\.microsoft\.com"
)
_TOOLS = re.compile(
    "|".join(["issues" + " show", "shared" + "/knowledge", "brie" + "fs/", "PIP_FIND" + "_LINKS"])
)
TEXTS = tuple(path for path in files() if path.suffix in {".md", ".py", ".toml", ".lock", ".txt", ""})


@pytest.mark.parametrize("path", TEXTS, ids=relative)
def test_a_file_holds_no_trace_of_a_machine(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert _matches(MACHINE_PATH, text) == []
    assert _matches(_TOOLS, text) == []
    assert strange_hosts(text) == []


def _matches(pattern: re.Pattern[str], text: str) -> list[str]:
    return [match[0] for match in pattern.finditer(text)]


def strange_hosts(text: str) -> list[str]:
    hosts = (match[1].rstrip(".") for match in ADDRESS.finditer(text))
    return [host for host in hosts if not HOSTS.fullmatch(host)]


def test_a_trace_is_noticed() -> None:
    assert _matches(MACHINE_PATH, "see /" + "tmp/x and ~/" + "home/y") == ["/" + "tmp/x"]
    assert strange_hosts("https:/" + "/pkg.company.io/simple, http://localhost:8080") == ["pkg.company.io"]


def test_the_lock_holds_names_versions_and_hashes_alone() -> None:
    line = re.compile(r"[\w.-]+(\[[\w,-]+\])?==[\w.!+]+ \\|    --hash=sha256:[0-9a-f]{64}( \\)?|#.*|")
    lock = (ROOT / "requirements" / "dev.lock").read_text(encoding="utf-8")
    assert [text for text in lock.splitlines() if not line.fullmatch(text)] == []
