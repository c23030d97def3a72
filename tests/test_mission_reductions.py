"""Reductions and comparisons: values, dimensions, `keepdim`, `out=`, methods, gradients, integers, nan and nothing, and the old names of
arguments. Each test names its mission rows; expected values come from NumPy and from mathematics."""

import math
import warnings

import numpy as np
import pytest

import rushlight as torch

INF, NAN = math.inf, math.nan
FLOATS = (torch.float32, torch.float64)
floats = pytest.mark.parametrize("dtype", FLOATS, ids=["float32", "float64"])
SMALL = (torch.uint8, torch.int8, torch.int16, torch.int32)


def tensor(values, dtype=torch.float64, **kw):
    return torch.tensor(values, dtype=dtype, **kw)


def numbers(shape, dtype=torch.float64, low=-3.0, high=3.0):
    return torch.from_numpy(np.random.RandomState(0).uniform(low, high, shape)).to(dtype)


def near(actual, expected, ulps=16):
    """Equal up to rounding, nan where nan is expected; numbers have shape ()."""
    a, e = actual.detach().numpy(), np.asarray(expected)
    assert a.shape == e.shape, (a.shape, e.shape)
    if a.dtype.kind == "f":
        tolerance = ulps * np.finfo(a.dtype).eps
        np.testing.assert_allclose(a, e.astype(a.dtype), rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(a, e)


def grad(f, *values, dtype=torch.float64):
    """The gradients of the sum of f's result by each operand, as lists."""
    xs = [tensor(v, dtype, requires_grad=True) for v in values]
    f(*xs).sum().backward()
    return [x.grad.tolist() for x in xs] if len(xs) > 1 else xs[0].grad.tolist()


def check_out(f, expected, dtype, refuse=None):
    """`out=`: filled where it fits, resized with a warning where not, without one if it was empty; returned itself."""
    out = torch.full(np.shape(expected), 9, dtype=dtype)
    where = out.data_ptr()
    assert f(out=out) is out and out.data_ptr() == where
    near(out, expected)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = torch.empty(0, dtype=dtype)
        assert f(out=out) is out
        near(out, expected)
    out = torch.empty(11, dtype=dtype)
    with pytest.warns(UserWarning, match="resized"):
        assert f(out=out) is out
    near(out, expected)
    if refuse is not None:
        with pytest.raises(RuntimeError):
            f(out=torch.empty(np.shape(expected), dtype=refuse))
    with pytest.raises(RuntimeError):
        f(out=torch.empty(np.shape(expected), dtype=dtype, requires_grad=True))
    with pytest.raises(TypeError):
        f(out=3)


def check_outs(f, values, indices, dtype):
    """`out=(values, indices)` for results of two kinds."""
    v, i = torch.full(np.shape(values), 9, dtype=dtype), torch.full(np.shape(values), 9)
    r = f(out=(v, i))
    assert r[0] is v and r[1] is i
    near(v, values)
    if indices is not None:
        near(i, indices)
    v, i = torch.empty(0, dtype=dtype), torch.empty(0, dtype=torch.int64)
    r = f(out=(v, i))
    assert r[0] is v and r[1] is i
    near(v, values)
    with pytest.warns(UserWarning, match="resized"):
        f(out=(torch.empty(7, dtype=dtype), torch.empty(0, dtype=torch.int64)))
    for bad in ((v, torch.empty(0)), (torch.empty(0, dtype=torch.float64 if dtype is torch.float32 else torch.float32), i)):
        with pytest.raises(RuntimeError):
            f(out=bad)
    for bad in (v, (v,), (v, i, i), (v, 3)):
        with pytest.raises(TypeError):
            f(out=bad)


def named(r, values, indices=None):
    """Two results, by name and by place; the indices are int64."""
    assert isinstance(r, tuple) and r.values is r[0] and r.indices is r[1] and r.indices.dtype is torch.int64
    near(r.values, values)
    if indices is not None:
        near(r.indices, indices)


# --- running products and sums ----------------------------------------------------------------------------------------
@floats
@pytest.mark.parametrize("name, exact", [("cumprod", np.cumprod), ("cumsum", np.cumsum)])
def test_cumulative(name, exact, dtype):  # mission: N-01, N-02
    f = getattr(torch, name)
    x = numbers((3, 4), dtype)
    for dim in (0, 1, -1, -2):
        near(f(x, dim), exact(x.numpy(), dim))
        near(getattr(x, name)(dim), exact(x.numpy(), dim))
        near(f(input=x, dim=dim), exact(x.numpy(), dim))
        check_out(lambda out, dim=dim: f(x, dim, out=out), exact(x.numpy(), dim), dtype)
    near(f(x.t()[::2], 1), exact(x.numpy().T[::2], 1))
    near(f(tensor([1, NAN, 2], dtype), 0), [1, NAN, NAN])
    assert f(torch.empty(0, 3), 0).shape == (0, 3) and f(torch.empty(0, 3), 1).shape == (0, 3) and f(torch.tensor(2.0), 0).item() == 2
    c = x.clone()
    assert getattr(c, name + "_")(1) is c
    near(c, exact(x.numpy(), 1))
    assert f(x, 0, dtype=torch.float64).dtype is torch.float64
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        f(x.clone().requires_grad_(), 0, out=torch.empty(3, 4, dtype=dtype))


@pytest.mark.parametrize("name", ["cumprod", "cumsum"])
def test_cumulative_integers_and_errors(name):  # mission: N-01, N-02
    f = getattr(torch, name)
    for dtype in (*SMALL, torch.int64, torch.bool):
        y = f(torch.ones(3, dtype=dtype), 0)
        assert y.dtype is torch.int64 and y.tolist() == ([1, 2, 3] if name == "cumsum" else [1, 1, 1])
    assert f(tensor([200, 200], torch.uint8), 0).tolist() == ([200, 400] if name == "cumsum" else [200, 40000])
    x = torch.ones(2, 3)
    for call in (lambda: f(x), lambda: getattr(x, name)(), lambda: f(x, None), lambda: f(x, (0, 1)), lambda: f(x, 1.0), lambda: f([1.0], 0)):
        with pytest.raises(TypeError):
            call()
    for dim in (2, -3):
        with pytest.raises(IndexError, match="out of range"):
            f(x, dim)


def test_cumulative_gradients():  # mission: N-01, N-02
    assert grad(lambda x: torch.cumsum(x, 0), [2.0, 1, 3]) == [3, 2, 1]
    assert grad(lambda x: torch.cumprod(x, 0), [2.0, 3, 4]) == [1 + 3 + 12, 2 + 8, 6]
    assert grad(lambda x: torch.cumprod(x, 0), [2.0, 0, 3, 0, 4]) == [1, 2 + 6, 0, 0, 0]      # across zeros
    assert grad(lambda x: torch.cumprod(x, 0), [0.0, 0, 3]) == [1, 0, 0]
    assert grad(lambda x: torch.cumprod(x, 1), [[0.0, 5], [5, 0]]) == [[6, 0], [1, 5]]
    for values in ([2.0, 1.5, 3.0], [2.0, 0.0, 3.0]):
        assert torch.autograd.gradcheck(lambda x: torch.cumprod(x, 0), (tensor(values, requires_grad=True),))
        assert torch.autograd.gradgradcheck(lambda x: torch.cumsum(x, 0) ** 2, (tensor(values, requires_grad=True),))


# --- norms ------------------------------------------------------------------------------------------------------------
@floats
def test_dist(dtype):  # mission: N-03
    a, b = tensor([1, 2, 3], dtype), tensor([1, 0, 7], dtype)
    for p, expected in ((2, math.sqrt(20)), (0, 2), (1, 6), (3, 72 ** (1 / 3)), (INF, 4), (-INF, 0)):
        near(torch.dist(a, b, p), expected)
        near(a.dist(b, p), expected)
        near(torch.dist(input=a, other=b, p=p), expected)
    near(torch.dist(a, b), math.sqrt(20))
    near(torch.dist(a, tensor([[1], [2]], dtype)), math.sqrt(5 + 2))       # broadcasting
    near(torch.dist(a.expand(2, 3)[:, ::2], b.expand(2, 3)[:, ::2]), math.sqrt(32))
    near(torch.dist(torch.empty(0, dtype=dtype), torch.empty(0, dtype=dtype)), 0)
    with pytest.raises(RuntimeError, match="size"):
        torch.dist(a, torch.ones(2, dtype=dtype))
    with pytest.raises(RuntimeError):
        torch.dist(torch.tensor([1, 2]), torch.tensor([2, 3]))
    s = math.sqrt(20)
    for p, slope in ((2, [0, 2 / s, -4 / s]), (1, [0, 1, -1]), (INF, [0, 0, -1]), (3, [0, 4 / 72 ** (2 / 3), -16 / 72 ** (2 / 3)])):
        u, v = a.clone().requires_grad_(), b.clone().requires_grad_()
        torch.dist(u, v, p).backward()
        near(u.grad, slope)
        near(v.grad, [-x for x in slope])
    assert grad(torch.dist, [1.0, 2], [1.0, 2]) == [[0, 0], [0, 0]]        # at zero


@floats
def test_dist_out(dtype):  # mission: N-04
    a, b = tensor([1, 2, 3], dtype), tensor([1, 0, 7], dtype)
    check_out(lambda out: torch.dist(a, b, out=out), math.sqrt(20), dtype, torch.int64)
    check_out(lambda out: torch.dist(a, b, 1, out=out), 6, dtype, torch.int64)


@floats
def test_norm(dtype):  # mission: N-13, N-14
    x = tensor([[3, -4], [0, 12]], dtype)
    whole = {2: 13, 0: 3, 1: 19, 3: (27 + 64 + 1728) ** (1 / 3), INF: 12, -INF: 0}
    rows = {2: [5, 12], 0: [2, 1], 1: [7, 12], 3: [91 ** (1 / 3), 12], INF: [4, 12], -INF: [3, 0]}
    columns = {2: [3, math.sqrt(160)], 0: [1, 2], 1: [3, 16], 3: [3, 1792 ** (1 / 3)], INF: [3, 12]}
    for p, expected in whole.items():
        near(torch.norm(x, p), expected)
        near(x.norm(p=p), expected)
        near(torch.norm(x, p, (0, 1)), expected)
    near(torch.norm(x), 13)
    near(x.norm(), 13)
    for p, expected in rows.items():
        near(torch.norm(x, p, 1), expected)
        near(x.norm(p, -1), expected)
        near(torch.norm(x, p, dim=1, keepdim=True), np.array(expected)[:, None])
        check_out(lambda out, p=p: torch.norm(x, p, 1, out=out), expected, dtype, torch.int64)
    for p, expected in columns.items():
        near(torch.norm(x, p, 0), expected)
        near(torch.norm(x.t(), p, 1), expected)
    near(torch.norm(torch.empty(0, dtype=dtype)), 0)
    near(torch.norm(torch.empty(3, 0, dtype=dtype), 2, 1), [0, 0, 0])
    with pytest.raises(RuntimeError, match="identity"):
        torch.norm(torch.empty(0, dtype=dtype), INF)
    with pytest.raises(RuntimeError):
        torch.norm(torch.tensor([1, 2]))
    with pytest.raises(RuntimeError):
        torch.norm(x, "middling")
    for dim in (2, -3):
        with pytest.raises(IndexError, match="out of range"):
            torch.norm(x, 2, dim)


def test_norm_gradients():  # mission: N-13, N-14
    for p in (2, 1, 3, 1.5, INF):
        assert grad(lambda x, p=p: torch.norm(x, p), [0.0, 0, 0]) == [0, 0, 0]
    near(tensor(grad(torch.norm, [3.0, -4, 0])), [0.6, -0.8, 0])
    assert grad(lambda x: torch.norm(x, 1), [3.0, -4, 0]) == [1, -1, 0]
    assert grad(lambda x: torch.norm(x, INF), [3.0, -4, 0]) == [0, -1, 0]
    assert grad(lambda x: torch.norm(x, INF), [4.0, -4, 0]) == [0.5, -0.5, 0]      # ties share, as in PyTorch 2.13
    near(tensor(grad(lambda x: torch.norm(x, 3), [3.0, -4, 0])), np.array([9, -16, 0]) / 91 ** (2 / 3))
    near(tensor(grad(lambda x: torch.norm(x, 2, 1), [[3.0, 4], [0, 0]])), [[0.6, 0.8], [0, 0]])


# --- means, medians, modes --------------------------------------------------------------------------------------------
@floats
def test_mean(dtype):  # mission: N-05, N-06
    x = tensor([[1, 2, 6], [3, 5, 10]], dtype)
    near(torch.mean(x), 4.5)
    near(x.mean(), 4.5)
    near(torch.mean(x.t()[1:, ::2]), 4)
    near(torch.mean(torch.empty(0, dtype=dtype)), NAN)
    near(torch.mean(torch.empty(0, 3, dtype=dtype), 0), [NAN] * 3)
    near(torch.mean(torch.empty(0, 3, dtype=dtype), 1), np.zeros(0))
    for dim, expected in ((0, [2, 3.5, 8]), (1, [3, 6]), (-1, [3, 6]), ((0, 1), 4.5), ((1, -2), 4.5), ((), 4.5)):
        near(torch.mean(x, dim), expected)
        near(x.mean(dim=dim), expected)
    near(torch.mean(x, 1, True), [[3], [6]])
    near(torch.mean(x, (0, 1), keepdim=True), [[4.5]])
    check_out(lambda out: torch.mean(x, 1, out=out), [3, 6], dtype, torch.int64)
    assert grad(lambda x: torch.mean(x, 1), [[1.0, 2], [3, 4]]) == [[0.5, 0.5], [0.5, 0.5]] and grad(torch.mean, [1.0, 2, 3, 4]) == [0.25] * 4
    for dim in (2, -3, (0, 2)):
        with pytest.raises(IndexError, match="out of range"):
            torch.mean(x, dim)


def test_mean_of_integers():  # mission: N-05, N-06
    for dtype in (*SMALL, torch.int64, torch.bool):
        i = torch.ones(4, dtype=dtype)
        for call in (lambda i=i: torch.mean(i), lambda i=i: i.mean(0), lambda i=i: torch.mean(i.float(), dtype=torch.int64)):
            with pytest.raises(RuntimeError, match="could not infer output dtype"):
                call()
        assert torch.mean(i, dtype=torch.float32).item() == 1 and torch.mean(i, 0, dtype=torch.float64).dtype is torch.float64
    assert torch.mean(torch.tensor([1, 2, 4]), dtype=torch.float64).item() == 7 / 3


@floats
def test_median(dtype):  # mission: N-07
    x = tensor([[3, 1, 2, 4], [7, 8, 1, 9]], dtype)
    named(torch.median(x, -1), [2, 7], [2, 0])
    named(torch.median(x, dim=1), [2, 7], [2, 0])
    named(x.median(0), [3, 1, 1, 4], [0, 0, 1, 0])
    named(torch.median(x, 1, True), [[2], [7]], [[2], [0]])
    named(torch.median(x.t(), 0), [2, 7], [2, 0])
    named(torch.median(tensor([[1, NAN, 3], [1, 2, 3]], dtype), 1), [NAN, 2], [1, 1])
    named(torch.median(torch.empty(0, 3), 1), np.zeros(0))
    named(torch.median(tensor(3, dtype), 0), 3, 0)
    check_outs(lambda out: torch.median(x, 1, out=out), [2, 7], [2, 0], dtype)
    assert grad(lambda x: torch.median(x, 1).values, [[3.0, 1, 2]]) == [[0, 0, 1]]
    named(torch.median(torch.tensor([[3, 1, 2, 4]]), 1), [2], [2])
    for dim in (2, -3):
        with pytest.raises(IndexError, match="out of range"):
            torch.median(x, dim)
    with pytest.raises(IndexError, match="non-zero size"):
        torch.median(torch.empty(0, 3), 0)


@floats
def test_median_of_all(dtype):  # mission: N-08
    x = tensor([[3, 1, 2, 4], [7, 8, 1, 9]], dtype)
    for y in (torch.median(x), x.median(), torch.median(x.t()), torch.median(input=x)):
        near(y, 3)
    near(torch.median(tensor([1, NAN, 3], dtype)), NAN)
    near(torch.median(torch.empty(0, dtype=dtype)), NAN)
    assert torch.median(torch.tensor([3, 1, 2, 4])).item() == 2
    assert grad(torch.median, [3.0, 1, 2, 4]) == [0, 0, 1, 0]


@floats
def test_median_and_mode_into_old_keywords(dtype):  # mission: N-09, N-12
    x = tensor([[3, 1, 1, 2], [7, 7, 1, 9]], dtype)
    for f, expected in ((torch.median, [1, 7]), (torch.mode, [1, 7])):
        v, i = torch.empty(0, dtype=dtype), torch.empty(0, dtype=torch.int64)
        r = f(x, 1, values=v, indices=i)
        assert r[0] is v and r[1] is i
        near(v, expected)
        near(x.gather(1, i[:, None])[:, 0], expected)
        v = torch.empty(2, dtype=dtype)
        r = f(x, dim=1, values=v)
        assert r[0] is v and v.tolist() == expected and r[1].dtype is torch.int64 and r[1].shape == (2,)
        i = torch.empty(0, dtype=torch.int64)
        assert f(x, 1, indices=i)[1] is i and i.shape == (2,)
        assert f(x, 1, values=None, indices=None)[0].tolist() == expected and f(x, dim=1, keepdim=True, values=v.clone().resize_(0))[0].shape == (2, 1)
        assert getattr(x, f.__name__)(1, values=v, indices=i)[0] is v
        for bad in ({"values": 3}, {"values": v, "out": (v, i)}, {"value": v}):
            with pytest.raises(TypeError):
                f(x, 1, **bad)
        with pytest.raises(RuntimeError):
            f(x, 1, values=torch.empty(0, dtype=dtype), indices=torch.empty(0))
        with pytest.raises(RuntimeError, match="automatic differentiation"):
            f(x.clone().requires_grad_(), 1, values=v, indices=i)


@floats
def test_mode(dtype):  # mission: N-11
    x = tensor([[3, 1, 1, 3, 2], [5, 5, 1, 2, 5]], dtype)
    for r, values in ((torch.mode(x), [1, 5]), (torch.mode(x, -1), [1, 5]), (x.mode(dim=1), [1, 5]), (torch.mode(x.t(), 0), [1, 5]),
                      (torch.mode(x, 0), [3, 1, 1, 2, 2])):
        named(r, values)
    r = torch.mode(x)
    near(x.gather(1, r.indices[:, None])[:, 0], r.values.numpy())
    r = torch.mode(x, 1, True)
    named(r, [[1], [5]])
    near(x.gather(1, r.indices), r.values.numpy())
    named(torch.mode(tensor(2, dtype)), 2, 0)
    named(torch.mode(torch.tensor([[3, 1, 1, 3, 2]])), [1])
    named(torch.mode(torch.empty(0, 3)), np.zeros(0))
    check_outs(lambda out: torch.mode(x, out=out), [1, 5], None, dtype)
    y = tensor([4, 7, 5], dtype, requires_grad=True)
    torch.mode(y).values.backward()
    assert y.grad.tolist() == [1, 0, 0]
    with pytest.raises(IndexError, match="out of range"):
        torch.mode(x, 2)
    with pytest.raises(IndexError, match="non-zero size"):
        torch.mode(torch.empty(3, 0))


# --- products, sums, deviations ---------------------------------------------------------------------------------------
@floats
def test_prod(dtype):  # mission: N-15, N-16
    x = tensor([[1, 2, 0.5], [3, 4, 5]], dtype)
    for y in (torch.prod(x), x.prod(), torch.prod(x.t())):
        near(y, 60)
    for dim, expected in ((0, [3, 8, 2.5]), (1, [1, 60]), (-1, [1, 60])):
        near(torch.prod(x, dim), expected)
        near(x.prod(dim=dim), expected)
    near(torch.prod(x, 1, True), [[1], [60]])
    near(torch.prod(torch.empty(0, dtype=dtype)), 1)
    near(torch.prod(torch.empty(0, 2, dtype=dtype), 0), [1, 1])
    check_out(lambda out: torch.prod(x, 1, out=out), [1, 60], dtype)
    for dim in (2, -3):
        with pytest.raises(IndexError, match="out of range"):
            torch.prod(x, dim)
    with pytest.raises(TypeError):
        torch.prod(x, (0, 1))


def test_prod_integers_and_gradients():  # mission: N-15, N-16
    for dtype in (*SMALL, torch.int64):
        y = torch.prod(tensor([100, 100, 100], dtype))
        assert y.dtype is torch.int64 and y.item() == 10**6
    assert torch.prod(torch.tensor([True, True])).item() == 1 and torch.prod(torch.tensor([[2, 3]]), 1, dtype=torch.float32).dtype is torch.float32
    assert grad(torch.prod, [[2.0, 1], [3, 4]]) == [[12, 24], [8, 6]] and grad(torch.prod, [[2.0, 0], [3, 4]]) == [[0, 24], [0, 0]]
    assert grad(torch.prod, [0.0, 0, 3]) == [0, 0, 0] and grad(torch.prod, 0.0) == 1 and grad(torch.prod, []) == []
    assert grad(lambda x: torch.prod(x, 1), [[2.0, 0], [3, 4]]) == [[0, 2], [4, 3]]
    assert grad(lambda x: torch.prod(x, 0, True), [[2.0, 0], [3, 4]]) == [[3, 4], [2, 0]]
    assert torch.autograd.gradgradcheck(torch.prod, (tensor([2.0, 0.0, 3.0], requires_grad=True),))


@floats
@pytest.mark.parametrize("name, exact", [("std", np.std), ("var", np.var)])
def test_deviation(name, exact, dtype):  # mission: N-17, N-18
    f = getattr(torch, name)
    x = numbers((3, 4), dtype)
    a = x.numpy().astype(np.float64)
    for y in (f(x), getattr(x, name)(), f(x.t()), f(x, unbiased=True), f(x, correction=1), f(x, (0, 1))):
        near(y, exact(a, ddof=1))
    for dim in (0, 1, -1):
        near(f(x, dim), exact(a, dim, ddof=1))
        near(f(x, dim, False), exact(a, dim))
        near(f(x, dim, unbiased=False), exact(a, dim))
        near(f(x, dim=dim, correction=0), exact(a, dim))
        near(f(x, dim=dim, correction=2), exact(a, dim, ddof=2))
        near(f(x, dim, keepdim=True), exact(a, dim, ddof=1, keepdims=True))
        near(f(x, dim, True, True), exact(a, dim, ddof=1, keepdims=True))
        check_out(lambda out, dim=dim: f(x, dim, out=out), exact(a, dim, ddof=1), dtype, torch.int64)
    near(f(x, unbiased=False), exact(a))
    near(f(x, False), exact(a))
    for lonely in (torch.ones(1, dtype=dtype), torch.tensor(1, dtype=dtype), torch.empty(0, dtype=dtype)):
        with pytest.warns(UserWarning, match="degrees of freedom"):
            near(f(lonely), NAN)
    with pytest.warns(UserWarning, match="degrees of freedom"):
        near(f(torch.ones(3, 1, dtype=dtype), 1), [NAN] * 3)
    near(f(torch.ones(1, dtype=dtype), unbiased=False), 0)
    for i in (torch.tensor([1, 2]), torch.tensor([True, False])):
        with pytest.raises(RuntimeError, match="floating point"):
            f(i)
    for dim in (2, -3):
        with pytest.raises(IndexError, match="out of range"):
            f(x, dim)


def test_deviation_gradients():  # mission: N-17, N-18
    near(tensor(grad(torch.var, [1.0, 2, 6])), [-2, -1, 3])
    near(tensor(grad(torch.std, [1.0, 2, 6])), np.array([-2, -1, 3]) / 2 / math.sqrt(7))
    near(tensor(grad(lambda x: torch.std(x, 1), [[1.0, 2, 6], [0, 3, 3]])), [np.array([-2, -1, 3]) / 2 / math.sqrt(7), np.array([-2, 1, 1]) / 2 / math.sqrt(3)])
    assert grad(torch.std, [1.0, 1]) == [0, 0]         # PyTorch 2.13 gives 0 where nothing differs
    x = tensor([[1.0, 2, 6], [0, 3, 4]], requires_grad=True)
    for f in (torch.var, torch.std):
        assert torch.autograd.gradgradcheck(lambda x, f=f: f(x, 1), (x,))


@floats
def test_sum(dtype):  # mission: N-19, N-20
    x = tensor([[1, 2, 0.5], [3, 4, 5]], dtype)
    for y in (torch.sum(x), x.sum(), torch.sum(x.t()), torch.sum(x, (0, 1)), torch.sum(x, dim=())):
        near(y, 15.5)
    for dim, expected in ((0, [4, 6, 5.5]), (1, [3.5, 12]), (-1, [3.5, 12])):
        near(torch.sum(x, dim), expected)
        near(x.sum(dim=dim), expected)
    near(torch.sum(x, 1, True), [[3.5], [12]])
    near(x[:, ::2].sum(0), [4, 5.5])
    near(torch.sum(torch.empty(0, dtype=dtype)), 0)
    near(torch.sum(torch.empty(0, 2, dtype=dtype), 0), [0, 0])
    near(torch.sum(tensor([1, NAN], dtype)), NAN)
    check_out(lambda out: torch.sum(x, 1, out=out), [3.5, 12], dtype)
    assert grad(lambda x: torch.sum(x, 0) ** 2, [[1.0, 2], [3, 4]]) == [[8, 12], [8, 12]] and grad(torch.sum, [[1.0, 2]]) == [[1, 1]]
    for dim in (2, -3, (0, 2)):
        with pytest.raises(IndexError, match="out of range"):
            torch.sum(x, dim)
    for call in (lambda: torch.sum(x, 0.5), lambda: torch.sum(x, "0"), lambda: torch.sum([1.0])):
        with pytest.raises(TypeError):
            call()


def test_sum_of_integers():  # mission: N-19, N-20
    for dtype in (*SMALL, torch.int64):
        i = torch.full((2, 300), 100, dtype=dtype)
        assert torch.sum(i).dtype is torch.int64 and torch.sum(i).item() == 60000
        assert torch.sum(i, 1).dtype is torch.int64 and i.sum(1).tolist() == [30000, 30000]
        assert torch.sum(i, dtype=torch.float32).dtype is torch.float32
        assert torch.sum(i, 1, out=torch.empty(2)).tolist() == [30000, 30000]
    m = torch.tensor([[True, True, False]])
    assert torch.sum(m).item() == 2 and torch.sum(m, 1).tolist() == [2] and torch.sum(m).dtype is torch.int64


# --- comparisons ------------------------------------------------------------------------------------------------------
COMPARISONS = [
    ("eq", np.equal),  # mission: O-01
    ("ge", np.greater_equal),  # mission: O-02
    ("gt", np.greater),  # mission: O-03
    ("le", np.less_equal),  # mission: O-04
    ("lt", np.less),  # mission: O-05
    ("ne", np.not_equal),  # mission: O-06
]


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.int32, torch.uint8], ids=str)
@pytest.mark.parametrize("name, exact", COMPARISONS, ids=[n for n, _ in COMPARISONS])
def test_comparisons(name, exact, dtype):  # mission: O-01 to O-06
    f = getattr(torch, name)
    a, b = tensor([[1, 2], [3, 4]], dtype), tensor([[1, 3], [2, 4]], dtype)
    A, B = a.numpy(), b.numpy()
    for y, expected in ((f(a, b), exact(A, B)), (getattr(a, name)(b), exact(A, B)), (f(input=a, other=b), exact(A, B)), (f(a, 2), exact(A, 2)),
                        (f(a, 2.5), exact(A, 2.5)), (getattr(a, f"__{name}__")(3), exact(A, 3)), (f(a, b[0]), exact(A, B[0])), (f(a[:, :1], b), exact(A[:, :1], B)),
                        (f(a.t(), b), exact(A.T, B)), (f(a[:, ::2], b[:, 1:]), exact(A[:, ::2], B[:, 1:])), (f(a, torch.tensor(2.5)), exact(A, 2.5))):
        assert y.dtype is torch.bool
        near(y, expected)
    assert f(a[:0], b[0]).shape == (0, 2) and f(a[:0], b[0]).dtype is torch.bool
    for kind in (torch.bool, torch.uint8):
        for other, expected in ((b, exact(A, B)), (2, exact(A, 2))):
            check_out(lambda out, o=other: f(a, o, out=out), expected.astype(np.uint8 if kind is torch.uint8 else bool), kind)
    c = a.clone()
    assert getattr(c, name + "_")(b) is c and c.dtype is dtype
    near(c, exact(A, B).astype(A.dtype))
    for bad in (torch.ones(3), torch.ones(3, 2)):
        with pytest.raises(RuntimeError, match="size"):
            f(a, bad)
    for bad in ("2", None, [1, 2]):
        with pytest.raises(TypeError):
            f(a, bad)


