"""backends/cpu/loops.py: pointwise operators on big arrays give what NumPy gives, from their own loops."""

import warnings

import numpy as np
import pytest

import rushlight as torch
from rushlight.backends.cpu import loops

N = loops.BIG // 8 + 3


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(loops, "WORTH", 1)


def pair(dtype):
    rng = np.random.default_rng(0)
    return tuple((rng.standard_normal((8, N)) * 3).astype(dtype) for _ in range(2))


BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "maximum": np.maximum, "lt": np.less, "eq": np.equal, "div": np.true_divide,
          "atan2": np.arctan2}
UNARY = {"exp": np.exp, "tanh": np.tanh, "abs": np.abs, "neg": np.negative, "sqrt": np.sqrt, "floor": np.floor}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("name", BINARY)
def test_two_operands(name, dtype):
    x, y = pair(dtype)
    if dtype is np.int64 and name in ("div", "atan2"):
        x, y = x.astype(np.float64), y.astype(np.float64) + 0.5
    x[x == 0] = 1                   # no 0 / 0
    want = BINARY[name](x, y)
    f = getattr(torch, name)
    a, b = torch.tensor(x), torch.tensor(y)
    for p, q in ((a, b), (a.t().contiguous().t(), b), (a, torch.tensor(y.T.copy()).t())):     # dense rows, dense columns
        r = f(p, q)
        assert r.numpy().dtype == want.dtype
        np.testing.assert_allclose(r.numpy(), want, rtol=1e-6)
    for p, q in ((x, y[:1]), (x, y[0]), (x[1], y), (x[:, :1], y), (x, y[:, 2:3]), (x[None], y[None, :, :1]), (x[:, None], y[:, None, :1]), (x[:1], y[:, :1])):
        for _ in range(2):
            np.testing.assert_allclose(f(torch.tensor(p), torch.tensor(q)).numpy(), BINARY[name](p, q), rtol=1e-6)
    np.testing.assert_allclose(f(a, a).numpy(), BINARY[name](x, x), rtol=1e-6)
    half = torch.tensor(np.concatenate((x, x), 1))[:, ::2]
    np.testing.assert_allclose(f(half, b).numpy(), BINARY[name](half.numpy(), y), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", UNARY)
def test_one_operand(name, dtype):
    x = np.abs(pair(dtype)[0]) if name == "sqrt" else pair(dtype)[0]
    for a in (torch.tensor(x), torch.tensor(x.T.copy()).t()):
        np.testing.assert_allclose(getattr(a, name)().numpy(), UNARY[name](x), rtol=2e-6)


@pytest.mark.parametrize("number", [2, -0.75, 0, float("inf")])
def test_numbers(number):
    x, _ = pair(np.float32)
    a = torch.tensor(x)
    with np.errstate(all="ignore"):
        for r, want in ((a * number, x * number), (a + number, x + number), (a - number, x - number), (a < number, x < number), (a / number, x / number)):
            assert r.numpy().dtype == want.dtype
            np.testing.assert_allclose(r.numpy(), want, rtol=1e-6)


def test_in_place():
    x, y = pair(np.float32)
    a, b = torch.tensor(x), torch.tensor(y)
    where = a.data_ptr()
    a.add_(b)
    a *= 2
    a.sub_(0.5)
    np.testing.assert_allclose(a.numpy(), (x + y) * np.float32(2) - np.float32(0.5), rtol=1e-6)
    assert a._version == 3 and a.data_ptr() == where
    a.mul_(a)
    flat = torch.tensor(np.concatenate((x, y)).ravel())
    for other in (flat[1:x.size + 1], flat[:x.size]):
        part = flat[:x.size]
        before = flat.numpy().copy()
        if other.data_ptr() == part.data_ptr():
            part.add_(other)
            np.testing.assert_array_equal(part.numpy(), 2 * before[:x.size])
        else:
            with pytest.raises(RuntimeError, match="memory"):
                part.add_(other)
            np.testing.assert_array_equal(flat.numpy(), before)
    leaf = torch.tensor(x, requires_grad=True)
    with pytest.raises(RuntimeError, match="in-place"):
        leaf.add_(b)
    np.testing.assert_array_equal(leaf.detach().numpy(), x)
    with pytest.raises(RuntimeError):
        torch.ones(8, N, dtype=torch.int64).add_(0.5)


def test_gradients():
    x, y = pair(np.float64)
    a, b = torch.tensor(x, requires_grad=True), torch.tensor(y, requires_grad=True)
    (a * b - a / 2).sum().backward()
    np.testing.assert_allclose(a.grad.numpy(), y - 0.5)
    np.testing.assert_allclose(b.grad.numpy(), x)
    with torch.no_grad():
        assert not (a + b).requires_grad
    with torch.inference_mode():
        assert (a + b).is_inference()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape,dims", [((8, N), None), ((8, N), 0), ((8, N), 1), ((8, N), -1), ((3, 5, N), (0, 1)), ((3, 5, N), (1, 2)), ((3, 5, N), (0, 2)),
                                        ((3, 5, N), 1), ((2, 4 * N), 1), ((8 * N,), 0)])
