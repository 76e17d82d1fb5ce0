"""ServerError: an ERR packet as it came. `session.refusals` makes a coded error of it.

The message of a server may quote a value or a statement, and with that a secret. So it is no part of what the
exception shows; `refusals` passes on those of a few numbers, which hold names only.
"""

from __future__ import annotations

ERR = 0xFF
_STATE_MARK = ord("#")


class ServerError(Exception):
    """The server's refusal of a command, or its last word."""

    def __init__(self, number: int, state: str, message: str) -> None:
        super().__init__(number, state)
        self.number = number
        self.state = state
        self.message = message  # never shown as it is


def server_error(packet: bytes) -> ServerError:
    """Read an ERR packet; one that is cut short has no message."""
    number = int.from_bytes(packet[1:3], "little")
    has_state = packet[3:4] == bytes([_STATE_MARK])
    state = packet[4:9].decode("ascii", "replace") if has_state else ""
    return ServerError(number, state, packet[9 if has_state else 3 :].decode("utf-8", "replace"))
