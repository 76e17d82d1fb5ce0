"""Secrets on their way to a Spark task, in two halves of which neither says anything.

A task that reads from the source needs its password, and everything that is handed to a task may show
up somewhere: a query plan, an event log, the web page of a job, a shuffle file, the file in which
`createDataFrame` passes rows to the JVM. Spark redacts settings whose names look secret; it redacts
neither data nor functions. So the secret travels as a one-time pad:

    Sealed = secret XOR pad      in the item     (data: a row of the job)
    Key    = pad                 in the task     (code: the pickled function)

The pad is as long as the secret, random and used once. The sealed half alone is then as random as the
pad itself, and the pad knows nothing of the secret: whoever sees one half has seen nothing. Both
halves meet only where the task runs. Spark prints neither: a plan shows column names and the function's
name, Connect's record of a statement cuts binary fields to their first bytes. Both halves together
are in memory, on the wire between driver and executors, and may be in the local spill files of one
executor: there `spark.network.crypto.enabled` and `spark.io.encryption.enabled` are the remedy,
as for all of a user's own data.

The secret is framed before it is sealed, so that neither its length nor a wrong key goes unnoticed:

    | length 4 | SHA-256, first 8 | text | zeros to a multiple of 64 |

Must never hold a secret in a `repr`, an error or a log.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

_BLOCK = 64
_HEAD = 12


@dataclass(frozen=True, repr=False)
class Key:
    """The pad; goes into the task, never into an item."""

    pad: bytes

    def __repr__(self) -> str:
        return "Key(...)"


@dataclass(frozen=True, repr=False)
class SealedSecret:
    """The secret under the pad; goes into an item, never into the task."""

    data: bytes

    def __repr__(self) -> str:
        return "SealedSecret(...)"

    def open(self, key: Key) -> str:
        """The secret; a ValueError without any of it if the key is not the one it was sealed with."""
        if len(key.pad) != len(self.data):
            raise ValueError("sealed with another key")
        frame = _xor(self.data, key.pad)
        length, digest = int.from_bytes(frame[:4], "big"), frame[4:_HEAD]
        text = frame[_HEAD : _HEAD + length]
        if _digest(text) != digest:
            raise ValueError("sealed with another key")
        return text.decode("utf-8")


def seal(text: str) -> tuple[SealedSecret, Key]:
    """Splits a secret into the half that travels as data and the half that travels as code."""
    raw = text.encode("utf-8")
    frame = len(raw).to_bytes(4, "big") + _digest(raw) + raw
    frame += bytes(-len(frame) % _BLOCK)
    pad = secrets.token_bytes(len(frame))
    return SealedSecret(_xor(frame, pad)), Key(pad)


def _digest(raw: bytes) -> bytes:
    return hashlib.sha256(raw).digest()[: _HEAD - 4]


def _xor(left: bytes, right: bytes) -> bytes:
    mixed = int.from_bytes(left, "big") ^ int.from_bytes(right, "big")
    return mixed.to_bytes(len(left), "big")
