"""Custom functions in both styles, and the derivatives of functions (`autograd.functional`)."""

import numpy as np
import pytest

import rushlight as rl
from rushlight.autograd import functional as AF


class Square(rl.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g


class OldSquare(rl.autograd.Function):
    def forward(self, x):
        self.save_for_backward(x)
        return x * x

    def backward(self, g):
        (x,) = self.saved_tensors
        return 2 * x * g


class NewLinear(rl.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b=None):
        ctx.save_for_backward(x, w, b)
        y = x.mm(w.t())
        return y if b is None else y + b

    @staticmethod
    def backward(ctx, g):
        x, w, b = ctx.saved_tensors
        grads = [g.mm(w), g.t().mm(x), None if b is None else g.sum(0)]
        return tuple(grads[:len(ctx.needs_input_grad)])


class OldLinear(rl.autograd.Function):
    def forward(self, x, w, b=None):
        self.save_for_backward(x, w, b)
        y = x.mm(w.t())
        return y if b is None else y + b

    def backward(self, g):
        x, w, b = self.saved_tensors
        return (g.mm(w), g.t().mm(x)) if b is None else (g.mm(w), g.t().mm(x), g.sum(0))


@pytest.mark.parametrize("call", [Square.apply, lambda x: OldSquare()(x)], ids=["new", "old"])
def test_overwritten_saved_tensors(call):  # mission: B-09, B-10
    x = rl.tensor([1.0, 2.0], requires_grad=True)
    mid = x * 1
    out = call(mid)
    mid.add_(1)
    with pytest.raises(RuntimeError, match="(?s)modified by an inplace operation.*version 1.*version 0"):
        out.sum().backward()


def test_old_style_has_a_creator():  # mission: E-06, E-09
    x = rl.tensor([3.0], requires_grad=True)
    f = OldSquare()
    out = f(x)
    assert out.creator is out.grad_fn and out.requires_grad
    out.backward()
    assert x.grad.tolist() == [6.0]


@pytest.mark.parametrize("apply", [NewLinear.apply, lambda *a: OldLinear()(*a)], ids=["new", "old"])
@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_module(apply, bias):  # mission: E-10, E-11, E-12
    class Own(rl.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = rl.nn.Parameter(rl.empty(2, 3))
            if bias:
                self.bias = rl.nn.Parameter(rl.empty(2))
            else:
                self.register_parameter("bias", None)

        def forward(self, x):
            return apply(x, self.weight) if self.bias is None else apply(x, self.weight, self.bias)

    rl.manual_seed(0)
    ref, own = rl.nn.Linear(3, 2, bias=bias), Own()
    own.load_state_dict(ref.state_dict())
    x1 = rl.randn(4, 3, requires_grad=True)
    x2 = x1.detach().requires_grad_()
    y1, y2 = ref(x1), own(x2)
    np.testing.assert_allclose(y2.detach().numpy(), y1.detach().numpy(), rtol=1e-6, atol=1e-6)
    functional = rl.nn.functional.linear(x1, ref.weight, ref.bias)
    assert functional.tolist() == y1.tolist()
    (y1 * y1).sum().backward()
    (y2 * y2).sum().backward()
    for a, b in [(x1.grad, x2.grad)] + [(p.grad, q.grad) for p, q in zip(ref.parameters(), own.parameters())]:
        np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("view", [lambda b: b, lambda b: b[:1]], ids=["whole", "view"])
def test_mark_dirty_rewrites_history(view):
    class Double(rl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = rl.tensor([1.0, 2.0], requires_grad=True)
    base = x * 1
    v = view(base)
    n = v.numel()
    assert Double.apply(v) is v
    base.sum().backward()
    assert x.grad.tolist() == [2.0] * n + [1.0] * (2 - n)


A = np.array([[1.0, 2.0], [3.0, -1.0], [0.5, 4.0]])
X = np.array([2.0, 3.0])


def quadratic(x):
    """Outputs (A x)^2; the Jacobian is 2 diag(A x) A."""
    return rl.mv(rl.tensor(A), x) ** 2


JACOBIAN = 2 * (A @ X)[:, None] * A


def test_jacobian_and_products():
    x = rl.tensor(X)
    np.testing.assert_allclose(AF.jacobian(quadratic, x).numpy(), JACOBIAN, rtol=1e-12)
    out, g = AF.vjp(quadratic, x, rl.tensor([1.0, -2.0, 3.0], dtype=rl.float64))
    np.testing.assert_allclose(out.numpy(), (A @ X) ** 2, rtol=1e-12)
    np.testing.assert_allclose(g.numpy(), np.array([1.0, -2.0, 3.0]) @ JACOBIAN, rtol=1e-12)
    _, j = AF.jvp(quadratic, x, rl.tensor([1.0, -2.0], dtype=rl.float64))
    np.testing.assert_allclose(j.numpy(), JACOBIAN @ np.array([1.0, -2.0]), rtol=1e-12)
    assert not g.requires_grad and not j.requires_grad and not x.requires_grad


def test_hessian_and_products():
    def f(x, y):  # x0^2 x1 + x1 y0^3
        return x[0] ** 2 * x[1] + x[1] * y[0] ** 3

    x, y = rl.tensor([2.0, 3.0], dtype=rl.float64), rl.tensor([1.5], dtype=rl.float64)
    full = np.array([[6, 4, 0], [4, 0, 3 * 1.5 ** 2], [0, 3 * 1.5 ** 2, 6 * 3 * 1.5]])
    (xx, xy), (yx, yy) = AF.hessian(f, (x, y))
    np.testing.assert_allclose(np.block([[xx.numpy(), xy.numpy()], [yx.numpy(), yy.numpy()]]), full, rtol=1e-12)
    v = np.array([1.0, -1.0, 2.0])
    for product in (AF.hvp, AF.vhp):
        out, (a, b) = product(f, (x, y), (rl.tensor(v[:2]), rl.tensor(v[2:])))
        assert out.item() == pytest.approx(4 * 3 + 3 * 1.5 ** 3)
        np.testing.assert_allclose(np.concatenate([a.numpy(), b.numpy()]), full @ v, rtol=1e-12)


def test_create_graph_reaches_the_inputs():
    x = rl.tensor([2.0], dtype=rl.float64, requires_grad=True)
    AF.jacobian(lambda t: t ** 3, x, create_graph=True).sum().backward()
    assert x.grad.tolist() == [12.0]  # (3 x^2)' = 6 x
    x.grad = None
    AF.hessian(lambda t: (t ** 4).sum(), x, create_graph=True).sum().backward()
    assert x.grad.tolist() == [48.0]  # 24 x


def test_independent_inputs_and_bad_input():
    x, y = rl.ones(2), rl.ones(3)
    a, b = AF.jacobian(lambda p, q: p * 2, (x, y))
    assert a.tolist() == [[2.0, 0.0], [0.0, 2.0]] and b.tolist() == [[0.0] * 3] * 2
    with pytest.raises(RuntimeError, match="independent of input 1"):
        AF.jacobian(lambda p, q: p * 2, (x, y), strict=True)
    with pytest.raises(TypeError, match="must be either a Tensor"):
        AF.vjp(lambda t: t, 3.0)
    with pytest.raises(RuntimeError, match="v can only be None"):
        AF.vjp(lambda t: t * 2, x)
    with pytest.raises(RuntimeError, match="invalid size"):
        AF.vjp(lambda t: t * 2, x, rl.ones(3))
    with pytest.raises(RuntimeError, match="single element"):
        AF.hessian(lambda t: t * 2, x)


def test_modules_have_pytorchs_names():
    ag = rl.autograd
    assert ag.grad_mode.no_grad is rl.no_grad and ag.variable.Variable is ag.Variable
    assert ag.anomaly_mode.detect_anomaly is ag.detect_anomaly
