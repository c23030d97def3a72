"""backends/cpu/threads.py: settings, the native pool, Python-level loops, fork, exit."""

import contextvars
import ctypes
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from rushlight.backends.cpu import sysinfo, threads

# Adds 1 to doubles [b, e) and counts its calls in the double before them; `chained` calls the pool from inside.
KERNELS = """
define void @increment(ptr %ctx, i64 %b, i64 %e) {
entry:
  br label %l
l:
  %i = phi i64 [%b, %entry], [%i1, %l]
  %p = getelementptr double, ptr %ctx, i64 %i
  %v = load double, ptr %p
  %v1 = fadd double %v, 1.0
  store double %v1, ptr %p
  %i1 = add i64 %i, 1
  %m = icmp slt i64 %i1, %e
  br i1 %m, label %l, label %x
x:
  ret void
}

; ctx: address of rl_parallel, address of increment, address of the data (rows of 64)
define void @chained(ptr %ctx, i64 %b, i64 %e) {
  %pool = load ptr, ptr %ctx
  %p1 = getelementptr ptr, ptr %ctx, i64 1
  %fn = load ptr, ptr %p1
  %p2 = getelementptr ptr, ptr %ctx, i64 2
  %data = load ptr, ptr %p2
  %first = mul i64 %b, 64
  %at = getelementptr double, ptr %data, i64 %first
  %rows = sub i64 %e, %b
  %n = mul i64 %rows, 64
  call void %pool(ptr %fn, ptr %at, i64 %n, i64 16)
  ret void
}

define void @native_caller(ptr %pool, ptr %fn, ptr %data, i64 %n, i64 %grain) {
  call void %pool(ptr %fn, ptr %data, i64 %n, i64 %grain)
  ret void
}
"""


@pytest.fixture(scope="module")
def kernels():
    pytest.importorskip("llvmlite")
    from rushlight.compiler import jit

    return jit.compile_ir(KERNELS)


@pytest.fixture
def setting():
    before = threads.num_threads()
    yield threads.set_num_threads
    threads.set_num_threads(before)


def test_defaults_and_settings(setting):
    assert threads.num_threads() >= 1
    for n in (1, 2, 3, 100_000, 2):
        setting(n)
        assert threads.num_threads() == n
    setting(np.int64(2))
    assert threads.num_threads() == 2


@pytest.mark.parametrize("call", [threads.set_num_threads, threads.set_num_interop_threads])
def test_wrong_settings(call):
    name = call.__name__
    for bad in (0, -1, -(2 ** 40)):
        with pytest.raises(RuntimeError, match=f"{name} expects a positive integer, but got {bad}"):
            call(bad)
    for bad in (1.5, "2", True, None, [2]):
        with pytest.raises(RuntimeError, match=f"{name} expects an int, but got {type(bad).__name__}"):
            call(bad)
    with pytest.raises(ValueError, match="Overflow"):
        call(2 ** 40)


def run(code: str, **env: str) -> str:
    clean = {k: v for k, v in os.environ.items() if k not in ("OMP_NUM_THREADS", "RUSHLIGHT_NUM_THREADS")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120,
                          env={**clean, "PYTHONPATH": os.pathsep.join(sys.path), **env})
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout.strip()


def test_environment():
    code = "from rushlight.backends.cpu import threads as t; print(t.num_threads())"
    assert run(code) == str(sysinfo.available_cpus())
    assert run(code, OMP_NUM_THREADS="3") == "3"
    assert run(code, OMP_NUM_THREADS="5,2") == "5"
    assert run(code, OMP_NUM_THREADS="3", RUSHLIGHT_NUM_THREADS="7") == "7"
    assert run(code, OMP_NUM_THREADS="many", RUSHLIGHT_NUM_THREADS="0") == str(sysinfo.available_cpus())


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this platform")
def test_affinity_bounds_the_default():
    assert run("""
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from rushlight.backends.cpu import threads as t
print(t.num_threads())""") == "1"


