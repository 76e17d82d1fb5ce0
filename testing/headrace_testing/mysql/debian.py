"""Packages of a Debian suite, unpacked into a folder: nothing is installed, no system file is touched.

`programs` calls `fetch`. The machine's own package manager does the work, from the mirror that it is set up
with, and compares what comes with Debian's signatures. It is shown an empty machine, so that it brings
every library that the programs need, down to the C library: programs of a suite that is newer than the
machine run under the loader that came with them.

No version is named: a suite that moves on serves today's only. Those that came are returned.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from headrace_testing.cache import announce

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
ATTEMPTS = 3  # a suite may move on between the list of its packages and the packages
DEADLINE = 600.0  # of one command

# What the programs don't read, a third of the files.
_UNREAD = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/perl", "usr/share/lintian")
_SITE = re.compile(r"(?m)^'(\S+)/dists/(\w+)/InRelease'")

_SETTINGS = """
Dir::State "{apt}";
Dir::State::Lists "{apt}/lists";
Dir::State::status "/dev/null";
Dir::Etc::SourceList "{apt}/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Dir::Cache "{apt}/cache";
Dir::Log "{apt}";
APT::Sandbox::User "";
APT::Update::Error-Mode "any";
Acquire::Languages "none";
Acquire::Retries "3";
Debug::NoLocking "true";
"""


class FetchError(Exception):
    """The packages cannot be had; the text is for a person."""


def fetch(suite: str, packages: Sequence[str], root: Path) -> dict[str, str]:
    """Unpack the packages and all that they depend on into `root`; the name and version of each."""
    apt = root.with_name("apt")
    last = "the machine's sources of packages name no Debian mirror"
    for attempt in range(ATTEMPTS):
        for site in _sites():
            announce(
                f"fetching {packages[0]} of Debian {suite}" + (f", attempt {attempt + 1}" if attempt else "")
            )
            try:
                archives = _download(site, suite, packages, apt)
            except FetchError as error:
                last = str(error)
                announce(last)
                continue
            versions = _unpack(archives, root)
            shutil.rmtree(apt)
            announce(f"{len(versions)} packages unpacked")
            return versions
    raise FetchError(last)


def _sites() -> Iterator[str]:
    """The mirrors of whole suites that this machine is set up with, in its order."""
    if not KEYRING.exists():
        return
    known = _run(["apt-get", "update", "--print-uris"], {})
    # Those of updates have a "-" or "/" in their suite's name.
    yield from dict.fromkeys(site for site, _ in _SITE.findall(known))


def _download(site: str, suite: str, packages: Sequence[str], apt: Path) -> list[Path]:
    shutil.rmtree(apt, ignore_errors=True)
    for folder in ("lists/partial", "cache/archives/partial"):
        (apt / folder).mkdir(parents=True)
    (apt / "sources.list").write_text(f"deb [signed-by={KEYRING}] {site} {suite} main\n")
    (apt / "apt.conf").write_text(_SETTINGS.format(apt=apt))
    settings = {"APT_CONFIG": str(apt / "apt.conf")}
    _run(["apt-get", "-qq", "update"], settings)
    _run(
        ["apt-get", "-qq", "-y", "--no-install-recommends", "--download-only", "install", *packages], settings
    )
    return sorted((apt / "cache/archives").glob("*.deb"))


def _unpack(archives: Sequence[Path], root: Path) -> dict[str, str]:
    root.mkdir()
    versions = {}
    for archive in archives:
        said = _run(["dpkg-deb", "--show", "--showformat", "${Package}\t${Version}", str(archive)], {})
        name, version = said.split("\t")
        _run(["dpkg-deb", "--extract", str(archive), str(root)], {})
        versions[name] = version
    for folder in _UNREAD:
        with suppress(FileNotFoundError):
            shutil.rmtree(root / folder)
    return versions


def _run(command: Sequence[str], settings: Mapping[str, str]) -> str:
    """Run a command and give what it printed; one that fails or never ends is a FetchError."""
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive", **settings},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE,
        )
    except FileNotFoundError:
        raise FetchError(f'"{command[0]}" is not installed') from None
    except subprocess.TimeoutExpired:
        raise FetchError(f'"{command[0]}" did not end within {DEADLINE:g} s') from None
    if done.returncode:
        raise FetchError(f'"{command[0]}" failed: {done.stderr.strip()[-500:]}')
    return done.stdout
