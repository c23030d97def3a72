"""torch.masked: reductions and normalizations over the elements where a mask is true, against NumPy's over those elements alone."""

import math

import numpy as np
import pytest
import scipy.special as sp

import rushlight as torch
from rushlight.autograd import gradcheck

RNG = np.random.default_rng(3)
X = RNG.normal(size=(4, 5))
MASK = RNG.random((4, 5)) < 0.6
MASK[:, 0] = True           # every row has an element,
MASK[2] = [False, True, False, False, False]      # one has just one


def rows(fn):
    """`fn` of what is left of each row."""
    return np.array([fn(x[m]) for x, m in zip(X, MASK, strict=True)])


REDUCTIONS = {
    "sum": (np.sum, {}), "prod": (np.prod, {}), "amax": (np.max, {}), "amin": (np.min, {}), "mean": (np.mean, {}),
    "var": (lambda x: np.var(x, ddof=0), {"unbiased": False}), "std": (lambda x: np.std(x, ddof=0), {"correction": 0}),
    "logsumexp": (sp.logsumexp, {}), "median": (lambda x: np.sort(x)[(len(x) - 1) // 2], {}),
}


@pytest.mark.parametrize("name", sorted(REDUCTIONS))
def test_reduces_what_is_left(name):
    fn, kw = REDUCTIONS[name]
    got = getattr(torch.masked, name)(torch.tensor(X), 1, mask=torch.tensor(MASK), **kw)
    np.testing.assert_allclose(got.numpy(), rows(fn), rtol=1e-12)
    kept = getattr(torch.masked, name)(torch.tensor(X), 1, keepdim=True, mask=torch.tensor(MASK), **kw)
    assert kept.shape == (4, 1)
    np.testing.assert_array_equal(kept.numpy()[:, 0], got.numpy())


@pytest.mark.parametrize("ord", [0, 1, 2, 3, 0.5, math.inf, -math.inf])
def test_norm(ord):
    got = torch.masked.norm(torch.tensor(X), ord, 1, mask=torch.tensor(MASK))
    np.testing.assert_allclose(got.numpy(), rows(lambda x: np.linalg.norm(x, ord)), rtol=1e-12)
    unit = torch.masked.normalize(torch.tensor(X), ord, 1, mask=torch.tensor(MASK)).numpy()
    np.testing.assert_allclose(unit, np.where(MASK, X, 0) / got.numpy()[:, None], rtol=1e-12)


@pytest.mark.parametrize("name,fn", [("softmax", sp.softmax), ("log_softmax", sp.log_softmax), ("softmin", lambda x: sp.softmax(-x))])
def test_normalizes_what_is_left(name, fn):
    got = getattr(torch.masked, name)(torch.tensor(X), 1, mask=torch.tensor(MASK)).numpy()
    want = np.full(X.shape, -math.inf if name == "log_softmax" else 0.0)
    for w, x, m in zip(want, X, MASK, strict=True):
        w[m] = fn(x[m])
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_running_and_places():
    x, mask = torch.tensor(X), torch.tensor(MASK)
    np.testing.assert_allclose(torch.masked.cumsum(x, 1, mask=mask).numpy(), np.cumsum(np.where(MASK, X, 0), 1))
    np.testing.assert_allclose(torch.masked.cumprod(x, 0, mask=mask).numpy(), np.cumprod(np.where(MASK, X, 1), 0))
    # places come in the dtype of the input, as in PyTorch
    got = torch.masked.argmax(x, 1, mask=mask)
    assert got.dtype is torch.float64
    np.testing.assert_array_equal(got.numpy(), np.argmax(np.where(MASK, X, -math.inf), 1))
    assert torch.masked.argmin(x, mask=mask, dtype=torch.int64).item() == np.argmin(np.where(MASK, X, math.inf))


def test_logaddexp_leaves_out_an_operand():
    x, y = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([4.0, 5.0, 6.0])
    got = torch.masked.logaddexp(x, y, input_mask=torch.tensor([True, False, False]), other_mask=torch.tensor([True, True, False]))
    np.testing.assert_allclose(got.numpy(), [np.logaddexp(1.0, 4.0), 5.0, -math.inf], rtol=1e-6)


def test_without_a_mask_it_is_the_plain_operator():
    x = torch.tensor(X)
    for name, (_, kw) in REDUCTIONS.items():
        plain = {"median": lambda t, d: torch.median(t, d).values}.get(name, getattr(torch, name))
        kw = {} if name in ("var", "std") else kw
        np.testing.assert_allclose(getattr(torch.masked, name)(x, 1, **kw).numpy(), plain(x, 1).numpy(), rtol=1e-12)


def test_over_nothing():
    x, none = torch.tensor(X), torch.zeros(4, 5, dtype=torch.bool)
    assert torch.masked.sum(x, mask=none).item() == 0 and torch.masked.prod(x, mask=none).item() == 1
    assert torch.masked.amax(x, mask=none).item() == -math.inf and torch.masked.amin(x.int(), mask=none).item() == 2**31 - 1
    assert math.isnan(torch.masked.mean(x, mask=none).item()) and torch.masked.logsumexp(x, mask=none).item() == -math.inf
    assert torch.masked.median(x, 1, mask=none).isnan().all()


def test_masks_broadcast_and_other_dtypes_count_as_nonzero():
    x = torch.tensor(X)
    column = torch.tensor([[1], [0], [2], [0]])
    np.testing.assert_allclose(torch.masked.sum(x, 0, mask=column).numpy(), X[0] + X[2])
    assert torch.masked.sum(torch.tensor([1, 2, 3], dtype=torch.int32), mask=torch.tensor([True, False, True])).dtype is torch.int64
    assert torch.masked.sum(torch.tensor([1, 2, 3]), dtype=torch.float32).dtype is torch.float32


def test_dims():
    x, mask = torch.tensor(X), torch.tensor(MASK)
    total = np.where(MASK, X, 0).sum()
    for dim in (None, (), (0, 1), (1, -2)):
        np.testing.assert_allclose(torch.masked.sum(x, dim, mask=mask).item(), total)
    with pytest.raises(RuntimeError, match="multiple times"):
        torch.masked.sum(x, (0, -2))
    with pytest.raises(IndexError, match="out of range"):
        torch.masked.amax(x, 2)


def test_errors():
    x = torch.tensor(X)
    with pytest.raises(IndexError, match="dimensionality higher"):
        torch.masked.sum(x, mask=torch.ones(1, 4, 5, dtype=torch.bool))
    with pytest.raises(RuntimeError):
        torch.masked.sum(x, mask=torch.ones(4, dtype=torch.bool))
    with pytest.raises(ValueError, match="floating point"):
        torch.masked.mean(torch.tensor([1, 2]))
    with pytest.raises(AssertionError, match="unbiased and correction"):
        torch.masked.var(x, 0, True, correction=1)
    with pytest.raises(ValueError, match="fully masked out"):
        torch.masked.median(torch.tensor([1, 2]), mask=torch.tensor([False, False]))
    with pytest.raises(RuntimeError, match="floating point"):
        torch.masked.norm(torch.tensor([1, 2]), -math.inf)
    with pytest.raises(NotImplementedError, match="identity of amax"):
        torch.masked.amax(torch.tensor([True]), mask=torch.tensor([False]))


@pytest.mark.parametrize("name", ["sum", "prod", "amax", "mean", "var", "std", "logsumexp", "softmax", "log_softmax", "softmin", "cumsum",
                                  "cumprod", "median"])
def test_gradients(name):
    mask = torch.tensor(MASK)
    mask[2, 3] = True
    assert gradcheck(lambda x: getattr(torch.masked, name)(x, 1, mask=mask).clamp(-1e3, 1e3), (torch.tensor(X, requires_grad=True),))


def test_gradient_is_zero_where_left_out():
    x = torch.tensor(X, requires_grad=True)
    torch.masked.norm(x, 3.0, 1, mask=torch.tensor(MASK)).sum().backward()
    assert (x.grad.numpy()[~MASK] == 0).all() and (x.grad.numpy()[MASK] != 0).all()


def test_on_meta():
    x, mask = torch.empty(4, 5, device="meta"), torch.empty(5, dtype=torch.bool, device="meta")
    for name in REDUCTIONS:
        assert getattr(torch.masked, name)(x, 0, mask=mask).shape == (5,)
