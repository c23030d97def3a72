"""backends/cpu/loops.py: pointwise operators on big arrays give what NumPy gives, from their own loops."""

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
    np.testing.assert_allclose(f(a, b[:1]).numpy(), BINARY[name](x, y[:1]), rtol=1e-6)
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