def test_cgroup_quota(tmp_path, monkeypatch):
    """Version 2 with a limit further up, version 1, and none."""
    files: dict[str, str] = {}
    monkeypatch.setattr(sysinfo, "_read", files.get)
    monkeypatch.setattr(sysinfo, "_CGROUP", str(tmp_path))
    monkeypatch.setattr(sysinfo, "affinity", lambda: 64)
    assert sysinfo.cgroup_quota() is None and sysinfo.available_cpus() == 64
    files["/proc/self/cgroup"] = "0::/a/b\n"
    files[f"{tmp_path}/a/b/cpu.max"] = "max 100000"
    files[f"{tmp_path}/a/cpu.max"] = "250000 100000"
    assert sysinfo.cgroup_quota() == 2.5 and sysinfo.available_cpus() == 2
    files[f"{tmp_path}/a/cpu.max"] = "50000 100000"
    assert sysinfo.available_cpus() == 1
    files.clear()
    files["/proc/self/cgroup"] = "4:cpu,cpuacct:/x\n3:memory:/x\n"
    files[f"{tmp_path}/cpu/x/cpu.cfs_quota_us"] = "-1"
    files[f"{tmp_path}/cpu/x/cpu.cfs_period_us"] = "100000"
    files[f"{tmp_path}/cpu/cpu.cfs_quota_us"] = "300000"
    files[f"{tmp_path}/cpu/cpu.cfs_period_us"] = "100000"
    files[f"{tmp_path}/memory/x/memory.limit_in_bytes"] = "1048576"
    assert sysinfo.cgroup_quota() == 3.0 and sysinfo.memory_limit() == 1 << 20


def test_summary_of_the_machine():
    s = sysinfo.summary()
    assert 1 <= s["available_cpus"] <= s["affinity"] and s["memory_limit"] > 1 << 20 and s["cpu"]


@pytest.mark.parametrize("n_threads", [1, 2, 5])
@pytest.mark.parametrize("n,grain", [(1, 1), (7, 3), (1000, 1), (4096, 4096), (100_003, 1009), (64, 10 ** 12), (50, 0)])
def test_every_element_once(kernels, setting, n_threads, n, grain):
    setting(n_threads)
    x = np.zeros(n)
    for _ in range(20):
        threads.parallel_call(kernels.address("increment"), x.ctypes.data, n, grain)
    assert (x == 20).all()


def test_many_short_jobs(kernels, setting):
    """Workers come late, or not at all, to jobs that are already over: nothing may be done twice or not at all."""
    setting(2)
    fn = kernels.address("increment")
    xs = [np.zeros(n) for n in (2, 33, 64, 500)]
    for i in range(20_000):
        x = xs[i & 3]
        threads.parallel_call(fn, x.ctypes.data, x.size, 1 + (i % 7) * 4)
    assert all((x == 5000).all() for x in xs)


def test_empty_ranges(kernels):
    x = np.zeros(4)
    for n in (0, -3):
        threads.parallel_call(kernels.address("increment"), x.ctypes.data, n, 1)
        threads.parallel_for(n, lambda b, e: pytest.fail("called"), grain=1)
    assert not x.any()


def test_the_grid_depends_on_size_and_grain_alone(setting):
    for n, grain in [(10, 3), (9, 3), (100, 7), (5, 9)]:
        expected = [(b, min(n, b + grain)) for b in range(0, n, grain)]
        for k in (1, 2, 4):
            setting(k)
            seen: list[tuple[int, int]] = []
            note = threads.ChunkFunction(lambda ctx, b, e, seen=seen: seen.append((b, e)))
            threads.parallel_call(ctypes.cast(note, ctypes.c_void_p).value, None, n, grain)
            assert sorted(seen) == expected
            seen.clear()
            threads.parallel_for(n, lambda b, e, seen=seen: seen.append((b, e)), grain=grain)
            assert sorted(seen) == expected


def test_native_code_calls_the_pool(kernels, setting):
    setting(2)
    call = kernels.function("native_caller", None, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 2)
    x = np.zeros(10_000)
    for _ in range(50):
        call(threads.entry_address(), kernels.address("increment"), x.ctypes.data, x.size, 100)
    assert (x == 50).all()


def test_nested_native_calls(kernels, setting):
    setting(2)
    x = np.zeros((40, 64))
    ctx = np.array([threads.entry_address(), kernels.address("increment"), x.ctypes.data])
    for _ in range(200):
        threads.parallel_call(kernels.address("chained"), ctx.ctypes.data, 40, 3)
    assert (x == 200).all()


