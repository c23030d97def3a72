"""Pointwise mathematics: values, kinds of memory, `out=`, methods, in-place forms, gradients, integers, edges, the old order of arguments and
the old keywords. Each test names its mission rows; expected values come from NumPy and from mathematics."""

import math
import warnings

import numpy as np
import pytest

import rushlight as torch

INF, NAN = math.inf, math.nan
FLOATS = (torch.float32, torch.float64)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def tensor(values, dtype=torch.float64, **kw):
    return torch.tensor(values, dtype=dtype, **kw)


def numbers(shape, low, high, dtype):
    return torch.from_numpy(np.random.RandomState(0).uniform(low, high, shape)).to(dtype)


def near(actual, expected, ulps=8):
    """Equal up to rounding, nan where nan is expected."""
    a, e = actual.detach().numpy(), np.asarray(expected)
    assert a.shape == e.shape, (a.shape, e.shape)
    if a.dtype.kind == "f":
        tolerance = ulps * np.finfo(a.dtype).eps
        np.testing.assert_allclose(a, e.astype(a.dtype), rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(a, e)


def sigmoid(x):
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


def steps(x):
    return np.zeros_like(x)


KEEP, TO_FLOAT, REFUSE = "integers stay", "integers give floats", "integers are refused"
# name, NumPy's function, its derivative, where it is tried, what becomes of integers, and pairs of an edge and its value
TABLE = [
    ("abs", np.abs, np.sign, (-3, 3), KEEP, [(-INF, INF), (INF, INF), (-0.0, 0.0), (-2.5, 2.5)]),  # mission: M-01
    ("acos", np.arccos, lambda x: -1 / np.sqrt(1 - x * x), (-0.99, 0.99), TO_FLOAT,
     [(1, 0.0), (-1, math.pi), (1.0001, NAN), (-1.0001, NAN), (INF, NAN), (0, math.pi / 2)]),  # mission: M-02
    ("asin", np.arcsin, lambda x: 1 / np.sqrt(1 - x * x), (-0.99, 0.99), TO_FLOAT,
     [(1, math.pi / 2), (-1, -math.pi / 2), (1.0001, NAN), (-1.0001, NAN), (-INF, NAN), (0, 0.0)]),  # mission: M-03
    ("atan", np.arctan, lambda x: 1 / (1 + x * x), (-3, 3), TO_FLOAT,
     [(INF, math.pi / 2), (-INF, -math.pi / 2), (1, math.pi / 4), (0, 0.0)]),  # mission: M-04
    ("ceil", np.ceil, steps, (-3, 3), KEEP, [(2.1, 3), (-2.1, -2), (2, 2), (-2, -2), (INF, INF), (-INF, -INF)]),  # mission: M-05
    ("cos", np.cos, lambda x: -np.sin(x), (-3, 3), TO_FLOAT, [(0, 1), (math.pi, -1), (INF, NAN), (-INF, NAN)]),  # mission: M-06
    ("cosh", np.cosh, np.sinh, (-3, 3), TO_FLOAT, [(0, 1), (INF, INF), (-INF, INF), (1000, INF)]),  # mission: M-07
    ("exp", np.exp, np.exp, (-3, 3), TO_FLOAT, [(-INF, 0), (INF, INF), (0, 1), (1000, INF), (-1000, 0)]),  # mission: M-08
    ("floor", np.floor, steps, (-3, 3), KEEP, [(2.9, 2), (-2.1, -3), (2, 2), (-2, -2), (INF, INF), (-INF, -INF)]),  # mission: M-09
    ("frac", lambda x: x - np.trunc(x), np.ones_like, (-3, 3), REFUSE, [(2.75, 0.75), (-2.75, -0.75), (4, 0), (-0.5, -0.5)]),  # mission: M-10
    ("log", np.log, lambda x: 1 / x, (0.1, 5), TO_FLOAT, [(0, -INF), (-0.0, -INF), (-1, NAN), (-INF, NAN), (INF, INF), (1, 0)]),  # mission: M-11
    ("log1p", np.log1p, lambda x: 1 / (1 + x), (-0.9, 5), TO_FLOAT,
     [(0, 0), (-1, -INF), (-2, NAN), (INF, INF), (1e-20, 1e-20), (-1e-12, -1e-12)]),  # mission: M-12
    ("neg", np.negative, lambda x: -np.ones_like(x), (-3, 3), KEEP, [(INF, -INF), (-INF, INF), (2, -2)]),  # mission: M-13
    ("reciprocal", lambda x: 1 / x, lambda x: -1 / x**2, (0.3, 3), TO_FLOAT, [(0.0, INF), (-0.0, -INF), (INF, 0), (-4, -0.25)]),  # mission: M-14
    ("round", np.rint, steps, (-3, 3), KEEP,
     [(0.5, 0), (1.5, 2), (2.5, 2), (-0.5, 0), (-1.5, -2), (-2.5, -2), (2.51, 3), (INF, INF)]),  # mission: M-15
    ("rsqrt", lambda x: 1 / np.sqrt(x), lambda x: -0.5 * x**-1.5, (0.1, 5), TO_FLOAT, [(0.0, INF), (-1, NAN), (4, 0.5), (INF, 0)]),  # mission: M-16
    ("sigmoid", sigmoid, lambda x: sigmoid(x) * sigmoid(-x), (-5, 5), TO_FLOAT,
     [(0, 0.5), (1000, 1), (-1000, 0), (INF, 1), (-INF, 0), (-80, math.exp(-80))]),  # mission: M-17
    ("sign", np.sign, steps, (-3, 3), KEEP, [(2.5, 1), (-0.1, -1), (0, 0), (-0.0, 0), (INF, 1), (-INF, -1)]),  # mission: M-18
    ("sin", np.sin, np.cos, (-3, 3), TO_FLOAT, [(0, 0), (math.pi / 2, 1), (INF, NAN)]),  # mission: M-19
    ("sinh", np.sinh, np.cosh, (-3, 3), TO_FLOAT, [(0, 0), (INF, INF), (-INF, -INF), (1000, INF), (-1000, -INF), (1e-6, 1e-6)]),  # mission: M-20
    ("sqrt", np.sqrt, lambda x: 0.5 / np.sqrt(x), (0.1, 5), TO_FLOAT, [(0, 0), (4, 2), (-1, NAN), (-INF, NAN), (INF, INF)]),  # mission: M-21
    ("tan", np.tan, lambda x: 1 + np.tan(x) ** 2, (-1.2, 1.2), TO_FLOAT, [(0, 0), (math.pi / 4, 1), (INF, NAN)]),  # mission: M-22
    ("tanh", np.tanh, lambda x: 1 / np.cosh(x) ** 2, (-3, 3), TO_FLOAT, [(1000, 1), (-1000, -1), (INF, 1), (-INF, -1), (0, 0)]),  # mission: M-23
    ("trunc", np.trunc, steps, (-3, 3), KEEP, [(2.9, 2), (-2.9, -2), (-0.5, 0), (INF, INF), (-INF, -INF)]),  # mission: M-24
]
row = pytest.mark.parametrize("name, exact, derivative, span, integers, edges", TABLE, ids=[r[0] for r in TABLE])


@pytest.mark.parametrize("dtype", FLOATS, ids=["float32", "float64"])
@row
def test_values(name, exact, derivative, span, integers, edges, dtype):  # mission: M-01 to M-24, T-02, T-06
    f = getattr(torch, name)
    for shape in ((7,), (3, 4), (), (2, 3, 2), (300, 301)):     # the last is big enough for a generated loop
        x = numbers(shape, *span, dtype)
        before = x.clone()
        y = f(x)
        assert y.dtype is dtype and y.shape == x.shape
        near(y, exact(x.numpy().astype(np.float64)), ulps=16)
        near(getattr(x, name)(), y.numpy(), 0)
        near(f(input=x), y.numpy(), 0)
        assert torch.equal(x, before)
    for value, expected in edges:
        near(f(tensor([value], dtype)), [expected])
        near(f(tensor(value, dtype)), expected)
        near(f(torch.full((20,), value, dtype=dtype)), [expected] * 20)
    expected = 0.0 if name == "sign" else NAN
    near(f(tensor([NAN], dtype)), [expected])


@pytest.mark.parametrize("dtype", FLOATS, ids=["float32", "float64"])
@row
def test_memory(name, exact, derivative, span, integers, edges, dtype):  # mission: M-01 to M-24
    f = getattr(torch, name)
    x = numbers((6, 8), *span, dtype)
    for view in (x.t(), x[::2, 1::3], x[:, 3], x[2], x[:1].expand(5, 8), x.view(2, 3, 8).permute(2, 0, 1), x[1:1], x[:0].t()):
        y = f(view)
        assert y.shape == view.shape and y.dtype is dtype
        near(y, exact(view.numpy().astype(np.float64)), ulps=16)
        assert y.data_ptr() != x.data_ptr() or not y.numel()
    for shape in ((0,), (0, 3), (2, 0), (3, 0, 2)):
        e = torch.empty(shape, dtype=dtype)
        assert f(e).shape == shape and f(e).dtype is dtype
        assert getattr(e, name + "_")() is e and f(e, out=torch.empty(0, dtype=dtype)).shape == shape


@pytest.mark.parametrize("dtype", FLOATS, ids=["float32", "float64"])
@row
def test_out(name, exact, derivative, span, integers, edges, dtype):  # mission: M-01 to M-24
    f = getattr(torch, name)
    x = numbers((3, 4), *span, dtype)
    y = f(x)
    out = torch.full((3, 4), 9, dtype=dtype)
    where = out.data_ptr()
    assert f(x, out=out) is out and torch.equal(out, y) and out.data_ptr() == where
    assert torch.equal(f(x, out=None), y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = torch.empty(0, dtype=dtype)
        assert f(x, out=out) is out and torch.equal(out, y)
    out = torch.empty(5, dtype=dtype)
    with pytest.warns(UserWarning, match="resized"):
        assert f(x, out=out) is out and torch.equal(out, y)
    base = torch.zeros(4, 6, dtype=dtype)
    assert torch.equal(f(x, out=base[:, ::2].t()), y)
    assert torch.equal(base[:, ::2], y.t()) and not base[:, 1::2].any()
    same = x.clone()
    assert f(same, out=same) is same and torch.equal(same, y)
    for out, error in ((torch.empty(3, 4, dtype=torch.int64), RuntimeError), (torch.empty(1, 4, dtype=dtype).expand(3, 4), RuntimeError),
                       (torch.empty(3, 4, dtype=dtype, requires_grad=True), RuntimeError), (3, TypeError)):
        with pytest.raises(error):
            f(x, out=out)
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        f(x.clone().requires_grad_(), out=torch.empty(3, 4, dtype=dtype))
    other = torch.empty(3, 4, dtype=torch.float64 if dtype is torch.float32 else torch.float32)
    if integers is TO_FLOAT:
        assert f(x, out=other) is other
        np.testing.assert_allclose(other.numpy(), exact(x.numpy().astype(np.float64)), rtol=1e-5, atol=1e-6)
    else:
        with pytest.raises(RuntimeError, match="dtype"):
            f(x, out=other)
    line = numbers((5,), *span, dtype)
    with pytest.raises(RuntimeError, match="memory"):
        f(line[:-1], out=line[1:])


@pytest.mark.parametrize("dtype", FLOATS, ids=["float32", "float64"])
@row
def test_in_place(name, exact, derivative, span, integers, edges, dtype):  # mission: M-01 to M-24, T-01, T-03
    x = numbers((3, 4), *span, dtype)
    y, where, write = getattr(x, name)(), x.data_ptr(), name + "_"
    assert getattr(x, write)() is x and x.data_ptr() == where and torch.equal(x, y)
    base = numbers((4, 6), *span, dtype)
    before = base.clone()
    part = base[1::2, ::3]
    getattr(part, write)()
    assert torch.equal(base[1::2, ::3], getattr(before[1::2, ::3], name)()) and torch.equal(base[::2], before[::2])
    with pytest.raises(RuntimeError, match="leaf"):
        getattr(numbers((3,), *span, dtype).requires_grad_(), write)()
    with pytest.raises(RuntimeError, match="memory"):
        getattr(torch.ones(1, dtype=dtype).expand(3), write)()


@row
def test_gradient(name, exact, derivative, span, integers, edges):  # mission: M-01 to M-24
    f = getattr(torch, name)
    for dtype in FLOATS:
        data = numbers((5, 4), *span, dtype)
        weight = numbers((5, 4), -1, 1, dtype)
        expected = weight.numpy().astype(np.float64) * derivative(data.numpy().astype(np.float64))
        x = data.clone().requires_grad_()
        f(x).backward(weight)
        near(x.grad, expected, ulps=64)
        x = data.clone().requires_grad_()
        y = x.clone()
        getattr(y, name + "_")()
        y.backward(weight)
        near(x.grad, expected, ulps=64)
        x = data.clone().requires_grad_()
        (f(x.t()) * weight.t()).sum().backward()                 # through a strided operand
        near(x.grad, expected, ulps=64)
    x = numbers((4,), *span, torch.float64).requires_grad_()
    assert torch.autograd.gradgradcheck(f, (x,))
    e = torch.empty(0, 3, requires_grad=True)
    f(e).sum().backward()
    assert e.grad.shape == (0, 3)


@pytest.mark.parametrize("dtype", INTEGERS, ids=[str(d).split(".")[-1] for d in INTEGERS])
@row
def test_integers(name, exact, derivative, span, integers, edges, dtype):  # mission: M-01 to M-24
    f = getattr(torch, name)
    x = tensor([1, 0, 2] if dtype is torch.uint8 else [1, 0, -2], dtype)
    before = x.clone()
    if integers is REFUSE:
        for call in (f, getattr(torch.Tensor, name + "_")):
            with pytest.raises(RuntimeError):
                call(x)
        return
    y = f(x)
    if integers is KEEP:
        assert y.dtype is dtype
        near(y, exact(x.numpy()))
        assert getattr(x, name + "_")() is x and torch.equal(x, y)
        return
    assert y.dtype is torch.float32
    with np.errstate(all="ignore"):
        near(y, exact(x.numpy().astype(np.float64)))
    near(f(x, out=torch.empty(3, dtype=torch.float64)), y.numpy(), 0)
    with pytest.raises(RuntimeError, match="can't be cast"):
        getattr(x, name + "_")()
    with pytest.raises(RuntimeError, match="can't be cast"):
        f(x, out=torch.empty(3, dtype=dtype))
    assert torch.equal(x, before)
    try:
        torch.set_default_dtype(torch.float64)
        assert f(x).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@row
def test_bools_and_wrong_arguments(name, exact, derivative, span, integers, edges):  # mission: M-01 to M-24
    f = getattr(torch, name)
    x = tensor([True, False], torch.bool)
    if name == "sign":
        assert f(x).tolist() == [True, False]
    elif integers is TO_FLOAT:
        with np.errstate(all="ignore"):
            near(f(x), exact(np.array([1.0, 0.0])))
    else:
        with pytest.raises(RuntimeError):
            f(x)
    for arguments, keywords in (((3,), {}), ((2.5,), {}), (([1.0],), {}), ((None,), {}), ((), {}), ((torch.ones(2), 1, 2), {}),
                                ((torch.ones(2),), {"other": 1})):
        with pytest.raises(TypeError):
            f(*arguments, **keywords)


def test_beyond_the_table():  # mission: M-12, M-14, M-17, M-23
    x = tensor([1e-10, -1e-10, 1e-17])
    near(torch.log1p(x), [1e-10 - 5e-21, -1e-10 - 5e-21, 1e-17], 1)
    near(torch.sigmoid(tensor([40.0, -40.0, 745.0, -740.0])), [1 / (1 + math.exp(-40)), math.exp(-40), 1.0, math.exp(-740.0)])
    x = tensor([1e4, -1e4], torch.float32, requires_grad=True)
    (torch.sigmoid(x) + torch.tanh(x)).sum().backward()
    assert x.grad.tolist() == [0, 0]
    assert torch.reciprocal(torch.tensor([4, 0])).tolist() == [0.25, INF]
    x = tensor([0.0, NAN, 2.0], requires_grad=True)
    torch.abs(x).sum().backward()
    assert x.grad.tolist() == [0, 0, 1]         # PyTorch 2.13 gives 0 at nan too


# --- functions of several operands ------------------------------------------------------------------------------------
def both_ways(name, expected, *operands, **keywords):
    """Function, method, in-place form and `out=` agree with what is expected."""
    x = operands[0]
    f = getattr(torch, name)
    y = f(*operands, **keywords)
    near(y, expected)
    near(getattr(x, name)(*operands[1:], **keywords), expected)
    out = torch.empty_like(y)
    assert f(*operands, out=out, **keywords) is out
    near(out, expected)
    if y.shape == x.shape and y.dtype is x.dtype:
        c = x.clone()
        assert getattr(c, name + "_")(*operands[1:], **keywords) is c
        near(c, expected)


@pytest.mark.parametrize("dtype", FLOATS, ids=["float32", "float64"])
def test_add_numbers(dtype):  # mission: M-26, M-42
    x = tensor([[1, -2.5], [0, 4]], dtype)
    for n in (10, 2.5, -1, True):
        both_ways("add", x.numpy() + n, x, n)
        both_ways("mul", x.numpy() * n, x, n)
    assert torch.add(x.t()[:, ::2], 1).tolist() == [[2], [-1.5]] and torch.add(torch.empty(0, 3), 1).shape == (0, 3)
    assert torch.mul(x.t()[:, ::2], 2).tolist() == [[2], [-5]] and torch.mul(torch.empty(0, 3), 2).shape == (0, 3)
    x.requires_grad_()
    (torch.add(x, 3) * 2 + torch.mul(x, 4)).sum().backward()
    assert x.grad.tolist() == [[6, 6], [6, 6]]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_add_numbers_to_integers(dtype):  # mission: M-26, M-42
    i = tensor([1, 2, 3], dtype)
    assert torch.add(i, 2).dtype is dtype and torch.add(i, 2).tolist() == [3, 4, 5] and torch.mul(i, 2).tolist() == [2, 4, 6]
    assert torch.add(i, 1.5).dtype is torch.float32 and torch.add(i, 1.5).tolist() == [2.5, 3.5, 4.5]
    assert torch.mul(i, 1.5).dtype is torch.float32 and torch.mul(i, 1.5).tolist() == [1.5, 3, 4.5]
    for write in (i.add_, i.mul_):
        with pytest.raises(RuntimeError, match="can't be cast"):
            write(1.5)
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.add(i, 1.5, out=torch.empty(3, dtype=dtype))
    assert i.tolist() == [1, 2, 3] and i.add_(4) is i and i.mul_(2).tolist() == [10, 12, 14]
    for bad in ("1", [1], object()):
        with pytest.raises(TypeError):
            torch.add(i, bad)
        with pytest.raises(TypeError):
            torch.mul(i, bad)


@pytest.mark.filterwarnings("ignore:this overload")
@pytest.mark.parametrize("dtype", FLOATS, ids=["float32", "float64"])
def test_add_with_factor(dtype):  # mission: M-27
    x, y = tensor([1, 2], dtype), tensor([3, -4], dtype)
    both_ways("add", [31, -38], x, 10, y)
    both_ways("add", [31, -38], x, y, alpha=10)
    both_ways("add", [2.5, 0], x, 0.5, y)
    both_ways("sub", [-29, 42], x, 10, y)
    assert torch.add(x, 2, tensor([[1], [2]], dtype)).tolist() == [[3, 4], [5, 6]]
    assert torch.add(torch.empty(0), 2, torch.empty(0)).shape == (0,)
    assert torch.add(x.expand(3, 2)[:, ::2], 2, y.expand(3, 2)[:, 1:]).tolist() == [[-7]] * 3
    a, b = x.clone().requires_grad_(), y.clone().requires_grad_()
    torch.add(a, 10, b).sum().backward()
    assert a.grad.tolist() == [1, 1] and b.grad.tolist() == [10, 10]
    with pytest.raises(RuntimeError, match="size"):
        torch.add(x, 2, torch.ones(3, dtype=dtype))


@pytest.mark.filterwarnings("ignore:this overload")
def test_add_with_factor_of_integers():  # mission: M-27
    i = torch.tensor([1, 2])
    assert torch.add(i, 3, i).tolist() == [4, 8] and torch.add(i, 3, i).dtype is torch.int64
    for call in (lambda: torch.add(i, 1.5, i), lambda: torch.add(i, i, alpha=1.5), lambda: i.add_(1.5, i), lambda: i.add(i, alpha=1.5)):
        with pytest.raises(RuntimeError, match="alpha must not be a floating point number"):
            call()
    with pytest.raises(RuntimeError, match="overflow"):
        torch.add(i.to(torch.int8), i.to(torch.int8), alpha=1000)
    assert i.tolist() == [1, 2]


def test_old_keywords():  # mission: M-28
    x, y = tensor([5.0, -2.0]), tensor([3.0, 4.0])
    cases = [
        ("add", {"value": 10}, [15, 8]), ("add", {"value": 10, "other": y}, [35, 38]), ("mul", {"value": 3}, [15, -6]),
        ("div", {"value": 2}, [2.5, -1]), ("fmod", {"divisor": 3}, [2, -2]), ("fmod", {"divisor": y}, [2, -2]),
        ("remainder", {"divisor": 3}, [2, 1]), ("remainder", {"divisor": y}, [2, 2]), ("sub", {"value": 10, "other": y}, [-25, -42]),
    ]
    for name, keywords, expected in cases:
        both_ways(name, expected, x, **keywords)
        near(getattr(torch, name)(input=x, **keywords), expected)
    near(torch.atan2(input1=x, input2=y), np.arctan2([5, -2], [3, 4]))
    near(x.atan2(input2=y), np.arctan2([5, -2], [3, 4]))
    near(torch.pow(base=2, input=x), [32, 0.25])
    near(torch.pow(base=x, exponent=2), [25, 4])
    out = torch.empty(2, dtype=torch.float64)
    assert torch.pow(base=2.0, input=x, out=out) is out and out.tolist() == [32, 0.25]
    near(torch.exp(tensor=x), np.exp([5, -2]))
    near(torch.frac(tensor=x / 4), [0.25, -0.5])
    near(torch.addcmul(tensor=x, value=2, tensor1=x, tensor2=y), [35, -18])
    near(torch.addcdiv(tensor=x, value=2, tensor1=x, tensor2=y), [5 + 10 / 3, -3])
    near(torch.addcmul(tensor=x, tensor1=x, tensor2=y), [20, -10])
    near(torch.lerp(start=x, end=y, weight=0.5), [4, 1])
    for name in ("abs", "ceil", "sin", "trunc"):
        near(getattr(torch, name)(tensor=x), getattr(torch, name)(x).numpy())
    a = x.clone().requires_grad_()
    torch.add(input=a, value=10, other=a).sum().backward()
    assert a.grad.tolist() == [11, 11]
    with pytest.raises(RuntimeError, match="alpha"):
        torch.add(torch.tensor([1]), value=1.5, other=torch.tensor([1]))
    for name, arguments, keywords in (("exp", (x,), {"tensor": x}), ("mul", (x, y), {"value": 2}), ("add", (x,), {"other": y, "value": 2, "alpha": 3}),
                                      ("add", (x,), {"worth": 2}), ("exp", (), {"tensor": 2})):
        with pytest.raises(TypeError):
            getattr(torch, name)(*arguments, **keywords)


@pytest.mark.filterwarnings("ignore:this overload")
@pytest.mark.parametrize("dtype", FLOATS, ids=["float32", "float64"])
@pytest.mark.parametrize("name", ["addcdiv", "addcmul"])
def test_addc(name, dtype):  # mission: M-30, M-31
    def ideal(t, a, b, v=1):
        return t + v * (a / b if name == "addcdiv" else a * b)

    t, a, b = (numbers((3, 4), 0.5, 3, dtype) + k for k in range(3))
    T, A, B = (x.numpy() for x in (t, a, b))
    both_ways(name, ideal(T, A, B), t, a, b)
    both_ways(name, ideal(T, A, B, 2.5), t, 2.5, a, b)           # the seed's order
    both_ways(name, ideal(T, A, B, 2.5), t, a, b, value=2.5)
    f = getattr(torch, name)
    near(f(t, a[:, :1], b[0], value=-2), ideal(T, A[:, :1], B[0], -2))
    near(f(t[::2].t(), a[::2].t(), b[::2].t()), ideal(T[::2].T, A[::2].T, B[::2].T))
    assert f(torch.empty(0, 2), torch.empty(0, 2), torch.ones(2)).shape == (0, 2)
    for bad in (torch.ones(3, 5, dtype=dtype), torch.ones(5, dtype=dtype)):
        with pytest.raises(RuntimeError, match="size"):
            f(t, a, bad)
    with pytest.raises(RuntimeError):
        getattr(torch.ones(1, dtype=dtype), name + "_")(torch.ones(3, dtype=dtype), torch.ones(3, dtype=dtype))
    leaves = [x.clone().requires_grad_() for x in (t, a, b)]
    f(leaves[0], 2, *leaves[1:]).sum().backward()
    near(leaves[0].grad, np.ones_like(T))
    near(leaves[1].grad, 2 / B if name == "addcdiv" else 2 * B)
    near(leaves[2].grad, -2 * A / B**2 if name == "addcdiv" else 2 * A)
    for call in (lambda: f(t, a), lambda: f(t, a, 2.0), lambda: f(t, 1, 2, a, b)):
        with pytest.raises(TypeError):
            call()


@pytest.mark.filterwarnings("ignore:this overload")
def test_addc_of_integers():  # mission: M-30, M-31
    i = torch.tensor([1, 2])
    for call in (lambda: torch.addcdiv(i, i, i), lambda: torch.addcdiv(i, 2, i, i), lambda: i.addcdiv_(i, i), lambda: torch.addcdiv(i.float(), i, i)):
        with pytest.raises(RuntimeError, match="[Ii]nteger division"):
            call()
    assert torch.addcdiv(i, i.float(), i).tolist() == [2, 3]
    both_ways("addcmul", [3, 10], i, 2, i, i)
    both_ways("addcmul", [3, 10], i, i, i, value=2.7)       # PyTorch 2.13 cuts the factor off, and so does a compiled call
    compiled = torch.compile(lambda a: torch.addcmul(a, a, a, value=2.7))
    assert [compiled(i).tolist() for _ in range(4)] == [[3, 10]] * 4
    assert torch.addcmul(i, i, i).dtype is torch.int64 and torch.addcmul(i.int(), i, i).dtype is torch.int64
    for value in (1000, -1000.0, NAN, 2 + 1j):
        with pytest.raises(RuntimeError, match="overflow"):
            torch.addcmul(i.to(torch.int8), i.to(torch.int8), i.to(torch.int8), value=value)


@pytest.mark.parametrize("dtype", FLOATS, ids=["float32", "float64"])
def test_atan2(dtype):  # mission: M-33
    y = tensor([1, 1, -1, -1, 0, 0, -0.0, 1, -1, INF, INF, -INF, NAN, 3], dtype)
    x = tensor([1, -1, 1, -1, 1, -1, -1, 0, 0, INF, -INF, 1, 1, 4], dtype)
    p = math.pi
    expected = [p / 4, 3 * p / 4, -p / 4, -3 * p / 4, 0, p, -p, p / 2, -p / 2, p / 4, 3 * p / 4, -p / 2, NAN, math.atan(0.75)]
    both_ways("atan2", expected, y, x)
    near(torch.atan2(y[:3, None], x[:2]), np.arctan2(y.numpy()[:3, None], x.numpy()[:2]))
    near(torch.atan2(y[::2], x[::2]), np.arctan2(y.numpy()[::2], x.numpy()[::2]))
    assert torch.atan2(torch.empty(0), torch.empty(0)).shape == (0,)
    a, b = tensor([1, 2, 0], dtype, requires_grad=True), tensor([-3, 4, 0], dtype, requires_grad=True)
    torch.atan2(a, b).sum().backward()
    near(a.grad, [-3 / 10, 4 / 20, 0])       # at the origin PyTorch 2.13 gives 0
    near(b.grad, [-1 / 10, -2 / 20, 0])
    assert torch.atan2(torch.tensor([1, -1]), torch.tensor([1, 1])).dtype is torch.float32
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.tensor([1, -1]).atan2_(torch.tensor([1, 1]))
    with pytest.raises(RuntimeError, match="size"):
        torch.atan2(torch.ones(2), torch.ones(3))
    for bad in (1.0, None, [1.0]):
        with pytest.raises(TypeError):
            torch.atan2(torch.ones(2), bad)


@pytest.mark.parametrize("dtype", FLOATS, ids=["float32", "float64"])
def test_clamp(dtype):  # mission: M-34, M-35, M-36
    x = tensor([-2, -0.5, 0, 0.5, 2, NAN, INF, -INF], dtype)
    both_ways("clamp", [-1, -0.5, 0, 0.5, 1, NAN, 1, -1], x, -1, 1)
    both_ways("clamp", [-1, -0.5, 0, 0.5, 1, NAN, 1, -1], x, min=-1, max=1)
    both_ways("clamp", [-1, -1, -1, -1, -1, NAN, -1, -1], x, 1, -1)           # min above max gives max
    both_ways("clamp", [-1, -0.5, 0, 0.5, 2, NAN, INF, -1], x, min=-1)
    both_ways("clamp", [-2, -0.5, 0, 0.5, 1, NAN, 1, -INF], x, max=1)
    low, high = torch.full_like(x, -1), torch.full_like(x, 1)
    both_ways("clamp", [-1, -0.5, 0, 0.5, 1, NAN, 1, -1], x, low, high)
    both_ways("clamp", [-1, -0.5, 0, 0.5, 2, NAN, INF, -1], x, min=low)
    both_ways("clamp", [-1, -1, -1, -1, -1, NAN, -1, -1], x, high, low)
    near(torch.clamp(x[:4], tensor([[1], [-1]], dtype)), [[1, 1, 1, 1], [-1, -0.5, 0, 0.5]])
    near(x[:4].view(2, 2).t().clamp(-1, 0.2), [[-1, 0], [-0.5, 0.2]])
    assert torch.clamp(torch.empty(0, 2), 0, 1).shape == (0, 2)
    for call in (lambda: torch.clamp(x), lambda: x.clamp(), lambda: x.clamp_(), lambda: torch.clamp(x, None, None), lambda: x.clamp(min=None)):
        with pytest.raises(RuntimeError, match="At least one"):
            call()
    with pytest.raises(TypeError):
        torch.clamp(x, "0")
    for bounds, expected in (((-1, 1), [0, 1, 1, 1, 0]), ((None, 0), [1, 1, 1, 0, 0]), ((0, None), [0, 0, 1, 1, 1]), ((1, -1), [0, 0, 0, 0, 0])):
        y = tensor([-2, -1, 0, 1, 2], dtype, requires_grad=True)
        torch.clamp(y, *bounds).sum().backward()
        # PyTorch 2.13's mask is min <= x <= max
        assert y.grad.tolist() == expected, bounds


def test_clamp_integers():  # mission: M-34, M-35, M-36
    i = torch.tensor([-2, 0, 5])
    both_ways("clamp", [-1, 0, 1], i, -1, 1)
    both_ways("clamp", [-1, 0, 5], i, min=-1)
    both_ways("clamp", [-2, 0, 1], i, max=1)
    assert i.clamp(-1.5, 1.5).tolist() == [-1.5, 0, 1.5]
    with pytest.raises(RuntimeError, match="can't be cast"):
        i.clamp_(-1.5, 1.5)
    with pytest.raises(RuntimeError, match="overflow"):
        i.to(torch.int8).clamp(-1000)
    with pytest.raises(RuntimeError):
        torch.clamp(torch.ones(2), 0, 1, out=torch.empty(2, dtype=torch.int64))


@pytest.mark.parametrize("dtype", FLOATS, ids=["float32", "float64"])
def test_div(dtype):  # mission: M-37
    x = tensor([7, -7, 0, 1], dtype)
    both_ways("div", [3.5, -3.5, 0, 0.5], x, 2)
    both_ways("div", [INF, -INF, NAN, INF], x, 0)
    both_ways("div", [7 / 4, -7 / 4, 0, 0.25], x, torch.full_like(x, 4))
    both_ways("div", [3, -4, 0, 0], x, 2, rounding_mode="floor")
    both_ways("div", [3, -3, 0, 0], x, 2, rounding_mode="trunc")
    near(x // 2, [3, -4, 0, 0])
    near(torch.div(x[:3, None], x[:2]), x.numpy()[:3, None] / x.numpy()[:2])
    near(torch.div(x[::2], 2), [3.5, 0])
    assert torch.div(torch.empty(0), 2).shape == (0,)
    a, b = tensor([1, 2], dtype, requires_grad=True), tensor([3, 4], dtype, requires_grad=True)
    torch.div(a, b).sum().backward()
    near(a.grad, [1 / 3, 1 / 4])
    near(b.grad, [-1 / 9, -2 / 16])
    with pytest.raises(RuntimeError, match="size"):
        torch.div(torch.ones(2), torch.ones(3))
    with pytest.raises(RuntimeError, match="rounding_mode"):
        torch.div(x, 2, rounding_mode="up")


def test_div_integers():  # mission: M-37
    i = torch.tensor([7, -7, 0])
    assert torch.div(i, 2).dtype is torch.float32 and torch.div(i, 2).tolist() == [3.5, -3.5, 0] and (i / 2).tolist() == [3.5, -3.5, 0]
    near(torch.div(i, 0), [INF, -INF, NAN])
    near(torch.div(i, torch.tensor([0, 0, 0])), [INF, -INF, NAN])
    both_ways("div", [3, -4, 0], i, 2, rounding_mode="floor")
    both_ways("div", [3, -3, 0], i, 2, rounding_mode="trunc")
    assert torch.div(i, 2, rounding_mode="floor").dtype is torch.int64 and (i // 2).tolist() == [3, -4, 0] and (i // 2).dtype is torch.int64
    for call in (lambda: torch.div(i, 0, rounding_mode="floor"), lambda: torch.div(i, 0, rounding_mode="trunc"), lambda: i // 0):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            call()
    with pytest.raises(RuntimeError, match="can't be cast"):
        i.div_(2)
    i //= 2
    assert i.tolist() == [3, -4, 0] and (1 / torch.tensor([2, 0])).tolist() == [0.5, INF]


@pytest.mark.parametrize("dtype", FLOATS, ids=["float32", "float64"])
def test_remainders(dtype):  # mission: M-39, M-40
    x = tensor([7, -7, 5.5, -5.5, 0], dtype)
    for d in (3, -3, 2.5):
        both_ways("fmod", np.fmod(x.numpy(), np.float64(d)), x, d)
        both_ways("remainder", np.remainder(x.numpy(), np.float64(d)), x, d)
    d = tensor([2.5, 2.5, -2, 2, 1], dtype)
    both_ways("fmod", np.fmod(x.numpy(), d.numpy()), x, d)
    both_ways("remainder", np.remainder(x.numpy(), d.numpy()), x, d)
    assert torch.remainder(x, 3).tolist() == [v % 3 for v in x.tolist()] and (x % -3).tolist() == [v % -3 for v in x.tolist()]
    near(torch.fmod(x, 0), [NAN] * 5)
    near(torch.remainder(x, 0), [NAN] * 5)
    near(torch.fmod(tensor([INF, 1, -1], dtype), tensor([2, INF, INF], dtype)), [NAN, 1, -1])
    near(torch.remainder(tensor([INF, 1, -1], dtype), tensor([2, INF, INF], dtype)), [NAN, 1, INF])
    near(torch.fmod(x[:3, None], d[:2]), np.fmod(x.numpy()[:3, None], d.numpy()[:2]))
    near(torch.remainder(x[::2], 2), [1, 1.5, 0])
    assert torch.fmod(torch.empty(0), 2).shape == (0,) and torch.remainder(torch.empty(0), 2).shape == (0,)
    for name, slopes in (("fmod", [-2, 1]), ("remainder", [-2, 2])):
        a, b = tensor([7, -7], dtype, requires_grad=True), tensor([3, 4], dtype, requires_grad=True)
        getattr(torch, name)(a, b).sum().backward()
        assert a.grad.tolist() == [1, 1] and b.grad.tolist() == slopes      # minus the quotient, cut off or rounded down


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_remainders_of_integers(dtype):  # mission: M-39, M-40
    values = [7, 9, 5] if dtype is torch.uint8 else [7, -9, 5]
    i = tensor(values, dtype)
    for d in (3, 4) if dtype is torch.uint8 else (3, -4):
        both_ways("fmod", [int(math.fmod(v, d)) for v in values], i, d)
        both_ways("remainder", [v % d for v in values], i, d)
        both_ways("remainder", [v % d for v in values], i, torch.full_like(i, d))
        assert torch.fmod(i, d).dtype is dtype and torch.remainder(i, d).dtype is dtype and (i % d).tolist() == [v % d for v in values]
    assert torch.fmod(i, 2.5).dtype is torch.float32 and torch.remainder(i, 2.5).tolist() == [v % 2.5 for v in values]
    for f in (torch.fmod, torch.remainder, torch.Tensor.fmod_, torch.Tensor.remainder_):
        for zero in (0, torch.tensor([1, 0, 1]).to(dtype)):
            with pytest.raises(RuntimeError, match="ZeroDivisionError"):
                f(i, zero)
    for f in (torch.Tensor.fmod_, torch.Tensor.remainder_):
        with pytest.raises(RuntimeError, match="can't be cast"):
            f(i, 2.5)
    assert (7 % torch.tensor([4, -4])).tolist() == [3, -1] and torch.remainder(7, torch.tensor([2, -3])).tolist() == [1, -2]


@pytest.mark.parametrize("dtype", FLOATS, ids=["float32", "float64"])
def test_lerp(dtype):  # mission: M-41
    x, y = tensor([1, 2], dtype), tensor([3, 6], dtype)
    both_ways("lerp", [2, 4], x, y, 0.5)
    both_ways("lerp", [5, 10], x, y, 2)
    both_ways("lerp", [-2, -4], x, y, -1.5)
    both_ways("lerp", [1.5, 6], x, y, tensor([0.25, 1], dtype))
    both_ways("lerp", [1.5, 3], x, y, tensor(0.25, dtype))
    both_ways("lerp", [1, 2], x, y, 0)
    both_ways("lerp", [3, 6], x, y, 1)
    near(torch.lerp(x, y[:, None], 0.5), [[2, 2.5], [3.5, 4]])
    near(torch.lerp(x.expand(3, 2).t(), y.expand(3, 2).t(), 0.5), [[2] * 3, [4] * 3])
    assert torch.lerp(torch.empty(0), torch.empty(0), 0.5).shape == (0,)
    a, b, w = (tensor(v, dtype, requires_grad=True) for v in ([7, -7], [3, 4], [0.25, 0.75]))
    torch.lerp(a, b, w).sum().backward()
    near(a.grad, [0.75, 0.25])
    near(b.grad, [0.25, 0.75])
    near(w.grad, [-4, 11])
    other = torch.float64 if dtype is torch.float32 else torch.float32
    for call in (lambda: torch.lerp(x, y.to(other), 0.5), lambda: torch.lerp(x, y, torch.ones(2, dtype=other)), lambda: torch.lerp(x, torch.ones(3, dtype=dtype), 0.5),
                 lambda: torch.lerp(torch.tensor([1]), torch.tensor([3]), 1), lambda: torch.lerp(torch.tensor([1]), torch.tensor([3]), 0.5)):
        with pytest.raises(RuntimeError):
            call()
    with pytest.raises(TypeError):
        torch.lerp(x, 3.0, 0.5)


@pytest.mark.parametrize("dtype", FLOATS, ids=["float32", "float64"])
def test_mul(dtype):  # mission: M-43
    x, y = numbers((3, 4), -3, 3, dtype), numbers((3, 4), 0, 2, dtype)
    both_ways("mul", x.numpy() * y.numpy(), x, y)
    near(torch.mul(x, y[:, :1]), x.numpy() * y.numpy()[:, :1])
    near(torch.mul(x[0], y[:, :1]), x.numpy()[0] * y.numpy()[:, :1])
    near(torch.mul(x.t(), y.t()), (x.numpy() * y.numpy()).T)
    assert torch.mul(torch.empty(0, 2), torch.ones(2)).shape == (0, 2)
    a, b = x.clone().requires_grad_(), y[:, :1].clone().requires_grad_()
    torch.mul(a, b).sum().backward()
    near(a.grad, np.broadcast_to(b.detach().numpy(), (3, 4)))
    near(b.grad, x.numpy().sum(1, keepdims=True), 64)
    with pytest.raises(RuntimeError, match="size"):
        torch.mul(torch.ones(2), torch.ones(3))
    with pytest.raises(RuntimeError, match="shape"):
        torch.ones(1).mul_(torch.ones(3))


def test_mul_promotes():  # mission: M-43
    for a, b, expected in ((torch.float32, torch.int64, torch.float32), (torch.float32, torch.float64, torch.float64), (torch.int8, torch.uint8, torch.int16),
                           (torch.int32, torch.int64, torch.int64), (torch.bool, torch.uint8, torch.uint8), (torch.bool, torch.bool, torch.bool)):
        x, y = torch.ones(3, dtype=a), torch.ones(3, dtype=b)
        assert (x * y).dtype is torch.mul(x, y).dtype is torch.mul(y, x).dtype is expected and torch.mul(x, y).tolist() == [1, 1, 1]
    assert torch.mul(torch.tensor([1, 2]), torch.tensor(2.5, dtype=torch.float64)).dtype is torch.float64
    assert torch.mul(torch.ones(2), torch.tensor(2.5, dtype=torch.float64)).dtype is torch.float32
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.tensor([1, 2]).mul_(torch.tensor([0.5, 2.0]))


@pytest.mark.parametrize("dtype", FLOATS, ids=["float32", "float64"])
def test_pow(dtype):  # mission: M-44
    x = tensor([1, 2, -3, 0], dtype)
    for e in (2, 3, -1, 0.5, 0, -2.0, 1):
        with np.errstate(all="ignore"):
            both_ways("pow", np.power(x.numpy().astype(np.float64), e), x, e)
    e = tensor([2, -1, 3, 0], dtype)
    both_ways("pow", [1, 0.5, -27, 1], x, e)
    near(torch.pow(x[:2, None], e[:3]), np.power(x.numpy()[:2, None], e.numpy()[:3]))
    near(torch.pow(x[::2], 2), [1, 9])
    near(torch.pow(tensor([NAN, 0, NAN], dtype), tensor([0, NAN, 1], dtype)), [1, NAN, NAN])
    assert torch.pow(torch.empty(0), 2).shape == (0,)
    for e, expected in ((2, [0, 4, -6]), (0, [0, 0, 0]), (1, [1, 1, 1]), (3, [0, 12, 27])):
        a = tensor([0, 2, -3], dtype, requires_grad=True)
        torch.pow(a, e).sum().backward()
        near(a.grad, expected)
    a, b = tensor([2, 3], dtype, requires_grad=True), tensor([3, 2], dtype, requires_grad=True)
    torch.pow(a, b).sum().backward()
    near(a.grad, [12, 6])
    near(b.grad, [8 * math.log(2), 9 * math.log(3)])
    with pytest.raises(RuntimeError, match="size"):
        torch.pow(torch.ones(2), torch.ones(3))
    with pytest.raises(RuntimeError):
        torch.pow(x, 2, out=torch.empty(4, dtype=torch.int64))


def test_pow_of_integers():  # mission: M-44
    i = torch.tensor([1, 2, -3])
    both_ways("pow", [1, 4, 9], i, 2)
    both_ways("pow", [1, 4, -27], i, torch.tensor([1, 2, 3]))
    assert torch.pow(i, 2).dtype is torch.int64 and torch.pow(i, 0.5).dtype is torch.float32 and torch.pow(i, -1.0).tolist()[:2] == [1, 0.5]
    for call in (lambda: torch.pow(i, -1), lambda: i.pow_(-1), lambda: i**-1, lambda: torch.pow(torch.empty(0, dtype=torch.int64), -2)):
        with pytest.raises(RuntimeError, match="negative integer powers"):
            call()
    with pytest.raises(RuntimeError, match="can't be cast"):
        i.pow_(0.5)
    with pytest.raises(RuntimeError, match="overflow"):
        i.to(torch.int8).pow(1000)


@pytest.mark.parametrize("dtype", FLOATS, ids=["float32", "float64"])
def test_number_to_powers(dtype):  # mission: M-45
    x = tensor([1, 2, -3, 0], dtype)
    for base in (2, 2.5, 1, 0.5):
        near(torch.pow(base, x), np.power(float(base), x.numpy().astype(np.float64)))
        near(base**x, np.power(float(base), x.numpy().astype(np.float64)))
    out = torch.empty(0, dtype=dtype)
    assert torch.pow(2, x, out=out) is out and out.tolist() == [2, 4, 0.125, 1]
    near(torch.pow(0, tensor([0, 1, -1], dtype)), [1, 0, INF])
    near(torch.pow(1, tensor([NAN, 1], dtype)), [1, 1])
    near(torch.pow(2, x[::2]), [2, 0.125])
    y = tensor([0, 2, 3], dtype, requires_grad=True)
    torch.pow(2, y).sum().backward()
    near(y.grad, np.array([1, 4, 8]) * math.log(2))
    assert torch.pow(2, torch.tensor([1, 2, 3])).tolist() == [2, 4, 8] and torch.pow(2, torch.tensor([1, 2])).dtype is torch.int64
    assert torch.pow(2.0, torch.tensor([1, -2])).tolist() == [2, 0.25] and torch.pow(2, torch.empty(0)).shape == (0,)
    with pytest.raises(TypeError):
        torch.pow(2, 3)


def test_bools_are_refused():  # mission: M-31, M-34, M-37, M-39, M-40, M-44
    t = torch.tensor([True, False])
    for call in (lambda: torch.fmod(t, True), lambda: torch.remainder(t, t), lambda: t // t, lambda: torch.div(t, t, rounding_mode="trunc"), lambda: torch.pow(t, t),
                 lambda: torch.clamp(t, max=True), lambda: torch.addcmul(t, t, t), lambda: torch.lerp(t, t, 0.5)):
        with pytest.raises(RuntimeError):
            call()
    assert torch.pow(t, 2).tolist() == [1, 0] and torch.div(t, True).tolist() == [1, 0] and torch.remainder(t, 2).tolist() == [1, 0] and t.clamp(0, 1).dtype is torch.int64


@pytest.mark.filterwarnings("ignore:this overload")
def test_factors_without_dimensions():  # mission: M-27, M-30, M-31
    x, three = tensor([1, 2]), tensor(3)
    assert torch.add(x, three, x).tolist() == [4, 8] and torch.addcmul(x, three, x, x).tolist() == [4, 14] and torch.addcdiv(x, three, x, x).tolist() == [4, 5]
