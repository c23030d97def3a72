"""backends/cpu/allocator.py: reuse, ownership, bounds, figures, threads, fork, exit."""

import gc
import os
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rushlight.backends.cpu import allocator
from rushlight.backends.cpu.allocator import Allocator, OutOfMemoryError, size_class

F32 = np.dtype(np.float32)
MIB = 1 << 20


@pytest.fixture
def pool() -> Allocator:
    return Allocator(threshold=1 << 16, limit=64 * MIB)


def address(a: np.ndarray) -> int:
    return a.__array_interface__["data"][0]


def test_arrays_are_plain_contiguous_writable_and_aligned(pool):
    for shape, dtype in [((256, 256), F32), ((3, 1000, 77), np.dtype(np.complex128)), ((1 << 20,), np.dtype(bool))]:
        a = pool.empty(shape, dtype)
        assert type(a) is np.ndarray and a.shape == shape and a.dtype == dtype
        assert a.flags.c_contiguous and a.flags.writeable and address(a) % 64 == 0
        a[...] = 1
        assert a.sum() == a.size


def test_small_and_odd_requests(pool):
    assert pool.empty((), F32).shape == ()
    assert pool.empty((0, 1 << 30), F32).shape == (0, 1 << 30)
    assert pool.empty(5, "float64").shape == (5,)
    assert pool.empty([100_000], np.int16).dtype == np.int16
    assert pool.zeros(100_000, np.int16).sum() == 0
    objects = pool.empty((100_000,), np.dtype(object))
    assert objects[99_999] is None
    assert pool.stats()["allocations"] == 2


def test_a_block_comes_back_when_its_array_dies(pool):
    a = pool.empty((512, 512), F32)
    where = address(a)
    b = pool.empty((512, 512), F32)
    assert address(b) != where
    del a
    c = pool.empty((512 * 512,), np.dtype(np.int32))       # same bytes, another shape and dtype
    assert address(c) == where
    s = pool.stats()
    assert (s["hits"], s["misses"], s["blocks"], s["cached_blocks"]) == (1, 2, 2, 0)


@pytest.mark.parametrize("share", [
    lambda a: a[10:20, ::2].T,
    lambda a: a.reshape(-1).view(np.int32),
    lambda a: memoryview(a),
    lambda a: np.from_dlpack(a),
    lambda a: np.frombuffer(a, np.uint8),
    lambda a: np.asarray(memoryview(a)),
    lambda a: np.lib.stride_tricks.as_strided(a, (4,), (4,)),
    lambda a: np.broadcast_to(a, (2, *a.shape)),
    lambda a: a.base,
    lambda a: a.base[100:200],
    lambda a: a.flat,
    lambda a: a.ctypes,
], ids=["slice", "view", "memoryview", "dlpack", "frombuffer", "asarray", "as_strided", "broadcast", "base", "of-base",
        "flat", "ctypes"])
def test_whatever_shares_the_memory_keeps_it(pool, share):
    a = pool.empty((512, 512), F32)
    where = address(a)
    other = share(a)
    del a
    gc.collect()
    assert pool.stats()["blocks"] == 1
    b = pool.empty((512, 512), F32)
    assert address(b) != where
    del other
    gc.collect()
    assert pool.stats()["blocks"] == 1
    assert address(pool.empty((512, 512), F32)) == where


def test_views_of_the_block_do_not_return_it_twice(pool):
    a = pool.empty((512, 512), F32)
    for _ in range(3):
        part = a.base[:64]
        copy = a.base.copy()
        again = a.base.view(type(a.base))
        del part, copy, again
    assert pool.stats()["frees"] == 0
    del a
    s = pool.stats()
    assert (s["frees"], s["cached_blocks"]) == (1, 1)


def test_reference_cycles_are_collected(pool):
    class Holder:
        pass
    h = Holder()
    h.me, h.a = h, pool.empty((512, 512), F32)
    ref = weakref.ref(h)
    del h
    gc.collect()
    assert ref() is None and pool.stats()["blocks"] == 0


def test_zeros_are_zero_in_reused_memory(pool):
    for _ in range(3):
        a = pool.zeros((300, 300), F32)
        assert not a.any()
        a.fill(np.nan)
        del a
    assert pool.stats()["hits"] == 2


