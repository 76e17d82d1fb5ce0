"""Credentials: a password that a program prints or a file holds, and that may change while a run goes on.

    password_command    run for each new connection, or once in `password_ttl`
    password_file       read for each new connection

    log_in      a login of the driver's; if the server refuses a remembered password, it is asked for anew
    password_of for the addresses of the receiver and of tasks, which run no command

Only the driver asks. The password, the output of a command and its arguments are in no error and no log: any
of them may be the secret.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from headrace.core.credential import Credential
from headrace.core.errors import MaybeMisconfigured, Misconfigured
from headrace.sources.shared.refusals import LoginWithheld

T = TypeVar("T")

FILE_SECONDS = 2.0  # whoever writes a file anew may empty it first
MOST_BYTES = 16 << 10  # a token of a cloud has about two thousand
_PASSWORD = re.compile(r"[^\x00-\x1f\x7f]+")


class PasswordUnavailable(MaybeMisconfigured):
    """The command or the file yields no password now."""

    codes = (
        "PASSWORD_COMMAND_MISSING",
        "PASSWORD_COMMAND_SILENT",
        "PASSWORD_COMMAND_FAILED",
        "PASSWORD_COMMAND_OUTPUT",
        "PASSWORD_FILE_UNREADABLE",
        "PASSWORD_FILE_CONTENT",
    )


def password_of(credential: Credential) -> str:
    """The password as it is now. Raises `PasswordUnavailable`."""
    return _memory_of(credential).password()


def log_in(credential: Credential | None, attempt: Callable[[str | None], T]) -> T:
    """Log in with the password as it is now; without a credential with that of the address (None).

    If the server refuses a remembered password, ask for it anew, once.
    """
    if credential is None:
        return attempt(None)
    memory = _memory_of(credential)
    remembered = memory.recall()
    if remembered is not None:
        try:
            return attempt(remembered)
        except LoginWithheld:
            memory.forget(remembered)
    return attempt(memory.password())


def second_password() -> Misconfigured:
    """The error of an address that holds a password, and has a credential too."""
    return Misconfigured(
        "PASSWORD_TWICE",
        "the address holds a password, and a command or a file is to yield it",
        hint="leave the password out of the url, or leave out password_command and password_file",
    )


@dataclass(slots=True)
class _Memory:
    """The password that a credential yielded last; concurrent logins wait for one command."""

    credential: Credential
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _password: str | None = field(default=None, repr=False)
    _until: float = 0.0

    def password(self) -> str:
        with self._lock:
            if self._password is None or time.monotonic() >= self._until:
                self._password = _ask(self.credential)
                self._until = time.monotonic() + self.credential.ttl
            return self._password

    def recall(self) -> str | None:
        with self._lock:
            return self._password if time.monotonic() < self._until else None

    def forget(self, password: str) -> None:
        """Forget a password that was refused, unless another one has replaced it."""
        with self._lock:
            if self._password == password:
                self._password = None


_memories: dict[Credential, _Memory] = {}
_lock = threading.Lock()


def _memory_of(credential: Credential) -> _Memory:
    with _lock:
        return _memories.setdefault(credential, _Memory(credential))


def _forget_all() -> None:
    """Begin anew in a child: another thread of its parent may have held a lock."""
    global _lock
    _lock = threading.Lock()
    _memories.clear()


os.register_at_fork(after_in_child=_forget_all)


def _ask(credential: Credential) -> str:
    if credential.command:
        return _from_command(credential.command, credential.seconds)
    assert credential.file is not None
    return _from_file(Path(credential.file))


# --- a file -------------------------------------------------------------------------------------


def _from_file(path: Path) -> str:
    """Read a file, again and again for a moment if it is empty or away."""
    deadline = time.monotonic() + FILE_SECONDS
    while True:
        data, why = _read(path)
        if data or time.monotonic() >= deadline:
            break
        time.sleep(0.05)
    if why is not None:
        raise PasswordUnavailable(
            "PASSWORD_FILE_UNREADABLE",
            "the file with the password cannot be read",
            detail=f'password_file = "{path}": {why}',
            hint="let password_file name a file that the run's user may read",
        )
    password, fault = _one_line(data)
    if fault is not None:
        raise PasswordUnavailable(
            "PASSWORD_FILE_CONTENT",
            "the file with the password does not hold one password",
            detail=f'password_file = "{path}": {fault}',
            hint="write the password into it as its only line",
        )
    return password


def _read(path: Path) -> tuple[bytes, str | None]:
    try:
        with path.open("rb") as file:
            return file.read(MOST_BYTES + 1), None
    except OSError as error:
        return b"", error.strerror or type(error).__name__
    except ValueError:
        return b"", "its name has a null character"


# --- a command ----------------------------------------------------------------------------------


def _from_command(command: tuple[str, ...], seconds: float) -> str:
    try:
        # A session of its own, so that what it starts ends with it.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise PasswordUnavailable(
            "PASSWORD_COMMAND_MISSING",
            "the command for the password cannot be started",
            detail=error.strerror if isinstance(error, OSError) else "it has a null character",
            hint="let password_command begin with the path of a program",
        ) from None
    try:
        output = _output(process, time.monotonic() + seconds)
    finally:
        _end(process)
    if output is None:
        raise PasswordUnavailable(
            "PASSWORD_COMMAND_SILENT",
            "the command for the password did not end",
            detail=f"within {seconds:g} s; it was killed",
            hint=_BY_HAND,
        )
    password, fault = _one_line(output)
    if len(output) <= MOST_BYTES and process.returncode != 0:
        how = "signal" if process.returncode < 0 else "exit code"
        raise PasswordUnavailable(
            "PASSWORD_COMMAND_FAILED",
            "the command for the password failed",
            detail=f"{how} {abs(process.returncode)}",
            hint=_BY_HAND,
        )
    if fault is not None:
        raise PasswordUnavailable(
            "PASSWORD_COMMAND_OUTPUT",
            "the command for the password does not print one password",
            detail=fault,
            hint="let it print the password as its only line, and nothing else, on its standard output",
        )
    return password


_BY_HAND = "run password_command by hand, as the user of the run; headrace shows nothing that it prints"


def _output(process: subprocess.Popen[bytes], deadline: float) -> bytes | None:
    """The output of a command that has ended, or as much of it as is too much; None after the deadline."""
    assert process.stdout is not None
    output = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while len(output) <= MOST_BYTES:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                return None
            piece = os.read(process.stdout.fileno(), 1 << 14)
            if not piece:
                break
            output += piece
        else:
            return bytes(output)
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None
    return bytes(output)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of a command and of its children."""
    assert process.stdout is not None
    process.stdout.close()
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _one_line(data: bytes) -> tuple[str, str | None]:
    """The only line of these bytes, or what is wrong with them."""
    if len(data) > MOST_BYTES:
        return "", f"it is longer than {MOST_BYTES} bytes"
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return "", "it is not UTF-8"
    line = text.removesuffix("\n").removesuffix("\r")
    if not line:
        return "", "it is empty"
    if "\n" in line:
        return "", "it has more than one line"
    if not _PASSWORD.fullmatch(line):
        return "", "it has a control character"
    return line, None
