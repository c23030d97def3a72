"""The engine, in-place histories, modes and custom functions, by hand. Mission rows stand beside the tests that hold them."""

import gc
import pathlib
import threading
import weakref

import numpy as np
import pytest

import rushlight as torch
from rushlight.autograd import Function, Variable, gradcheck, gradgradcheck


def leaf(*values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype, requires_grad=True)


def test_gradients_of_all_paths_add_up():  # mission
    x = leaf(1.0, 2.0)
    (x * x + 3 * x).sum().backward()
    assert x.grad.tolist() == [5.0, 7.0]
    (2 * x).sum().backward()
    assert x.grad.tolist() == [7.0, 9.0]
    x.grad.zero_()
    assert x.grad.tolist() == [0.0, 0.0]


def test_requires_grad_spreads():  # mission
    x, y = leaf(1.0), torch.tensor([2.0], dtype=torch.float64)
    z = x * y
    assert z.requires_grad and not z.is_leaf and x.is_leaf and z.grad_fn is not None
    z.sum().backward()
    assert y.grad is None
    assert (y * 2).grad_fn is None
    with pytest.raises(RuntimeError, match="does not require grad"):
        (y * 2).sum().backward()
    with pytest.raises(RuntimeError, match="floating point"):
        torch.tensor([1]).requires_grad_()
    with pytest.raises(RuntimeError, match="leaf"):
        z.requires_grad_(False)


def test_history_leads_to_the_leaves():  # mission
    x = leaf(1.0)
    y = x.exp().mul(2)
    assert y.grad_fn.name() == "MulBackward0" and y.creator is y.grad_fn
    node = y.grad_fn.next_functions[0][0]
    assert node.name() == "ExpBackward0"
    assert node.next_functions[0][0].variable is x


def test_non_scalars_and_weights():  # mission
    x = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match=r"scalar outputs.*\[2\]"):
        (x * 2).backward()
    (x * 2).backward(torch.tensor([1.0, 10.0], dtype=torch.float64))
    assert x.grad.tolist() == [2.0, 20.0]
    with pytest.raises(RuntimeError, match="shape"):
        (x * 2).backward(torch.ones(3, dtype=torch.float64))
    with pytest.raises(RuntimeError, match="got 2 tensors and 1 gradients"):
        torch.autograd.backward([x.sum(), x.sum()], [None])
    x.grad = None
    torch.autograd.backward([x.sum(), (x * x).sum()])
    assert x.grad.tolist() == [3.0, 5.0]


def test_a_freed_graph_says_so():  # mission
    x = leaf(2.0)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [8.0]
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        y.backward()


def test_higher_orders():  # mission
    x = leaf(2.0)
    (g,) = torch.autograd.grad((x**4).sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x, create_graph=True)
    (k,) = torch.autograd.grad(h.sum(), x)
    assert [g.item(), h.item(), k.item()] == pytest.approx([32, 48, 48])
    assert g.requires_grad and not k.requires_grad


def test_grad_of_inputs():
    x, y, z = leaf(1.0), leaf(2.0), leaf(3.0)
    out = (x * y).sum()
    gx, gy = torch.autograd.grad(out, [x, y])
    assert (gx.item(), gy.item()) == (2, 1) and x.grad is None
    with pytest.raises(RuntimeError, match="not have been used"):
        torch.autograd.grad((x * y).sum(), [x, z])
    assert torch.autograd.grad((x * y).sum(), [x, z], allow_unused=True)[1] is None
    assert torch.autograd.grad((x * y).sum(), [x, z], materialize_grads=True)[1].item() == 0
    (x * y).sum().backward(inputs=[x])
    assert x.grad is not None and y.grad is None


