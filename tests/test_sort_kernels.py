"""The kernels that sort and select, against NumPy's stable argsort: values, places, ties, nans, zeros, any dimension."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import rushlight
from rushlight.backends.cpu import native
from rushlight.backends.cpu import order as kernels

pytestmark = pytest.mark.skipif(not native.available(), reason="the kernels need llvmlite")

BF16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.dtype(t) for t in (np.float16, np.float32, np.float64)] + [BF16]
INTEGERS = [np.dtype(k + s) for k in "iu" for s in "1248"] + [np.dtype(bool)]
DTYPES = FLOATS + INTEGERS
SHAPES = [(1,), (5,), (64,), (65,), (700,), (3, 7), (7, 65), (130, 3), (2, 100, 3), (0, 4), (4, 0), (300, 70), (2, 9, 130), (3, 5, 64)]
SPECIAL = (np.nan, -np.nan, 0.0, -0.0, np.inf, -np.inf)


@pytest.fixture(autouse=True)
def _for_any_size(monkeypatch):
    monkeypatch.setattr(kernels, "_SMALL", 0)


def made(dtype, shape, seed=0):
    """Few distinct values, so many ties, and everything special; for odd seeds, the whole range."""
    rng = np.random.default_rng(seed)
    if dtype.kind in "fV":
        x = rng.standard_normal(shape).astype(np.float32) * 4
        x = (x if seed % 2 else np.round(x)).astype(dtype)
        for v in SPECIAL:
            x[rng.random(shape) < 0.05] = dtype.type(v)
        return x
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True) if seed % 2 else rng.integers(0, 5, shape).astype(dtype)


def by_numpy(x, dim, descending=False):
    """The stable order along `dim`."""
    k = x.astype(np.float32) if x.dtype == BF16 else x
    if not descending:
        return np.argsort(k, dim, kind="stable")
    return x.shape[dim] - 1 - np.flip(np.argsort(np.flip(k, dim), dim, kind="stable"), dim)


def agree(got, x, places, dim):
    values, indices = got
    want = np.take_along_axis(x, places, dim)
    assert indices.dtype == np.int64 and values.dtype == x.dtype
    np.testing.assert_array_equal(indices, places)
    assert values.shape == want.shape and values.tobytes() == np.ascontiguousarray(want).tobytes()       # nan's bits and -0.0 too
    assert values.flags.c_contiguous and indices.flags.c_contiguous


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("seed", [0, 1])
def test_sort_is_the_stable_order(dtype, seed):
    for shape in SHAPES:
        x = made(dtype, shape, seed)
        for dim in range(x.ndim):
            for descending in (False, True):
                agree(kernels.sort(x, dim, descending), x, by_numpy(x, dim, descending), dim)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_first_few(dtype, seed):
    for shape in SHAPES:
        x = made(dtype, shape, seed)
        for dim in range(x.ndim):
            n = x.shape[dim]
            for largest in (False, True):
                order = by_numpy(x, dim, largest)
                for k in {0, min(1, n), min(5, n), min(kernels.FEW, n // 4), n // 2, n}:
                    agree(kernels.first(x, dim, largest, k), x, np.take(order, range(k), dim), dim)


@pytest.mark.parametrize("direction", ["rising", "falling", "equal"])
def test_the_first_few_of_ordered_rows(direction):
    x = np.arange(1000, dtype=np.float32)
    x = {"rising": x, "falling": x[::-1].copy(), "equal": x * 0 + 3}[direction]
    for largest in (False, True):
        agree(kernels.first(x, 0, largest, 7), x, by_numpy(x, 0, largest)[:7], 0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("seed", [0, 1])
def test_one_place(dtype, seed):
    for shape in SHAPES:
        x = made(dtype, shape, seed)
        for dim in range(x.ndim):
            n = x.shape[dim]
            for place in {0, n // 2, n - 1} if n else ():
                order = by_numpy(x, dim)
                agree(kernels.pick(x, dim, place), x, np.take(order, [place], dim), dim)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_medians(dtype):
    for shape in ((1,), (6,), (7,), (40, 9), (9, 90), (3, 300)):
        for seed in range(4):
            x = made(dtype, shape, seed)
            if seed == 3 and dtype.kind in "fV":
                x[...] = np.nan
            for dim in range(x.ndim):
                order, n = by_numpy(x, dim), x.shape[dim]
                nans = np.isnan(x.astype(np.float64)).sum(dim, keepdims=True)
                good = n - nans
                agree(kernels.pick(x, dim, 0, 1), x, np.take_along_axis(order, np.where(nans, good, (n - 1) // 2), dim), dim)
                skipping = np.where(good, (good - 1) // 2, 0)
                agree(kernels.pick(x, dim, 0, 2), x, np.take_along_axis(order, skipping, dim), dim)


@pytest.mark.parametrize("dtype", [t for t in DTYPES if t != BF16], ids=str)
@pytest.mark.parametrize("shape", [(40, 300), (3, 20, 260), (1, 257), (30, 256)], ids=str)
def test_extremes_where_nan_wins(dtype, shape):
    for seed in (0, 1):
        x = made(dtype, shape, seed)
        for dim in range(x.ndim):
            agree(kernels.first(x, dim, True, 1, False), x, np.argmax(x, dim, keepdims=True), dim)
            agree(kernels.first(x, dim, False, 1, True), x, np.argmin(x, dim, keepdims=True), dim)
            t = rushlight.from_numpy(x)
            if dtype.kind != "b" and dtype.itemsize > 2:
                np.testing.assert_array_equal(t.argmax(dim).numpy(), np.argmax(x, dim))
                np.testing.assert_array_equal(t.min(dim).indices.numpy(), np.argmin(x, dim))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(9,), (5, 40), (70, 90), (4, 30, 3)], ids=str)
def test_the_most_frequent(dtype, shape):
    for seed in (0, 1):
        x = made(dtype, shape, seed)
        for dim in range(x.ndim):
            v, i = kernels.mode(x, dim)
            rows, places = np.moveaxis(x, dim, -1).reshape(-1, x.shape[dim]), np.moveaxis(i, dim, -1).reshape(-1)
            for row, place in zip(rows.astype(np.float32) if dtype == BF16 else rows, places, strict=True):
                values, counts = np.unique(row, return_counts=True, equal_nan=False)
                want = values[np.argmax(counts)]           # the smallest of the most frequent
                last = np.flatnonzero(row == want)
                assert place == (last[-1] if len(last) else np.flatnonzero(np.isnan(row))[0])
            agree((v, i), x, i, dim)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_unique(dtype):
    x = made(dtype, (7, 90), 0)
    v, i, c = rushlight.unique(rushlight.from_numpy(x.astype(np.float32)).to(rushlight.bfloat16) if dtype == BF16 else rushlight.from_numpy(x),
                               return_inverse=True, return_counts=True)
    v = v.float().numpy() if dtype == BF16 else v.numpy()
    wide = x.astype(np.float32) if dtype == BF16 else x
    want, inverse, counts = np.unique(wide, return_inverse=True, return_counts=True, equal_nan=False)
    np.testing.assert_array_equal(v, want)
    np.testing.assert_array_equal(c.numpy(), counts)
    there = np.isnan(wide) if dtype.kind in "fV" else np.zeros(x.shape, bool)
    np.testing.assert_array_equal(i.numpy()[~there], inverse.reshape(x.shape)[~there])
    assert sorted(i.numpy()[there].tolist()) == list(range(len(want) - there.sum(), len(want)))       # each nan has a place
    assert i.shape == x.shape


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32], ids=str)
def test_turned_and_strided_inputs(dtype):
    base = made(np.dtype(dtype), (60, 80), 1)
    for x in (base.T, base[::2, 1::3], base[::-1], np.broadcast_to(base[:, :1], base.shape)):
        for dim in (0, 1):
            agree(kernels.sort(x, dim, False), x, by_numpy(x, dim), dim)
            agree(kernels.first(x, dim, True, 3), x, np.take(by_numpy(x, dim, True), range(3), dim), dim)
            agree(kernels.pick(x, dim, 5), x, np.take(by_numpy(x, dim), [5], dim), dim)


@pytest.mark.parametrize("call", [
    lambda x: x.sort(), lambda x: x.sort(0, descending=True), lambda x: x.topk(5), lambda x: x.topk(50, 0), lambda x: x.median(1),
    lambda x: x.kthvalue(20, 0), lambda x: x.max(1), lambda x: x.max(0), lambda x: x.min(0), lambda x: x.view(-1).sort()])
def test_bits_do_not_depend_on_threads(call):
    x = rushlight.from_numpy(made(np.dtype(np.float32), (300, 400), 1))
    before = rushlight.get_num_threads()
    try:
        results = []
        for n in (1, 2):
            rushlight.set_num_threads(n)
            results.append([r.numpy().tobytes() for r in call(x)])
    finally:
        rushlight.set_num_threads(before)
    assert results[0] == results[1]


def test_results_without_kernels_are_equal(monkeypatch):
    x = rushlight.from_numpy(made(np.dtype(np.float32), (40, 90), 0))
    calls = [lambda: x.sort(), lambda: x.sort(0, True), lambda: x.topk(3), lambda: x.topk(30, 0, largest=False), lambda: x.kthvalue(7),
             lambda: x.median(0), lambda: x.nanmedian(1, True), lambda: (x.median(), x.nanmedian()), lambda: x.argsort(0),
             lambda: x.max(1), lambda: x.max(0), lambda: x.min(1), lambda: x.min(0, True), lambda: x.to(rushlight.bfloat16).float().sort(),
             lambda: (x.argmax(0), x.argmin(0)), lambda: x.unique(return_inverse=True, return_counts=True), lambda: x.long().mode(1),
             lambda: x.mode(0), lambda: x.mode(1, True)]

    def bits():
        return [[(tuple(r.shape), r.stride(), r.numpy().tobytes()) for r in (t if isinstance(t, tuple) else (t,))] for t in (c() for c in calls)]
    native_bits = bits()
    monkeypatch.setattr(kernels, "_CODE", {})
    monkeypatch.setattr(kernels.native, "available", lambda: False)       # as without llvmlite
    monkeypatch.setattr(kernels.native, "vector_bytes", lambda: pytest.fail("there are no vectors to ask about"))
    assert bits() == native_bits


def test_rows_without_elements_and_tensors_without_dimensions():
    assert [tuple(r.shape) for r in rushlight.zeros(3, 0).sort()] == [(3, 0)] * 2
    assert [tuple(r.shape) for r in rushlight.zeros(0, 3).topk(2)] == [(0, 2)] * 2
    assert [tuple(r.shape) for r in rushlight.zeros(3, 4).topk(0)] == [(3, 0)] * 2
    v, i = rushlight.tensor(2.5).sort()
    assert (v.item(), i.item(), tuple(v.shape)) == (2.5, 0, ())
    assert [r.item() for r in rushlight.tensor(2.5).topk(1)] == [2.5, 0]


def test_limits_are_the_kernels():
    from rushlight.backends.cpu import order_kernels as made_with
    assert (kernels.FEW, kernels._BLOCK, kernels._SHORT) == (made_with.FEW, made_with.BLOCK, made_with.SHORT)


def test_float8_orders_as_float32():
    x = rushlight.tensor([1.5, -2.0, 0.5, -2.0]).to(rushlight.float8_e4m3fn)
    v, i = x.sort()
    assert i.tolist() == [1, 3, 2, 0] and v.float().tolist() == [-2.0, -2.0, 0.5, 1.5]


def test_rows_of_64_bit_numbers_that_doubles_cannot_tell_apart():
    x = np.array([2**62 + 1, 2**62, 2**62 + 3, 2**62 + 2] * 40, np.int64)
    agree(kernels.sort(x, 0, False), x, by_numpy(x, 0), 0)
    agree(kernels.first(x, 0, True, 3), x, by_numpy(x, 0, True)[:3], 0)
    agree(kernels.pick(x, 0, 100), x, by_numpy(x, 0)[100:101], 0)