@pytest.mark.parametrize("name, exact", COMPARISONS, ids=[n for n, _ in COMPARISONS])
def test_comparisons_at_edges(name, exact):  # mission: O-01 to O-06
    f = getattr(torch, name)
    values = [NAN, INF, -INF, 0.0, -0.0, 1.0]
    x, y = tensor(values)[:, None], tensor(values)
    near(f(x, y), exact(x.numpy(), y.numpy()))
    near(f(tensor([True, False], torch.bool), True), exact(np.array([True, False]), True))
    near(f(tensor([1, 2], torch.uint8), tensor([-1, 2], torch.int8)), exact(np.array([1, 2]), np.array([-1, 2])))      # promoted, not wrapped
    x = torch.ones(2, requires_grad=True)
    y = f(x, 1)
    assert not y.requires_grad and f(x, 1, out=torch.empty(2, dtype=torch.bool)).tolist() == y.tolist()


def test_equal():  # mission: O-08
    a = torch.tensor([1, 2])
    assert torch.equal(a, torch.tensor([1, 2])) is True and torch.equal(a, torch.tensor([1, 3])) is False and a.equal(a.clone()) is True
    assert torch.equal(a, torch.tensor([[1, 2]])) is False and torch.equal(a, torch.tensor([1, 2, 3])) is False and torch.equal(a, torch.tensor(1)) is False
    assert torch.equal(torch.empty(0), torch.empty(0)) is True and torch.equal(torch.empty(0), torch.empty(0, 2)) is False
    assert torch.equal(torch.tensor([NAN]), torch.tensor([NAN])) is False and torch.equal(torch.ones(2, 3).t(), torch.ones(3, 2)) is True
    for pair in ((a, 1), (1, a), (1, 1), (a, [1, 2]), (a, None), (a, np.array([1, 2]))):
        with pytest.raises(TypeError):
            torch.equal(*pair)


