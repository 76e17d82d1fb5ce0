"""Work that takes long, done beside the loop of a source: in a thread of its own, which changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

Errand = Callable[[], Any]


def beside(errand: Errand) -> Future[Any]:
    """Do it in a thread of its own."""
    with_one = ThreadPoolExecutor(1, "headrace-errand")
    done = with_one.submit(errand)
    with_one.shutdown(wait=False)
    return done
