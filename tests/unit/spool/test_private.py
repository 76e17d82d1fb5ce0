"""A spool under a folder that all users share is ours alone, or it is not used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.core.errors import Misconfigured
from headrace.spool.private import private_folder


def test_the_folder_is_made_for_our_eyes_only_and_used_again(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        made = private_folder(tmp_path / "spool")
    finally:
        os.umask(old)
    assert made.stat().st_mode & 0o777 == 0o700
    made.chmod(0o755)  # as older versions made it
    assert private_folder(made).stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("who", ["a link", "a file", "open to all", "another user"])
def test_a_folder_that_somebody_else_may_have_made_is_refused(tmp_path: Path, who: str) -> None:
    path = tmp_path / "spool"
    if who == "a link":
        (tmp_path / "theirs").mkdir()
        path.symlink_to(tmp_path / "theirs")
    elif who == "a file":
        path.touch()
    else:
        path.mkdir()
        path.chmod(0o777 if who == "open to all" else 0o700)
    if who == "another user":
        if os.geteuid() != 0:
            pytest.skip("only root can make a folder of somebody else")
        os.chown(path, 65534, 65534)
    with pytest.raises(Misconfigured) as caught:
        private_folder(path)
    assert caught.value.code == "SPOOL_FOLDER"