def test_equal_old_keywords():  # mission: O-22
    a = torch.tensor([1, 2])
    assert torch.equal(tensor1=a, tensor2=a.clone()) is True and torch.equal(tensor1=a, tensor2=a + 1) is False and a.equal(tensor2=a) is True
    with pytest.raises(TypeError):
        torch.equal(tensor1=a, tensor2=1)
    with pytest.raises(TypeError):
        torch.equal(tensor1=a, tensor3=a)


@floats
def test_kthvalue(dtype):  # mission: O-09
    x = tensor([[3, 1, 2], [9, 7, 8]], dtype)
    named(torch.kthvalue(x, 1), [1, 7], [1, 1])
    named(torch.kthvalue(x, 2), [2, 8], [2, 2])
    named(x.kthvalue(3, 1), [3, 9], [0, 0])
    named(torch.kthvalue(x, 2, 0), [9, 7, 8], [1, 1, 1])
    named(torch.kthvalue(x, k=2, dim=1, keepdim=True), [[2], [8]], [[2], [2]])
    named(torch.kthvalue(x.t(), 2, 0), [2, 8], [2, 2])
    named(torch.kthvalue(tensor([1, NAN, 0], dtype), 3), NAN, 1)
    named(torch.kthvalue(tensor(3, dtype), 1), 3, 0)
    named(torch.kthvalue(torch.tensor([5, 2, 9]), 2), 5, 0)
    check_outs(lambda out: torch.kthvalue(x, 2, out=out), [2, 8], [2, 2], dtype)
    assert grad(lambda x: torch.kthvalue(x, 2).values, [[3.0, 1, 2]]) == [[0, 0, 1]]
    for k in (0, 4, -1):
        with pytest.raises(RuntimeError, match="out of range"):
            torch.kthvalue(x, k)
    with pytest.raises(IndexError, match="out of range"):
        torch.kthvalue(x, 1, 2)
    for call in (lambda: torch.kthvalue(x), lambda: torch.kthvalue(x, 1.0), lambda: torch.kthvalue([1.0], 1)):
        with pytest.raises(TypeError):
            call()


