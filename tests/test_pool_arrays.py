"""Pooling and batch-norm array functions against plain Python readings of their definitions."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from rushlight.backends.cpu import native, norm, pool, threads

RNG = np.random.default_rng


def sizes(spatial, kernel, stride, padding, dilation, ceil_mode):
    out = []
    for i, k, s, p, d in zip(spatial, kernel, stride, padding, dilation, strict=True):
        span = i + 2 * p - d * (k - 1) - 1
        o = (math.ceil(span / s) if ceil_mode else span // s) + 1
        if ceil_mode and (o - 1) * s >= i + p:
            o -= 1
        out.append(o)
    return tuple(out)


def elements(at, spatial, kernel, stride, padding, dilation):
    """Positions inside the input of the window at `at`, row-major."""
    axes = [[o * s - p + t * d for t in range(k)] for o, k, s, p, d in
            zip(at, kernel, stride, padding, dilation, strict=True)]
    return [q for q in itertools.product(*axes) if all(0 <= v < i for v, i in zip(q, spatial, strict=True))]


def max_pool(x, kernel, stride, padding, dilation, ceil_mode):
    r = len(kernel)
    spatial, out = x.shape[-r:], sizes(x.shape[-r:], kernel, stride, padding, dilation, ceil_mode)
    planes = x.reshape(-1, *spatial)
    y, index = np.empty((len(planes), *out), x.dtype), np.empty((len(planes), *out), np.int64)
    for n, plane in enumerate(planes):
        for at in itertools.product(*map(range, out)):
            best, where = None, -1
            for q in elements(at, spatial, kernel, stride, padding, dilation):
                if best is None or plane[q] > best or plane[q] != plane[q]:
                    best, where = plane[q], int(np.ravel_multi_index(q, spatial))
            y[(n, *at)], index[(n, *at)] = best, where
    return y.reshape(*x.shape[:-r], *out), index.reshape(*x.shape[:-r], *out)


def avg_weights(spatial, kernel, stride, padding, ceil_mode, include, override):
    """(output, input) matrix of the linear map."""
    ones = (1,) * len(kernel)
    out = sizes(spatial, kernel, stride, padding, ones, ceil_mode)
    m = np.zeros((*out, *spatial))
    for at in itertools.product(*map(range, out)):
        inside = elements(at, spatial, kernel, stride, padding, ones)
        padded = math.prod(min(o * s - p + k, i + p) - (o * s - p) for o, k, s, p, i in
                           zip(at, kernel, stride, padding, spatial, strict=True))
        for q in inside:
            m[(*at, *q)] = 1 / (override or (padded if include else len(inside)))
    return m


POOLS = [   # spatial, kernel, stride, padding, dilation, ceil_mode
    ((8, 8), (2, 2), (2, 2), (0, 0), (1, 1), False),
    ((24, 24), (2, 2), (2, 2), (0, 0), (1, 1), False),
    ((19, 37), (3, 3), (2, 2), (1, 1), (1, 1), True),
    ((7, 20), (3, 3), (1, 1), (1, 1), (1, 1), False),
    ((11, 40), (3, 2), (3, 5), (1, 0), (1, 1), True),
    ((9, 21), (2, 3), (1, 2), (1, 1), (2, 3), False),
    ((50,), (4,), (2,), (2,), (1,), True),
    ((33,), (3,), (1,), (1,), (2,), False),
    ((5, 6, 7), (2, 2, 2), (2, 2, 2), (0, 0, 0), (1, 1, 1), False),
    ((5, 6, 7), (3, 2, 3), (2, 1, 3), (1, 1, 0), (1, 2, 1), True),
]


def data(shape, dtype, kind):
    rng = RNG(2)
    x = rng.integers(-3, 4, shape).astype(dtype)          # many ties
    if kind == "nan":
        x[rng.random(shape) < 0.1] = np.nan
    if kind == "-inf":
        x[rng.random(shape) < 0.7] = -np.inf
    return x


@pytest.mark.parametrize("kind", ["ties", "nan", "-inf"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("case", POOLS, ids=str)
def test_max_pool(case, dtype, kind):
    spatial, kernel, stride, padding, dilation, ceil_mode = case
    x = data((2, 3, *spatial), dtype, kind)
    y, index = pool.max_pool(x, kernel, stride, padding, dilation, ceil_mode)
    want, where = max_pool(x, kernel, stride, padding, dilation, ceil_mode)
    assert y.dtype == dtype and index.dtype == np.int64
    np.testing.assert_array_equal(y, want)
    np.testing.assert_array_equal(index, where)
    alone, none = pool.max_pool(x, kernel, stride, padding, dilation, ceil_mode, indices=False)
    assert none is None
    np.testing.assert_array_equal(alone, want)
    gy = RNG(3).integers(-4, 5, y.shape).astype(dtype)
    gx = pool.max_pool_backward(gy, index, x.shape, len(kernel))
    expected = np.zeros((6, math.prod(spatial)))
    for n, (i, g) in enumerate(zip(where.reshape(6, -1), gy.reshape(6, -1), strict=True)):
        for a, b in zip(i, g, strict=True):
            expected[n, a] += b
    assert gx.dtype == dtype
    np.testing.assert_array_equal(gx, expected.reshape(x.shape))


@pytest.mark.parametrize("include,override", [(True, None), (False, None), (True, 5), (False, -2)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", [c for c in POOLS if set(c[4]) == {1}], ids=str)
def test_avg_pool(case, dtype, include, override):
    spatial, kernel, stride, padding, _, ceil_mode = case
    r = len(kernel)
    x = RNG(4).standard_normal((2, 3, *spatial)).astype(dtype)
    m = avg_weights(spatial, kernel, stride, padding, ceil_mode, include, override)
    y = pool.avg_pool(x, kernel, stride, padding, ceil_mode, include, override)
    tol = 1e-5 if dtype == np.float32 else 1e-12
    assert y.dtype == dtype
    np.testing.assert_allclose(y, np.tensordot(x, m, (range(2, 2 + r), range(r, 2 * r))), atol=tol)
    gy = RNG(5).standard_normal(y.shape).astype(dtype)
    gx = pool.avg_pool_backward(gy, x.shape, kernel, stride, padding, ceil_mode, include, override)
    assert gx.dtype == dtype
    np.testing.assert_allclose(gx, np.tensordot(gy, m, (range(2, 2 + r), range(r))), atol=tol)


@pytest.mark.parametrize("spatial,out", [
    ((8, 8), (1, 1)), ((8, 6), (4, 3)), ((7, 5), (3, 4)), ((3, 5), (5, 7)), ((9,), (4,)), ((50,), (1,)),
    ((4, 5, 6), (3, 2, 4)), ((4, 6, 6), (2, 3, 1)), ((5, 6), (None, 2))])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_adaptive(spatial, out, dtype):
    r = len(out)
    full = tuple(i if o is None else o for i, o in zip(spatial, out, strict=True))
    x = RNG(6).standard_normal((2, 3, *spatial)).astype(dtype)
    mean, best, where = np.empty((2, 3, *full)), np.empty((2, 3, *full), dtype), np.empty((2, 3, *full), np.int64)
    m = np.zeros((*full, *spatial))
    position = np.arange(math.prod(spatial)).reshape(spatial)
    for at in itertools.product(*map(range, full)):
        w = tuple(slice(math.floor(a * i / o), math.ceil((a + 1) * i / o)) for a, i, o in
                  zip(at, spatial, full, strict=True))
        flat = x[(..., *w)].reshape(2, 3, -1)
        mean[(..., *at)] = flat.astype(np.float64).mean(-1)
        best[(..., *at)] = flat.max(-1)
        where[(..., *at)] = position[w].reshape(-1)[flat.argmax(-1)]
        m[(*at, *w)] = 1 / flat.shape[-1]
    y = pool.adaptive_avg_pool(x, out)
    tol = 1e-5 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(y, mean, atol=tol)
    values, index = pool.adaptive_max_pool(x, out)
    np.testing.assert_array_equal(values, best)
    np.testing.assert_array_equal(index, where)
    gy = RNG(7).standard_normal(y.shape).astype(dtype)
    gx = pool.adaptive_avg_pool_backward(gy, x.shape, r)
    np.testing.assert_allclose(gx, np.tensordot(gy, m, (range(2, 2 + r), range(r))), atol=tol)
    assert y.dtype == gx.dtype == dtype


def test_adaptive_max_takes_the_last_nan():
    x = np.array([[1.0, np.nan, 3.0, np.nan, 2.0]])
    values, index = pool.adaptive_max_pool(x, (2,))
    assert np.isnan(values).all() and index.tolist() == [[1, 3]]


def test_other_layouts_and_dtypes():
    x = RNG(8).standard_normal((2, 9, 8, 3)).transpose(0, 3, 1, 2)[:, :, ::-1]
    y, index = pool.max_pool(x, (3, 3), 2, 1)
    want, where = max_pool(x, (3, 3), (2, 2), (1, 1), (1, 1), False)
    np.testing.assert_array_equal(y, want)
    np.testing.assert_array_equal(index, where)
    np.testing.assert_allclose(pool.avg_pool(x, (3, 3), 2, 1), pool.avg_pool(x.copy(), (3, 3), 2, 1), rtol=1e-12)
    ints = RNG(9).integers(-100, 100, (3, 7, 7))
    y, index = pool.max_pool(ints, (2, 2))
    want, where = max_pool(ints, (2, 2), (2, 2), (0, 0), (1, 1), False)
    np.testing.assert_array_equal(y, want)
    np.testing.assert_array_equal(index, where)
    half = np.full((1, 64, 64), 1000, np.float16)
    assert pool.avg_pool(half, (64, 64)).tolist() == [[[1000.0]]]         # the sum would overflow
    assert pool.adaptive_avg_pool(half, (1, 1)).tolist() == [[[1000.0]]]


def test_zero_batch():
    x = np.empty((0, 3, 8, 8), np.float32)
    y, index = pool.max_pool(x, (2, 2))
    assert y.shape == index.shape == (0, 3, 4, 4)
    assert pool.max_pool_backward(y, index, x.shape, 2).shape == x.shape
    assert pool.avg_pool(x, (2, 2)).shape == (0, 3, 4, 4)
    assert pool.avg_pool_backward(y, x.shape, (2, 2)).shape == x.shape
    assert pool.adaptive_avg_pool(x, (1, 1)).shape == (0, 3, 1, 1)
    assert pool.adaptive_max_pool(x, (3, 3))[0].shape == (0, 3, 3, 3)


def test_numpy_path(monkeypatch):
    monkeypatch.setattr(native, "available", lambda: False)
    for case in POOLS[::2]:
        test_max_pool(case, np.float32, "nan")
        if set(case[4]) == {1}:
            test_avg_pool(case, np.float64, False, None)
    for shape in SHAPES:
        test_batch_norm(shape, np.float64)


@pytest.mark.parametrize("call,message", [
    (lambda x: pool.max_pool(x, (2, 2), padding=2),
     "pad should be at most half of effective kernel size, but got pad=2, kernel_size=2 and dilation=1"),
    (lambda x: pool.max_pool(x, (2, 2), stride=0), "stride should not be zero"),
    (lambda x: pool.max_pool(x, (9, 9)),
     r"Given input size: \(3x8x8\). Calculated output size: \(3x0x0\). Output size is too small"),
    (lambda x: pool.max_pool(x, (2, 2), dilation=0), "dilation should be greater than zero"),
    (lambda x: pool.avg_pool(x, (2, 2), padding=-1), "pad must be non-negative"),
    (lambda x: pool.avg_pool(x, (2, 2), divisor_override=0), "divisor must be not zero"),
    (lambda x: pool.avg_pool(x, (3, 9, 3), padding=(0, 4, 0)), "smaller than kernel size"),
    (lambda x: pool.max_pool(x, (2, 2), stride=(1, 2, 3)), "have 2 values"),
    (lambda x: pool.adaptive_avg_pool(x, (-1, 2)), "greater than or equal to 0"),
    (lambda x: pool.adaptive_avg_pool(x[:, :, :0], (2, 2)), "non-zero size for non-batch dimensions"),
    (lambda x: pool.max_pool_backward(np.ones((1, 3, 1, 1)), np.full((1, 3, 1, 1), 64), x.shape, 2), r"in \[0, 64\)"),
    (lambda x: pool.max_pool_backward(np.ones((1, 3, 1, 1)), np.full((1, 3, 1, 1), -1), x.shape, 2), r"in \[0, 64\)"),
])
def test_errors(call, message):
    with pytest.raises(RuntimeError, match=message):
        call(np.zeros((1, 3, 8, 8)))


# ---------------------------------------------------------------- batch norm
SHAPES = [(4, 3), (33, 70), (5, 7, 9), (5, 7, 3), (2, 3, 8, 8), (3, 4, 5, 33), (2, 2, 50, 50), (2, 3, 4, 5, 6),
          (1, 3, 8)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_batch_norm(shape, dtype):
    rng = RNG(10)
    c, axes, spread = shape[1], (0, *range(2, len(shape))), (1, -1, *[1] * (len(shape) - 2))
    x = (rng.standard_normal(shape) * 3 + 10).astype(dtype)
    w, b = rng.standard_normal(c).astype(dtype), rng.standard_normal(c).astype(dtype)
    gy = rng.standard_normal(shape).astype(dtype)
    tol = dict(rtol=2e-5, atol=2e-5) if dtype == np.float32 else dict(rtol=1e-10, atol=1e-10)
    x64, gy64, w64 = x.astype(np.float64), gy.astype(np.float64), w.astype(np.float64).reshape(spread)
    count, eps = x.size // c, 1e-3
    mean, var = x64.mean(axes), x64.var(axes)
    invstd = 1 / np.sqrt(var + eps)
    xhat = (x64 - mean.reshape(spread)) * invstd.reshape(spread)

    y, m, i, unbiased = norm.batch_norm_train(x, w, b, eps)
    assert y.dtype == m.dtype == i.dtype == unbiased.dtype == dtype
    np.testing.assert_allclose(y, xhat * w64 + b.reshape(spread), **tol)
    np.testing.assert_allclose(m, mean, **tol)
    np.testing.assert_allclose(i, invstd, **tol)
    np.testing.assert_allclose(unbiased, x64.var(axes, ddof=1), **tol)
    np.testing.assert_allclose(norm.batch_norm_train(x, None, None, eps)[0], xhat, **tol)

    gx, gw, gb = norm.batch_norm_backward(gy, x, w, m, i, True)
    g = gy64 * w64
    want = (g - g.mean(axes, keepdims=True) - xhat * (g * xhat).mean(axes, keepdims=True)) * invstd.reshape(spread)
    np.testing.assert_allclose(gx, want, **tol)
    big = dict(tol, atol=tol["atol"] * math.sqrt(count))
    np.testing.assert_allclose(gw, (gy64 * xhat).sum(axes), **big)
    np.testing.assert_allclose(gb, gy64.sum(axes), **big)
    np.testing.assert_allclose(norm.channel_sum(gy), gy64.sum(axes), **big)

    rm, rv = rng.standard_normal(c).astype(dtype), rng.random(c).astype(dtype)
    inv = 1 / np.sqrt(rv.astype(np.float64) + eps)
    e = norm.batch_norm_eval(x, rm, rv, w, b, eps)
    fixed = (x64 - rm.reshape(spread)) * inv.reshape(spread)
    np.testing.assert_allclose(e, fixed * w64 + b.reshape(spread), rtol=2e-5 if dtype == np.float32 else 1e-10,
                               atol=3e-4 if dtype == np.float32 else 1e-10)
    gx, gw, gb = norm.batch_norm_backward(gy, x, None, rm, inv.astype(dtype), False, (True, False, True))
    assert gw is None
    np.testing.assert_allclose(gx, gy64 * inv.reshape(spread), **tol)
    np.testing.assert_allclose(gb, gy64.sum(axes), **big)


def test_variance_far_from_zero():
    """No cancellation: the values differ in their last bits only."""
    x = (np.float32(1e6) + RNG(11).integers(0, 4, (8, 2, 64))).astype(np.float32)
    _, mean, invstd, unbiased = norm.batch_norm_train(x, None, None, 0.0)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(unbiased, exact.var((0, 2), ddof=1), rtol=1e-6)
    np.testing.assert_allclose(invstd, 1 / exact.std((0, 2)), rtol=1e-6)


def test_batch_norm_of_half_and_empty():
    x = RNG(12).standard_normal((4, 3, 16)).astype(np.float16)
    y, mean, _, _ = norm.batch_norm_train(x, np.ones(3, np.float32), np.zeros(3, np.float32), 1e-5)
    assert y.dtype == np.float16 and mean.dtype == np.float32
    np.testing.assert_allclose(mean, x.astype(np.float64).mean((0, 2)), atol=1e-6)
    assert norm.batch_norm_train(np.empty((0, 3, 4), np.float32), None, None, 1e-5)[0].shape == (0, 3, 4)
    assert not norm.channel_sum(np.empty((0, 3, 4), np.float32)).any()


def test_equal_bits_whatever_the_threads():
    rng = RNG(13)
    x, gy = (rng.standard_normal((16, 24, 30, 30)).astype(np.float32) for _ in range(2))
    w = rng.standard_normal(24).astype(np.float32)
    before, results = threads.num_threads(), []
    try:
        for count in (1, 2, 3):
            threads.set_num_threads(count)
            y, m, i, u = norm.batch_norm_train(x, w, w, 1e-5)
            p, index = pool.max_pool(x, (3, 3), 2, 1)
            results.append((y, m, i, u, *norm.batch_norm_backward(gy, x, w, m, i, True), p, index,
                            pool.max_pool_backward(p, index, x.shape, 2), pool.avg_pool(x, (2, 2))))
    finally:
        threads.set_num_threads(before)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert a.tobytes() == b.tobytes()
