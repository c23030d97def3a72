"""The kernels of gather, scatter, index_select and running sums against NumPy, and against the ways through NumPy."""

import numpy as np
import pytest

import rushlight as rl
from rushlight.backends.cpu import indexed, native, scans

DTYPES = ("float32", "float64", "int64", "int32", "int16", "int8", "uint8", "bool", "float16", "complex64", "complex128")
SHAPES = ((17,), (5, 33), (4, 3, 70), (3, 2, 4, 5), (1, 9, 1))


@pytest.fixture(params=["kernel", "numpy"])
def way(request, monkeypatch):
    """Every call through a kernel (where there is one), or every call through NumPy."""
    monkeypatch.setattr(indexed, "_plans", {})
    monkeypatch.setattr(indexed, "WORTH", 0 if request.param == "kernel" else 1 << 60)
    return request.param


@pytest.fixture
def kernels(monkeypatch):
    monkeypatch.setattr(indexed, "_plans", {})
    monkeypatch.setattr(indexed, "WORTH", 0)


@pytest.fixture
def threads():
    before = rl.get_num_threads()
    yield rl.set_num_threads
    rl.set_num_threads(before)


def values(shape, dtype="float64", seed=0):
    r = np.random.default_rng(seed)
    if dtype == "bool":
        return r.random(shape) > 0.5
    if dtype.startswith("c"):
        return (r.standard_normal(shape) + 1j * r.standard_normal(shape)).astype(dtype)
    return (r.standard_normal(shape) * 20).astype(np.int64).astype(dtype) if "f" not in dtype else r.standard_normal(shape).astype(dtype)


def indices(shape, high, dtype="int64", seed=1):
    return np.random.default_rng(seed).integers(0, high, shape).astype(dtype)


def places(index, d):
    at = list(np.indices(index.shape, sparse=True))
    at[d] = index
    return tuple(at)


def used(kind):
    """Whether a plan of this kind exists."""
    return any(p and (k[0] == kind if isinstance(k[0], str) else kind == "take") for k, p in indexed._plans.items())


def test_kernels_are_used(kernels):
    x, i = rl.from_numpy(values((8, 8), "float32")), rl.from_numpy(indices((8, 8), 8))
    x.gather(1, i), x.scatter(1, i, x), x.scatter_add(1, i, x), x.cumsum(0), x.cummax(1), x.logcumsumexp(0)
    for kind in ("take", "put", "add", "max", "logsum"):
        assert used(kind) == native.available(), kind


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_gather(way, shape, dtype):
    a = values(shape, dtype)
    for d in range(len(shape)):
        for kind in ("int64", "int32"):
            smaller = tuple(n if k == d else max(n - 1, 1) for k, n in enumerate(shape))
            for size in (shape, smaller, tuple(3 if k == d else n for k, n in enumerate(shape))):
                i = indices(size, shape[d], kind)
                cut = a[tuple(slice(None) if k == d else slice(0, n) for k, n in enumerate(size))]
                for dim in (d, d - len(shape)):
                    r = rl.from_numpy(a).gather(dim, rl.from_numpy(i))
                    assert r.is_contiguous() and r.numpy().dtype == a.dtype
                    assert np.array_equal(r.numpy(), np.take_along_axis(cut, i, d))


def test_gather_of_views(way):
    a, i = values((6, 7, 8)), indices((6, 7, 8), 6)
    for view in (lambda x: x, lambda x: x.transpose(2, 1, 0), lambda x: x.transpose(1, 0, 2), lambda x: x[::2, 1:, ::3]):
        x, k = view(a), view(i)
        for d in range(3):
            k2 = k % x.shape[d]
            assert np.array_equal(rl.from_numpy(x).gather(d, rl.from_numpy(k2)).numpy(), np.take_along_axis(x, k2, d))
            k3 = view(np.ascontiguousarray(i) % x.shape[d])
            r = rl.from_numpy(x).gather(d, rl.from_numpy(k3))
            assert np.array_equal(r.numpy(), np.take_along_axis(x, k3, d)) and r.is_contiguous()