def test_last_dimension_by_none():  # mission: O-10
    x = tensor([[3, 1, 2], [9, 7, 8]])
    for f, arguments in ((torch.kthvalue, (2,)), (torch.sort, ()), (torch.topk, (2,))):
        expected = f(x, *arguments, -1)
        for r in (f(x, *arguments, None), f(x, *arguments, dim=None), getattr(x, f.__name__)(*arguments, dim=None)):
            assert torch.equal(r[0], expected[0]) and torch.equal(r[1], expected[1])
        out = (torch.empty(0, dtype=torch.float64), torch.empty(0, dtype=torch.int64))
        assert f(x, *arguments, None, out=out)[0] is out[0] and torch.equal(out[0], expected[0])
        assert grad(lambda x, f=f, a=arguments: f(x, *a, None)[0] * 2, x.tolist()) == grad(lambda x, f=f, a=arguments: f(x, *a, -1)[0] * 2, x.tolist())
        assert f(x.to("meta"), *arguments, None)[0].shape == expected[0].shape
    assert torch.sort(x, dim=None, descending=True)[0].tolist() == [[3, 2, 1], [9, 8, 7]]
    assert torch.topk(x, 1, None, False)[0].tolist() == [[1], [7]]


EXTREMES = [("max", np.max, np.argmax, np.maximum), ("min", np.min, np.argmin, np.minimum)]
extremes = pytest.mark.parametrize("name, exact, where, pairs", EXTREMES, ids=["max", "min"])


