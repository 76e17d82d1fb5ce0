"""Transactions that were streamed while they ran, as if they had come whole.

    S I(7) I(8) E  S I(7) E  ... c(7)      ─►      B(7) I I I         the same bytes, but for the xids

Where very many are small, reading each for itself costs far more than what is in it: as ordinary
transactions, one behind the other, they are read in one go. What was rolled back has been left out before.
"""

from __future__ import annotations

import numpy as np

from headrace.decode.kernel import Bytes
from headrace.decode.pgoutput.framing import (
    BEGIN,
    DELETE,
    INSERT,
    RELATION,
    TRUNCATE,
    UPDATE,
    Messages,
    alone,
)
from headrace.decode.pgoutput.positions import begin_body

_KEPT = (INSERT, UPDATE, DELETE, TRUNCATE, RELATION)
_XID = 4
_LENGTH = 4


def whole(data: Bytes, messages: Messages, *, commit_lsn: int, commit_ts: int, xid: int) -> Bytes:
    """These messages of a streamed block behind a BEGIN, without the xids of their subtransactions."""
    kept = messages.take(np.isin(messages.kind, _KEPT))
    lengths = (kept.stop - kept.frame_start - 1 - _XID).astype(">i4")
    shorter = data.copy()
    shorter[kept.frame_start[:, None] + 1 + np.arange(_LENGTH)] = lengths.view(np.uint8).reshape(-1, _LENGTH)
    edges = np.zeros(len(data) + 1, np.int8)
    np.add.at(edges, kept.frame_start, 1)
    np.add.at(edges, kept.body - _XID, -1)
    np.add.at(edges, kept.body, 1)
    np.add.at(edges, kept.stop, -1)
    changes = shorter[np.cumsum(edges[:-1], dtype=np.int8).astype(np.bool_)]
    begin = alone(BEGIN, begin_body(commit_lsn, commit_ts, xid))
    return np.concatenate([np.frombuffer(begin, np.uint8), changes])