def test_callers_on_several_threads(kernels, setting):
    setting(2)
    xs = [np.zeros(5000) for _ in range(4)]

    def work(x: np.ndarray) -> None:
        for _ in range(300):
            threads.parallel_call(kernels.address("increment"), x.ctypes.data, x.size, 500)
            threads.parallel_for(x.size, lambda b, e: np.add(x[b:e], 1, out=x[b:e]), grain=2500)

    ts = [threading.Thread(target=work, args=(x,)) for x in xs]
    for t in ts:
        t.start()
    for t in ts:
        t.join()
    assert all((x == 600).all() for x in xs)


def test_changing_the_number_while_working(kernels, setting):
    x = np.zeros(2000)
    stop = threading.Event()

    def change() -> None:
        k = 0
        while not stop.is_set():
            threads.set_num_threads(1 + k % 3)
            k += 1

    t = threading.Thread(target=change)
    t.start()
    for _ in range(2000):
        threads.parallel_call(kernels.address("increment"), x.ctypes.data, x.size, 100)
    stop.set()
    t.join()
    assert (x == 2000).all()


def test_parallel_for_values_and_nesting(setting):
    setting(2)
    x = np.arange(100_000, dtype=np.float64)
    out = np.empty_like(x)

    def inner(b: int, e: int) -> None:
        threads.parallel_for(e - b, lambda p, q: np.multiply(x[b + p:b + q], 2, out=out[b + p:b + q]), grain=100)

    threads.parallel_for(x.size, inner, grain=7000)
    np.testing.assert_array_equal(out, 2 * x)


def test_parallel_for_sees_the_callers_context(setting):
    setting(2)
    var = contextvars.ContextVar("var", default="none")
    var.set("mine")
    seen: list[str] = []
    meet = threading.Barrier(2)

    def look(b: int, e: int) -> None:
        if threads.num_threads() > 1:
            meet.wait(30)                      # both threads are inside at once
        seen.append(var.get())
        with np.errstate(all="raise"):
            pass

    with np.errstate(divide="raise"):
        threads.parallel_for(2, look, grain=1)
        with pytest.raises(FloatingPointError):
            threads.parallel_for(2, lambda b, e: np.divide(np.ones(3), 0), grain=1)
    assert seen == ["mine", "mine"]


@pytest.mark.parametrize("n_threads", [1, 2])
def test_the_first_failing_chunk_is_raised(setting, n_threads):
    setting(n_threads)

    def fail(b: int, e: int) -> None:
        if b >= 3:
            raise KeyError(b)

    for _ in range(20):
        with pytest.raises(KeyError) as info:
            threads.parallel_for(50, fail, grain=1)
        assert info.value.args == (3,)
    seen = []
    threads.parallel_for(4, lambda b, e: seen.append(b), grain=1)
    assert sorted(seen) == [0, 1, 2, 3]


def test_settings_from_inside_a_chunk(setting):
    """The pool is at work for the caller itself: the new number must wait, not the caller."""
    setting(2)
    seen = []

    def work(b: int, e: int) -> None:
        setting(3 - b)
        seen.append(b)

    threads.parallel_for(2, work, grain=1)
    note = threads.ChunkFunction(lambda ctx, b, e: work(b, e))
    threads.parallel_call(ctypes.cast(note, ctypes.c_void_p).value, None, 2, 1)
    setting(2)
    assert sorted(seen) == [0, 0, 1, 1] and threads.statistics()["workers"] == 1


def test_statistics(kernels, setting):
    setting(2)
    s = threads.statistics()
    x = np.zeros(1000)
    for _ in range(10):
        threads.parallel_call(kernels.address("increment"), x.ctypes.data, x.size, 10)
    t = threads.statistics()
    assert t["native"] and t["threads"] == 2 and t["workers"] == 1
    assert t["jobs"] + t["alone"] == s["jobs"] + s["alone"] + 10