@floats
@extremes
def test_extreme_of_all(name, exact, where, pairs, dtype):  # mission: O-11, O-15
    f = getattr(torch, name)
    x = numbers((3, 4), dtype)
    for y in (f(x), getattr(x, name)(), f(x.t()), f(input=x)):
        near(y, exact(x.numpy()))
    near(f(x[::2, ::3]), exact(x.numpy()[::2, ::3]))
    near(f(tensor([1, NAN, 2], dtype)), NAN)
    near(f(tensor([1, INF, -INF], dtype)), INF if name == "max" else -INF)
    assert f(torch.tensor([3, -1, 2])).item() == (3 if name == "max" else -1) and f(torch.tensor([3, 1, 2], dtype=torch.uint8)).dtype is torch.uint8
    assert f(torch.tensor([True, False])).item() is (name == "max")
    y = tensor([2, 5, 2, 5], dtype, requires_grad=True)
    f(y).backward()
    assert y.grad.tolist() == ([0, 0.5, 0, 0.5] if name == "max" else [0.5, 0, 0.5, 0])      # ties share, as in PyTorch 2.13
    for nothing in (torch.empty(0), torch.empty(0, 3)):
        with pytest.raises(RuntimeError, match="numel"):
            f(nothing)
    with pytest.raises(TypeError):
        f([1.0, 2.0])