def test_expanded_operands(way):
    a, i = values((4, 5), "float32"), indices((4, 1), 5)
    x, k = rl.from_numpy(a), rl.from_numpy(i)
    assert np.array_equal(x.gather(1, k.expand(4, 6)).numpy(), np.take_along_axis(a, np.broadcast_to(i, (4, 6)), 1))
    row = rl.from_numpy(a[:1]).expand(4, 5)
    assert np.array_equal(row.gather(1, k).numpy(), np.take_along_axis(np.broadcast_to(a[:1], (4, 5)), i, 1))
    e, wide = np.zeros((4, 40)), values((4, 40))
    np.add.at(e, places(np.broadcast_to(i % 4, (4, 40)), 0), wide)
    r = rl.zeros(4, 40, dtype=rl.float64).scatter_add_(0, (k % 4).expand(4, 40), rl.from_numpy(wide))
    assert np.array_equal(r.numpy(), e)


def test_empty_and_0_dim(way):
    for _ in range(2):
        assert rl.zeros(3, 4).gather(0, rl.zeros(0, 4, dtype=rl.int64)).shape == (0, 4)
        assert rl.tensor(2.0).gather(0, rl.tensor(0)).shape == () and rl.tensor(2.0).gather(0, rl.tensor([0, 0])).tolist() == [2.0, 2.0]
        assert rl.zeros(3, 0).index_select(0, rl.tensor([1, 1])).shape == (2, 0)
        assert rl.zeros(3, 4).index_select(1, rl.tensor([], dtype=rl.int64)).shape == (3, 0)
        assert rl.arange(3).index_select(0, rl.tensor(2)).tolist() == [2]
        assert rl.zeros(0, 3).cumsum(0).shape == (0, 3) and rl.tensor(3.0).cumsum(0).item() == 3.0
        assert rl.zeros(0, 3).cummax(0)[1].shape == (0, 3) and rl.tensor(3.0).cummax(0)[1].item() == 0
        assert rl.ones(2, 3).scatter_add_(0, rl.zeros(0, 3, dtype=rl.int64), rl.ones(0, 3)).sum().item() == 6
        assert rl.nn.functional.embedding(rl.tensor(1), rl.arange(6.0).reshape(3, 2)).tolist() == [2.0, 3.0]
        assert rl.tensor(1.0).scatter(0, rl.tensor(0), rl.tensor(5.0)).item() == 5.0
    for bad in (lambda: rl.zeros(0, 3).gather(0, rl.zeros(1, 3, dtype=rl.int64)), lambda: rl.tensor(2.0).gather(0, rl.tensor(1))):
        with pytest.raises(RuntimeError, match="out of bounds"):
            bad()


@pytest.mark.parametrize("bad", [-1, 9, 1 << 40, -(1 << 62)])
@pytest.mark.parametrize("large", [False, True])
def test_out_of_range(way, bad, large):
    n = 300 if large else 5
    a = values((n, 9))
    i = indices((n, 9), 9)
    i[n - 1, 3] = bad
    x, k = rl.from_numpy(a), rl.from_numpy(i)
    kept = x.clone()
    with pytest.raises(RuntimeError, match="index .* is out of bounds for dimension 1 with size 9"):
        x.gather(1, k)
    for write in (lambda: x.scatter_(1, k, x.clone()), lambda: x.scatter_(1, k, 2.0), lambda: x.scatter_add_(1, k, x.clone()),
                  lambda: x.scatter_reduce_(1, k, x.clone(), "amax"), lambda: x.scatter_(1, k.t().contiguous().t(), 1.0)):
        before = x._version
        with pytest.raises(RuntimeError, match="index .* is out of bounds for dimension 1 with size 9"):
            write()
        assert rl.equal(x, kept) and x._version == before                      # nothing was written
    v = rl.from_numpy(i[n - 1])
    for select in (lambda: x.index_select(1, v), lambda: x.index_add_(1, v, x.clone()), lambda: x.index_copy_(1, v, x.clone()),
                   lambda: x.index_fill_(1, v, 0.5)):
        with pytest.raises(IndexError, match="index .* is out of bounds for dimension 1 with size 9"):
            select()
        assert rl.equal(x, kept)
    with pytest.raises(IndexError, match="index out of range in self"):
        rl.nn.functional.embedding(v, x[:9])