def test_hooks():
    x = leaf(1.0, 2.0)
    seen = []
    handle = x.register_hook(lambda g: seen.append(g.tolist()) or g * 10)
    y = x * 3
    y.register_hook(lambda g: seen.append("y"))
    y.retain_grad()  # mission: R-09
    y.sum().backward()
    assert seen == ["y", [3.0, 3.0]] and x.grad.tolist() == [30.0, 30.0] and y.grad.tolist() == [1.0, 1.0]
    handle.remove()
    x.grad = None
    after = []
    x.register_post_accumulate_grad_hook(lambda t: after.append(t.grad.tolist()))
    (x * 2).sum().backward()
    assert after == [[2.0, 2.0]]
    z = x * 2
    z.grad_fn.register_hook(lambda gi, go: (gi[0] * 100, *gi[1:]))
    z.grad_fn.register_prehook(lambda go: (go[0] + 1,))
    x.grad = None
    z.sum().backward()
    assert x.grad.tolist() == [400.0, 400.0]
    with pytest.raises(RuntimeError):
        torch.ones(1).register_hook(lambda g: g)


# --- in place -------------------------------------------------------------------------------------------------------
def test_versions():  # mission: B-01, B-02
    x = torch.zeros(4)
    v = x.view(2, 2)
    assert x._version == v._version == 0
    v.add_(1)
    x[0] = 5
    x.zero_(), x.fill_(1), x.copy_(torch.ones(4))
    assert x._version == v._version == 5
    x.sum()
    assert x._version == 5


def test_an_overwritten_value_names_both_lines():  # mission: B-03, B-11
    x = leaf(1.0, 2.0)
    y = x * 2
    z = y * y  # saves y
    y.add_(1)  # overwrites it
    with pytest.raises(RuntimeError, match="modified by an inplace operation") as e:
        z.sum().backward()
    text = str(e.value)
    assert "at version 1; expected version 0" in text and "MulBackward0" in text
    lines = pathlib.Path(__file__).read_text().splitlines()
    saved = next(i for i, s in enumerate(lines, 1) if s.endswith("# saves y"))
    assert f"{__file__}:{saved}" in text and f"{__file__}:{saved + 1}" in text
    # a write through detach() is seen, one through .data is not
    y = x * 2
    z = y * y
    y.detach().add_(1)
    with pytest.raises(RuntimeError, match="version"):
        z.sum().backward()
    y = x * 2
    z = y * y
    y.data.add_(1)
    z.sum().backward()


def test_in_place_rewrites_history():  # mission: B-04, B-05
    x = leaf(1.0, 2.0)
    y = x * 1
    before = y.grad_fn
    y.add_(x)
    assert y.grad_fn is not before
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]
    p = torch.zeros(2, dtype=torch.float64)
    p.add_(x)
    assert p.requires_grad


def test_in_place_through_views():  # mission: B-06
    w = leaf(5.0, 6.0)
    a = torch.zeros(4, dtype=torch.float64)
    v = a[1:3]
    v.add_(w)
    assert a.requires_grad and v.requires_grad
    (a * a).sum().backward()
    assert w.grad.tolist() == [10.0, 12.0]
    b = torch.zeros(2, 2, dtype=torch.float64)
    row = b[0]
    w.grad = None
    b[:, 1] = w * 2
    assert row.requires_grad
    row.sum().backward()
    assert w.grad.tolist() == [2.0, 0.0]


def test_in_place_on_leaves_and_their_views():  # mission: A-26, B-07, B-08
    x = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        x.add_(1)
    with pytest.raises(RuntimeError, match="view of a leaf"):
        x[0:1].add_(1)
    with torch.no_grad():
        x.add_(1)
    assert x.tolist() == [2.0, 3.0]
    y = x * 1
    with pytest.raises(RuntimeError, match="multiple views"):
        y.chunk(2)[0].add_(1)


def test_overlap_is_refused():
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.zeros(1).expand(3).add_(1)
    t = torch.arange(4.0)
    with pytest.raises(RuntimeError, match="memory location"):
        t[1:].add_(t[:-1])
    assert t.tolist() == [0, 1, 2, 3]


def test_out_with_grad_is_refused():  # mission: B-12
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        torch.add(leaf(1.0), 1, out=torch.empty(1, dtype=torch.float64))