@floats
@extremes
def test_extreme_by_rows(name, exact, where, pairs, dtype):  # mission: O-12, O-16
    f = getattr(torch, name)
    x = numbers((3, 4), dtype)
    a = x.numpy()
    for dim in (0, 1, -1):
        named(f(x, dim), exact(a, dim), where(a, dim))
        named(getattr(x, name)(dim=dim), exact(a, dim), where(a, dim))
        named(f(x, dim, True), exact(a, dim, keepdims=True), np.expand_dims(where(a, dim), dim))
        named(f(x, dim, keepdim=True), exact(a, dim, keepdims=True), np.expand_dims(where(a, dim), dim))
        out = torch.empty(0, dtype=dtype), torch.empty(0, dtype=torch.int64)
        r = f(x, dim, out=out)
        assert r[0] is out[0] and r[1] is out[1]
        named(f(x, dim), out[0].numpy(), out[1].numpy())
    named(f(x.t(), 0), exact(a, 1), where(a, 1))
    named(f(tensor([[1, NAN, 2], [0, 1, 2]], dtype), 1), [NAN, 2 if name == "max" else 0], [1, 2 if name == "max" else 0])
    named(f(torch.empty(0, 3), 1), np.zeros(0))
    named(f(tensor(3, dtype), 0), 3, 0)
    named(f(torch.tensor([[3, -1, 2]]), 1), [3 if name == "max" else -1], [0 if name == "max" else 1])
    with pytest.warns(UserWarning, match="resized"):
        f(x, 1, out=(torch.empty(7, dtype=dtype), torch.empty(0, dtype=torch.int64)))
    wide, i32, i64 = torch.empty(0, dtype=torch.float64 if dtype is torch.float32 else torch.float32), torch.empty(0, dtype=torch.int32), torch.empty(0, dtype=torch.int64)
    for bad, error in ((wide, TypeError), ((wide,), TypeError), ((i64, i64), RuntimeError), ((wide, i64), RuntimeError), ((out[0], i32), RuntimeError)):
        with pytest.raises(error):
            f(x, 1, out=bad)
    assert grad(lambda x: f(x, 1).values, [[1.0, 7, 3], [9, 8, 10]]) == ([[0, 1, 0], [0, 0, 1]] if name == "max" else [[1, 0, 0], [0, 1, 0]])
    for dim in (2, -3):
        with pytest.raises(IndexError, match="out of range"):
            f(x, dim)
    with pytest.raises(IndexError, match="non-zero size"):
        f(torch.empty(0, 3), 0)


