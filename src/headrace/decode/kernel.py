"""Kernels: the loops of this room, compiled once by Numba and then loaded from its cache.

A kernel is a plain function over flat arrays. It is declared with its exact types. So it is compiled when its
module is first imported on a machine, never in the middle of a stream, and no call can compile a second
version. Spark's workers load what the first one compiled.

Every kernel promises:

* It reads only inside the bounds that it was given, whatever the bytes say: a length that it read is
  compared with what is left before it is used. Compiled code has no other protection.
* It reports trouble as a value (a code, a row), never as an exception; its caller words the error.
* It releases the GIL, so that a thread which answers keepalives is not starved.

Numba has three traps:

* Its cache checks the kernel's own file alone, but compiles other kernels and constants into it. So a kernel
calls
  kernels of its own file only. What it takes from other files (the readers below, letters and limits of the
  protocol) must never change its meaning.
* An array from `np.frombuffer(bytes)` is read-only, which is a type of its own. Inputs are declared
read-only, which
  accepts both.
* A signed index may be negative. So each access compares it, and no loop over bytes becomes one over words.
Where
  speed counts, the index is unsigned (`copy_bytes`: 40 GB/s; with slices 3, with signed indices 0.8).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from numba import njit, types

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Lengths = npt.NDArray[np.int32]
Oids = npt.NDArray[np.uint32]
Flags = npt.NDArray[np.bool_]

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def input_array(dtype: Any, dimensions: int = 1) -> Any:
    """The Numba type of a contiguous array that the kernel only reads."""
    return types.Array(dtype, dimensions, "C", readonly=True)


def output_array(dtype: Any, dimensions: int = 1) -> Any:
    """The Numba type of a contiguous array that the kernel writes."""
    return types.Array(dtype, dimensions, "C")


def several(*members: Any) -> Any:
    """The Numba type of a tuple."""
    tuple_of: Any = types.BaseTuple.from_types
    return tuple_of(members)


def kernel(returns: Any, *arguments: Any) -> Callable[[Kernel], Kernel]:
    """Compile the function for exactly these types."""

    def compile_kernel(function: Kernel) -> Kernel:
        signature = returns(*arguments)
        try:
            made: Kernel = njit(signature, cache=True, nogil=True)(function)
        except RuntimeError:
            # Neither the package's folder nor the user's is writable: compile in each process.
            made = njit(signature, nogil=True)(function)
        return made

    return compile_kernel


@kernel(types.int64, input_array(types.uint8), types.int64)
def int16_at(data: Bytes, at: int) -> int:
    """The big-endian unsigned 16-bit number at `at`; the caller has checked that it is there."""
    return int((np.int64(data[at]) << 8) | np.int64(data[at + 1]))


@kernel(types.int64, input_array(types.uint8), types.int64)
def int32_at(data: Bytes, at: int) -> int:
    """The big-endian unsigned 32-bit number at `at`; the caller has checked that it is there."""
    return int(
        (np.int64(data[at]) << 24)
        | (np.int64(data[at + 1]) << 16)
        | (np.int64(data[at + 2]) << 8)
        | np.int64(data[at + 3])
    )


@kernel(types.int64, input_array(types.uint8), types.int64)
def int64_at(data: Bytes, at: int) -> int:
    """The big-endian signed 64-bit number at `at`; the caller has checked that it is there."""
    value = np.int64(data[at])
    for i in range(1, 8):
        value = (value << 8) | np.int64(data[at + i])
    return int(value)


@kernel(
    types.void, input_array(types.uint8), types.int64, types.int64, output_array(types.uint8), types.int64
)
def copy_bytes(data: Bytes, begin: int, end: int, out: Bytes, at: int) -> None:
    """Write `data[begin:end]` to `out`, from `at` on; the caller has checked that there is room."""
    source, target = np.uint64(begin), np.uint64(at)
    for i in range(np.uint64(max(0, end - begin))):
        out[target + i] = data[source + i]
