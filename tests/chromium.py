"""Debian's chromium as a test drives it: over its own pipe, without a driver of somebody else's.

    with browser() as chromium:
        tab = chromium.tab(width=390, dark=True)
        tab.open("http://127.0.0.1:9464/")
        tab.run("document.title")            what the page says
        tab.complaints, tab.requests         console errors, addresses that it asked for

The protocol (CDP) is JSON, a null byte after each message, on the descriptors 3 and 4.
"""

from __future__ import annotations

import base64
import json
import os
import queue
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.debian_programs import program

DEADLINE = 60.0
_FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run",
          "--disable-dev-shm-usage", "--disable-background-networking", "--hide-scrollbars")  # fmt: skip


class Chromium:
    """One browser, asked and heard over its pipe."""

    def __init__(self, to: int, out: int) -> None:
        self._to, self._out = to, out
        self._number = 0
        self._answers: dict[int, queue.Queue[dict[str, Any]]] = {}
        self._tabs: dict[str, Tab] = {}
        threading.Thread(target=self._listen, name="chromium", daemon=True).start()

    def tab(self, *, width: int = 1280, height: int = 900, dark: bool = False, script: bool = True) -> Tab:
        """A new tab, in a context of its own."""
        context = self.ask("Target.createBrowserContext")["browserContextId"]
        target = self.ask("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = self._tabs[session] = Tab(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            tab.ask(f"{domain}.enable")
        scheme = "dark" if dark else "light"
        tab.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        mobile = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        tab.ask("Emulation.setDeviceMetricsOverride", **mobile)
        tab.ask("Emulation.setScriptExecutionDisabled", value=not script)
        return tab

    def ask(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        number, answers = self._number, queue.Queue[dict[str, Any]]()
        self._answers[number] = answers
        asked = {"id": number, "method": method, "params": parameters}
        os.write(self._to, json.dumps(asked | ({"sessionId": session} if session else {})).encode() + b"\0")
        answer = answers.get(timeout=DEADLINE)
        assert "error" not in answer, (method, answer["error"])
        found: dict[str, Any] = answer["result"]
        return found

    def _listen(self) -> None:
        buffer = b""
        while data := os.read(self._out, 1 << 16):
            *messages, buffer = (buffer + data).split(b"\0")
            for message in map(json.loads, messages):
                if "id" in message:
                    self._answers.pop(message["id"]).put(message)
                elif message.get("sessionId") in self._tabs:
                    self._tabs[message["sessionId"]].hear(message["method"], message["params"])


class Tab:
    """One page, and what it complained of and asked for."""

    def __init__(self, chromium: Chromium, session: str) -> None:
        self._chromium, self._session = chromium, session
        self._loads: queue.Queue[None] = queue.Queue()
        self.complaints: list[str] = []
        self.requests: list[str] = []

    def open(self, url: str) -> None:
        """Go there; the page is loaded when this returns."""
        self.ask("Page.navigate", url=url)
        self._loads.get(timeout=DEADLINE)

    def run(self, expression: str) -> Any:
        """The value of an expression; of a promise what it comes to."""
        found = self.ask("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """The whole page as a picture."""
        data = self.ask("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))

    def press(self, key: str) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=9)

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._chromium.ask(method, self._session, **parameters)

    def hear(self, method: str, told: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loads.put(None)
        elif method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(told["exceptionDetails"]))
        elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.complaints.append(str(told["entry"]))
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning"):
            self.complaints.append(str(told["args"]))


@contextmanager
def browser() -> Iterator[Chromium]:
    """A browser with a profile of its own, which is gone afterwards."""
    (theirs, to), (out, theirs_too) = os.pipe(), os.pipe()

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [str(program("chromium", "chromium")), *_FLAGS, f"--user-data-dir={profile}"]
        # The shell puts the pipes where chromium expects them; they are inherited under their own numbers.
        placed = f'exec 3<&{theirs} 4>&{theirs_too}; exec "$@"'
        process = subprocess.Popen(
            ["bash", "-c", placed, "chromium", *command],
            pass_fds=(theirs, theirs_too),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs)
        os.close(theirs_too)
        try:
            yield Chromium(to, out)
        finally:
            process.terminate()
            process.wait(30)
            os.close(to)
