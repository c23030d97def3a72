"""One thread pool for the process, without a C extension.

Work is a range cut into chunks of `grain`; the grid depends on the range and the grain alone, and which thread runs a
chunk is left to chance, so a function whose chunks are independent gives equal bits for any number of threads.

* `parallel_call(fn, ctx, n, grain)` runs a native function `void fn(void *ctx, int64 begin, int64 end)`. The workers
  are Python threads that enter a loop made by LLVM (pool_ir.py) and stay there without the interpreter lock.
  `entry_address()` is the same thing as a C function, `void (fn, ctx, n, grain)`, for native code to call: a compiled
  step that is one native call uses the pool without returning to Python.
* `parallel_for(n, fn, grain)` runs a Python function, for large NumPy work (its loops release the interpreter lock).

Nested calls, and calls while another thread uses the pool, run serially on the same grid. After a fork the child
starts with a pool of its own at its next call. Without llvmlite, `parallel_for` still uses Python threads.
"""

from __future__ import annotations

import _thread
import atexit
import contextvars
import ctypes
import operator
import os
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any

from rushlight.backends.cpu import pool_ir, sysinfo

__all__ = ["ChunkFunction", "ensure", "entry_address", "get_num_interop_threads", "native", "num_threads",
           "parallel_call", "parallel_for", "set_num_interop_threads", "set_num_threads", "statistics"]

ChunkFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class _Native:
    """The loaded pool and its worker threads."""

    def __init__(self) -> None:
        from rushlight.compiler import jit

        # One for the process: two libraries from the same key share code and state.
        self.library = lib = jit.compile_ir(pool_ir.source(), opt=2)
        self.entry = lib.address("rl_parallel")
        p, i = ctypes.c_void_p, ctypes.c_int64
        self.call = lib.function("rl_parallel", None, p, p, i, i)
        self.acquire = lib.function("rl_pool_acquire", ctypes.c_int32, gil=True)
        self.release = lib.function("rl_pool_release", None, gil=True)
        self.resize = lib.function("rl_pool_resize", ctypes.c_int32, i)
        self.worker = lib.function("rl_pool_worker", None, i)
        where = lib.function("rl_pool_state", p, gil=True)()
        self.state = (ctypes.c_int64 * pool_ir.WORDS).from_address(where)
        self.state[pool_ir.SPIN] = _spin_limit()
        self.left: list[Any] = []                       # for each worker a lock that it holds while it lives

    def start(self, helpers: int) -> bool:
        """Bring the number of workers to `helpers`; False when the pool is at work (perhaps for the caller itself)."""
        if not self.resize(helpers):
            return False
        for done in self.left[helpers:]:
            done.acquire(timeout=5.0)
        del self.left[helpers:]
        for k in range(len(self.left), helpers):
            done = _thread.allocate_lock()
            done.acquire()
            self.left.append(done)
            _thread.start_new_thread(self._serve, (k + 1, done))
        return True

    def _serve(self, number: int, done: Any) -> None:
        try:
            if hasattr(signal, "pthread_sigmask"):      # signals are for the program's own threads
                signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            self.worker(number)
        finally:
            done.release()

    def forget(self) -> None:
        """In a forked child: the workers are gone, and whatever was under way with them."""
        self.left.clear()
        for word in ("BUSY", "SLEEPERS", "LIMIT", "QUIET", "CHUNKS", "DONE", "WAITING"):
            self.state[getattr(pool_ir, word)] = 0


def _spin_limit() -> int:
    try:
        return max(0, int(float(os.environ.get("RUSHLIGHT_SPIN_US", "1000")) * 1000))
    except (ValueError, OverflowError):
        return 1_000_000