# --- modes ----------------------------------------------------------------------------------------------------------
def test_modes():  # mission
    x = leaf(1.0)
    with torch.no_grad():
        assert not (x * 2).requires_grad
        with torch.enable_grad():
            assert (x * 2).requires_grad
    with pytest.raises(ZeroDivisionError), torch.no_grad():
        _ = 1 / 0
    assert torch.is_grad_enabled()
    with torch.set_grad_enabled(False):
        assert not (x * 2).requires_grad
    torch.set_grad_enabled(False)
    assert not torch.is_grad_enabled()
    torch.set_grad_enabled(True)

    @torch.no_grad()
    def f():
        return x * 2

    @torch.no_grad()
    def g():
        yield (x * 2).requires_grad

    assert not f().requires_grad and list(g()) == [False] and torch.is_grad_enabled()
    with torch.inference_mode():
        assert not (x * 2).requires_grad and torch.is_inference_mode_enabled()
    seen = []
    with torch.no_grad():
        t = threading.Thread(target=lambda: seen.append(torch.is_grad_enabled()))
        t.start(), t.join()
    assert seen == [True]


def test_detach():  # mission
    x = leaf(1.0, 2.0)
    y = x * 2
    d = y.detach()
    assert not d.requires_grad and d.data_ptr() == y.data_ptr()
    y.detach_()
    assert not y.requires_grad


def test_anomaly_mode_names_the_forward():
    x = leaf(-1.0)
    with pytest.warns(UserWarning, match="Anomaly"), torch.autograd.detect_anomaly():
        y = x.sqrt()
        with pytest.raises(RuntimeError, match="nan values.*test_autograd"):
            y.sum().backward()


def test_a_graph_is_no_garbage():
    gc.collect()
    gc.disable()
    try:
        x = leaf(1.0)
        y = (x.exp() * x).sum()
        ref, arr = weakref.ref(y.grad_fn), weakref.ref(y)
        del y
        assert ref() is None and arr() is None
    finally:
        gc.enable()


def test_deep_graphs():
    x = leaf(1.0)
    y = x
    for _ in range(5000):
        y = y + 1
    y.sum().backward()
    assert x.grad.item() == 1


# --- functions ------------------------------------------------------------------------------------------------------
class Exp(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return grad * y


class MulConstant(Function):  # the old style
    def __init__(self, constant):
        self.constant = constant

    def forward(self, a, b):
        self.save_for_backward(a, b)
        return a * b * self.constant

    def backward(self, grad):
        a, b = self.saved_tensors
        return grad * b * self.constant, grad * a * self.constant


def test_new_style():  # mission: E-01
    x = leaf(0.5, -1.0)
    y = Exp.apply(x)
    assert type(y.grad_fn).__name__ == "ExpBackward"
    assert gradcheck(Exp.apply, (x,)) and gradgradcheck(Exp.apply, (x,))


def test_several_outputs_and_other_arguments():  # mission: E-02, E-03, E-05
    class Two(Function):
        @staticmethod
        def forward(ctx, x, k):
            ctx.k = k
            assert ctx.needs_input_grad == (True, False)
            return x * k, x + k

        @staticmethod
        def backward(ctx, g1, g2):
            return g1 * ctx.k + g2, None

    x = leaf(1.0, 2.0)
    a, b = Two.apply(x, 3.0)
    a.sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]


