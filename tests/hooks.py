"""A real HTTP server that takes alerts, and answers as a test wants.

with hook_server() as hook:
    hook.url            the address, with a path that is a secret
    hook.answers = 500  from now on; "hang", "drip", "redirect" and "noise" are no answers of a healthy server
    hook.until(lambda: "table_stopped" in hook.kinds, "the alert")
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from headrace_testing.postmaster import wait_for

CANARY = "canary-7f3a9c"


class HookServer:
    """The events that were taken, and the way in which the next one is answered."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/{CANARY}?key={CANARY}"
        self.events: list[dict[str, Any]] = []  # one that came again, after a crash, is not counted twice
        self.asked = 0
        self.answers: int | str = 200
        self.refuses = ""  # a kind of event, whatever it answers to others
        self.over = threading.Event()

    @property
    def kinds(self) -> list[str]:
        return [event["kind"] for event in self.events]

    def has(self, *kinds: str) -> bool:
        return set(kinds) <= set(self.kinds)

    def of(self, kind: str) -> dict[str, Any]:
        """The newest event of a kind."""
        return [event for event in self.events if event["kind"] == kind][-1]

    def until(self, condition: Callable[[], bool], what: str) -> None:
        wait_for(condition, f"{what}; there are {self.kinds}")


@contextmanager
def hook_server() -> Iterator[HookServer]:
    """A server at a port of its own, in a thread of this process."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            hook.asked += 1
            with suppress(OSError):
                self._answer(event)

        def _answer(self, event: dict[str, Any]) -> None:
            if hook.answers == "hang":
                hook.over.wait(60)
            elif hook.answers == "drip":
                while not hook.over.wait(0.1):
                    self.wfile.write(b"H")
            elif hook.answers == "noise":
                self.wfile.write(b"220 mail ready\r\n\r\n")
            elif hook.answers == "redirect":
                self.send_response(302)
                self.send_header("Location", f"/elsewhere-{CANARY}")
                self.end_headers()
            else:
                again = "id" in event and event["id"] in {each["id"] for each in hook.events}
                status = 400 if event["kind"] == hook.refuses else int(hook.answers)
                if status == 200 and not again:
                    hook.events.append(event)
                self.send_response(status)
                self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hook = HookServer(server.server_port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield hook
    finally:
        hook.over.set()
        server.shutdown()
        thread.join()
        server.server_close()
