"""backends/cpu/blas.py: values, layouts, batches, out/alpha/beta, dtypes, equal bits, errors, other libraries."""

import ctypes
import glob
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rushlight.backends.cpu import blas, threads

FLOATS = [np.float32, np.float64, np.complex64, np.complex128]
# of one tile, of many, with remainders, matrix-vector both ways, inner product, outer product
SHAPES = [(1, 1, 1), (3, 5, 4), (64, 256, 784), (530, 1030, 70), (1, 3000, 700), (3000, 1, 700), (1, 1, 900_000),
          (2, 3, 400_000), (1500, 1400, 1), (130, 70, 1000)]


def rand(rng: np.random.Generator, shape: tuple[int, ...], dtype: type) -> np.ndarray:
    x = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(dtype)


def check(got: np.ndarray, a: np.ndarray, b: np.ndarray, base: np.ndarray | float = 0.0, alpha: complex = 1.0) -> None:
    """Against the product in double precision, within the bound k u |a| |b| of any order of summation."""
    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    a, b = a.astype(wide), b.astype(wide)
    exact = alpha * (a @ b) + base
    k = a.shape[-1]
    bound = (k + 8) * 4 * np.finfo(got.dtype).eps * (abs(alpha) * (np.abs(a) @ np.abs(b)) + np.abs(base))
    assert got.shape == exact.shape
    assert (np.abs(got - exact) <= bound + 1e-300).all()


def laid_out(x: np.ndarray, how: str) -> np.ndarray:
    """The same values with other strides."""
    if how == "C":
        return np.array(x, order="C")
    if how == "F":
        return np.array(x.swapaxes(-1, -2), order="C").swapaxes(-1, -2)
    if how == "rows":                                   # every second row of a wider array: BLAS can step over it
        y = np.full((*x.shape[:-2], 2 * x.shape[-2], x.shape[-1] + 3), np.nan, x.dtype)[..., ::2, 2:-1]
    elif how == "columns":                              # it cannot over this
        y = np.full((*x.shape[:-2], x.shape[-2], 3 * x.shape[-1]), np.nan, x.dtype)[..., ::3]
    elif how == "reversed":
        y = np.full(x.shape, np.nan, x.dtype)[..., ::-1, ::-1]
    elif how == "unaligned":
        raw = np.zeros(x.nbytes + 1, np.uint8)
        y = raw[1:].view(x.dtype).reshape(x.shape)
    else:                                               # bytes in the other order
        y = np.empty(x.shape, x.dtype.newbyteorder())
    y[...] = x
    return y


LAYOUTS = ["C", "F", "rows", "columns", "reversed", "unaligned", "swapped"]


@pytest.fixture(autouse=True)
def two_threads():
    before = threads.num_threads()
    threads.set_num_threads(2)
    yield
    threads.set_num_threads(before)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("m,n,k", SHAPES)
def test_gemm_values(m, n, k, dtype):
    rng = np.random.default_rng(m + n + k)
    a, b = rand(rng, (m, k), dtype), rand(rng, (k, n), dtype)
    for x in (a, np.asfortranarray(a)):
        for y in (b, np.asfortranarray(b)):
            c = blas.gemm(x, y)
            assert c.dtype == dtype and c.flags.c_contiguous
            check(c, a, b)


@pytest.mark.parametrize("m,n,k", [(5, 7, 6), (200, 300, 400), (1, 2000, 600), (2000, 1, 600)])
@pytest.mark.parametrize("how_b", LAYOUTS)
@pytest.mark.parametrize("how_a", LAYOUTS)
def test_any_strides(how_a, how_b, m, n, k):
    rng = np.random.default_rng(0)
    a, b = rand(rng, (m, k), np.float32), rand(rng, (k, n), np.float32)
    x, y = laid_out(a, how_a), laid_out(b, how_b)
    check(blas.gemm(x, y).astype(np.float32), a, b)
    np.testing.assert_array_equal(x, a)                 # inputs are not written to
    np.testing.assert_array_equal(y, b)


