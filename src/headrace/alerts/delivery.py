"""One attempt to deliver an event: an HTTP POST of JSON, or a command that gets the JSON on standard input.

An attempt lasts at most `WEBHOOK_SECONDS` or `COMMAND_SECONDS`. A webhook takes an event with a status of 200
to 299, a command with the exit code 0; everything else is an error, and the event is tried again. A redirect
is not followed: it leads to where the operator did not send the event. No error repeats a URL, an answer's
body or the output of a command: each may hold a secret.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import SplitResult, unquote

from headrace.alerts.hooks import WEBHOOK, Hook, section_of
from headrace.core.errors import Misconfigured, Transient

WEBHOOK_SECONDS = 10.0
COMMAND_SECONDS = 30.0


def deliver(hook: Hook, event: Mapping[str, Any]) -> str:
    """Deliver an event once; what came back, in a few words. Raises where the hook did not take it."""
    # A path of bytes that are no text gives lone surrogates: in JSON those are escapes.
    body = json.dumps(event, ensure_ascii=False).encode(errors="backslashreplace")
    return _post(hook, body) if hook.way == WEBHOOK else _run(hook, body)


def _post(hook: Hook, body: bytes) -> str:
    url, deadline = hook.address(), time.monotonic() + WEBHOOK_SECONDS
    try:
        status = _exchange(url, body)
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        if isinstance(error, TimeoutError) or time.monotonic() >= deadline:
            raise Transient(
                "ALERT_HOOK_SILENT",
                f'the webhook of "{hook.name}" did not answer',
                detail=f"within {WEBHOOK_SECONDS:g} s",
                hint="look at the service behind it; the event is sent again",
            ) from None
        raise Transient(
            "ALERT_HOOK_UNREACHABLE",
            f'the webhook of "{hook.name}" cannot be reached',
            detail=_reason(error),
            hint=f"try it: headrace alerts test --name {hook.name}",
        ) from None
    return _judge(hook, status)


def _exchange(url: SplitResult, body: bytes) -> int:
    """Send a request; the status of its answer, whose body nobody reads."""
    connection = _connection(url)
    alarm = threading.Timer(WEBHOOK_SECONDS, _cut, [connection])
    alarm.daemon = True
    alarm.start()
    try:
        connection.request("POST", _target(url), body, _headers(url))
        return connection.getresponse().status
    finally:
        alarm.cancel()
        connection.close()


def _judge(hook: Hook, status: int) -> str:
    phrase = http.client.responses.get(status, "")
    said = f"{status} {phrase}".strip()
    if 200 <= status < 300:
        return said
    if 300 <= status < 400:
        raise Transient(
            "ALERT_HOOK_REDIRECTED",
            f'the webhook of "{hook.name}" sends us to another address',
            detail=f"it answered {said}; a redirect is not followed",
            hint="give the address that it leads to",
        )
    raise Transient(
        "ALERT_HOOK_REFUSED",
        f'the webhook of "{hook.name}" did not take an event',
        detail=f"it answered {said}",
        hint=f"see that its address is right; then try it: headrace alerts test --name {hook.name}",
    )


def _connection(url: SplitResult) -> http.client.HTTPConnection:
    host = str(url.hostname)
    if url.scheme == "http":
        return http.client.HTTPConnection(host, url.port, timeout=WEBHOOK_SECONDS)
    context = ssl.create_default_context()
    return http.client.HTTPSConnection(host, url.port, timeout=WEBHOOK_SECONDS, context=context)


def _target(url: SplitResult) -> str:
    return (url.path or "/") + (f"?{url.query}" if url.query else "")


def _headers(url: SplitResult) -> dict[str, str]:
    headers = {
        "Content-Type": "application/json; charset=utf-8",
        "User-Agent": "headrace",
        "Connection": "close",
    }
    if url.username is not None:
        login = f"{unquote(url.username)}:{unquote(url.password or '')}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
    return headers


def _cut(connection: http.client.HTTPConnection) -> None:
    """End an exchange that takes too long: a server may also send one byte every few seconds."""
    sock = connection.sock
    if sock is not None:
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


def _reason(error: Exception) -> str:
    """Say why a connection failed, without what the exception says: that may hold the address."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message.partition(',')[0]}"  # then the host
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason}"
    if isinstance(error, socket.gaierror | UnicodeError):  # or it is none, as "a..b"
        return "its host name leads nowhere"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return f"it does not speak HTTP ({type(error).__name__})"


def _run(hook: Hook, body: bytes) -> str:
    try:
        # A session of its own: what the command starts ends with it.
        process = subprocess.Popen(
            hook.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it has a null character"
        raise Misconfigured(
            "ALERT_COMMAND_MISSING",
            f'the command of "{hook.name}" cannot be started',
            detail=why,
            hint=f"let command in [{section_of(hook.name)}] begin with the path of a program",
        ) from None
    try:
        process.communicate(body, COMMAND_SECONDS)
    except subprocess.TimeoutExpired:
        raise Transient(
            "ALERT_COMMAND_SILENT",
            f'the command of "{hook.name}" did not end',
            detail=f"within {COMMAND_SECONDS:g} s; it was killed",
            hint=f"run it by hand, with JSON on its standard input; headrace alerts test --name {hook.name}",
        ) from None
    finally:
        _kill(process)
    if process.returncode != 0:
        how = "signal" if process.returncode < 0 else "exit code"
        raise Transient(
            "ALERT_COMMAND_FAILED",
            f'the command of "{hook.name}" failed',
            detail=f"{how} {abs(process.returncode)}",
            hint=f"run it by hand, with JSON on its standard input; headrace alerts test --name {hook.name}",
        )
    return "exit code 0"


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End what a command left of itself; also its children, which may hold its standard input."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
