"""What the machine grants this process: cores (affinity, cgroup quota), memory (RAM, cgroup limit), CPU features.

Read when asked for, never at import. Used to size the thread pool and the allocator's cache, and by `rushlight doctor`.
"""

from __future__ import annotations

import os
import sys
from typing import Any

__all__ = ["affinity", "available_cpus", "cgroup_quota", "cpu_features", "cpu_model", "memory_limit", "summary"]

_CGROUP = "/sys/fs/cgroup"


def _read(path: str) -> str | None:
    try:
        with open(path) as f:
            return f.read().strip()
    except (OSError, UnicodeDecodeError):
        return None


def _cgroup_directories(controller: str) -> list[str]:
    """Directories whose limits bind this process for `controller`, innermost first: its own cgroup and all parents.

    Handles cgroup v2 (one hierarchy) and v1 (one hierarchy for each controller), and containers, in which the path
    that /proc names does not exist and the limits sit at the root of the mount.
    """
    found: list[str] = []
    for line in (_read("/proc/self/cgroup") or "").splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3:
            continue
        _, controllers, path = parts
        if controllers == "":
            root = os.path.join(_CGROUP, "unified")         # v2 beside v1
            if not os.path.isdir(root):
                root = _CGROUP
        elif controller in controllers.split(","):
            root = os.path.join(_CGROUP, controllers)
            if not os.path.isdir(root):
                root = os.path.join(_CGROUP, controller)
        else:
            continue
        path = path.strip("/")
        while path and ".." not in path.split("/"):
            found.append(os.path.join(root, path))
            path = os.path.dirname(path)
        found.append(root)
    return found


def cgroup_quota() -> float | None:
    """CPUs' worth of time that the control groups allow (2.5 means two and a half cores), or None without a limit."""
    best: float | None = None
    for d in _cgroup_directories("cpu"):
        text = _read(os.path.join(d, "cpu.max"))
        if text is not None:
            quota, _, period = text.partition(" ")
        else:
            quota, period = (_read(os.path.join(d, n)) or "" for n in ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
        try:
            cpus = float(quota) / float(period)
        except (ValueError, ZeroDivisionError):
            continue
        if cpus > 0 and (best is None or cpus < best):
            best = cpus
    return best


def affinity() -> int:
    """Logical CPUs that the operating system lets this process run on."""
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except (AttributeError, OSError):
        return max(1, os.cpu_count() or 1)


def available_cpus() -> int:
    """Threads that can run at once: the smaller of affinity and the cgroup quota rounded down, at least 1."""
    quota = cgroup_quota()
    n = affinity()
    return n if quota is None else max(1, min(n, int(quota)))


def memory_limit() -> int:
    """Bytes of memory that this process may count on: physical RAM or the cgroup limit, whichever is less."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        total = _windows_memory() if sys.platform == "win32" else 0
    if total <= 0:
        total = 8 << 30                                     # unknown: assume a small machine
    for d in _cgroup_directories("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _read(os.path.join(d, name))
            if text is not None and text.isdigit() and int(text) > 0:
                total = min(total, int(text))
    return total


def _windows_memory() -> int:
    import ctypes

    class Status(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ulong), ("load", ctypes.c_ulong),
                    *((n, ctypes.c_ulonglong) for n in ("total", "free", "a", "b", "c", "d", "e"))]
    s = Status(length=ctypes.sizeof(Status))
    ok = ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(s))         # type: ignore[attr-defined]
    return int(s.total) if ok else 0


def cpu_model() -> str:
    """The processor's name as the system gives it."""
    for line in (_read("/proc/cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip().lower() in ("model name", "cpu model"):
            return value.strip()
    import platform

    return platform.processor() or platform.machine()


def cpu_features() -> tuple[str, ...]:
    """Vector extensions of this CPU that matter here, by NumPy's names (`AVX2`, `AVX512F`, `NEON`, ...), sorted."""
    try:
        from numpy._core._multiarray_umath import __cpu_features__ as found
    except ImportError:
        return ()
    return tuple(sorted(name for name, has in found.items() if has))


def summary() -> dict[str, Any]:
    """All of the above in one dictionary, for `rushlight doctor`."""
    return {
        "cpu": cpu_model(), "logical_cpus": os.cpu_count() or 1, "affinity": affinity(), "cgroup_quota": cgroup_quota(),
        "available_cpus": available_cpus(), "memory_limit": memory_limit(), "cpu_features": cpu_features(),
    }
