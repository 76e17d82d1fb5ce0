"""The newest mark of a source, out of the log of its marks table alone: no Arrow, no delta-rs.

For whoever must stay small beside a lake (`headrace.status`): a list of keys and one JSON line. Everybody
else asks `lake.log.marks`, which reads the marks themselves.
"""

from __future__ import annotations

import json
import re
from typing import Any

from headrace.lake.format import layout
from headrace.lake.store.contract import Store

_LINE = re.compile(r"/\d{20}\.json\Z")


def newest_epoch(store: Store, source: str) -> int:
    """Find the epoch of the source's newest mark; 0 where it has none."""
    keys = store.list(f"{layout.marks_folder(source)}/_delta_log")
    for key in reversed([key for key in keys if _LINE.search(key)]):
        epoch = _newest_published(store.get(key) or b"")
        if epoch is not None:
            return epoch
    return 0


def _newest_published(text: bytes) -> int | None:
    """The epoch whose mark this version of the log publishes; None of any other version.

    Maintenance puts files of marks together under the number of its own epoch, before that epoch's mark is
    there: such a version removes files, and a mark's never does.
    """
    try:
        actions: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines() if line]
        if any("remove" in action for action in actions):
            return None
        epochs = [action["txn"]["version"] for action in actions if "txn" in action]
        return int(epochs[0]) if epochs and any("add" in action for action in actions) else None
    except (ValueError, KeyError, TypeError):
        return None
