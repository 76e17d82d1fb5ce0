"""Decide whether an old spool may be used, before a writer and a reader open it.

A spool goes on only if it is

    a spool of the same stream     the origin that is written beside it is the same, word for word
    without a gap                  its oldest segment begins at or before the lake's frontier

and is erased otherwise, which costs nothing but the time of streaming again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.spool.layout import FORMAT, ORIGIN, disk_error, erase
from headrace.spool.reader import SpoolReader


def prepare(folder: Path, origin: Mapping[str, Any], frontier: int) -> bool:
    """Make the folder a spool of this origin that holds everything from `frontier` on; True if it was kept.

    Only while neither a writer nor a reader uses the folder.
    """
    text = json.dumps({"format": FORMAT, **origin}, sort_keys=True)
    path = folder / ORIGIN
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.read_text() == text and _begins_before(folder, frontier):
            return True
        erase(folder)
        path.write_text(text)
    except OSError as error:
        raise disk_error(error) from error
    return False


def _begins_before(folder: Path, frontier: int) -> bool:
    oldest = SpoolReader(folder).oldest()
    return oldest is None or oldest.frontier <= frontier
