"""Azure's blob storage on loopback: Microsoft's own emulator, from npm.

    with azurite(containers=("lakes",)) as server:
        open_store("az://lakes/shop", server.options)

npm fetches the pinned release once for all test runs (`headrace_testing.cache`) and compares what it got with
the hash below; it runs no script of any package. What cannot be had raises `SERVER_MISSING`, never a skip.
Blobs live in the emulator's memory. Account and key are those that every azurite has.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from headrace.core.errors import Misconfigured
from headrace_testing.cache import announce, cached, server_missing
from headrace_testing.ports import free_port

RELEASE = "3.37.0"
# As the registry publishes it (`npm view azurite@3.37.0 dist.integrity`).
INTEGRITY = "sha512-dl2AXMkXtVlX9s3U3ttIQFFlKwe64k/ugSIVNT4V3qX488Ncw988rIHAs6apgUtfEzyqwtFN9MZp0Foq60Htag=="
ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_VERSION = "2021-08-06"
_START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class AzuriteServer:
    """An emulator that runs: the address of its one account."""

    url: str

    @property
    def options(self) -> dict[str, str]:
        """Options for delta-rs, obstore and Polars, also as variables of the environment."""
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": _KEY,
            "AZURE_STORAGE_ENDPOINT": self.url,
            "AZURE_ALLOW_HTTP": "true",
        }


@contextmanager
def azurite(containers: Sequence[str]) -> Iterator[AzuriteServer]:
    """Run an emulator with these containers, all of them empty."""
    program, port = _program(), free_port()
    server = AzuriteServer(f"http://127.0.0.1:{port}/{ACCOUNT}")
    command = ["node", str(program), "--inMemoryPersistence", "--silent", "--disableTelemetry"]
    command += ["--skipApiVersionCheck", "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            _until_up(process, server.url)
            for name in containers:
                make_container(server.url, name)
            yield server
        finally:
            process.kill()


def make_container(url: str, name: str) -> None:
    """Make a container, by a request that is signed with the account's key."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _VERSION}
    lines = "".join(f"{key}:{value}\n" for key, value in sorted(headers.items()))
    resource = f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
    text = "PUT" + "\n" * 12 + lines + resource
    digest = hmac.new(base64.b64decode(_KEY), text.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    with urlopen(Request(f"{url}/{name}?restype=container", method="PUT", headers=headers), timeout=30):
        pass


def _until_up(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            urlopen(url, timeout=5).close()
        except HTTPError:
            return  # it answers, if only that this is no request
        except (URLError, ConnectionError) as error:
            if process.poll() is not None:
                said = process.stdout.read().decode(errors="replace") if process.stdout else ""
                raise _missing("it ended at once", said[-500:]) from error
            if time.monotonic() > deadline:
                raise _missing("it does not answer") from error
            time.sleep(0.05)


def _program() -> Path:
    def fetch(into: Path) -> None:
        announce(f"fetching azurite {RELEASE} from npm, once")
        spec = f"azurite@{RELEASE}"
        command = ["npm", "install", "--prefix", str(into), "--ignore-scripts", "--no-audit", "--no-fund"]
        try:
            done = subprocess.run([*command, spec], cwd=into, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise _missing('"npm" is not installed') from None
        if done.returncode:
            raise _missing(f'npm could not fetch "{spec}"', done.stderr.strip()[-500:])
        lock = json.loads((into / "package-lock.json").read_text())
        if lock["packages"]["node_modules/azurite"]["integrity"] != INTEGRITY:
            raise _missing(f'what was fetched as "{spec}" is not what was pinned')

    return cached(f"azurite-{RELEASE}", fetch) / "node_modules/azurite/dist/src/blob/main.js"


def _missing(why: str, detail: str | None = None) -> Misconfigured:
    return server_missing(
        "azurite", why, detail=detail, hint="install Node.js and npm; azurite comes from npm by itself"
    )
