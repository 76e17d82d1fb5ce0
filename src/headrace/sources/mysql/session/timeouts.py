"""The bounds of waiting, in seconds; and who may end a wait before."""

from __future__ import annotations

LOGIN_SECONDS = 15.0  # from the greeting to the server's OK
ANSWER_SECONDS = 60.0  # of a question; a wait for locks the server ends before that (`connection`)
COPY_SECONDS = 120.0  # between two parts of a copy's rows
CHECK_SECONDS = 0.2  # between two looks whether it is wanted still
CANCEL_SECONDS = 0.5  # for the answer to a cancellation, until it is asked for again
STRIKE_SECONDS = 5.0  # for a request to cancel; its session is hung up on
READY_SECONDS = 0.5  # the same, of a session that was ready before it was needed
CANCEL_LIMIT = 30.0  # until a statement that will not end is hung up on


def nobody() -> None:
    """Nobody wants to end the wait before its time."""