@pytest.mark.parametrize("a_strides,b_strides", [((0, 4), (4, 0)), ((0, 0), (0, 0)), ((4, 4), (4, 4))])
def test_expanded_and_overlapping_operands(a_strides, b_strides):
    data = np.arange(2000, dtype=np.float32) / 100
    a = np.lib.stride_tricks.as_strided(data, (300, 400), a_strides)
    b = np.lib.stride_tricks.as_strided(data, (400, 200), b_strides)
    check(blas.gemm(a, b), a, b)
    check(blas.gemm(a[:5, :5], b[:5, :5]), a[:5, :5], b[:5, :5])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("m,n,k", [(5, 7, 6), (200, 300, 400), (1, 2000, 600), (2000, 1, 600)])
@pytest.mark.parametrize("how", ["C", "F", "rows", "columns", "reversed"])
def test_out_alpha_beta(how, m, n, k, dtype):
    rng = np.random.default_rng(1)
    a, b, c = rand(rng, (m, k), dtype), rand(rng, (k, n), dtype), rand(rng, (m, n), dtype)
    scale, wide = (2.5 - 1j, np.complex128) if np.dtype(dtype).kind == "c" else (2.5, np.float64)
    for alpha, beta in [(1, 0), (1, 1), (scale, 0), (scale, -0.5), (0, 1), (0, 0)]:
        out = laid_out(c, how)
        whole = out.base
        assert blas.gemm(a, b, out=out, alpha=alpha, beta=beta) is out
        check(out, a, b, base=beta * c.astype(wide), alpha=alpha)
        if how in ("rows", "columns"):                  # nothing beside it was written
            assert np.isnan(whole).sum() == whole.size - out.size
    check(blas.gemm(a, b, alpha=scale, beta=3), a, b, alpha=scale)


@pytest.mark.parametrize("m,n,k", [(4, 6, 5), (300, 200, 400), (1, 2000, 600), (2000, 1, 600), (3, 4, 0),
                                   (600, 700, 0)])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_beta_zero_does_not_read_out(m, n, k, bad):
    a, b = np.ones((m, k), np.float32), np.ones((k, n), np.float32)
    for out in (np.full((m, n), bad, np.float32), np.full((n, m), bad, np.float32).T):
        blas.gemm(a, b, out=out, beta=0)
        assert (out == k).all()
    out = np.full((3, m, n), bad, np.float32)
    blas.bgemm(np.broadcast_to(a, (3, m, k)), b, out=out)
    assert (out == k).all()


def test_nan_and_inf_pass_through():
    for n in (5, 300):
        a, b = np.ones((n, n), np.float32), np.ones((n, n), np.float32)
        a[1, 2], b[3, 4] = np.nan, np.inf
        c = blas.gemm(a, b)
        assert np.isnan(c[1]).all() and np.isinf(np.delete(c[:, 4], 1)).all()
        assert np.isfinite(np.delete(np.delete(c, 1, 0), 4, 1)).all()


@pytest.mark.parametrize("m,n,k", [(0, 3, 2), (3, 0, 2), (3, 2, 0), (0, 0, 0), (1, 1, 0), (2000, 2000, 0)])
def test_empty_sizes(m, n, k):
    for dtype in (np.float32, np.int64, np.float16):
        a, b = np.ones((m, k), dtype), np.ones((k, n), dtype)
        c = blas.gemm(a, b)
        assert c.shape == (m, n) and c.dtype == dtype and not c.any()
        out = np.full((m, n), 2, dtype)
        blas.gemm(a, b, out=out, beta=3)
        assert (out == 6).all()
    assert blas.bgemm(np.ones((0, 3, 4)), np.ones((4, 5))).shape == (0, 3, 5)
    assert not blas.bgemm(np.ones((7, 3, 0)), np.ones((7, 0, 5))).any()
    assert blas.gemv(np.ones((3, 0)), np.ones(0)).tolist() == [0, 0, 0]
    assert blas.dot(np.ones(0, np.float32), np.ones(0, np.float32)) == 0