@given(st.integers(1, 1 << 44))
def test_size_classes_waste_an_eighth_at_most(n):
    size = size_class(n)
    assert n <= size and size % 4096 == 0
    assert size - n <= max(n // 8, 4095)
    assert size_class(size) == size                        # a class is its own class
    assert size_class(size + 1) > size


def test_classes_are_few():
    assert len({size_class(n) for n in range(1 << 20, 1 << 21, 512)}) == 9


def test_a_neighbouring_class_serves(pool):
    a = pool.empty((size_class(MIB + 1),), np.dtype(np.uint8))
    where = address(a)
    del a
    assert address(pool.empty((MIB,), np.dtype(np.uint8))) == where


def test_the_cache_is_bounded_and_drops_what_was_unused_longest():
    pool = Allocator(threshold=1 << 16, limit=8 * MIB)
    old = [pool.empty((MIB,), np.dtype(np.uint8)) for _ in range(4)]
    new = [pool.empty((2 * MIB,), np.dtype(np.uint8)) for _ in range(3)]
    del old
    pool.stats()
    del new
    s = pool.stats()
    assert s["cached"] == 8 * MIB and s["trimmed"] == 2
    hits = s["hits"]
    keep = [pool.empty((2 * MIB,), np.dtype(np.uint8)) for _ in range(3)]
    assert pool.stats()["hits"] == hits + 3 and len(keep) == 3


def test_no_cache_when_the_limit_is_zero_or_it_is_disabled():
    pool = Allocator(threshold=1 << 16, limit=0)
    for _ in range(3):
        pool.empty((MIB,), np.dtype(np.uint8))
    assert pool.stats()["cached"] == 0 and pool.stats()["hits"] == 0
    off = Allocator(threshold=1 << 16, enabled=False)
    a = off.empty((MIB,), np.dtype(np.uint8))
    assert a.base is None and off.stats()["allocations"] == 0
    assert not off.zeros((MIB,), np.dtype(np.uint8)).any()


def test_idle_memory_follows_what_the_program_needs():
    """Outputs of ever new sizes, as sequences of varying length give, must not pile up."""
    pool = Allocator(threshold=1 << 16, limit=1 << 40)
    for n in range(64, 200):
        pool.empty((n * 64 << 10,), np.dtype(np.uint8))[:1] = 0
    s = pool.stats()
    assert s["peak"] <= size_class(199 * 64 << 10) and s["reserved"] <= 64 * MIB + s["peak"]


def test_figures(pool):
    a = pool.empty((MIB,), np.dtype(np.uint8))
    b = pool.empty((3 * MIB,), np.dtype(np.uint8))
    s = pool.stats()
    assert (s["allocated"], s["cached"], s["reserved"], s["peak"], s["peak_reserved"]) == (
        4 * MIB, 0, 4 * MIB, 4 * MIB, 4 * MIB)
    del b
    s = pool.stats()
    assert (s["allocated"], s["cached"], s["reserved"], s["peak"]) == (MIB, 3 * MIB, 4 * MIB, 4 * MIB)
    pool.reset_peak()
    s = pool.stats()
    assert (s["peak"], s["peak_reserved"]) == (MIB, 4 * MIB)
    assert pool.release() == 3 * MIB
    s = pool.stats()
    assert (s["cached"], s["reserved"], s["cached_blocks"], s["allocations"], s["frees"]) == (0, MIB, 0, 2, 1)
    assert a.nbytes == MIB


def test_negative_sizes_are_refused(pool):
    for shape in [(-1,), (-5, -100_000), (4, -1, 1 << 20)]:
        with pytest.raises(ValueError, match="negative dimensions"):
            pool.empty(shape, F32)
        with pytest.raises(ValueError, match="negative dimensions"):
            pool.zeros(shape, F32)


@pytest.mark.parametrize("kind", ["empty", "zeros"])
@pytest.mark.parametrize("enabled", [True, False])
def test_too_much_memory(kind, enabled):
    pool = Allocator(threshold=1 << 16, enabled=enabled)
    for base in (RuntimeError, MemoryError, OutOfMemoryError):
        with pytest.raises(base, match=r"not enough memory: you tried to allocate 4611686018427387904 bytes"):
            getattr(pool, kind)((1 << 60,), F32)
    assert pool.stats()["blocks"] == 0 or pool.stats()["allocated"] == 0


def test_the_cache_is_given_up_before_memory_is_refused(pool):
    pool.empty((MIB,), np.dtype(np.uint8))
    assert pool.stats()["cached"] == MIB
    with pytest.raises(OutOfMemoryError):
        pool.empty((1 << 60,), F32)
    assert pool.stats()["cached"] == 0


def test_many_threads(pool):
    """Blocks must never be handed out twice: every thread finds in its arrays what it wrote."""
    faults = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        held = []
        for step in range(300):
            mark = seed * 1000 + step
            a = pool.empty((int(rng.integers(1, 9)) * 16384,), F32)
            a[::1024] = mark
            held.append((a[5:], mark, a[0]))
            if len(held) > 6:
                b, m, _ = held.pop(int(rng.integers(0, 6)))
                if not (b[1019::1024] == m).all():
                    faults.append((seed, step))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults
    s = pool.stats()
    assert s["blocks"] == 0 and s["allocated"] == 0 and s["allocations"] == 1800


def test_finalisers_that_allocate_during_allocation(pool):
    """A collection may run inside the allocator and call it again."""
    made = []

    class Noisy:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            made.append(pool.empty((MIB,), np.dtype(np.uint8)))
            pool.stats()

    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(200):
            Noisy()
            pool.empty((MIB,), np.dtype(np.uint8))
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert len(made) == 200
    for i, a in enumerate(made):
        a.fill(i % 251)
    assert all((a == i % 251).all() for i, a in enumerate(made))
    del a
    made.clear()
    assert pool.stats()["blocks"] == 0


def run(code: str, **env: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **env})
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout


def test_interpreter_exit_is_quiet():
    run("""
import threading
import numpy as np
from rushlight.backends.cpu import allocator
a = [allocator.empty((1 << 21,), np.dtype("f4")) for _ in range(3)]
class K: pass
k = K(); k.me = k; k.a = allocator.empty((1 << 21,), np.dtype("f4")); k.v = memoryview(k.a)
import builtins; builtins.kept = a[0][3:]
threading.Thread(target=lambda: [allocator.empty((1 << 20,), "f4") for _ in range(10**9)], daemon=True).start()
""")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_fork():
    out = run("""
import os, threading, warnings
warnings.simplefilter("ignore")
import numpy as np
from rushlight.backends.cpu import allocator
go = True
def churn():
    while go:
        allocator.empty((1 << 19,), np.dtype("f4"))
t = threading.Thread(target=churn); t.start()
a = allocator.empty((1 << 20,), np.dtype("f4")); a.fill(7)
for _ in range(20):
    pid = os.fork()
    if pid == 0:
        for _ in range(5):
            b = allocator.empty((1 << 20,), np.dtype("f4")); b.fill(1)
        del b
        os._exit(0 if (a == 7).all() and allocator.release() > 0 else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
go = False; t.join()
print((a == 7).all())
""")
    assert out == "True\n"


def test_settings_from_the_environment():
    code = """
import numpy as np
from rushlight.backends.cpu import allocator
a = allocator.empty((1 << 22,), np.dtype("f4")); del a
s = allocator.stats(); print(s["cached"], s["limit"], s["allocations"])
"""
    assert run(code, RUSHLIGHT_ALLOCATOR="off").split()[2] == "0"
    assert run(code, RUSHLIGHT_MEMORY_CACHE_MB="1").split() == ["0", "1048576", "1"]
    assert run(code, RUSHLIGHT_MALLOPT="0").split()[2] == "1"


def test_module_functions_are_one_allocator():
    before = allocator.stats()["allocations"]
    a = allocator.empty((1 << 19,), np.dtype(np.float64))
    b = allocator.empty_like(a.reshape(2, -1).T, np.float32)
    assert b.shape == (1 << 18, 2) and b.dtype == np.float32 and b.flags.c_contiguous
    assert not allocator.zeros((1 << 20,), F32).any()
    assert allocator.stats()["allocations"] == before + 3