class _Job:
    """One `parallel_for`: chunks to claim, and the failure with the lowest index."""

    __slots__ = ("fn", "n", "grain", "todo", "failure", "lock")

    def __init__(self, n: int, fn: Callable[[int, int], Any], grain: int) -> None:
        self.fn, self.n, self.grain = fn, n, grain
        self.todo = deque(range(-(-n // grain)))
        self.failure: tuple[int, BaseException] | None = None
        self.lock = _thread.allocate_lock()

    def run(self) -> None:
        fn, n, grain = self.fn, self.n, self.grain
        while True:
            try:
                i = self.todo.popleft()
            except IndexError:
                return
            try:
                fn(i * grain, min(n, (i + 1) * grain))
            except BaseException as e:                  # raised again by the caller
                self.todo.clear()                       # chunks before this one are claimed already
                with self.lock:
                    if self.failure is None or i < self.failure[0]:
                        self.failure = (i, e)


class _Helper:
    """A Python thread that waits for jobs."""

    __slots__ = ("go", "done", "job", "context")

    def __init__(self) -> None:
        self.go, self.done = _thread.allocate_lock(), _thread.allocate_lock()
        self.go.acquire()
        self.done.acquire()
        self.job: _Job | None = None
        self.context: contextvars.Context | None = None
        _thread.start_new_thread(self._serve, ())

    def _serve(self) -> None:
        while True:
            self.go.acquire()
            job, context = self.job, self.context
            self.job = self.context = None
            if job is None or context is None:
                return
            context.run(job.run)
            del job, context
            self.done.release()


class _State:
    """What the module knows; replaced as a whole after a fork, but for the native pool."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.started = False
        self.helpers: list[_Helper] = []
        self.python_busy = _thread.allocate_lock()


_state = _State()
_native: _Native | None = None
_native_tried = False
_threads: int | None = None
_interop: int | None = None
_worked = False                                         # anything has run in parallel
_closing = False                                        # the interpreter ends: no new workers


def _default_threads() -> int:
    for name in ("RUSHLIGHT_NUM_THREADS", "OMP_NUM_THREADS"):
        text = os.environ.get(name, "").split(",")[0].strip()         # OpenMP's form has one number for each level
        if text.isdigit() and int(text) > 0:
            return int(text)
    return sysinfo.available_cpus()


def num_threads() -> int:
    """Threads that work on one operator (`torch.get_num_threads`).

    By default RUSHLIGHT_NUM_THREADS, else OMP_NUM_THREADS, else the CPUs that affinity and cgroup quota leave.
    """
    global _threads
    if _threads is None:
        _threads = _default_threads()
    return _threads


def _checked(name: str, n: Any) -> int:
    if type(n) is bool or not hasattr(type(n), "__index__"):
        raise RuntimeError(f"{name} expects an int, but got {type(n).__name__}")
    n = operator.index(n)
    if n <= 0:
        raise RuntimeError(f"{name} expects a positive integer, but got {n}")
    if n > 0x7fffffff:
        raise ValueError(f"{name}: Overflow when unpacking long: {n} does not fit 32 bits")
    return n


def set_num_threads(n: int) -> None:
    """Use `n` threads (`torch.set_num_threads`). Results do not depend on it.

    No more threads are started than CPUs are available (two at least, so that one CPU can still be shared).
    RuntimeError for what is not a positive int.
    """
    global _threads
    n = _checked("set_num_threads", n)
    with _state.lock:
        _threads = n
        if _state.started:
            _start()


def get_num_interop_threads() -> int:
    """Threads for whole operators side by side (`torch.get_num_interop_threads`): a number that programs may set."""
    return _interop if _interop is not None else sysinfo.available_cpus()


def set_num_interop_threads(n: int) -> None:
    """`torch.set_num_interop_threads`: once, and before anything has run in parallel, else RuntimeError."""
    global _interop
    n = _checked("set_num_interop_threads", n)
    if _interop is not None or _worked:
        raise RuntimeError("cannot set number of interop threads after parallel work has started or "
                           "set_num_interop_threads called")
    _interop = n


def _workers() -> int:
    """Threads beside the caller's that are worth having."""
    return min(num_threads(), max(sysinfo.available_cpus(), 2)) - 1


def native() -> bool:
    """Whether the native pool can be used (it needs llvmlite and a POSIX system); loads it when first asked."""
    global _native, _native_tried
    if _native is None and not _native_tried:
        with _state.lock:
            if not _native_tried:
                if os.name == "posix" and sys.byteorder == "little":
                    try:
                        _native = _Native()
                    except (ImportError, RuntimeError, OSError) as e:
                        warnings.warn(f"no native thread pool ({e}): rushlight uses Python threads", RuntimeWarning)
                _native_tried = True
    return _native is not None


def _start() -> None:
    global _worked
    with _state.lock:
        _worked = True
        _state.started = True
        if native() and not _closing:
            assert _native is not None
            _state.started = _native.start(_workers())           # if not now, then at the next call


def ensure() -> bool:
    """Start the workers if they are not running (first use, or a forked child); whether the pool is native.

    Native code that calls `entry_address()` finds them then; without it that code works alone.
    """
    if not _state.started:
        _start()
    return _native is not None


def entry_address() -> int:
    """The address of `void rl_parallel(fn, void *ctx, int64 n, int64 grain)`; `fn` is as in `parallel_call`.

    It returns when all chunks are done; it may be called from any thread, nested too (the inner call runs serially).
    Call it without the interpreter lock when `fn` may need that lock. Raises RuntimeError without the native pool.
    """
    ensure()
    if _native is None:
        raise RuntimeError("the native thread pool is not available: it needs llvmlite and a POSIX system")
    return _native.entry


def parallel_call(fn: int, ctx: int, n: int, grain: int) -> None:
    """Run the native function at address `fn`, `void fn(void *ctx, int64 begin, int64 end)`, over [0, n) in chunks of
    `grain` (at least 1). The interpreter lock is released. `ctx` must stay valid until the call returns."""
    if not _state.started:
        _start()
    if _native is not None:
        _native.call(fn, ctx, n, grain)
        return
    call, grain = ChunkFunction(fn), max(grain, 1)
    parallel_for(n, lambda b, e: call(ctx, b, e), grain=grain)


def parallel_for(n: int, fn: Callable[[int, int], Any], *, grain: int) -> None:
    """Run `fn(begin, end)` over [0, n) in chunks of `grain`, on Python threads.

    For NumPy work of 100 us a chunk and more: a thread's wake-up costs some 30 us. `fn` sees the caller's context
    variables (NumPy's errstate is one). The exception of the lowest failing chunk is raised; chunks that were not
    begun by then are not run.
    """
    if n <= 0:
        return
    grain = max(int(grain), 1)
    if n <= grain:
        fn(0, n)
        return
    if num_threads() > 1 and _claim_pool():
        try:
            _parallel_for(n, fn, grain)
        finally:
            _leave_pool()
        return
    for begin in range(0, n, grain):
        fn(begin, min(n, begin + grain))


def _claim_pool() -> bool:
    """Take both pools or neither, so that native calls inside `fn` run serially."""
    state = _state
    if not state.started:
        _start()
    if not state.python_busy.acquire(blocking=False):
        return False
    if _native is not None and not _native.acquire():
        state.python_busy.release()
        return False
    return True


def _leave_pool() -> None:
    if _native is not None:
        _native.release()
    _state.python_busy.release()


def _parallel_for(n: int, fn: Callable[[int, int], Any], grain: int) -> None:
    job = _Job(n, fn, grain)
    wanted = min(_workers(), len(job.todo) - 1)
    helpers = _state.helpers
    while len(helpers) < wanted:
        helpers.append(_Helper())
    used = helpers[:wanted]
    for h in used:
        h.job, h.context = job, contextvars.copy_context()
        h.go.release()
    job.run()
    for h in used:
        h.done.acquire()
    if job.failure is not None:
        failure = job.failure[1]
        try:
            raise failure
        finally:
            del failure, job


def statistics() -> dict[str, Any]:
    """What the pool has done: `native`, `threads`, `workers`; `jobs` run in parallel, `helped`: their chunks that other
    threads took, `wakes`: jobs for which parked workers were woken, `waited_ns`: the callers' waiting for the last
    chunks; `stalls`: waits much longer than a chunk takes; `alone`: jobs run serially for a while after those."""
    ensure()
    s = _native.state if _native is not None else [0] * pool_ir.WORDS
    return {"native": _native is not None, "threads": num_threads(), "workers": _workers(),
            "jobs": s[pool_ir.JOBS], "stalls": s[pool_ir.STALLS], "alone": s[pool_ir.ALONE],
            "helped": s[pool_ir.HELPED], "wakes": s[pool_ir.WAKES], "waited_ns": s[pool_ir.WAITED]}


def _stop() -> None:
    """Before the interpreter ends and frees the code: the workers leave it."""
    global _closing
    _closing = True
    if _native is not None and _native.left and not _native.state[pool_ir.BUSY]:
        _native.start(0)


def _forked() -> None:
    global _state
    _state = _State()
    if _native is not None:
        _native.forget()


atexit.register(_stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
