"""Memory for CPU arrays: large blocks are kept for reuse when the last array on them dies.

Fresh memory costs a page fault for every 4 KiB, which for a simple loop over a large array takes several times as long
as the loop itself: filling twenty 16 MiB outputs that are alive together and then dropped, as a training step does,
measured 3.3 times slower with `numpy.empty`. So blocks of `THRESHOLD` bytes and more come from free lists by size
class. Classes are eighths of powers of two: at most 12.5 % of a block is unused (25 % when the next class serves).

Ownership. `empty` returns a plain `numpy.ndarray` whose `base` is a `_Block`, and a view made from it by whatever means
(slicing, `memoryview`, DLPack, the buffer protocol) keeps that array and so the block alive. The block's finaliser does
one thing, an append to a deque: it takes no lock, so that it may run in any thread, in the garbage collector, inside
the allocator itself or at interpreter exit. The allocator moves what the deque holds to its lists at its next call.

The cache is bounded: by `RUSHLIGHT_MEMORY_CACHE_MB` (default a quarter of the memory that this process may use), and
before new memory is requested by what the program has lately needed (idle blocks never exceed the recent peak of live
ones or 64 MiB). Classes that were not used for longest go first. `RUSHLIGHT_ALLOCATOR=off` turns the cache off.

Arrays that NumPy makes by itself, and those under the threshold, come from malloc. glibc returns the top of its heap to
the system whenever 128 KiB are free there and maps larger blocks one by one, which means the same page faults; unless
the user has set MALLOC_* or GLIBC_TUNABLES himself or `RUSHLIGHT_MALLOPT=0`, `M_MMAP_THRESHOLD` is raised to 32 MiB
(where glibc's own dynamic threshold ends anyway) and `M_TRIM_THRESHOLD` to 256 MiB (a sixteenth of memory at most).
`release()` gives everything unused back, glibc's part too.
"""

from __future__ import annotations

import ctypes
import math
import operator
import os
import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from rushlight.backends.cpu import sysinfo

__all__ = ["Allocator", "OutOfMemoryError", "THRESHOLD", "empty", "empty_like", "release", "reset_peak", "stats",
           "zeros"]

ALIGNMENT = 64
_FLOOR = 64 << 20              # idle bytes that are always tolerated
_np_empty, _np_zeros, _ndarray, _u8 = np.empty, np.zeros, np.ndarray, np.dtype(np.uint8)


class OutOfMemoryError(RuntimeError, MemoryError):
    """Memory for an array cannot be had. PyTorch raises RuntimeError here, NumPy MemoryError; this is both."""

    def __reduce__(self) -> Any:        # not by the name that is printed: `torch` may be something else there
        return _out_of_memory, self.args, self.__dict__


def _out_of_memory(*args: Any) -> OutOfMemoryError:
    return OutOfMemoryError(*args)


OutOfMemoryError.__module__ = "torch"


class _Memory(np.ndarray):
    """Owned bytes. A type of its own, because NumPy shortens chains of bases of the array's own type and would skip
    the `_Block` in between."""

    __slots__ = ()


