"""A folder for the spool in a place that all users of the machine share.

The folder's name can be guessed, so another user may have made it before us, and would then own its files:
rows of the source, and files that we take for our own. So we use it only if it is ours alone.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from headrace.core.errors import Misconfigured
from headrace.spool.layout import disk_error

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def private_folder(path: Path) -> Path:
    """Make the folder for our user only, or check that it is so; raise `SPOOL_FOLDER` if it is not."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise disk_error(error) from error
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise _refused_error(path, "it is no folder")
    if found.st_uid != os.geteuid():
        raise _refused_error(path, f"it belongs to the user with the number {found.st_uid}")
    if found.st_mode & _OTHERS_WRITE:
        raise _refused_error(path, f"others may write into it: its mode is {stat.S_IMODE(found.st_mode):o}")
    path.chmod(0o700)
    return path


def _refused_error(path: Path, why: str) -> Misconfigured:
    return Misconfigured(
        "SPOOL_FOLDER",
        f'the folder "{path}" of the spool is not ours alone',
        detail=why,
        hint="see who made it, and remove it; or set TMPDIR to a folder of your own",
    )