@pytest.mark.parametrize("call", ["gather", "index_select"])
def test_refused_after_a_plan_was_made(kernels, call):
    x, i = rl.zeros(4, 4), rl.zeros(4, 4, dtype=rl.int64)
    i = i if call == "gather" else i[0]
    for _ in range(2):
        getattr(x, call)(1, i)
        with pytest.raises(RuntimeError, match="Expected dtype int32/int64"):
            getattr(x, call)(1, i.double())
        with pytest.raises(IndexError, match="[Dd]imension out of range"):
            getattr(x, call)(2, i)
        with pytest.raises(RuntimeError if call == "gather" else IndexError):
            getattr(x, call)(1, i[None])
    with pytest.raises(RuntimeError, match="Size does not match at dimension 0"):
        x.gather(1, rl.zeros(5, 4, dtype=rl.int64))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_scatter(way, shape, dtype):
    a, b = values(shape, dtype), values(shape, dtype, 7)
    for d in range(len(shape)):
        i = indices(shape, shape[d])
        x, k, s = rl.from_numpy(a), rl.from_numpy(i), rl.from_numpy(b)
        e = a.copy()
        np.put_along_axis(e, i, b, d)                                          # of equal places the last
        assert np.array_equal(x.scatter(d, k, s).numpy(), e)
        e = a.copy()
        np.put_along_axis(e, i, np.ones((), dtype), d)
        assert np.array_equal(x.clone().scatter_(d, k, 1).numpy(), e)
        if dtype in ("float16", "bool"):
            continue
        e = a.copy()
        np.add.at(e, places(i, d), b)                                          # duplicates in the order of the index
        assert np.array_equal(x.scatter_add(d, k, s).numpy(), e)
        if dtype.startswith("c"):
            continue
        for name, ufunc in (("prod", np.multiply), ("amax", np.maximum), ("amin", np.minimum)):
            e = a.copy()
            ufunc.at(e, places(i, d), b)
            assert np.array_equal(x.scatter_reduce(d, k, s, name).numpy(), e)


def test_scatter_into_views_and_with_larger_src(way):
    b, i = values((9, 8)), indices((4, 5), 6)
    for start in (np.zeros((7, 6)), np.zeros((6, 7)).T, np.zeros((14, 18))[::2, ::3]):
        e = start.copy()
        np.add.at(e, places(i, 1), b[:4, :5])
        assert np.array_equal(rl.from_numpy(start).scatter_add_(1, rl.from_numpy(i), rl.from_numpy(b)).numpy(), e)
    overlapping = rl.zeros(6).as_strided((5, 2), (1, 1))                        # rows share elements
    overlapping.scatter_add_(1, rl.zeros(5, 2, dtype=rl.int64), rl.ones(5, 2))
    assert overlapping[:, 0].tolist() == [2.0] * 5


def test_nan_and_signs(way):
    nan = float("nan")
    x = rl.tensor([[1.0, nan, 3.0, nan, 5.0, 0.0]])
    v, i = x.cummax(1)
    assert i.tolist() == [[0, 1, 1, 3, 3, 3]] and np.array_equal(v.numpy(), [[1, nan, nan, nan, nan, nan]], equal_nan=True)  # PyTorch 2.13
    v, i = rl.tensor([-0.0, 0.0, -0.0]).cummax(0)
    assert i.tolist() == [0, 1, 2] and np.signbit(v.numpy()).tolist() == [True, False, True]                               # PyTorch 2.13
    v, i = rl.tensor([0.0, -0.0]).cummin(0)
    assert i.tolist() == [0, 1] and np.signbit(v.numpy()).tolist() == [False, True]                                        # PyTorch 2.13
    assert not np.signbit(rl.tensor([-0.0, -0.0]).cumsum(0).numpy()).any()                                                 # PyTorch 2.13
    inf = float("inf")
    assert rl.tensor([-inf, 1.0, inf, -inf]).cummax(0)[1].tolist() == [0, 1, 2, 2]
    assert rl.tensor([-inf, -inf]).logcumsumexp(0).tolist() == [-inf, -inf] and rl.tensor([inf, inf]).logcumsumexp(0).tolist() == [inf, inf]
    assert np.isnan(rl.tensor([0.0, nan, 1.0]).logcumsumexp(0).numpy()).tolist() == [False, True, True]
    e = np.array([nan, 2.0, 1.0])
    r = rl.tensor([nan, 2.0, 1.0]).scatter_reduce(0, rl.tensor([0, 1, 2]), rl.tensor([1.0, nan, 0.0]), "amax").numpy()
    assert np.array_equal(r, np.maximum(e, [1, nan, 0]), equal_nan=True)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32", "uint8", "bool"])