def test_wrong_number_of_gradients():  # mission: E-04
    class Bad(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return g, g

    with pytest.raises(RuntimeError, match="expected 1, got 2"):
        Bad.apply(leaf(1.0)).sum().backward()


def test_old_style():  # mission: E-06, E-07, E-08, B-10
    a, b = leaf(1.0, 2.0), leaf(3.0, 4.0)
    y = MulConstant(5)(a, b)
    y.sum().backward()
    assert a.grad.tolist() == [15.0, 20.0] and b.grad.tolist() == [5.0, 10.0]
    with pytest.raises(TypeError, match="constructor"):
        MulConstant(5)(a, 2.0)
    c = a * 1
    y = MulConstant(2)(c, b)
    c.add_(1)
    with pytest.raises(RuntimeError, match="inplace"):
        y.sum().backward()


def test_variables():  # mission: A-04
    v = Variable(torch.ones(2), requires_grad=True)
    assert isinstance(v, Variable) and v.requires_grad
    with pytest.warns(UserWarning, match="volatile"):
        w = Variable(torch.ones(2), volatile=True)
    with pytest.warns(UserWarning, match="always False"):
        assert w.volatile is False


def test_gradcheck_catches_a_wrong_gradient():
    class Wrong(Exp):
        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        gradcheck(Wrong.apply, (leaf(0.5),))
    assert gradcheck(Wrong.apply, (leaf(0.5),), raise_exception=False) is False
    with pytest.raises(ValueError, match="requires_grad"):
        gradcheck(lambda x: x, (torch.ones(1),))


@pytest.mark.parametrize("f", [
    lambda x: torch.softmax(x, -1), lambda x: torch.nn.functional.layer_norm(x, (3,)), lambda x: x.std(0), lambda x: x @ x.t(),
    lambda x: torch.nn.functional.conv2d(x.view(1, 1, 3, 3), x[:2, :2].view(1, 1, 2, 2)), lambda x: x.cumsum(1)[x > 0],
    lambda x: torch.nn.functional.cross_entropy(x, torch.tensor([0, 2, 1])), lambda x: torch.einsum("ij,kj->ik", x, x.exp()),
    lambda x: x.sort(1).values * x, lambda x: torch.where(x > 0, x.exp(), x * 2), lambda x: x.max(1)[0].prod(), lambda x: x.norm(),
    lambda x: torch.nn.functional.max_pool2d(x.view(1, 1, 3, 3), 2, 1), lambda x: torch.cat([x, x * 2], 1).unfold(1, 2, 2),
], ids=["softmax", "layer_norm", "std", "matmul", "conv2d", "cumsum_mask", "cross_entropy", "einsum", "sort", "where", "max_prod", "norm",
        "max_pool2d", "cat_unfold"])
def test_first_and_second_derivatives(f):  # mission: R-10
    x = torch.tensor(np.random.default_rng(3).standard_normal((3, 3)), requires_grad=True)
    assert gradcheck(f, (x,)) and gradgradcheck(f, (x,))


# --- bad input ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("call, error, text", [
    (lambda: torch.ones(2) + torch.ones(3), RuntimeError, r"size of tensor a \(2\).*tensor b \(3\)"),
    (lambda: torch.mm(torch.ones(2, 3), torch.ones(2, 3)), RuntimeError, "2x3 and 2x3"),
    (lambda: torch.nn.Linear(3, 4)(torch.ones(2, 5)), RuntimeError, "2x5"),
    (lambda: torch.ones(3)[7], IndexError, "index 7 is out of bounds"),
    (lambda: torch.ones(3)[torch.tensor([5])], IndexError, "index 5 is out of bounds"),
    (lambda: torch.ones(2, 3).sum(4), IndexError, "Dimension out of range"),
    (lambda: torch.nn.functional.embedding(torch.tensor([9]), torch.ones(3, 2)), IndexError, "out of range|out of bounds"),
    (lambda: torch.nn.functional.cross_entropy(torch.ones(2, 3), torch.tensor([0, 7])), IndexError, "7"),
    (lambda: torch.ones(2, device="cuda"), RuntimeError, "CUDA"),
    (lambda: torch.ones(2).to("meta") + torch.ones(2), RuntimeError, "device"),
    (lambda: torch.ones(2).view(3), RuntimeError, r"shape '\[3\]' is invalid"),
    (lambda: torch.mm(torch.ones(2, 2), torch.ones(2, 2, dtype=torch.float64)), RuntimeError, "dtype"),
    (lambda: torch.tensor([[1], [1, 2]]), ValueError, "expected sequence of length"),
    (lambda: torch.tensor("text"), TypeError, "str"),
    (lambda: torch.add("x", torch.ones(1)), TypeError, "must be Tensor"),
    (lambda: torch.ones(2).item(), RuntimeError, "2 elements"),
    (lambda: bool(torch.ones(2)), RuntimeError, "ambiguous"),
    (lambda: torch.zeros(-1), RuntimeError, "negative dimension"),
    (lambda: torch.nn.functional.conv2d(torch.ones(1, 2, 4, 4), torch.ones(1, 3, 2, 2)), RuntimeError, "channels"),
], ids=lambda x: None)
def test_bad_input(call, error, text):
    with pytest.raises(error, match=text):
        call()
