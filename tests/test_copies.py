"""backends/cpu/copies.py: copies between orders of elements equal NumPy's, for any strides and dtypes."""

import subprocess
import sys

import numpy as np
import pytest

import rushlight as torch
from rushlight.backends.cpu import copies, threads

CASES = [((300, 200), (1, 0)), ((301, 203), (1, 0)), ((12, 64, 4, 32), (0, 2, 1, 3)), ((12, 64, 4, 33), (0, 2, 3, 1)), ((5, 7, 33, 65), (3, 2, 1, 0)),
         ((4, 3, 50, 51), (0, 2, 3, 1)), ((2, 3, 4, 5, 6, 70), (5, 0, 1, 2, 3, 4)), ((2, 3, 4, 5, 6, 70), (0, 2, 4, 1, 3, 5)), ((70000,), (0,)),
         ((9, 40000), (0, 1)), ((9, 40000), (1, 0)), ((64, 1, 900, 5), (3, 1, 0, 2)), ((40, 20, 10, 40), (2, 0, 1, 3))]


def values(shape, dtype):
    rng = np.random.default_rng(0)
    if np.dtype(dtype).kind in "biu":
        return rng.integers(0, 100, shape).astype(dtype)
    x = rng.standard_normal(shape)
    return (x + 1j * x[::-1]).astype(dtype) if np.dtype(dtype).kind == "c" else x.astype(dtype)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "c8", "u1", "i2", "c16", "?"])
@pytest.mark.parametrize("shape,order", CASES)
def test_every_order(shape, order, dtype):
    src = values(shape, dtype).transpose(order)
    for into in "CF":
        whole = np.zeros((*src.shape[:-1], src.shape[-1] + 3), dtype, order=into)
        for dst in (np.zeros(src.shape, dtype, order=into), whole[..., 1:-2]):
            copies.assign(dst, src)
            np.testing.assert_array_equal(dst, src)
        assert not whole[..., :1].any() and not whole[..., -2:].any()            # nothing beside it was written


def test_slices_and_broadcasts():
    src = values((300, 400), "f4")
    for view in (src.T[::2], src.T[1:-1, 3:250], src.T[::-1], src[:, ::-1].T):
        dst = np.zeros(view.shape, "f4")
        copies.assign(dst, view)
        np.testing.assert_array_equal(dst, view)
    row = np.arange(400, dtype="f4")
    for part in (row, row[:300, None], np.float32(3)):
        dst = np.zeros((300, 400), "f4")
        copies.assign(dst, np.asarray(part))
        np.testing.assert_array_equal(dst, np.broadcast_to(part, (300, 400)))
    dst = np.zeros((300, 400), "f8")
    copies.assign(dst, src)                                                       # a cast
    np.testing.assert_array_equal(dst, src)


def test_overlapping_memory_is_read_first():
    x = values((400, 400), "f4")
    want = x.T.copy()
    copies.assign(x, x.T)
    np.testing.assert_array_equal(x, want)


def test_read_only_destinations_are_refused():
    dst = np.zeros((300, 300), "f4")
    dst.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        copies.assign(dst, np.ones((300, 300), "f4").T)


def test_tensors_and_threads():
    x = torch.tensor(values((12, 64, 4, 32), "f4"))
    want = np.ascontiguousarray(x.numpy().transpose(0, 2, 3, 1))
    before = threads.num_threads()
    try:
        for n in (1, 2):
            threads.set_num_threads(n)
            assert x.permute(0, 2, 3, 1).contiguous().is_contiguous()
            np.testing.assert_array_equal(x.permute(0, 2, 3, 1).contiguous().numpy(), want)
            np.testing.assert_array_equal(torch.zeros(12, 4, 32, 64).copy_(x.permute(0, 2, 3, 1)).numpy(), want)
    finally:
        threads.set_num_threads(before)
    last = x.contiguous(memory_format=torch.channels_last)
    assert last.stride() == (64 * 4 * 32, 1, 32 * 64, 64)
    np.testing.assert_array_equal(last.numpy(), x.numpy())


_AT_THE_END = """
import ctypes, mmap
import numpy as np
import rushlight as torch
from rushlight.backends.cpu import blas, copies, indexed, loops, order
from rushlight.ops import generate

copies._LARGE = copies._ROWS = order._SMALL = 0
loops.BIG = loops.FEW = generate.G["BIG"] = 1
loops.WORTH = loops.EARLY = indexed.WORTH = -1
libc, page = ctypes.CDLL(None, use_errno=True), mmap.PAGESIZE

def last(a):
    # a copy whose last byte is the last one before memory that nobody may read
    size = -(-a.nbytes // page) * page
    whole = np.frombuffer(mmap.mmap(-1, size + page), np.uint8)
    assert libc.mprotect(ctypes.c_void_p(whole.ctypes.data + size), ctypes.c_size_t(page), 0) == 0
    to = whole[size - a.nbytes:size].view(a.dtype).reshape(a.shape)
    to[...] = a
    return to

rng = np.random.default_rng(0)
for n in (*range(1, 20), 31, 33, 47, 65):
    for dtype in (np.float32, np.float64):
        a, b, c = (last(rng.standard_normal(shape).astype(dtype)) for shape in ((19, n), (n, 19), (19, 19)))
        x, y = torch.from_numpy(a), torch.from_numpy(b)
        np.testing.assert_allclose(blas.gemm(a, b, out=c), a.astype(float) @ b, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(blas.gemm(b.T, a.T, out=c), (a.astype(float) @ b).T, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(x.t().contiguous().numpy(), a.T)
        np.testing.assert_array_equal(last(b.T).T, b)
        np.testing.assert_array_equal((x + y.t()).numpy(), a + b.T)
        np.testing.assert_array_equal((x * x[3] - x[:, :1]).numpy(), a * a[3] - a[:, :1])
        for dim in (0, 1):
            np.testing.assert_allclose(x.sum(dim).numpy(), a.sum(dim), rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(x.cumsum(dim).numpy(), a.cumsum(dim), rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(x.sort(dim)[0].numpy(), np.sort(a, dim))
            np.testing.assert_array_equal(x.amax(dim).numpy(), a.max(dim))
            np.testing.assert_array_equal(x.topk(1, dim)[0].numpy(), a.max(dim, keepdims=True))
            i = last(rng.integers(0, a.shape[dim], a.shape))
            np.testing.assert_array_equal(x.gather(dim, torch.from_numpy(i)).numpy(), np.take_along_axis(a, i, dim))
            z = torch.from_numpy(last(np.zeros_like(a))).scatter_add_(dim, torch.from_numpy(i), x)
            np.testing.assert_allclose(z.sum(dim).numpy(), a.sum(dim), rtol=1e-4, atol=1e-5)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="mprotect")
def test_nothing_is_read_behind_the_last_element():
    p = subprocess.run([sys.executable, "-X", "faulthandler", "-c", _AT_THE_END], capture_output=True, text=True)
    assert p.returncode == 0, p.stderr[-3000:]
