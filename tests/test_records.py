"""What docs/operators.md promises of a record that somebody adds. The records here are not public: they leave nothing behind."""

import numpy as np
import pytest

import rushlight as torch
from rushlight.autograd import gradcheck, gradgradcheck
from rushlight.ops import expr as E
from rushlight.ops import load
from rushlight.ops.declare import fold, reduction

load()


# --- folds that add -------------------------------------------------------------------------------------------------
def folding(body, **numbers):
    """A reduction record whose body is `body(input)`, and of numbers that have names."""
    notes = {"input": "Tensor", "dim": "Dims", "keepdim": "bool", **dict.fromkeys(numbers, "Number")}
    source = f"def f(input, dim=None, keepdim=False{''.join(f', {k}={v}' for k, v in numbers.items())}): return BODY(input{''.join(f', {k}' for k in numbers)})"
    env = {"BODY": body}
    exec(source, env)
    env["f"].__annotations__ = notes
    return reduction(public=False, result="floating", name="folded")(env["f"])


# name: (record, the same in NumPy, its gradient over all elements)
FOLDS = {
    "twice": (folding(lambda x: fold("add", 2 * x)), lambda a: (2 * a).sum(), lambda a: np.full_like(a, 2)),
    "rms": (folding(lambda x: fold("add", x * x, finish=lambda s, n: E.sqrt(s / n))), lambda a: np.sqrt((a * a).mean()),
            lambda a: a / a.size / np.sqrt((a * a).mean())),
    "root": (folding(lambda x: fold("add", x, finish=lambda s, n: E.sqrt(s))), lambda a: np.sqrt(a.sum()),
             lambda a: np.full_like(a, 0.5 / np.sqrt(a.sum()))),
    "logsumexp": (folding(lambda x: fold("add", E.exp(x), finish=lambda s, n: E.log(s))), lambda a: np.log(np.exp(a).sum()),
                  lambda a: np.exp(a) / np.exp(a).sum()),
    "sines": (folding(lambda x: fold("add", E.sin(x))), lambda a: np.sin(a).sum(), np.cos),
    "scaled mean": (folding(lambda x: fold("add", 3 * x, finish=lambda s, n: 2 * s / n)), lambda a: 6 * a.mean(),
                    lambda a: np.full_like(a, 6 / a.size)),
    "cube": (folding(lambda x: fold("add", x, finish=lambda s, n: s * s * s / n)), lambda a: a.sum() ** 3 / a.size,
             lambda a: np.full_like(a, 3 * a.sum() ** 2 / a.size)),
    "steps": (folding(lambda x: fold("add", E.floor(x))), lambda a: np.floor(a).sum(), np.zeros_like),
    "count only": (folding(lambda x: fold("add", x, finish=lambda s, n: n * 2.0 + 0 * s)), lambda a: 2.0 * a.size, np.zeros_like),
    "norm of p": (folding(lambda x, p: fold("add", E.pow(x, p), finish=lambda s, n: E.pow(s, 1 / p)), p=3.0), lambda a: (a**3).sum() ** (1 / 3),
                  lambda a: a**2 * (a**3).sum() ** (-2 / 3)),
    "a branch on a number": (folding(lambda x, p: fold("add", x if p == 2 else x * x * p), p=3.0), lambda a: (3 * a * a).sum(), lambda a: 6 * a),
}


@pytest.mark.parametrize("name", FOLDS)
def test_a_fold_that_adds_has_derivatives(name):
    op, value, gradient = FOLDS[name]
    data = np.random.RandomState(0).uniform(0.55, 0.95, (2, 3))
    for args in ((), (1,), (0, True), ((0, 1), True)):
        x = torch.tensor(data, requires_grad=True)
        assert gradcheck(lambda x, args=args: op.function(x, *args), (x,))
        assert gradgradcheck(lambda x, args=args: op.function(x, *args), (x,))
    for dtype, rtol in (("float64", 1e-12), ("float32", 1e-5), ("float16", 4e-3)):
        for shape in ((2, 3), (6,), ()):
            a = data.ravel()[: int(np.prod(shape))].reshape(shape).astype(dtype)
            x = torch.tensor(a, requires_grad=True)
            y = op.function(x)
            y.backward()
            np.testing.assert_allclose(y.item(), value(a.astype("float64")), rtol=rtol)
            np.testing.assert_allclose(x.grad.numpy(), gradient(a.astype("float64")), rtol=rtol, atol=1e-12)


def test_the_gradient_of_a_fold_of_complex_numbers_is_the_conjugates():
    op, _, gradient = FOLDS["logsumexp"]
    z = np.array([1 + 1j, 2 - 1j])
    x = torch.tensor(z, requires_grad=True)
    op.function(x).backward(torch.tensor(1 + 0j, dtype=torch.complex128))
    np.testing.assert_allclose(x.grad.numpy(), np.conj(gradient(z)), rtol=1e-12)


def test_a_fold_that_does_not_add_must_give_its_gradient():
    op = folding(lambda x: fold("mul", 2 * x))
    assert op.function(torch.tensor([1.0, 3.0])).item() == 12
    with pytest.raises(TypeError, match="folded does not add"):
        op.function(torch.tensor([1.0, 3.0], requires_grad=True))
