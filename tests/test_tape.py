"""The tape beside PyTorch's: cases in golden/tape_*.py, whose results there are recorded in golden/tape.json (make_tape.py).

What Rushlight does otherwise on purpose is at the end.
"""

import gc
import json
import pathlib
import sys
import weakref

import pytest

import rushlight

GOLDEN = pathlib.Path(__file__).with_name("golden")
sys.path.insert(0, str(GOLDEN))
import tape  # noqa: E402
import tape_engine  # noqa: E402, F401
import tape_function  # noqa: E402, F401
import tape_graph  # noqa: E402, F401
import tape_inplace  # noqa: E402, F401

RECORDED = json.loads((GOLDEN / "tape.json").read_text())
F64 = rushlight.float64


def test_every_case_is_recorded():
    assert set(RECORDED) == set(tape.CASES)


@pytest.mark.parametrize("name", sorted(tape.CASES))
def test_as_pytorch(name):
    assert tape.run(name, rushlight) == RECORDED[name]


def leaf(*values):
    return rushlight.tensor(values, dtype=F64, requires_grad=True)


# --- on purpose otherwise -------------------------------------------------------------------------------------------
def test_an_operand_that_is_the_target():
    """PyTorch refuses backward: the operand was overwritten. Rushlight kept a copy of it."""
    x = leaf(3.0, 2.0)
    y = x * 1
    y.mul_(y)
    (y * y).sum().backward()
    assert x.grad.tolist() == [4 * 27.0, 4 * 8.0]
    x.grad = None
    y = x * 1
    y.mul_(y.view_as(y))
    y.sum().backward()
    assert x.grad.tolist() == [6.0, 4.0]


def test_one_of_several_views_after_a_write_to_the_base():
    """PyTorch refuses to use it; the gradient is clear enough."""
    x = leaf(1.0, 2.0, 3.0, 4.0)
    y = x * 1
    a, b = y.chunk(2)
    y.mul_(2)
    (a * a).sum().backward()
    assert x.grad.tolist() == [8.0, 16.0, 0.0, 0.0]


# --- memory ---------------------------------------------------------------------------------------------------------
@pytest.fixture
def no_gc():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("make", [
    lambda x: (x.exp() * x).sum(),
    lambda x: rushlight.softmax(x, 0).log().sum(),
    lambda x: (x * 1).mul_(x).sum(),
    lambda x: (y := x * 1, y[0].mul_(3.0), y.sum())[-1],
    lambda x: x.sort()[0].sum() + x.chunk(2)[1].sum(),
    lambda x: rushlight.nn.functional.layer_norm(x, (4,)).sum(),
    lambda x: tape_like().apply(x).sum(),
], ids=["saved_result", "softmax", "in_place", "view_in_place", "several", "layer_norm", "function"])
def test_a_dropped_graph_is_no_garbage(no_gc, make):
    x = leaf(1.0, 2.0, 3.0, 4.0)
    for run in (False, True):
        y = make(x)
        nodes, todo = [], [y.grad_fn]
        while todo:
            n = todo.pop()
            nodes.append(weakref.ref(n))
            todo += [m for m, _ in n.next_functions if m is not None and not hasattr(m, "variable")]
            del n
        if run:
            y.backward()
        del y
        assert [r() for r in nodes] == [None] * len(nodes)
    g, = rushlight.autograd.grad(make(x), x, create_graph=True)
    node = weakref.ref(g.grad_fn) if g.grad_fn is not None else lambda: None
    del g
    assert node() is None
    z = leaf(1.0)
    ref = weakref.ref(z)
    (z * z).sum().backward()
    del z
    assert ref() is None


def tape_like():
    class Square(rushlight.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * x
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            return 2 * x * g + 0 * y
    return Square


def test_a_hundred_thousand_nodes(no_gc):
    x = leaf(1.0)
    y = x
    for _ in range(100_000):
        y = -y
    y.sum().backward()
    assert x.grad.item() == 1
    ref = weakref.ref(y.grad_fn)
    del y
    assert ref() is None


def test_a_gradient_belongs_to_one_tensor():
    """`.grad` takes over a gradient only if nobody else holds it."""
    kept = []
    for f in (lambda x: x + 0, lambda x: x.view(2, 1), lambda x: x * 2, lambda x: x.exp(), lambda x: -x, lambda x: x.t()):
        for hook in (True, False):
            x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
            if hook:
                x.register_hook(kept.append)
            y = f(x + w)
            y.retain_grad()
            g = rushlight.ones_like(y)
            y.backward(g)
            grads = [x.grad, w.grad, y.grad, g, *kept]
            for owner in grads[:3]:
                before = [t.tolist() for t in grads if t is not owner]
                owner.mul_(5)
                assert [t.tolist() for t in grads if t is not owner] == before
            kept.clear()
