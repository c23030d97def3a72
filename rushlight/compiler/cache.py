"""Object code on disk.

One file an object: a fixed header (magic, SHA-256 of the rest), a JSON line of metadata (exported and imported symbols)
and the object image. A file that is truncated, altered or of another format is deleted and counts as absent. Files are
written beside their place and renamed, so readers in other processes see a whole file or none. Files hold machine code:
a directory that other users can write to is not used.

Place: `RUSHLIGHT_CACHE` (a directory; "off" or "" disables), else `$XDG_CACHE_HOME/rushlight`, else
`~/.cache/rushlight`.
Size: `RUSHLIGHT_CACHE_MB` (256); the files not used for longest go first.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import threading
import time
from typing import Any, NamedTuple

__all__ = ["CacheInfo", "VERSION", "clear", "directory", "info", "load", "store", "trim"]

VERSION = 1                    # part of every key: raise it when emitted code changes meaning without changing text
_MAGIC = b"RLOBJ1\n"
_SUFFIX = ".rlo"
_TOUCH_AFTER = 86400.0         # refresh a file's time of use once a day, not at every load
_TRIM_EVERY = 64

_lock = threading.Lock()
_usable: dict[str, bool] = {}
_hits = _misses = _stores = 0


class CacheInfo(NamedTuple):
    directory: str | None
    files: int
    bytes: int
    limit: int
    hits: int
    misses: int


def directory() -> str | None:
    """Where objects are kept, or None when the disk cache is off or its place is not safe or not writable."""
    root = os.environ.get("RUSHLIGHT_CACHE")
    if root is not None:
        if root.strip().lower() in ("", "off", "0", "none"):
            return None
        path = os.path.join(os.path.expanduser(root), "objects")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        if not os.path.isabs(base):
            return None
        path = os.path.join(base, "rushlight", "objects")
    ok = _usable.get(path)
    if ok is None or (ok and not os.path.isdir(path)):
        ok = _usable[path] = _prepare(path)
    return path if ok else None


def _prepare(path: str) -> bool:
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        if os.name == "posix":
            st = os.stat(path)
            if st.st_uid != os.geteuid() or st.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return False
        return os.access(path, os.R_OK | os.W_OK | os.X_OK)
    except OSError:
        return False


def limit() -> int:
    try:
        return int(float(os.environ.get("RUSHLIGHT_CACHE_MB", "256")) * (1 << 20))
    except ValueError:
        return 256 << 20


def _path(root: str, key: str) -> str:
    return os.path.join(root, key + _SUFFIX)


def load(key: str) -> tuple[bytes, dict[str, Any]] | None:
    """The object image and metadata stored under `key` (hexadecimal), or None."""
    global _hits, _misses
    root = directory()
    if root is None:
        return None
    path = _path(root, key)
    try:
        with open(path, "rb") as f:
            data = f.read()
    except OSError:
        _misses += 1
        return None
    body = memoryview(data)[len(_MAGIC) + 32:]
    try:
        if not data.startswith(_MAGIC) or hashlib.sha256(body).digest() != data[len(_MAGIC):len(_MAGIC) + 32]:
            raise ValueError("checksum")
        head, _, image = bytes(body).partition(b"\n")
        meta = json.loads(head)
        if meta.pop("key") != key:
            raise ValueError("key")
    except (ValueError, KeyError, AttributeError):
        _misses += 1
        with contextlib.suppress(OSError):
            os.unlink(path)
        return None
    _hits += 1
    with contextlib.suppress(OSError):
        if time.time() - os.stat(path).st_mtime > _TOUCH_AFTER:
            os.utime(path)
    return image, meta


def store(key: str, image: bytes, meta: dict[str, Any]) -> bool:
    """Keep `image` and `meta` (JSON values) under `key`; False when that is not possible (it is never an error)."""
    global _stores
    root = directory()
    if root is None:
        return False
    body = json.dumps({"key": key, **meta}, separators=(",", ":")).encode() + b"\n" + image
    path = _path(root, key)
    tmp = f"{path}.{os.getpid()}.{threading.get_ident()}.tmp"
    try:
        with open(tmp, "xb") as f:
            f.write(_MAGIC + hashlib.sha256(body).digest() + body)
        os.replace(tmp, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(tmp)
        return False
    with _lock:
        _stores += 1
        due = _stores % _TRIM_EVERY == 1
    if due:
        trim()
    return True


def _entries(root: str) -> list[tuple[float, int, str]]:
    found = []
    with contextlib.suppress(OSError), os.scandir(root) as it:
        for e in it:
            with contextlib.suppress(OSError):
                if e.name.endswith((_SUFFIX, ".tmp")):
                    st = e.stat()
                    found.append((st.st_mtime, st.st_size, e.path))
    return found


def trim(to: int | None = None) -> int:
    """Delete the files used least recently until at most `to` bytes (default: the limit) are left, and writes that were
    abandoned an hour ago; the number of files deleted."""
    root = directory()
    if root is None:
        return 0
    to = limit() if to is None else to
    entries = sorted(_entries(root))
    total = sum(size for _, size, _ in entries)
    old = time.time() - 3600
    gone = 0
    for mtime, size, path in entries:
        abandoned = path.endswith(".tmp") and mtime < old
        if total <= to and not abandoned:
            continue
        if path.endswith(".tmp") and not abandoned:
            continue
        with contextlib.suppress(OSError):
            os.unlink(path)
            gone += 1
            total -= size
    return gone


def clear() -> int:
    """Delete every stored object; the number of files deleted."""
    root = directory()
    gone = 0
    for _, _, path in _entries(root) if root is not None else ():
        with contextlib.suppress(OSError):
            os.unlink(path)
            gone += 1
    return gone


def info() -> CacheInfo:
    """Where the cache is, what it holds, and this process's hits and misses."""
    root = directory()
    entries = _entries(root) if root is not None else []
    return CacheInfo(root, len(entries), sum(e[1] for e in entries), limit(), _hits, _misses)