def _configure_malloc() -> bool:
    """Raise glibc's thresholds (see above); True when that was done."""
    decided = "GLIBC_TUNABLES" in os.environ or any(k.startswith("MALLOC_") for k in os.environ)
    if sys.platform != "linux" or decided or os.environ.get("RUSHLIGHT_MALLOPT", "1") == "0":
        return False
    try:
        libc = ctypes.CDLL(None)
        if not hasattr(libc, "gnu_get_libc_version"):
            return False
        trim = min(256 << 20, max(1 << 20, sysinfo.memory_limit() // 16))
        return bool(libc.mallopt(-3, 32 << 20)) and bool(libc.mallopt(-1, trim))
    except (OSError, AttributeError):
        return False


_TUNED = _configure_malloc()
THRESHOLD = 1 << 20 if _TUNED else 64 << 10     # measured: below it a tuned malloc is as fast and cheaper to call


def _normal(shape: Any, dtype: Any) -> tuple[tuple[int, ...], np.dtype]:
    sizes = tuple(shape) if hasattr(shape, "__iter__") else (operator.index(shape),)
    return sizes, np.dtype(dtype)


def size_class(nbytes: int) -> int:
    """`nbytes` rounded up to an eighth of a power of two, and to whole pages."""
    k = max((nbytes - 1).bit_length() - 4, 12)
    return (nbytes + (1 << k) - 1) >> k << k


class Allocator:
    """A caching allocator. The process uses one, through this module's functions; others exist in tests."""

    def __init__(self, *, threshold: int = THRESHOLD, limit: int | None = None, enabled: bool = True) -> None:
        """`threshold`: smallest block to manage, in bytes. `limit`: most idle bytes to keep (default: a quarter of
        memory)."""
        self._threshold, self._enabled = threshold, enabled
        self._busy = False                        # a call is under way (in this thread, if the lock can be had)
        self._limit = limit
        self._lock = threading.RLock()            # re-entrant: the collector may run finalisers that allocate
        self._dead: deque[_Memory] = deque()
        self._free: OrderedDict[int, list[_Memory]] = OrderedDict()      # by class; least recently used class first
        self._idle = self._live = self._recent = self._peak = self._peak_reserved = 0
        self._hits = self._misses = self._freed = self._trimmed = 0

        def finalise(block: Any, bury: Any = self._dead.append, owned: type = _Memory) -> None:
            memory = block.base
            if type(memory) is owned:             # not so for a view that was made from the block itself
                bury(memory)
        self._block = type("_Block", (np.ndarray,), {"__slots__": (), "__del__": finalise})

    def empty(self, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """An uninitialised C-contiguous array; from `THRESHOLD` bytes on aligned to 64 bytes and from the cache.

        Raises OutOfMemoryError (a RuntimeError and a MemoryError) when there is not enough memory, ValueError for
        negative sizes.
        """
        try:
            nbytes = math.prod(shape) * dtype.itemsize
        except (TypeError, AttributeError):
            shape, dtype = _normal(shape, dtype)
            nbytes = math.prod(shape) * dtype.itemsize
        if nbytes < self._threshold:
            return _np_empty(shape, dtype)
        return self._large(shape, dtype, nbytes, False)

    def zeros(self, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """As `empty`, filled with zeros (by the system where the memory is new)."""
        shape, dtype = _normal(shape, dtype)
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes < self._threshold:
            return _np_zeros(shape, dtype)
        return self._large(shape, dtype, nbytes, True)

    def _large(self, shape: Sequence[int], dtype: np.dtype, nbytes: int, zero: bool) -> np.ndarray:
        if min(shape) < 0:
            raise ValueError(f"negative dimensions are not allowed: {tuple(shape)}")
        if self._enabled and not dtype.hasobject:
            memory = self._take(nbytes, zero)
            if memory is not None:
                return _ndarray(shape, dtype, memory.view(self._block))
        try:
            return (_np_zeros if zero else _np_empty)(shape, dtype)
        except (MemoryError, ValueError):
            raise _refusal(nbytes) from None

    def _take(self, nbytes: int, zero: bool) -> _Memory | None:
        """Memory for `nbytes`; None when the allocator itself is interrupted (by a finaliser that allocates)."""
        size = size_class(nbytes)
        memory: _Memory | None = None
        with self._lock:
            if self._busy:
                return None
            self._busy = True
            try:
                if self._dead:
                    self._sweep()
                free = self._free
                stack = free.get(size) or (free.get(size_class(size + 1)) if free else None)
                if stack:
                    memory = stack.pop()
                    self._hits += 1
                    held = memory.nbytes
                    self._idle -= held
                    self._live += held
                    if self._live > self._peak:
                        self._peak = self._live
                else:
                    self._misses += 1
                    # Memory is about to grow: first give up what lies idle beyond the program's recent needs.
                    self._recent = max(self._live + size, self._recent - (self._recent >> 6))
                    self._trim(max(_FLOOR, self._recent) - size)
            finally:
                self._busy = False
        if memory is not None:
            if zero:
                memory[:nbytes].fill(0)
            return memory
        memory = self._allocate(size, nbytes, zero)
        with self._lock:
            self._live += size
            self._peak = max(self._peak, self._live)
            self._peak_reserved = max(self._peak_reserved, self._live + self._idle)
        return memory

    def _allocate(self, size: int, nbytes: int, zero: bool) -> _Memory:
        make = _np_zeros if zero else _np_empty
        try:
            raw = make(size + ALIGNMENT, _u8)
        except (MemoryError, ValueError):         # ValueError: more than the address space
            self.release()
            try:
                raw = make(size + ALIGNMENT, _u8)
            except (MemoryError, ValueError):
                raise _refusal(nbytes) from None
        skip = -raw.__array_interface__["data"][0] % ALIGNMENT
        return raw[skip:skip + size].view(_Memory)

    def _sweep(self) -> None:
        """Move dead blocks to the lists. Called with the lock held and `_busy` set."""
        dead, free = self._dead, self._free
        while dead:
            memory = dead.popleft()
            size = memory.nbytes
            self._live -= size
            self._idle += size
            self._freed += 1
            stack = free.get(size)
            if stack is None:
                free[size] = [memory]
            else:
                stack.append(memory)
                free.move_to_end(size)
        if self._limit is None:
            if self._idle <= _FLOOR:
                return
            self._limit = sysinfo.memory_limit() // 4
        self._trim(self._limit)

    def _trim(self, to: int) -> None:
        """Drop idle blocks until at most `to` bytes are left. Called with the lock held and `_busy` set."""
        while self._idle > max(to, 0) and self._free:
            size, stack = next(iter(self._free.items()))
            if not stack:
                del self._free[size]
                continue
            stack.pop(0)
            self._idle -= size
            self._trimmed += 1

    def _update(self, to: int | None = None) -> int:
        """Take note of dead blocks, then trim; the idle bytes before trimming. Called with the lock held."""
        if self._busy:
            return 0
        self._busy = True
        try:
            self._sweep()
            idle = self._idle
            if to is not None:
                self._trim(to)
            return idle
        finally:
            self._busy = False

    def stats(self) -> dict[str, int]:
        """Figures for managed blocks (those of `threshold` bytes and more), in bytes and counts.

        `allocated`: in live arrays; `cached`: idle, kept for reuse; `reserved`: both; `peak` and `peak_reserved`: the
        most of `allocated` and `reserved` since `reset_peak`; `hits`, `misses`: requests that the cache did and did
        not serve; `allocations`, `frees`: blocks handed out and returned; `blocks`, `cached_blocks`: live and idle ones
        now; `trimmed`: blocks given back to the system; `threshold`, `limit`: the settings.
        """
        with self._lock:
            self._update()
            if self._limit is None:
                self._limit = sysinfo.memory_limit() // 4
            made = self._hits + self._misses
            return {
                "allocated": self._live, "cached": self._idle, "reserved": self._live + self._idle,
                "peak": self._peak, "peak_reserved": self._peak_reserved,
                "hits": self._hits, "misses": self._misses, "allocations": made, "frees": self._freed,
                "blocks": made - self._freed, "cached_blocks": sum(map(len, self._free.values())),
                "trimmed": self._trimmed, "threshold": self._threshold, "limit": self._limit,
            }

    def release(self) -> int:
        """Give all idle memory back to the system; the number of bytes that were cached."""
        with self._lock:
            gone = self._update(0)
            self._recent = self._live
        if _TUNED:
            ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))
        return gone

    def reset_peak(self) -> None:
        """Start `peak` and `peak_reserved` again from what is in use now."""
        with self._lock:
            self._update()
            self._peak, self._peak_reserved = self._live, self._live + self._idle


def _refusal(nbytes: int) -> OutOfMemoryError:
    return OutOfMemoryError(f"not enough memory: you tried to allocate {nbytes} bytes "
                            f"({nbytes / (1 << 30):.2f} GiB). Use smaller tensors or a smaller batch; "
                            "rushlight.memory_stats() shows what is held")


def _environment_limit() -> int | None:
    try:
        return max(0, int(float(os.environ.get("RUSHLIGHT_MEMORY_CACHE_MB", "")) * (1 << 20)))
    except (ValueError, OverflowError):
        return None


_default = Allocator(limit=_environment_limit(),
                     enabled=os.environ.get("RUSHLIGHT_ALLOCATOR", "on").lower() not in ("off", "0", "none"))
empty, zeros, stats, release, reset_peak = (
    _default.empty, _default.zeros, _default.stats, _default.release, _default.reset_peak)


def empty_like(a: np.ndarray, dtype: Any = None) -> np.ndarray:
    """`empty` with the shape of `a` and its dtype or the given one; C-contiguous whatever the strides of `a`."""
    return _default.empty(a.shape, a.dtype if dtype is None else dtype)


if hasattr(os, "register_at_fork"):
    # Forking with the lock held by this thread leaves the child with consistent lists and a lock that is its own.
    os.register_at_fork(before=_default._lock.acquire, after_in_parent=_default._lock.release,
                        after_in_child=_default._lock.release)