@floats
@extremes
def test_extreme_into_old_keywords(name, exact, where, pairs, dtype):  # mission: O-13, O-17
    f = getattr(torch, name)
    x = numbers((3, 4), dtype)
    v, i = torch.empty(0, dtype=dtype), torch.empty(0, dtype=torch.int64)
    r = f(x, 1, **{name: v, name + "_indices": i})
    assert r[0] is v and r[1] is i
    near(v, exact(x.numpy(), 1))
    near(i, where(x.numpy(), 1))
    v = torch.empty(4, dtype=dtype)
    r = f(x, dim=0, **{name: v})
    assert r[0] is v and torch.equal(r[1], f(x, 0)[1])
    assert torch.equal(v, f(x, 0)[0])
    i = torch.empty(0, dtype=torch.int64)
    assert getattr(x, name)(0, **{name + "_indices": i})[1] is i and torch.equal(i, f(x, 0)[1])
    assert torch.equal(f(x, 0, **{name: None, name + "_indices": None})[0], f(x, 0)[0])
    other = "min" if name == "max" else "max"
    for bad in ({name: 3}, {other: v}, {name: v, "out": (v, i)}):
        with pytest.raises(TypeError):
            f(x, 0, **bad)


@floats
@extremes
def test_extreme_of_pairs(name, exact, where, pairs, dtype):  # mission: O-14, O-18
    f = getattr(torch, name)
    x, y = tensor([1, 3, 2, NAN, 5], dtype), tensor([2, 2, 2, 1, NAN], dtype)
    for r in (f(x, y), getattr(x, name)(y), f(x, other=y)):
        near(r, pairs(x.numpy(), y.numpy()))
    near(f(x[:3], y[:2, None]), pairs(x.numpy()[:3], y.numpy()[:2, None]))
    near(f(x[::2], y[::2]), pairs(x.numpy()[::2], y.numpy()[::2]))
    assert f(torch.empty(0), torch.ones(1)).shape == (0,)
    assert f(torch.tensor([1, 5]), torch.tensor([2.5, 2.5])).dtype is torch.float32 and f(torch.tensor([1, 5]), torch.tensor([2, 2])).dtype is torch.int64
    check_out(lambda out: f(x, y, out=out), pairs(x.numpy(), y.numpy()), dtype, torch.int64)
    assert grad(f, [1.0, 3, 2], [2.0, 2, 2]) == ([[0, 1, 0.5], [1, 0, 0.5]] if name == "max" else [[1, 0, 0.5], [0, 1, 0.5]])
    with pytest.raises(RuntimeError, match="size"):
        f(torch.ones(2), torch.ones(3))
    with pytest.raises(TypeError):
        f(x, 2.0)