COMMON = """
import ctypes, os, sys, threading, warnings
warnings.simplefilter("ignore")
import numpy as np
from rushlight.backends.cpu import threads
threads.set_num_threads(2)
def add(ctx, b, e):
    x[b:e] += 1
fn = threads.ChunkFunction(add)
at = ctypes.cast(fn, ctypes.c_void_p).value
x = np.zeros(1000)
threads.parallel_call(at, None, 1000, 100)
threads.parallel_for(1000, lambda b, e: add(None, b, e), grain=100)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_fork():
    assert run(COMMON + """
for k in range(10):
    pid = os.fork()
    if pid == 0:
        threads.parallel_call(at, None, 1000, 100)
        threads.parallel_for(1000, lambda b, e: add(None, b, e), grain=100)
        ok = (x == 4).all() and threads.statistics()["workers"] == 1
        os._exit(0 if ok else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
# a fork while another thread is inside the pool
inside, go = threading.Event(), threading.Event()
t = threading.Thread(target=lambda: threads.parallel_for(2, lambda b, e: (inside.set(), go.wait()), grain=1))
t.start(); inside.wait()
pid = os.fork()
if pid == 0:
    x[:] = 0
    threads.parallel_call(at, None, 1000, 100)
    threads.parallel_for(1000, lambda b, e: add(None, b, e), grain=100)
    os._exit(0 if (x == 2).all() else 3)
go.set(); t.join()
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
print("done")
""") == "done"


def test_exit_is_quiet():
    assert run(COMMON + "print(x.sum())") == "2000.0"
    assert run(COMMON + """
import atexit
atexit._clear(); atexit.register(lambda: threads.parallel_call(at, None, 1000, 100))
def forever():
    while True:
        threads.parallel_call(at, None, 1000, 100)
threading.Thread(target=forever, daemon=True).start()
print("end")""") == "end"
    assert run("""
import atexit
import numpy as np
from rushlight.backends.cpu import threads
late = []
import ctypes
note = threads.ChunkFunction(lambda ctx, b, e: late.append(b))
atexit.register(lambda: print(sorted(late)))
def work():
    threads.set_num_threads(2)
    threads.parallel_call(ctypes.cast(note, ctypes.c_void_p).value, None, 4, 1)
atexit.register(work)
""") == "[0, 1, 2, 3]"


def test_interop_threads():
    assert run("""
from rushlight.backends.cpu import threads as t
t.set_num_interop_threads(3)
print(t.get_num_interop_threads())
try:
    t.set_num_interop_threads(3)
except RuntimeError as e:
    print(str(e)[:31])
""") == "3\ncannot set number of interop th"
    assert run(COMMON + """
try:
    threads.set_num_interop_threads(3)
except RuntimeError as e:
    print(str(e)[:31])
""") == "cannot set number of interop th"


def test_without_llvmlite():
    """Python threads serve both interfaces; a warning says so once."""
    assert run("""
import sys, warnings
sys.modules["llvmlite"] = None
import ctypes
import numpy as np
from rushlight.backends.cpu import threads
threads.set_num_threads(2)
x = np.zeros(1000)
def add(ctx, b, e):
    x[b:e] += 1
fn = threads.ChunkFunction(add)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for _ in range(3):
        threads.parallel_call(ctypes.cast(fn, ctypes.c_void_p).value, None, 1000, 30)
        threads.parallel_for(1000, lambda b, e: add(None, b, e), grain=100)
assert (x == 6).all()
assert [w.category for w in seen] == [RuntimeWarning] and "llvmlite" in str(seen[0].message)
assert not threads.native() and not threads.statistics()["native"]
try:
    threads.entry_address()
except RuntimeError as e:
    print(str(e)[:40])
""") == "the native thread pool is not available:"


@pytest.mark.skipif(sys.platform != "linux", reason="the futex is what is replaced")
def test_the_fallback_for_systems_without_futex():
    assert run("""
import os
os.environ["RUSHLIGHT_CACHE"] = "off"
from rushlight.backends.cpu import threads
from rushlight.backends.cpu import pool_ir
pool_ir.FUTEX.clear()
assert "usleep" in pool_ir.source() and "@syscall" not in pool_ir.source()
""" + COMMON + """
import time
for _ in range(20):
    threads.parallel_call(at, None, 1000, 100)
    time.sleep(0.001)
print(x.sum())""") == "22000.0"