def test_scans(way, shape, dtype):
    a = values(shape, dtype)
    for d in range(len(shape)):
        for x in (a, a.T.copy().T):
            wide = x.astype(np.float64 if dtype.startswith("f") else np.int64)
            to = dtype if dtype.startswith("f") else "int64"
            t = rl.from_numpy(x)
            r = t.cumsum(d)
            assert np.array_equal(r.numpy(), np.cumsum(wide, d).astype(to)) and r.numpy().dtype == to and r.is_contiguous()
            assert np.array_equal(t.cumprod(d).numpy(), np.cumprod(wide, d).astype(to))
            for name, ufunc in (("cummax", np.maximum), ("cummin", np.minimum)):
                v, i = getattr(t, name)(d)
                assert np.array_equal(v.numpy(), ufunc.accumulate(x, d)) and v.is_contiguous() and i.is_contiguous()
                assert np.array_equal(np.take_along_axis(x, i.numpy(), d), v.numpy())
            if dtype.startswith("f"):
                e = np.logaddexp.accumulate(wide, d)
                np.testing.assert_allclose(t.logcumsumexp(d).numpy(), e, rtol=1e-13 if dtype == "float64" else 1.2e-7)


def test_long_sums_are_rounded_once(way):
    a = np.full(100001, 0.1, np.float32)
    assert rl.from_numpy(a).cumsum(0)[-1].item() == np.float32(np.float64(np.float32(0.1)) * 100001)
    h = rl.full((5000,), 0.1, dtype=rl.float16)                                # half precision: float32 sums, each rounded
    assert np.array_equal(h.cumsum(0).numpy(), np.cumsum(h.numpy().astype(np.float32), dtype=np.float32).astype(np.float16))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_dtype_of_sums_of_half(way, dtype):
    x = rl.ones(4, dtype=getattr(rl, dtype))
    assert x.cumsum(0).dtype is getattr(rl, dtype) and x.cumsum(0, dtype=rl.float32).dtype is rl.float32
    assert x.cumprod(0, dtype=rl.float64).dtype is rl.float64 and x.clone().cumsum_(0).tolist() == [1, 2, 3, 4]


def test_index_select_and_embedding(way):
    for shape in SHAPES:
        for dtype in DTYPES:
            a = values(shape, dtype)
            for d in range(len(shape)):
                i = indices((11,), shape[d])
                r = rl.from_numpy(a).index_select(d - len(shape), rl.from_numpy(i))
                assert np.array_equal(r.numpy(), a.take(i, d)) and r.is_contiguous()
    w, i = values((9, 6)), indices((2, 3, 4), 9, "int32")
    for table in (w, w.T.copy().T, w[:, ::2]):
        r = rl.nn.functional.embedding(rl.from_numpy(i), rl.from_numpy(table))
        assert np.array_equal(r.numpy(), table[i])