@floats
def test_sort(dtype):  # mission: O-20
    x = tensor([[3, 1, 2, 7], [9, 7, 8, 0]], dtype)
    a = x.numpy()
    for dim in (0, 1, -1):
        named(torch.sort(x, dim), np.sort(a, dim), np.argsort(a, dim, kind="stable"))
        named(x.sort(dim=dim), np.sort(a, dim), np.argsort(a, dim, kind="stable"))
        named(torch.sort(x, dim, True), -np.sort(-a, dim), np.argsort(-a, dim, kind="stable"))
    named(torch.sort(x), np.sort(a, 1))
    named(torch.sort(x.t(), 0), np.sort(a.T, 0))
    named(torch.sort(x, descending=True), -np.sort(-a, 1))
    named(torch.sort(tensor([3, NAN, 1], dtype)), [1, 3, NAN], [2, 0, 1])
    named(torch.sort(tensor([3, NAN, 1], dtype), descending=True), [NAN, 3, 1], [1, 0, 2])
    ties = tensor([2, 1, 2, 1, 2], dtype)
    named(torch.sort(ties, stable=True), [1, 1, 2, 2, 2], [1, 3, 0, 2, 4])
    named(torch.sort(ties, stable=True, descending=True), [2, 2, 2, 1, 1], [0, 2, 4, 1, 3])
    named(torch.sort(torch.empty(0, 3)), np.zeros((0, 3)))
    named(torch.sort(tensor(2, dtype)), 2, 0)
    named(torch.sort(torch.tensor([3, 1, 2])), [1, 2, 3], [1, 2, 0])
    check_outs(lambda out: torch.sort(x, out=out), np.sort(a, 1), np.argsort(a, 1, kind="stable"), dtype)
    assert grad(lambda x: torch.sort(x)[0] * tensor([1.0, 2, 3]), [3.0, 1, 2]) == [3, 1, 2]
    with pytest.raises(IndexError, match="out of range"):
        torch.sort(x, 2)


@floats
def test_topk(dtype):  # mission: O-21
    x = tensor([[3, 7, 1, 5, 2], [1, 2, 3, 4, 5]], dtype)
    for r in (torch.topk(x, 2), x.topk(2), torch.topk(x, 2, 1), torch.topk(x, k=2, dim=-1, largest=True, sorted=True)):
        named(r, [[7, 5], [5, 4]], [[1, 3], [4, 3]])
    named(torch.topk(x, 2, largest=False), [[1, 2], [1, 2]], [[2, 4], [0, 1]])
    named(torch.topk(x, 1, 0), [[3, 7, 3, 5, 5]], [[0, 0, 1, 0, 1]])
    named(torch.topk(x.t(), 2, 0), [[7, 5], [5, 4]], [[1, 4], [3, 3]])
    r = torch.topk(x, 3, sorted=False)
    near(torch.sort(r.values)[0], [[3, 5, 7], [3, 4, 5]])
    near(x.gather(1, r.indices), r.values.numpy())
    named(torch.topk(tensor([3, NAN, 1], dtype), 2), [NAN, 3], [1, 0])
    named(torch.topk(x, 0), np.zeros((2, 0)))
    named(torch.topk(torch.tensor([3, 1, 2]), 2), [3, 2], [0, 2])
    named(torch.topk(tensor(3, dtype), 1), 3, 0)
    big = numbers((1000,), dtype)
    named(torch.topk(big, 10), np.sort(big.numpy())[::-1][:10], np.argsort(-big.numpy())[:10])
    check_outs(lambda out: torch.topk(x, 2, out=out), [[7, 5], [5, 4]], [[1, 3], [4, 3]], dtype)
    assert grad(lambda x: torch.topk(x, 2)[0], [3.0, 1, 2]) == [1, 0, 1]
    for k in (6, -1):
        with pytest.raises(RuntimeError, match="out of range"):
            torch.topk(x, k)
    with pytest.raises(IndexError, match="out of range"):
        torch.topk(x, 1, 2)
    with pytest.raises(TypeError):
        torch.topk(x)


def test_order_of_bools():  # mission: N-07, N-08, N-11, O-09, O-20, O-21
    t = torch.tensor([True, False, True])
    for call in (lambda: torch.median(t), lambda: torch.median(t, 0), lambda: torch.kthvalue(t, 1), lambda: torch.topk(t, 1)):
        with pytest.raises(RuntimeError, match="[Bb]ool"):
            call()
    assert torch.sort(t)[0].tolist() == [False, True, True] and torch.mode(t)[0].item() is True