def test_sums(shape, dims, dtype):
    x = np.random.default_rng(1).standard_normal(shape).astype(dtype)
    a = torch.tensor(x)
    tight = dict(rtol=1e-6 if dtype is np.float32 else 1e-12, atol=2e-3 if dtype is np.float32 else 1e-10)
    for keep in (False, True):
        want = x.astype(np.float64).sum(dims, keepdims=keep)
        n = x.size // max(want.size, 1)
        args = () if dims is None and not keep else (dims, keep)
        for _ in range(2):
            assert a.sum(*args).shape == want.shape
            np.testing.assert_allclose(a.sum(*args).numpy(), want, **tight)
            np.testing.assert_allclose(a.mean(*args).numpy(), want / n, **tight)
        np.testing.assert_allclose(torch.linalg.vector_norm(a, dim=dims, keepdim=keep).numpy(),
                                   np.sqrt((x.astype(np.float64) ** 2).sum(dims, keepdims=keep)), rtol=1e-5)
    turned = torch.tensor(np.moveaxis(x, 0, -1).copy()).movedim(-1, 0)
    np.testing.assert_allclose(turned.sum(dims).numpy(), x.astype(np.float64).sum(dims), **tight)


def test_sums_have_equal_bits_on_any_number_of_threads():
    x = torch.tensor(np.random.default_rng(2).standard_normal((64, 8192)).astype(np.float32))
    before = torch.get_num_threads()
    got = []
    try:
        for n in (1, 2):
            torch.set_num_threads(n)
            for _ in range(2):
                got.append([x.sum().item(), x.sum(0), x.sum(1)])
    finally:
        torch.set_num_threads(before)
    for other in got[1:]:
        assert other[0] == got[0][0] and torch.equal(other[1], got[0][1]) and torch.equal(other[2], got[0][2])


@pytest.mark.parametrize("write", [
    lambda x: x.add_(1), lambda x: x.relu_(), lambda x: x.addcmul_(x.clone(), x.clone()), lambda x: x.normal_(), lambda x: x.zero_(),
    lambda x: x.scatter_add_(0, torch.zeros(300, 300, dtype=torch.int64), torch.ones(300, 300)), lambda x: x.copy_(torch.zeros(300, 300).t()),
    lambda x: x.index_add_(0, torch.arange(300), torch.ones(300, 300)), lambda x: torch.add(x, 1, out=x), lambda x: x.cumsum_(0)])
@pytest.mark.parametrize("compiled", [False, True])
def test_read_only_memory_is_not_written_to_at_any_size(write, compiled):
    f = torch.compile(write) if compiled else write
    for _ in range(12):
        f(torch.ones(300, 300))         # until native code does it
    a = np.ones((300, 300), np.float32)
    a.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = torch.from_numpy(a)
    with pytest.raises(ValueError, match="read-only"):
        f(x)
    assert (a == 1).all()


@pytest.mark.parametrize("n", [5, loops.BIG // 8 + 3])
@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_large_integers_stay_what_they_are(n, dtype):
    top = np.iinfo(dtype).max
    a = np.resize(np.array([top, -top, 0, top // 2 + 1, 3], dtype), 8 * n)
    b = np.resize(np.array([top - 1, 7, top], dtype), 8 * n)
    x, y = torch.tensor(a), torch.tensor(b)
    for _ in range(3):
        for f in (torch.round, torch.floor, torch.ceil, torch.trunc, lambda t: t.clone().round_()):
            np.testing.assert_array_equal(f(x).numpy(), a)
        np.testing.assert_array_equal(torch.heaviside(x, y).numpy(), np.where(a == 0, b, a > 0))