@pytest.mark.parametrize("n", [6, 300])
def test_out_may_overlap_the_operands(n):
    rng = np.random.default_rng(2)
    for place in ("a", "b", "shifted"):
        a, b = rand(rng, (n, n), np.float64), rand(rng, (n, n), np.float64)
        expected = a @ b
        if place == "shifted":
            whole = np.zeros((n + 1, n))
            whole[1:] = a
            a, out = whole[1:], whole[:-1]
        else:
            out = a if place == "a" else b
        blas.gemm(a, b, out=out)
        np.testing.assert_allclose(out, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("sa,sb", [
    ((3, 4, 5), (3, 5, 2)), ((64, 64, 64), (64, 64, 64)), ((2, 3, 100, 64), (2, 3, 64, 90)), ((40, 64, 64), (64, 64)),
    ((64, 64), (40, 64, 64)), ((6, 1, 50, 64), (1, 7, 64, 80)), ((2, 3, 4, 1, 40, 64), (5, 64, 40)),
    ((1, 600, 500), (3, 500, 400)), ((2, 2, 2, 2, 90, 100), (2, 2, 2, 2, 100, 90)), ((500, 1, 64), (500, 64, 300)),
    ((500, 300, 64), (500, 64, 1)), ((3, 1, 700), (700, 1)), ((12, 900, 800), (12, 800, 1)), ((20, 1, 5), (1, 5, 3)),
])
def test_batches(sa, sb):
    rng = np.random.default_rng(3)
    for dtype in (np.float32, np.complex128):
        a, b = rand(rng, sa, dtype), rand(rng, sb, dtype)
        for how_a, how_b in [("C", "C"), ("F", "rows"), ("columns", "F"), ("rows", "columns")]:
            c = blas.bgemm(laid_out(a, how_a), laid_out(b, how_b))
            check(c, a, b)
        out = np.ones_like(c)
        blas.bgemm(a, b, out=out, alpha=2, beta=-1)
        check(out, a, b, base=-1.0, alpha=2)


def test_heads_of_attention_are_not_copied_wrongly():
    """(B, T, H, D) seen as (B, H, T, D): two batch dimensions that do not merge, in the operands and in the result."""
    rng = np.random.default_rng(4)
    q, k = (rand(rng, (3, 70, 4, 64), np.float32).transpose(0, 2, 1, 3) for _ in range(2))
    check(blas.bgemm(q, k.swapaxes(-1, -2)), q, k.swapaxes(-1, -2))
    p = rand(rng, (3, 4, 70, 70), np.float32)
    out = np.full((3, 70, 4, 64), np.nan, np.float32)
    blas.bgemm(p, q, out=out.transpose(0, 2, 1, 3))
    check(np.ascontiguousarray(out.transpose(0, 2, 1, 3)), p, q)
    deep = np.full((5, 3, 2, 60, 4, 64), np.nan, np.float32).transpose(1, 2, 0, 4, 3, 5)
    x = rand(rng, (3, 2, 5, 4, 60, 60), np.float32)
    y = rand(rng, (2, 1, 4, 60, 64), np.float32)
    blas.bgemm(x, y, out=deep)
    check(deep, x, y)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_batches_against_numpy(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    batch = data.draw(st.lists(st.integers(1, 3), max_size=4))
    m, n, k = (data.draw(st.integers(0, 40)) for _ in range(3))
    scale = data.draw(st.sampled_from([1, 1, 6]))
    m, n, k = m * scale, n * scale, k * scale

    def operand(rows: int, cols: int) -> np.ndarray:
        lead = [s if data.draw(st.booleans()) else 1 for s in batch][data.draw(st.integers(0, len(batch))):]
        x = rand(rng, (*lead, rows, cols), np.float64)
        if data.draw(st.booleans()):
            x = laid_out(x, data.draw(st.sampled_from(LAYOUTS[:5])))
        return x

    a, b = operand(m, k), operand(k, n)
    check(blas.bgemm(a, b), a, b)


@pytest.mark.parametrize("m,k", [(3, 4), (700, 900), (5000, 300), (300, 5000), (1, 800_000)])
def test_gemv(m, k):
    rng = np.random.default_rng(5)
    for dtype in FLOATS:
        a, x, y = rand(rng, (m, k), dtype), rand(rng, (k,), dtype), rand(rng, (m,), dtype)
        for mat in (a, np.asfortranarray(a)):
            check(blas.gemv(mat, x)[:, None], a, x[:, None])
        out = np.repeat(y, 2)[::2]
        assert blas.gemv(a, x[::-1], out=out, alpha=2, beta=3) is out
        wide = np.complex128 if y.dtype.kind == "c" else np.float64
        check(out[:, None], a, x[::-1, None], base=3 * y.astype(wide)[:, None], alpha=2)


@pytest.mark.parametrize("n", [0, 1, 1000, 1 << 18, (1 << 20) + 77])
def test_dot(n):
    rng = np.random.default_rng(6)
    for dtype in FLOATS:
        x, y = rand(rng, (n,), dtype), rand(rng, (n,), dtype)
        d = blas.dot(x, y)
        assert d.shape == () and d.dtype == dtype
        check(d.reshape(1, 1), x[None], y[:, None])
        e = blas.dot(np.repeat(x, 3)[::3], y[::-1])
        check(e.reshape(1, 1), x[None], y[::-1, None])
    i = rng.integers(-(2 ** 40), 2 ** 40, n)
    assert blas.dot(i, i[::-1]) == (i * i[::-1]).sum()
    s = rng.integers(-100, 100, n).astype(np.int8)
    assert blas.dot(s, s) == np.int64((s.astype(np.int64) ** 2).sum()).astype(np.int8)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
@pytest.mark.parametrize("m,n,k", [(3, 4, 5), (90, 80, 70)])
def test_integers_are_exact_and_wrap(m, n, k, dtype):
    rng = np.random.default_rng(7)
    info = np.iinfo(dtype)
    for low, high in [(max(info.min, -100), 100), (info.min, info.max)]:
        a, b = (rng.integers(low, high, s, dtype, endpoint=True) for s in ((m, k), (k, n)))
        exact = a.astype(object) @ b.astype(object)     # Python's integers
        wrapped = ((exact - info.min) % 2 ** info.bits + info.min).astype(dtype)
        c = blas.gemm(a, b)
        assert c.dtype == dtype
        np.testing.assert_array_equal(c, wrapped)
        np.testing.assert_array_equal(blas.bgemm(a[None], b)[0], wrapped)
        out = np.ones((m, n), dtype)
        blas.gemm(a, b, out=out, alpha=3, beta=2)
        np.testing.assert_array_equal(out, ((3 * exact + 2 - info.min) % 2 ** info.bits + info.min).astype(dtype))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("m,n,k", [(3, 4, 5), (200, 150, 4096)])
def test_low_precision_rounds_once(m, n, k, name):
    if name == "bfloat16":
        dtype = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    else:
        dtype = np.dtype(np.float16)
    # small integers: sums are exact in float32, so the result is the exact product rounded once
    rng = np.random.default_rng(8)
    a, b = (rng.integers(-3, 4, s).astype(dtype) for s in ((m, k), (k, n)))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    c = blas.gemm(a, b)
    assert c.dtype == dtype
    np.testing.assert_array_equal(c, exact.astype(np.float32).astype(dtype))
    out = np.full((m, n), 0.5, dtype)
    blas.gemm(a, b, out=out, alpha=2, beta=-1)
    np.testing.assert_array_equal(out, (2 * exact - 0.5).astype(np.float32).astype(dtype))
    ones = np.ones(4096, dtype)
    assert float(blas.dot(ones, ones)) == 4096


def test_mixed_dtypes_are_promoted():
    a, b = np.ones((300, 400), np.float32), np.ones((400, 300))
    assert blas.gemm(a, b).dtype == np.float64
    assert blas.gemm(a[:3], b[:, :3].astype(np.complex64)).dtype == np.complex64
    assert (blas.gemm(a.astype(np.int32), b) == 400).all()


def products(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    out = []
    for dtype in FLOATS:
        for m, n, k in SHAPES:
            a, b = rand(rng, (m, k), dtype), rand(rng, (n, k), dtype)
            out += [blas.gemm(a, b.T), blas.gemv(a, b[0])]
        out += [blas.bgemm(rand(rng, (40, 64, 64), dtype), rand(rng, (40, 64, 64), dtype)),
                blas.dot(rand(rng, (700_000,), dtype), rand(rng, (700_000,), dtype))]
    return out


def test_equal_bits_for_any_number_of_threads():
    results = []
    for n in (1, 2, 4, 2):
        threads.set_num_threads(n)
        results.append(products(9))
    for other in results[1:]:
        for x, y in zip(results[0], other, strict=True):
            assert x.tobytes() == y.tobytes()


def test_equal_bits_whatever_the_library_was_set_to():
    """A user's own setting of OpenBLAS's threads before us does not reach our products."""
    code = """
import sys, hashlib
sys.path[:0] = sys.argv[1:]
import numpy as np
rng = np.random.default_rng(0)
h = hashlib.sha256()
from rushlight.backends.cpu import blas
for m, n, k in [(64, 256, 784), (400, 500, 600), (3000, 1, 900), (120, 120, 120)]:
    a, b = rng.standard_normal((m, k)).astype("f"), rng.standard_normal((k, n)).astype("f")
    h.update(blas.gemm(a, b).tobytes())
print(h.hexdigest())
"""
    seen = set()
    for n in ("1", "2", "3"):
        env = {**os.environ, "OPENBLAS_NUM_THREADS": n, "OMP_NUM_THREADS": n}
        done = subprocess.run([sys.executable, "-c", code, *sys.path], capture_output=True, text=True, timeout=120,
                              env=env)
        assert done.returncode == 0, done.stderr
        seen.add(done.stdout)
    assert len(seen) == 1


@pytest.mark.parametrize("call,message", [
    (lambda: blas.gemm(np.ones((2, 3)), np.ones((4, 5))), r"mat1 and mat2 shapes cannot be multiplied \(2x3 and 4x5\)"),
    (lambda: blas.gemm(np.ones(3), np.ones((3, 5))), r"two matrices, but got arrays of shapes \(3,\) and \(3, 5\)"),
    (lambda: blas.gemm(np.ones((2, 3)), np.ones((3, 4)), out=np.ones((4, 2))),
     r"has shape \(2, 4\), but out has .*\(4, 2\)"),
    (lambda: blas.gemm(np.ones((2, 3)), np.ones((3, 4)), out=np.ones((2, 4), "f")),
     "dtype float64, but out has dtype float32"),
    (lambda: blas.gemm(np.ones((2, 3)), np.ones((3, 4)), out=np.broadcast_to(0.0, (2, 4))), "read-only"),
    (lambda: blas.bgemm(np.ones((2, 3, 4)), np.ones((3, 4, 5))),
     r"batch dimensions of shapes \(2, 3, 4\) and \(3, 4, 5\)"),
    (lambda: blas.bgemm(np.ones((2, 3, 4)), np.ones((2, 3, 4))), r"cannot be multiplied \(3x4 and 3x4\)"),
    (lambda: blas.bgemm(np.ones(4), np.ones((2, 4, 4))), "at least two dimensions"),
    (lambda: blas.gemv(np.ones((2, 3)), np.ones(2)), r"size mismatch, got input \(2\), mat \(2x3\), vec \(2\)"),
    (lambda: blas.gemv(np.ones(3), np.ones(3)), "a matrix and a vector"),
    (lambda: blas.dot(np.ones(3), np.ones(4)), "inconsistent tensor size"),
    (lambda: blas.dot(np.ones((3, 1)), np.ones(3)), "1D tensors expected, but got 2D and 1D"),
])
def test_errors(call, message):
    with pytest.raises(RuntimeError, match=message):
        call()


def test_addresses_for_native_code():
    pytest.importorskip("llvmlite")
    if not blas.info()["native"]:
        pytest.skip("NumPy uses another BLAS")
    rng = np.random.default_rng(10)
    i, p = ctypes.c_int64, ctypes.c_void_p
    for t, dtype, real in [("s", np.float32, ctypes.c_float), ("d", np.float64, ctypes.c_double),
                           ("z", np.complex128, p)]:
        f = ctypes.CFUNCTYPE(None, *[i] * 5, real, p, i, p, i, real, p, i)(blas.address(t + "gemm"))
        for m, n, k in [(200, 300, 250), (3, 4, 5), (1, 900, 700), (900, 1, 700)]:
            a, b, c = rand(rng, (m, k), dtype), rand(rng, (n, k), dtype), rand(rng, (m, n), dtype)
            before = c.copy()
            two, half = np.array(2, dtype), np.array(0.5, dtype)
            scalars = (two.ctypes.data, half.ctypes.data) if real is p else (2.0, 0.5)
            f(111, 112, m, n, k, scalars[0], a.ctypes.data, k, b.ctypes.data, k, scalars[1], c.ctypes.data, n)
            check(c, a, b.T, base=0.5 * before, alpha=2)
            f(111, 112, 0, n, k, scalars[0], a.ctypes.data, k, b.ctypes.data, k, scalars[1], c.ctypes.data, n)
    assert blas.address("cblas_sgemm") and blas.address("cblas_zgemv") and blas.address("cgemm_run")
    for bad in ("hgemm", "sgemv", "cblas_strsm", ""):
        with pytest.raises(KeyError, match="unknown BLAS routine"):
            blas.address(bad)


def test_the_library_runs_on_one_thread():
    blas.gemm(np.ones((2, 2)), np.ones((2, 2)))
    if blas.info()["library"] is None:
        pytest.skip("NumPy uses another BLAS")
    assert blas.set_library_threads(2) == 1
    assert blas.set_library_threads(1) == 2
    with pytest.raises(ValueError, match="positive"):
        blas.set_library_threads(0)


def test_a_library_with_32_bit_integers(monkeypatch):
    """SciPy's wheels carry an OpenBLAS of that form."""
    scipy = pytest.importorskip("scipy")
    pytest.importorskip("llvmlite")
    found = glob.glob(os.path.join(os.path.dirname(scipy.__file__), "..", "scipy.libs", "libscipy_openblas-*"))
    if not found:
        pytest.skip("this SciPy has no OpenBLAS of its own")
    routines = blas._Routines(found[0])
    assert (routines.prefix, routines.suffix, routines.int_type) == ("scipy_", "", "i32")
    blas.info()
    from rushlight.compiler import jit
    imports = dict(jit._imports)
    try:
        for t in "sdcz":
            routines.compile(t)
    finally:
        jit._imports.update(imports)
    monkeypatch.setattr(blas, "_routines", routines)
    routines.set_threads(1)
    rng = np.random.default_rng(11)
    for dtype in FLOATS:
        for m, n, k in SHAPES:
            a, b = rand(rng, (m, k), dtype), rand(rng, (k, n), dtype)
            check(blas.gemm(a, b), a, b)
            check(blas.gemm(np.asfortranarray(a), np.asfortranarray(b)), a, b)


@pytest.mark.parametrize("missing", ["library", "compiler"])
def test_without_library_or_compiler(monkeypatch, missing):
    """NumPy does it all."""
    blas.info()
    if missing == "library":
        monkeypatch.setattr(blas, "_routines", None)
        assert blas.info()["library"] is None and blas.set_library_threads(1) is None
    else:
        monkeypatch.setattr(blas, "_program", lambda t: None)
    with pytest.raises(RuntimeError, match="no BLAS library to call"):
        blas.address("sgemm")
    rng = np.random.default_rng(12)
    for m, n, k in SHAPES:
        a, b = rand(rng, (m, k), np.float32), rand(rng, (k, n), np.float32)
        check(blas.gemm(a, b), a, b)
        out = np.ones((m, n), np.float32)
        blas.gemm(a, b, out=out, alpha=2, beta=1)
        check(out, a, b, base=1.0, alpha=2)
    a, b = rand(rng, (30, 64, 64), np.float32), rand(rng, (64, 64), np.float32)
    check(blas.bgemm(a, b), a, b)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_fork():
    code = """
import sys, os, warnings
sys.path[:0] = sys.argv[1:]
warnings.simplefilter("ignore")
import numpy as np
from rushlight.backends.cpu import blas, threads
threads.set_num_threads(2)
a = np.random.default_rng(0).standard_normal((400, 400))
expected = blas.gemm(a, a)
pid = os.fork()
if pid == 0:
    os._exit(0 if (blas.gemm(a, a) == expected).all() else 3)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", code, *sys.path], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("m,n,k", [(5, 7, 6), (200, 96, 100), (133, 65, 700), (300, 300, 1500), (64, 128, 1024),
                                   (1, 3000, 700), (700, 1, 900), (40, 50, 0)])
def test_a_bias_is_added_to_every_row(m, n, k, dtype):
    rng = np.random.default_rng(12)
    a, b, bias = (rand(rng, s, dtype) for s in ((m, k), (k, n), (2 * n,)))
    for x in (a, np.asfortranarray(a)):
        for y in (b, np.asfortranarray(b)):
            for offset in (bias[:n], bias[::2]):
                check(blas.gemm(x, y, bias=offset), a, b, base=np.broadcast_to(offset, (m, n)).astype(np.float64))
    with pytest.raises(RuntimeError, match="not both"):
        blas.gemm(a, b, out=np.empty((m, n), dtype), bias=bias[:n])


@pytest.mark.parametrize("vector_bytes,registers", [(16, 16), (16, 32), (32, 16)])
@pytest.mark.parametrize("letter,dtype,number", [("s", np.float32, ctypes.c_float), ("d", np.float64, ctypes.c_double)])
def test_tiles_on_registers_of_other_machines(vector_bytes, registers, letter, dtype, number):
    pytest.importorskip("llvmlite")
    from rushlight.backends.cpu import gemm_ir
    from rushlight.compiler import jit
    library = jit.compile_ir(gemm_ir.source(letter, vector_bytes, registers), opt=2, light=True)
    i, p = ctypes.c_int64, ctypes.c_void_p
    tile = library.function(f"rl_{letter}tile", None, i, i, i, p, i, i, p, i, i, p, i, number, number, p)
    rng = np.random.default_rng(13)
    for m, n, k in [(1, 1, 1), (12, 32, 5), (13, 33, 17), (65, 65, 600), (29, 16, 1030), (7, 100, 16)]:
        a, b, bias, c = (rand(rng, s, dtype) for s in ((m, k), (k, n), (n,), (m, n)))
        for x in (a, np.asfortranarray(a)):
            for y in (b, np.asfortranarray(b)):
                for alpha, beta, offset in ((1, 0, None), (2.5, 0, bias), (0.5, -2, bias), (1, 1, None)):
                    out = np.full((m, n), np.nan, dtype) if beta == 0 else c.copy()
                    strides = [max(s, dtype().itemsize) for z in (x, y) for s in z.strides]
                    tile(m, n, k, x.ctypes.data, *strides[:2], y.ctypes.data, *strides[2:], out.ctypes.data, n * out.itemsize,
                         alpha, beta, None if offset is None else offset.ctypes.data)
                    base = (beta * c.astype(np.float64) if beta else 0.0) + (0.0 if offset is None else offset.astype(np.float64))
                    check(out, a, b, base=np.broadcast_to(base, (m, n)), alpha=alpha)