@pytest.mark.parametrize("shape", [(40, 64), (7, 3), (3, 20, 50), (20, 2, 3, 2)])
def test_slices_written(way, shape):
    for d in range(len(shape)):
        a = values(shape)
        i = indices((30,), shape[d])
        b = values(tuple(30 if k == d else n for k, n in enumerate(shape)), seed=5)
        x, k, s = rl.from_numpy(a), rl.from_numpy(i), rl.from_numpy(b)
        e = a.copy()
        np.add.at(np.moveaxis(e, d, 0), i, np.moveaxis(b, d, 0))
        np.testing.assert_allclose(x.index_add(d, k, s).numpy(), e, rtol=1e-13)
        e = a.copy()
        np.moveaxis(e, d, 0)[i] = np.moveaxis(b, d, 0)
        assert np.array_equal(x.index_copy(d, k, s).numpy(), e)
        e = a.copy()
        np.moveaxis(e, d, 0)[i] = 0.25
        assert np.array_equal(x.index_fill(d, k, 0.25).numpy(), e)


def test_equal_bits_for_any_number_of_threads(kernels, threads):
    shapes = (((300, 200), 0), ((300, 200), 1), ((60000,), 0), ((5, 90, 100), 1), ((50, 40, 30), 0), ((2, 40000), 1))
    for shape, d in shapes:
        x, i = rl.from_numpy(values(shape, "float32")), rl.from_numpy(indices(shape, max(shape[d] // 7, 1)))
        v = rl.from_numpy(indices((shape[d],), shape[d]))
        got = []
        for n in (1, 2, 3):
            threads(n)
            got.append([x.gather(d, i), x.scatter(d, i, x), x.scatter_add(d, i, x), x.index_add(d, v, x), x.index_select(d, v),
                        x.cumsum(d), x.cumprod(d), *x.cummax(d), x.logcumsumexp(d), x.scatter_reduce(d, i, x, "mean")])
        for other in got[1:]:
            assert all(np.array_equal(a.numpy(), b.numpy()) for a, b in zip(got[0], other, strict=True))
        e = x.numpy().copy()
        np.add.at(e, places(i.numpy(), d), x.numpy())
        assert np.array_equal(got[0][2].numpy(), e)


def test_gradients(way):
    x = rl.from_numpy(values((4, 5))).requires_grad_()
    i = rl.from_numpy(indices((4, 5), 4))
    assert rl.autograd.gradcheck(lambda a: a.gather(0, i), (x,))
    assert rl.autograd.gradcheck(lambda a: a.cumsum(1), (x,)) and rl.autograd.gradcheck(lambda a: a.cummax(0)[0], (x,))
    assert rl.autograd.gradcheck(lambda a: a.logcumsumexp(1), (x,)) and rl.autograd.gradcheck(lambda a: a.index_select(1, i[0]), (x,))
    s = rl.from_numpy(values((4, 5), seed=4)).requires_grad_()
    assert rl.autograd.gradcheck(lambda a, b: a.scatter_add(0, i, b), (x, s))


def test_take_along_dim_takes_negatives(way):
    a, i = values((4, 6)), indices((4, 3), 12) - 6
    assert np.array_equal(rl.take_along_dim(rl.from_numpy(a), rl.from_numpy(i), 1).numpy(), np.take_along_axis(a, i, 1))
    with pytest.raises(RuntimeError, match="out of bounds"):
        rl.take_along_dim(rl.from_numpy(a), rl.tensor([[6], [0], [0], [0]]), 1)
    with pytest.raises(RuntimeError, match="out of bounds"):
        rl.take_along_dim(rl.from_numpy(a), rl.tensor([[-7], [0], [0], [0]]), 1)


def test_both_ways_have_the_same_bits(monkeypatch):
    a = values((40, 50), "float32")
    got = []
    for worth in (0, 1 << 60):
        monkeypatch.setattr(indexed, "_plans", {})
        monkeypatch.setattr(indexed, "WORTH", worth)
        got.append([scans.accumulate(u, a, d, single) for u in (np.add, np.multiply) for d in (0, 1) for single in (False, True)]
                   + [x for u in (np.maximum, np.minimum) for d in (0, 1) for x in scans.extremes(u, a, d)])
    assert all(np.array_equal(x, y) for x, y in zip(*got, strict=True))
