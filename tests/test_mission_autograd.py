"""The mission's rows on autograd (A), in-place operations and versions (B), custom functions (E) and the autograd API (R), a test a row
and all that the row says. Values are worked out by hand, or are those of PyTorch 2.13."""

import copy
import gc
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import rushlight as torch
from rushlight import nn
from rushlight.autograd import Function, Variable, gradcheck

INPLACE = "modified by an inplace operation"


def leaf(*values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype, requires_grad=True)


# --- A: autograd mechanics ------------------------------------------------------------------------------------------
def test_one_input_that_requires_grad_is_enough():  # mission: A-01
    x, y = leaf(1.0, 2.0), torch.tensor([3.0, 4.0], dtype=torch.float64)
    for out in (x * y, y * x, torch.cat([y, x]), torch.where(torch.tensor([True, False]), y, x), y @ x,
                torch.stack([y, y, x])):
        assert out.requires_grad and not out.is_leaf
    (x * y).sum().backward()
    assert x.grad.tolist() == [3, 4] and y.grad is None and not y.requires_grad


def test_nothing_is_recorded_without_requires_grad():  # mission: A-02
    x = torch.ones(2)
    y = (x * 2).exp().sum()
    assert y.grad_fn is None and not y.requires_grad and y.is_leaf
    with pytest.raises(RuntimeError, match="does not require grad"):
        y.backward()
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.autograd.grad(y, x)


def test_frozen_parameters_stay_as_they_are():  # mission: A-03
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    for p in net[0].parameters():
        p.requires_grad = False
    before = copy.deepcopy(net.state_dict())
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    for _ in range(3):
        opt.zero_grad()
        net(torch.ones(4, 2)).sum().backward()
        opt.step()
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name]) == name.startswith("0.")
    assert all(p.grad is None for p in net[0].parameters()) and all(p.grad is not None for p in net[2].parameters())
    net[0].weight.requires_grad = True
    net(torch.ones(4, 2)).sum().backward()
    assert net[0].weight.grad is not None and net[0].bias.grad is None


def test_variable_makes_a_tensor():  # mission: A-04
    data = torch.ones(2)
    v = Variable(data)
    assert isinstance(v, torch.Tensor) and isinstance(v, Variable) and not v.requires_grad
    assert v.data_ptr() == data.data_ptr()
    w = Variable(data, requires_grad=True)
    (w * 3).sum().backward()
    assert w.grad.tolist() == [3, 3] and not data.requires_grad
    assert Variable(data, True).requires_grad


def test_volatile_warns_and_has_no_effect():  # mission: A-04
    with pytest.warns(UserWarning, match="volatile"):
        v = Variable(torch.ones(2), volatile=True)
    assert (v * torch.ones(2, requires_grad=True)).requires_grad
    with pytest.raises(ValueError, match="volatile"):       # PyTorch 2.13 still refuses the two together
        Variable(torch.ones(2), requires_grad=True, volatile=True)
    with pytest.warns(UserWarning, match="volatile was removed"):
        assert v.volatile is False
    with pytest.warns(UserWarning, match="volatile was removed"):
        assert torch.ones(1).volatile is False


def test_inference_keeps_nothing():  # mission: A-05
    net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    with torch.no_grad():
        hidden = net[0](torch.ones(1, 2))
        ref = weakref.ref(hidden)
        out = net[2](net[1](hidden))
        del hidden
    assert ref() is None and out.grad_fn is None and not out.requires_grad
    assert all(p.requires_grad for p in net.parameters())


def test_inference_tensors():  # mission: A-05
    normal, w = torch.ones(3), torch.ones(3, requires_grad=True)
    with torch.inference_mode():
        made = torch.ones(3)
        made.add_(1)
        made[0] = 5.0
        normal.add_(1)
        inside = [made, normal * 2, made[1:], made.detach(), torch.nn.Parameter(made), normal.clone(), w * 2,
                  torch.tensor(1.0),
                  made.data, torch.from_numpy(normal.numpy()), torch.cat([normal, normal]), normal.sum(), normal.exp()]
        outside = [normal[1:], normal.detach(), normal.view(3), normal.contiguous(), normal.data, *normal.chunk(2),
                   normal]
        with torch.inference_mode(False):
            outside += [torch.ones(2), normal * 2]
    assert all(t.is_inference() and torch.is_inference(t) for t in inside)
    assert not any(t.is_inference() for t in outside)
    assert made.tolist() == [5, 2, 2] and normal._version == 1
    assert made[1:].is_inference() and made.detach().is_inference() and made.contiguous() is made
    for normal_again in (made.clone(), made * 2, copy.deepcopy(made), torch.cat([made]), made.double(), torch.ones(1)):
        assert not normal_again.is_inference()
    with pytest.raises(RuntimeError, match="do not track version"):
        _ = made._version
    view = made[1:]
    for write in (lambda: made.add_(1), lambda: made.exp_(), lambda: made.zero_(), lambda: made.__setitem__(0, 1.0),
                  lambda: view.add_(1),
                  lambda: made.copy_(normal), lambda: made.normal_(),
                  lambda: torch.add(normal, 1, out=made),
                  lambda: made.view(3, 1).__setitem__(0, 1.0)):
        with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode"):
            write()
        with torch.no_grad(), pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
            write()
    assert made.tolist() == [5, 2, 2] and made.shape == (3,)
    with torch.inference_mode():
        assert made.add_(1).tolist() == [6, 3, 3]
    loose = made.detach()               # PyTorch 2.13: outside of the mode this one counts its writes again
    assert loose.is_inference() and loose._version == 0 and loose.mul_(1)._version == 1 and made.tolist() == [6, 3, 3]
    with pytest.raises(RuntimeError, match="requires_grad=True on inference tensor"):
        made.requires_grad_()
    for record in (lambda: w * made, lambda: made * w, lambda: Square.apply(w * 1 + made) * made,
                   lambda: (w + made) / made,
                   lambda: Product.apply(w, made),
                   lambda: torch.nn.functional.linear(made, torch.ones(2, 3, requires_grad=True))):
        with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
            record()
    (w + made).sum().backward()         # nothing of it is saved
    assert w.grad.tolist() == [1, 1, 1]
    with torch.no_grad():
        assert (w * made).tolist() == [6, 3, 3]
    (w * made.clone()).sum().backward()


def test_refused_changes_leave_an_inference_tensor_as_it_was():  # mission: A-05
    with torch.inference_mode():
        made = torch.ones(3)
    for change in (lambda: made.unsqueeze_(0), lambda: made.resize_(9), lambda: made.t_()):
        with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
            change()
    assert made.shape == (3,) and made.tolist() == [1, 1, 1]


def test_inference_mode_is_one_threads():  # mission: A-05
    made, ready, done = [], threading.Event(), threading.Event()

    def other():
        with torch.inference_mode():
            made.append(torch.ones(2))
            ready.set()
            done.wait(10)

    t = threading.Thread(target=other)
    t.start()
    ready.wait(10)
    x = torch.ones(2) + 1
    done.set()
    t.join()
    assert made[0].is_inference() and not x.is_inference() and not torch.is_inference_mode_enabled()
    with pytest.raises(KeyError), torch.inference_mode():
        raise KeyError
    assert not torch.ones(1).is_inference()


def test_creator():  # mission: A-09
    x = leaf(1.0)
    y = x * 2
    assert x.creator is None and torch.ones(1).creator is None and y.creator is y.grad_fn and y.creator is not None
    f = OldSquare()
    out = f(x)
    assert out.creator is out.grad_fn and out.creator.name() == "OldSquare"


def test_history_leads_back_to_every_leaf():  # mission: A-10
    a, b = leaf(1.0), leaf(2.0)
    out = (a * b + b.exp()).sum()
    found, todo = set(), [out.grad_fn]
    while todo:
        node = todo.pop()
        if hasattr(node, "variable"):
            found.add(id(node.variable))
        todo += [n for n, _ in node.next_functions if n is not None]
    assert found == {id(a), id(b)}
    assert [n for n, _ in (a * torch.ones(1, dtype=torch.float64)).grad_fn.next_functions][1] is None


def test_each_call_makes_a_node():  # mission: A-11
    class Double(Function):
        calls = 0

        @staticmethod
        def forward(ctx, x):
            Double.calls += 1
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = leaf(1.0)
    a, b = Double.apply(x), Double.apply(x)
    assert Double.calls == 2 and a.grad_fn is not b.grad_fn and a.grad_fn.name() == "DoubleBackward"
    assert (x + 1).grad_fn is not (x + 1).grad_fn


def test_the_graph_may_change_its_shape():  # mission: A-12
    x, seen = leaf(3.0), []
    for depth in (1, 3, 2):
        y = x
        for _ in range(depth):
            y = y * x
        (g,) = torch.autograd.grad(y.sum(), x)
        seen.append(g.item())
    assert seen == [2 * 3, 4 * 27, 3 * 9]


def test_operations_run_at_once():  # mission: A-13
    x = leaf(1.0)
    for _ in range(5):
        x = x * 2 if x.item() < 10 else x - 10
    assert x.tolist() == [6.0]      # 2, 4, 8, 16, 6
    y = torch.ones(2, 3)
    try:
        torch.mm(y, y)
    except RuntimeError as e:
        line = e.__traceback__.tb_lineno
    assert line == test_operations_run_at_once.__code__.co_firstlineno + 7


def test_gradients_of_all_paths_add_up():  # mission: A-14
    x = leaf(3.0)
    a, b = x * x, x * 5
    c = a * b + a          # 5 x^3 + x^2
    c.sum().backward()
    assert x.grad.item() == 15 * 9 + 2 * 3

    def depth(node, above=()):      # no node leads back to itself
        assert node not in above
        return 1 + max([depth(n, (*above, node)) for n, _ in node.next_functions if n is not None], default=0)

    assert depth(c.grad_fn) == 4    # add, mul, mul, leaf


def test_requires_grad_of_constructors():  # mission: A-15
    for make in (lambda **k: torch.tensor([1.0], **k), lambda **k: torch.zeros(2, **k), lambda **k: torch.rand(2, **k),
                 lambda **k: torch.eye(2, **k),
                 lambda **k: torch.full((2,), 1.0, **k), lambda **k: torch.arange(2.0, **k),
                 lambda **k: torch.empty(2, **k),
                 lambda **k: torch.linspace(0, 1, 3, **k), lambda **k: torch.zeros_like(torch.ones(2), **k)):
        x = make(requires_grad=True)
        assert x.requires_grad and x.is_leaf and (x * 2).requires_grad and not make().requires_grad
        with pytest.raises(TypeError, match="require_grad"):
            make(require_grad=True)


def test_requires_grad_in_place():  # mission: A-16
    x = torch.ones(2)
    assert x.requires_grad_() is x and x.requires_grad
    assert x.requires_grad_(False) is x and not x.requires_grad
    assert x.requires_grad_(requires_grad=True).requires_grad


def test_where_the_flag_is_refused():  # mission: A-17
    for dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool):
        for make in (lambda d: torch.ones(2, dtype=d).requires_grad_(),
                     lambda d: torch.ones(2, dtype=d, requires_grad=True),
                     lambda d: torch.tensor([1], dtype=d, requires_grad=True),
                     lambda d: setattr(torch.ones(2, dtype=d), "requires_grad", True)):
            with pytest.raises(RuntimeError, match="floating point"):
                make(dtype)
    assert torch.ones(2, dtype=torch.complex64, requires_grad=True).requires_grad
    y = leaf(1.0) * 2
    with pytest.raises(RuntimeError, match="leaf"):
        y.requires_grad = False
    with pytest.raises(RuntimeError, match="leaf"):
        y.requires_grad_(False)
    with pytest.raises(RuntimeError, match="leaf"):     # PyTorch 2.13: the attribute of a non-leaf is not set at all,
        y.requires_grad = True
    assert y.requires_grad_() is y                      # the method may say what already holds
    for value in (1, "yes", None):
        with pytest.raises(RuntimeError, match="must be a bool"):
            torch.ones(1).requires_grad = value


def test_detach():  # mission: A-18
    x = leaf(1.0, 2.0)
    y = x * 2
    d = y.detach()
    assert d.data_ptr() == y.data_ptr() and not d.requires_grad and d.grad_fn is None and d.is_leaf and y.requires_grad
    d[0] = 7
    assert y[0] == 7
    assert y.detach_() is y and not y.requires_grad and y.is_leaf and y.grad_fn is None
    v = (x * 2)[:1]
    with pytest.raises(RuntimeError, match="detach views in-place"):
        v.detach_()


def test_parameters_by_fresh_leaves():  # mission: A-19
    params = torch.tensor([4.0], requires_grad=True)
    old = []
    gc.disable()
    try:
        for _ in range(3):
            loss = (params ** 2).sum()
            loss.backward()
            old.append(weakref.ref(params))
            params = (params - 0.25 * params.grad).detach().requires_grad_()
            del loss
            assert params.is_leaf and params.requires_grad and params.grad is None
        assert params.item() == 0.5 and all(r() is None for r in old)
    finally:
        gc.enable()


def test_no_grad_for_validation():  # mission: A-20
    net = nn.Linear(2, 1)
    with torch.no_grad():
        val = ((net(torch.ones(3, 2)) - 1) ** 2).mean()
        assert val.requires_grad is False and val.grad_fn is None
        assert torch.ones(1, requires_grad=True).requires_grad     # a leaf may still be made
    assert ((net(torch.ones(3, 2)) - 1) ** 2).mean().requires_grad


def test_no_grad_nests_restores_and_decorates():  # mission: A-21
    x = leaf(1.0)
    with torch.no_grad():
        with torch.enable_grad():
            with torch.no_grad():
                assert not (x * 2).requires_grad
            assert (x * 2).requires_grad
        assert not (x * 2).requires_grad
    for mode, after in ((torch.no_grad, True), (torch.enable_grad, True)):
        with pytest.raises(KeyError), mode():
            raise KeyError
        assert torch.is_grad_enabled() is after

    @torch.no_grad()
    def with_brackets():
        return x * 2

    @torch.no_grad
    def without():
        return x * 2

    @torch.enable_grad()
    def recorded():
        return x * 2

    @torch.no_grad()
    def fails():
        raise KeyError

    assert not with_brackets().requires_grad and not without().requires_grad
    assert with_brackets.__name__ == "with_brackets"
    with torch.no_grad():
        assert recorded().requires_grad
    with pytest.raises(KeyError):
        fails()
    assert torch.is_grad_enabled()


def test_set_grad_enabled_as_context():  # mission: A-22
    x = leaf(1.0)
    for is_train in (False, True):
        with torch.set_grad_enabled(is_train):
            assert (x * 2).requires_grad is is_train
        assert torch.is_grad_enabled()
    with torch.no_grad(), torch.set_grad_enabled(True):
        assert (x * 2).requires_grad
    with pytest.raises(KeyError), torch.set_grad_enabled(False):
        raise KeyError
    assert torch.is_grad_enabled()


def test_set_grad_enabled_as_call():  # mission: A-23
    x = leaf(1.0)
    try:
        torch.set_grad_enabled(False)
        assert not (x * 2).requires_grad
        torch.set_grad_enabled(mode=True)
        assert (x * 2).requires_grad
    finally:
        torch.set_grad_enabled(True)
    for mode in ("yes", 1, None):
        with pytest.raises(TypeError, match="must be bool"):
            torch.set_grad_enabled(mode)
    assert torch.is_grad_enabled()


def test_gradients_are_kept_until_zeroed():  # mission: A-24
    x = leaf(1.0, 2.0)
    (x * 3).sum().backward()
    (x * x).sum().backward()
    assert x.grad.tolist() == [5, 7]
    g = x.grad
    assert g.zero_() is g and x.grad.tolist() == [0, 0]
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3, 3]
    x.grad = None
    (x * 4).sum().backward()
    assert x.grad.tolist() == [4, 4]


def test_only_leaves_keep_grad():  # mission: A-25
    x = leaf(1.0)
    y = x * 2
    z = y * 3
    assert x.is_leaf and not y.is_leaf and not z.is_leaf and y.requires_grad and z.requires_grad
    z.backward()
    assert x.grad.item() == 6
    with pytest.warns(UserWarning, match="not a leaf"):
        assert y.grad is None
    assert torch.ones(1).is_leaf


def test_leaves_and_in_place():  # mission: A-26
    x = leaf(1.0, 2.0)
    for write in (lambda: x.add_(1), lambda: x.zero_(), lambda: x.__setitem__(0, 5.0), lambda: x.copy_(torch.ones(2)),
                  lambda: x.mul_(2),
                  lambda: x.fill_(0), lambda: x.clamp_(0), lambda: x.uniform_(), lambda: x.normal_(),
                  lambda: x.index_fill_(0, torch.tensor([0]), 1.0)):
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            write()
    with pytest.raises(RuntimeError, match="leaf"):
        x += 1
    assert x.tolist() == [1, 2] and x.is_leaf
    with torch.no_grad():
        x.add_(1)
        x[0] = 7
        x -= 1
    assert x.tolist() == [6, 2] and x.is_leaf and x.requires_grad


# --- B: in-place operations and version counters --------------------------------------------------------------------
def test_every_in_place_operation_counts():  # mission: B-01
    x = torch.ones(2, 2)
    assert x._version == 0
    n = 0
    for write in (lambda: x.add_(1), lambda: x.exp_(), lambda: x.mul_(2), lambda: x.clamp_(0, 1), lambda: x.t_(),
                  lambda: x.unsqueeze_(0), lambda: x.squeeze_(0),
                  lambda: x.transpose_(0, 1), lambda: x.masked_fill_(x > 9, 0),
                  lambda: x.scatter_(1, torch.zeros(1, 1, dtype=torch.int64), 1.0),
                  lambda: x.index_add_(0, torch.tensor([0]), torch.ones(1, 2)), lambda: x.normal_(),
                  lambda: x.__iadd__(1)):
        write()
        n += 1
        assert x._version == n
    for read in (lambda: x.sum(), lambda: x + 1, lambda: x[0], lambda: x.view(4), lambda: x.tolist(), lambda: x.clone(),
                 lambda: repr(x),
                 lambda: x.numpy(), lambda: torch.add(x, 1, out=torch.empty(2, 2)), lambda: x.detach()):
        read()
        assert x._version == n
    out = torch.empty(2, 2)
    torch.add(x, 1, out=out)
    assert out._version == 1


def test_operations_that_move_a_tensor_count_too():  # mission: B-01
    for change, counts in ((lambda t: t.t_(), 1), (lambda t: t.unsqueeze_(0), 1), (lambda t: t.transpose_(0, 1), 1),
                           (lambda t: t.squeeze_(), 1), (lambda t: t.squeeze_(0), 1),
                           (lambda t: t.swapaxes_(0, 1), 1), (lambda t: t.as_strided_((2,), (1,)), 1),
                           (lambda t: t.resize_(4), 1), (lambda t: t.resize_(9), 1),
                           (lambda t: t.set_(torch.ones(3)), 1),
                           (lambda t: t.detach_(), 0), (lambda t: t.requires_grad_(), 0),
                           (lambda t: t.resize_(2, 2), 0),
                           (lambda t: t.share_memory_(), 0)):      # as PyTorch 2.13 counts
        x = torch.ones(2, 2)
        view, alias = x.view(4), x.detach()
        assert change(x) is x and x._version == view._version == alias._version == counts
        assert view.shape == (4,) and alias.shape == (2, 2)
    for out in (torch.empty(0), torch.empty(2), torch.empty(2, 2)[0]):
        torch.add(torch.ones(2), 1, out=out)        # resizing is no operation of its own
        assert out._version == 1
    spread = torch.ones(1, 3).expand(2, 3)
    assert spread.t_().shape == (3, 2)              # nothing is written to
    with pytest.raises(RuntimeError, match="leaf"):
        torch.ones(2, requires_grad=True).set_(torch.ones(3))


def test_views_and_base_share_one_counter():  # mission: B-02
    x = torch.zeros(4)
    views = [x.view(2, 2), x[1:], x.detach(), x.unsqueeze(0), x.expand(2, 4), x.chunk(2)[0]]
    n = 0
    for write in (lambda: x.copy_(torch.ones(4)), lambda: x.zero_(), lambda: x.fill_(3), lambda: x.__setitem__(0, 1.0),
                  lambda: views[0].zero_(), lambda: views[1].__setitem__(slice(0, 1), 5.0), lambda: views[2].fill_(2)):
        write()
        n += 1
        assert x._version == n and all(v._version == n for v in views)
    assert x.data._version == 0 and x.clone()._version == 0
    x.data.add_(1)
    assert x._version == n


@pytest.mark.parametrize("f",
                         [lambda y: y * y, lambda y: y.exp(), lambda y: y / (y + 3), lambda y: y.sqrt(),
                          lambda y: torch.mm(y, y), lambda y: y.sigmoid(),
                               lambda y: y.pow(2), lambda y: torch.softmax(y, 0), lambda y: y.prod(),
                          lambda y: torch.where(y > 0, y * y, y)])
def test_overwriting_what_a_gradient_needs(f):  # mission: B-03
    x = torch.full((2, 2), 2.0, requires_grad=True)
    y = x * 1
    z = f(y)
    y.add_(1)
    result_saved = f(torch.ones(1, 1))   # the result is what the formula reads: overwriting the operand is fine
    out = z.sum()
    if z.grad_fn.name() in ("ExpBackward0", "SqrtBackward0", "SigmoidBackward0", "SoftmaxBackward0"):
        out.backward()
        z = f(x * 1)
        z.add_(1)
        out = z.sum()
    with pytest.raises(RuntimeError, match=INPLACE):
        out.backward()
    assert result_saved is not None


def test_in_place_where_nothing_is_lost():  # mission: B-04
    x = leaf(1.0, 2.0)
    y = x * 3
    y.add_(1)          # neither 3 x nor adding needs the value
    y.mul_(2)
    y.sum().backward()
    assert x.grad.tolist() == [6, 6]
    x.grad = None
    y = x.exp()
    z = y * 1
    z.mul_(y)          # reads both as they were, writes z
    z.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.exp([2.0, 4.0]))
    x.grad = None
    y = x * 1
    y.mul_(2).exp_()    # the gradient of exp reads the result
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.exp([2.0, 4.0]))
    x.grad = None
    y = x * 1
    y[0] = 100.0       # the element's history is gone
    (y * y).sum().backward()
    assert x.grad.tolist() == [0, 4]


def test_in_place_rewrites_the_history():  # mission: B-05
    x = leaf(1.0, 2.0)
    y = x * 1
    before = y.grad_fn
    y.exp_()
    assert y.grad_fn is not before and y.grad_fn.name() == "ExpBackward0" and y.grad_fn.next_functions[0][0] is before
    plain = torch.zeros(2, dtype=torch.float64)
    plain.add_(x)
    assert plain.requires_grad and not plain.is_leaf and plain.grad_fn.name() == "AddBackward0"
    plain.sum().backward()
    assert x.grad.tolist() == [1, 1]
    plain = torch.zeros(2, dtype=torch.float64)
    plain[1] = x[0]
    assert plain.requires_grad
    plain.zero_()       # what it was no longer counts
    x.grad = None
    plain.sum().backward()
    assert x.grad is None or x.grad.tolist() == [0, 0]


def test_in_place_through_a_view():  # mission: B-06
    x = leaf(1.0, 2.0, 3.0)
    base = x * 1
    before = base.grad_fn
    view = base[1:]
    view.mul_(10)
    assert base.grad_fn is not before and type(base.grad_fn).__name__ == "CopySlices"
    assert view.grad_fn.name() == "AsStridedBackward0"
    base.sum().backward()
    assert x.grad.tolist() == [1, 10, 10]
    x.grad = None
    base = torch.zeros(3, dtype=torch.float64)
    other = base.view(3, 1)
    base[0] = x[2] * 4
    base[1:] = x[:2] * x[1:]
    assert base.requires_grad and other.requires_grad
    (other.squeeze(1) * torch.tensor([1.0, 10.0, 100.0], dtype=torch.float64)).sum().backward()
    assert x.grad.tolist() == [20, 10 + 300, 200 + 4]
    x.grad = None
    base = torch.zeros(2, 2, dtype=torch.float64)
    base.t()[0].copy_(x[:2])
    (base * torch.tensor([[1.0, 2], [3, 4]], dtype=torch.float64)).sum().backward()
    assert x.grad.tolist() == [1, 3, 0]


def test_views_of_leaves():  # mission: B-07
    x = leaf(1.0, 2.0, 3.0, 4.0)
    for view in (x[1:], x.view(2, 2), x.unsqueeze(0), x.view(2, 2).t()[0], x.narrow(0, 0, 1)):
        with pytest.raises(RuntimeError, match="view of a leaf Variable"):
            view.add_(1)
    assert x.tolist() == [1, 2, 3, 4]
    with torch.no_grad():
        x[1:].add_(1)
    assert x.tolist() == [1, 3, 4, 5]


def test_several_views_at_once():  # mission: B-08
    x = leaf(1.0, 2.0, 3.0, 4.0)
    for parts in (lambda y: y.chunk(2), lambda y: y.split(2), lambda y: y.unbind(), lambda y: y.split([1, 3]),
                  lambda y: torch.unbind(y.view(2, 2), 1),
                  lambda y: list(y)):
        with pytest.raises(RuntimeError, match="multiple views"):
            parts(x * 1)[0].add_(1)
    y = x * 1
    y[0:2].add_(1)          # one view: its base is rewritten
    y.sum().backward()
    assert x.grad.tolist() == [1] * 4
    plain = torch.zeros(4)
    plain.chunk(2)[0].add_(1)   # without history there is nothing to rewrite
    assert plain.tolist() == [1, 1, 0, 0]
    for parts in (lambda y: y.tensor_split(2), lambda y: y.hsplit(2),
                  lambda y: torch.tensor_split(y, (2,))):    # slices, each a view of its own
        y = x * 1
        parts(y)[0].mul_(5)
        x.grad = None
        y.sum().backward()
        assert x.grad.tolist() == [5, 5, 1, 1]


class Square(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g


class Product(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y, g * x


class OldSquare(Function):
    def forward(self, x):
        self.save_for_backward(x)
        return x * x

    def backward(self, g):
        (x,) = self.saved_tensors
        return 2 * x * g


def test_a_functions_saved_tensors_have_versions():  # mission: B-09
    x = leaf(1.0, 2.0)
    y = x * 1
    Square.apply(y).sum().backward()
    assert x.grad.tolist() == [2, 4]
    y = x * 1
    out = Square.apply(y)
    y.mul_(2)
    with pytest.raises(RuntimeError, match=INPLACE):
        out.sum().backward()
    y = x * 1
    out = Square.apply(y)
    y[0:1].zero_()          # through a view
    with pytest.raises(RuntimeError, match=INPLACE):
        out.sum().backward()


def test_an_old_functions_saved_tensors_have_versions():  # mission: B-10
    x = leaf(1.0, 2.0)
    y = x * 1
    out = OldSquare()(y)
    y.mul_(2)
    with pytest.raises(RuntimeError, match=INPLACE):
        out.sum().backward()
    y = x * 1
    OldSquare()(y).sum().backward()
    assert x.grad.tolist() == [2, 4]


def test_the_message_gives_both_versions():  # mission: B-11
    x = leaf(1.0, 2.0)
    for square in (lambda y: y * y, Square.apply):
        y = x * 1
        y.add_(0)
        out = square(y)
        y.add_(1), y.add_(1)
        with pytest.raises(RuntimeError, match="(?s)is at version 3; expected version 1 instead"):
            out.sum().backward()
        y = x * 1
        out = square(y)
        y.detach().add_(1)
        with pytest.raises(RuntimeError, match="at version 1; expected version 0"):
            out.sum().backward()
        y = x * 1
        out = square(y)
        y.data.add_(1)
        out.sum().backward()


def test_out_with_operands_that_require_grad():  # mission: B-12
    x, plain = leaf(1.0, 2.0), torch.ones(2, dtype=torch.float64)
    out = torch.empty(2, dtype=torch.float64)
    for call in (lambda: torch.add(x, 1, out=out), lambda: torch.mul(plain, x, out=out), lambda: torch.exp(x, out=out),
                 lambda: torch.cat([plain, x], out=out),
                 lambda: torch.sum(x, 0, out=out), lambda: torch.stack([x], out=out),
                 lambda: torch.max(x, 0, out=(out, torch.empty(0, dtype=torch.int64))),
                 lambda: torch.index_select(x, 0, torch.tensor([0]), out=out),
                 lambda: torch.sort(x, out=(out, torch.empty(0, dtype=torch.int64))),
                 lambda: torch.mv(torch.eye(2, dtype=torch.float64), x, out=out),
                 lambda: torch.add(plain, 1, out=x * 1)):
        with pytest.raises(RuntimeError, match="automatic differentiation"):
            call()
    with torch.no_grad():
        assert torch.add(x, 1, out=out) is out and out.tolist() == [2, 3] and not out.requires_grad


# --- E: custom functions and modules --------------------------------------------------------------------------------
def test_a_new_operation():  # mission: E-01
    class Product(Function):
        seen = None

        @staticmethod
        def forward(ctx, a, b):
            Product.seen = ctx.needs_input_grad
            assert not torch.is_grad_enabled()
            ctx.save_for_backward(a, b)
            return a * b

        @staticmethod
        def backward(ctx, g):
            assert ctx.needs_input_grad == Product.seen
            a, b = ctx.saved_tensors
            return g * b, g * a

    a, b = leaf(2.0, -1.0), leaf(3.0, 0.5)
    y = Product.apply(a, b)
    assert Product.seen == (True, True) and y.requires_grad
    assert type(y.grad_fn).__name__ == "ProductBackward" == y.grad_fn.name()
    y.sum().backward()
    assert a.grad.tolist() == [3, 0.5] and b.grad.tolist() == [2, -1]
    Product.apply(a, b.detach())
    assert Product.seen == (True, False)
    assert Product.apply(a.detach(), b.detach()).grad_fn is None
    assert gradcheck(Product.apply, (a, b))
    with pytest.raises(NotImplementedError):
        Function.apply(a)


def test_any_arguments_of_forward():  # mission: E-02
    class Affine(Function):
        @staticmethod
        def forward(ctx, scale, x, how, *rest):
            ctx.scale, ctx.n = scale, len(rest)
            assert how == {"a": [1]} and rest[0] is None
            return x * scale

        @staticmethod
        def backward(ctx, g):
            return (None, g * ctx.scale, None, *[None] * ctx.n)

    x = leaf(1.0)
    Affine.apply(2.5, x, {"a": [1]}, None, "text", (1, 2)).backward()
    assert x.grad.item() == 2.5

    class Wrong(Affine):
        @staticmethod
        def backward(ctx, g):
            return (g, g, None, *[None] * ctx.n)

    with pytest.raises(RuntimeError, match="different than None at position 1"):
        Wrong.apply(2.5, x, {"a": [1]}, None).backward()


def test_several_outputs():  # mission: E-03
    got = []

    class Two(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, x.new_ones(3) * x.sum(), x * 5

        @staticmethod
        def backward(ctx, *grads):
            got.append([g.tolist() for g in grads])
            return grads[0] * 2 + grads[1].sum() + grads[2] * 5

    x = leaf(1.0, 2.0)
    a, b, c = Two.apply(x)
    assert isinstance(Two.apply(x), tuple) and a.grad_fn is b.grad_fn
    a.sum().backward(retain_graph=True)
    b.sum().backward()
    assert got == [[[1, 1], [0, 0, 0], [0, 0]], [[0, 0], [1, 1, 1], [0, 0]]]
    assert x.grad.tolist() == [2 + 3, 2 + 3]


def returning(value, inputs=2):
    class Returning(Function):
        @staticmethod
        def forward(ctx, *args):
            return sum(args)

        @staticmethod
        def backward(ctx, g):
            return value(g) if callable(value) else value
    return Returning.apply(*[leaf(1.0, 2.0) for _ in range(inputs)]).sum()


def test_a_gradient_for_each_input():  # mission: E-04
    returning(lambda g: (g, g)).backward()
    returning(lambda g: (g, g, None, None)).backward()
    with pytest.raises(RuntimeError,
                       match=r"ReturningBackward returned an incorrect number of gradients \(expected 2, got 1\)"):
        returning(lambda g: g).backward()
    with pytest.raises(RuntimeError, match=r"expected 2, got 3"):
        returning(lambda g: (g, g, g)).backward()
    with pytest.raises(RuntimeError, match=r"expected 2, got 0"):
        returning(lambda g: ()).backward()
    with pytest.raises(RuntimeError,
                       match=r"invalid gradient at index 0 - got \[3\] but expected shape compatible with \[2\]"):
        returning(lambda g: (torch.ones(3, dtype=torch.float64), g)).backward()
    for wrong in (5, 1.5, "text", [1.0], object()):     # PyTorch 2.13 takes nothing but tensors and None
        with pytest.raises(RuntimeError):
            returning(lambda g, w=wrong: (g, w)).backward()
        with pytest.raises(RuntimeError):
            returning(wrong, 1).backward()
    with pytest.raises(RuntimeError, match="got list|got 1"):
        returning(lambda g: [g, g]).backward()


def test_none_as_gradient():  # mission: E-05
    class First(Function):
        @staticmethod
        def forward(ctx, a, b):
            return a + b

        @staticmethod
        def backward(ctx, g):
            return g if ctx.needs_input_grad[0] else None, None

    a, b = leaf(1.0), leaf(2.0)
    First.apply(a, b).backward()
    assert a.grad.item() == 1 and b.grad is None
    c = leaf(2.0)
    First.apply(a.detach(), c * 2).backward()
    assert c.grad is None


class MulConstant(Function):
    def __init__(self, constant):
        self.constant = constant

    def forward(self, a, b):
        assert not a.requires_grad and a.grad_fn is None and not torch.is_grad_enabled()
        self.seen = self.needs_input_grad
        self.save_for_backward(a, b)
        return a * b * self.constant, a + b

    def backward(self, g, h):
        a, b = self.saved_tensors
        assert len(self.saved_tensors) == 2
        return g * b * self.constant + h, g * a * self.constant + h


def test_old_style():  # mission: E-06
    a, b = leaf(1.0, 2.0), leaf(3.0, 4.0)
    f = MulConstant(5)
    y, z = f(a, b)
    assert f.needs_input_grad == (True, True) and f.seen == (True, True) and y.requires_grad and z.requires_grad
    assert y.grad_fn.constant == 5
    y.sum().backward()
    assert a.grad.tolist() == [15, 20] and b.grad.tolist() == [5, 10]
    g = MulConstant(2)
    g(a, b.detach())
    assert g.needs_input_grad == (True, False)
    with pytest.raises(RuntimeError, match="old style"):
        MulConstant.apply(a, b)


def test_old_style_marks_and_results():  # mission: E-06, B-10
    class Exp(Function):
        def forward(self, x):
            y = x.exp()
            self.save_for_backward(y)
            return y

        def backward(self, g):
            return g * self.saved_tensors[0]

    class AddInPlace(Function):
        def forward(self, x):
            self.mark_dirty(x)
            x.add_(1)
            return x

        def backward(self, g):
            return g * 3

    class DoubleAndSign(Function):
        def forward(self, x):
            sign = x.sign()
            self.mark_non_differentiable(sign)
            return x * 2, sign

        def backward(self, g, _):
            return g * 2

    x = leaf(1.0, -2.0)
    y = Exp()(x)
    assert torch.autograd.grad(y.sum(), x)[0].tolist() == y.tolist() == [np.exp(1.0), np.exp(-2.0)]
    y = Exp()(x)
    y.add_(1)
    with pytest.raises(RuntimeError, match=INPLACE):
        y.sum().backward()
    z = x * 1
    assert AddInPlace()(z) is z and z.tolist() == [2, -1] and torch.autograd.grad(z.sum(), x)[0].tolist() == [3, 3]
    with pytest.raises(RuntimeError, match="leaf"):
        AddInPlace()(x)
    double, sign = DoubleAndSign()(x)
    assert double.requires_grad and not sign.requires_grad
    assert torch.autograd.grad(double.sum(), x)[0].tolist() == [2, 2]
    for result, text in (("text", "got str"), (None, "not have been used"), ((x, x), "expected 1, got 2")):
        class Returns(Exp):
            def backward(self, g, result=result):
                return result
        with pytest.raises(RuntimeError, match=text):
            torch.autograd.grad(Returns()(x).sum(), x)
    with torch.no_grad():
        assert Exp()(x).grad_fn is None


def test_old_style_constructor():  # mission: E-07
    a, b = leaf(1.0), leaf(3.0)
    assert MulConstant(5)(a, b)[0].item() == 15
    assert MulConstant(constant=2)(torch.ones(1), torch.ones(1))[0].grad_fn is None
    for bad in (2.0, 3, "x", [1.0], None, np.ones(1)):
        with pytest.raises(TypeError, match=f"{type(bad).__name__}.*MulConstant"):
            MulConstant(5)(a, bad)


def test_old_style_forward_is_not_traced():  # mission: E-08
    a, b = leaf(1.0), leaf(3.0)
    out = MulConstant(2)(a, b)
    assert isinstance(out, tuple) and [o.item() for o in out] == [6, 4] and out[0].grad_fn is out[1].grad_fn
    out[1].backward()
    assert a.grad.item() == 1 and b.grad.item() == 1


@pytest.mark.parametrize("module, function", [
    (nn.ReLU(), nn.functional.relu), (nn.Tanh(), torch.tanh), (nn.Sigmoid(), torch.sigmoid),
    (nn.ELU(0.5), lambda x: nn.functional.elu(x, 0.5)),
    (nn.Softmax(1), lambda x: nn.functional.softmax(x, 1)),
    (nn.LeakyReLU(0.2), lambda x: nn.functional.leaky_relu(x, 0.2)),
    (nn.MaxPool1d(2), lambda x: nn.functional.max_pool1d(x, 2)),
    (nn.AvgPool1d(2), lambda x: nn.functional.avg_pool1d(x, 2)),
    (nn.LogSoftmax(0), lambda x: nn.functional.log_softmax(x, 0)), (nn.GELU(), nn.functional.gelu),
    (nn.Softplus(), nn.functional.softplus),
    (nn.Hardtanh(), nn.functional.hardtanh), (nn.Threshold(0.1, 20), lambda x: nn.functional.threshold(x, 0.1, 20))])
def test_modules_and_functions(module, function):  # mission: E-10
    x = torch.tensor(np.random.default_rng(0).standard_normal((3, 6)))
    assert torch.equal(module(x), function(x)) and not list(module.parameters())


class Linear(nn.Module):
    """The seed's example; `apply` is the function, in one style or the other."""

    def __init__(self, inputs, outputs, bias, apply):
        super().__init__()
        self.apply_function = apply
        self.weight = nn.Parameter(torch.randn(outputs, inputs, dtype=torch.float64))
        if bias:
            self.bias = nn.Parameter(torch.randn(outputs, dtype=torch.float64))
        else:
            self.register_parameter("bias", None)

    def forward(self, x):
        return self.apply_function(x, self.weight) if self.bias is None else self.apply_function(x, self.weight,
                                                                                                 self.bias)


class NewLinear(Function):
    @staticmethod
    def forward(ctx, x, w, b=None):
        ctx.save_for_backward(x, w, b)
        y = x.mm(w.t())
        return y if b is None else y + b.unsqueeze(0).expand_as(y)

    @staticmethod
    def backward(ctx, g):
        x, w, b = ctx.saved_tensors
        gx = g.mm(w) if ctx.needs_input_grad[0] else None
        gw = g.t().mm(x) if ctx.needs_input_grad[1] else None
        gb = g.sum(0).squeeze(0) if b is not None and ctx.needs_input_grad[2] else None
        return gx, gw, gb


class OldLinear(Function):
    def forward(self, x, w, b=None):
        self.save_for_backward(x, w, b)
        y = x.mm(w.t())
        if b is not None:
            y += b.unsqueeze(0).expand_as(y)
        return y

    def backward(self, g):
        x, w, b = self.saved_tensors
        grads = [g.mm(w) if self.needs_input_grad[0] else None, g.t().mm(x) if self.needs_input_grad[1] else None]
        return tuple(grads) if b is None else (*grads, g.sum(0).squeeze(0))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("apply", [NewLinear.apply, lambda *a: OldLinear()(*a)], ids=["new", "old"])
def test_the_linear_module(apply, bias):  # mission: E-11, E-12
    torch.manual_seed(0)
    own = Linear(3, 2, bias, apply)
    ref = nn.Linear(3, 2, bias=bias).double()
    ref.load_state_dict(own.state_dict())
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert [n for n, _ in own.named_parameters()] == (["weight", "bias"] if bias else ["weight"])
    np.testing.assert_allclose(own(x).detach().numpy(), ref(x).detach().numpy(), rtol=1e-12)
    mine = torch.autograd.grad(own(x).pow(2).sum(), [x, *own.parameters()])
    theirs = torch.autograd.grad(ref(x).pow(2).sum(), [x, *ref.parameters()])
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12)
    if apply is NewLinear.apply:
        assert gradcheck(own, (x,))
        assert gradcheck(NewLinear.apply, (x, own.weight, own.bias) if bias else (x, own.weight))


def test_parameters_and_buffers():  # mission: E-13
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))
            self.register_buffer("count", torch.zeros(2))
            self.register_buffer("scratch", torch.zeros(1), persistent=False)

        def forward(self, x):
            self.count += 1
            return x * self.weight

    m = Scale()
    assert [n for n, _ in m.named_parameters()] == ["weight"]
    assert [n for n, _ in m.named_buffers()] == ["count", "scratch"]
    assert set(m.state_dict()) == {"weight", "count"}
    opt = torch.optim.SGD(m.parameters(), lr=1.0)
    m(torch.ones(2)).sum().backward()
    opt.step()
    assert m.weight.tolist() == [0, 0] and m.count.tolist() == [1, 1] and not m.count.requires_grad
    m.double()
    assert m.weight.dtype is m.count.dtype is torch.float64
    other = Scale().double()
    other.load_state_dict(m.state_dict())
    assert other.count.tolist() == [1, 1] and other.weight.tolist() == [0, 0]


def test_c_code_on_a_tensors_memory():  # mission: E-14
    import ctypes
    import ctypes.util
    x = torch.tensor([3.0, 1.0, 2.0], dtype=torch.float64)
    libc = ctypes.CDLL(None)
    compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_double), ctypes.POINTER(ctypes.c_double))(lambda a,
                                                                                                               b: (a[0] > b[0]) - (a[0] < b[0]))
    libc.qsort(ctypes.c_void_p(x.data_ptr()), ctypes.c_size_t(x.numel()), ctypes.c_size_t(x.element_size()), compare)
    assert x.tolist() == [1, 2, 3]
    m = torch.arange(6, dtype=torch.int32).view(2, 3).t()[1:]
    start = (ctypes.c_int32 * 6).from_address(m.data_ptr())
    at = [[start[i * m.stride(0) + j * m.stride(1)] for j in range(2)] for i in range(2)]
    assert at == m.tolist() == [[1, 4], [2, 5]]
    assert m.data_ptr() == m.untyped_storage().data_ptr() + m.storage_offset() * 4


SHIFT = """
extern "C" void shift(double *x, long n, long stride, double by) { for (long i = 0; i < n; i++) x[i * stride] += by; }
"""
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None or shutil.which("c++") is None, reason="there is no C compiler")


@needs_compiler
def test_a_plain_library_in_c(tmp_path):  # mission: E-14, E-15
    import ctypes

    from rushlight.utils.cpp_extension import load
    (tmp_path / "shift.cpp").write_text(SHIFT)
    path = load("shift", [str(tmp_path / "shift.cpp")], build_directory=str(tmp_path), is_python_module=False)
    shift = ctypes.CDLL(path).shift
    shift.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_long, ctypes.c_double]
    m = torch.zeros(2, 3, dtype=torch.float64)
    column = m[:, 1]
    shift(column.data_ptr(), column.numel(), column.stride(0), 2.5)
    assert m.tolist() == [[0, 2.5, 0], [0, 2.5, 0]]


def documented(language, n=0):
    """A block of code of docs/extending.md."""
    text = (pathlib.Path(__file__).resolve().parent.parent / "docs" / "extending.md").read_text()
    return text.split(f"```{language}\n")[1 + n].split("```")[0]


@needs_compiler
def test_the_documented_extension_is_built_and_loaded(tmp_path):  # mission: E-15
    from rushlight.utils.cpp_extension import load
    source = tmp_path / "squares.c"
    source.write_text(documented("c"))
    ext = load("squares", [str(source)], build_directory=str(tmp_path))
    assert ext.__name__ == "squares" and ext.square(torch.tensor([1.0, -3.0])).tolist() == [1, 9]
    assert ext.square(torch.ones(2, 3)).shape == (2, 3) and ext.square(torch.empty(0)).shape == (0,)
    for bad, error in ((torch.ones(2, 3).t(), RuntimeError), (torch.ones(2, dtype=torch.float64), RuntimeError), (5, TypeError)):
        with pytest.raises(error):
            ext.square(bad)
    no_memory = [torch.ones(2, device="meta"), torch.ones(2, 2, device="meta", requires_grad=True), torch.eye(2).to_sparse(),
                 torch.eye(2).to_sparse_csr(), torch.zeros(2, 0, device="meta")]
    for bad in no_memory:
        with pytest.raises(TypeError, match="expected a dense tensor on the CPU, got one on device '(meta|cpu)' with layout torch"):
            ext.square(bad)
    made = ext.square(torch.tensor([3.0], requires_grad=True))       # what C computes has no history
    assert made.tolist() == [9] and not made.requires_grad
    names = {"load": lambda **k: ext}
    exec(documented("python").replace("from rushlight.utils.cpp_extension import load\n", ""), names)
    x = torch.tensor([1.0, -3.0], requires_grad=True)
    names["Square"].apply(x).sum().backward()
    assert x.grad.tolist() == [2, -6]
    made = (tmp_path / "squares.so").stat().st_mtime_ns
    load("squares", [str(source)], build_directory=str(tmp_path))
    assert (tmp_path / "squares.so").stat().st_mtime_ns == made                 # nothing changed, nothing is compiled
    source.write_text(documented("c").replace("= ((float *)in.data)[i] *", "= 2 * ((float *)in.data)[i] *"))
    assert load("squares", [str(source)], build_directory=str(tmp_path)).square(torch.tensor([3.0])).tolist() == [18]
    assert ext.square(torch.tensor([3.0])).tolist() == [9]
    source.write_text("this is no C")
    with pytest.raises(RuntimeError, match="(?s)Error building extension.*error"):
        load("broken", [str(source)], build_directory=str(tmp_path))
    with pytest.raises(FileNotFoundError, match="nothing.c"):
        load("missing", [str(tmp_path / "nothing.c")], build_directory=str(tmp_path))


@needs_compiler
def test_what_c_wrote_is_counted(tmp_path):  # mission: E-15
    from rushlight.utils.cpp_extension import load_inline
    ext = load_inline("fill", """
    static PyObject *one(PyObject *self, PyObject *x) {
        rl_tensor t;
        if (rl_read(x, &t)) return NULL;
        for (int64_t i = 0; i < t.sizes[0]; i++)
            for (int64_t j = 0; j < t.sizes[1]; j++) ((double *)t.data)[i * t.strides[0] + j * t.strides[1]] = i + 10.0 * j;
        return rl_wrote(x) ? NULL : Py_NewRef(Py_None);
    }
    static PyMethodDef methods[] = {{"one", one, METH_O, NULL}, {NULL, NULL, 0, NULL}};
    static PyModuleDef module = {PyModuleDef_HEAD_INIT, "fill", NULL, -1, methods};
    PyMODINIT_FUNC PyInit_fill(void) { return PyModule_Create(&module); }
    """, build_directory=str(tmp_path))
    x = torch.ones(2, 2, dtype=torch.float64, requires_grad=True) * 1
    y = x * x
    ext.one(x.t())
    assert x.t().tolist() == [[0, 10], [1, 11]]
    with pytest.raises(RuntimeError, match=INPLACE):
        y.sum().backward()


@needs_compiler
def test_an_extension_with_setuptools(tmp_path):  # mission: E-15
    pytest.importorskip("setuptools", reason="setuptools is not installed")
    (tmp_path / "squares.c").write_text(documented("c"))
    (tmp_path / "setup.py").write_text(documented("python", 1))
    root = pathlib.Path(torch.__file__).resolve().parent.parent
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *sys.path[1:]])}
    done = subprocess.run([sys.executable, "setup.py", "build_ext", "--inplace"], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    code = "import rushlight as torch, squares; print(squares.square(torch.tensor([2.0])).tolist())"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.stdout.strip() == "[4.0]", done.stderr


# --- R: the autograd API --------------------------------------------------------------------------------------------
def test_backward_as_function_and_method():  # mission: R-01
    x, y = leaf(1.0, 2.0), leaf(1.0, 2.0)
    torch.autograd.backward((x * x).sum())
    (y * y).sum().backward()
    assert x.grad.tolist() == y.grad.tolist() == [2, 4]
    assert torch.autograd.backward([(x * 3).sum()]) is None and x.grad.tolist() == [5, 7]
    torch.autograd.backward(tensors=(x * 3).sum())
    assert x.grad.tolist() == [8, 10]


def test_several_tensors_in_one_pass():  # mission: R-02
    x, passes = leaf(1.0, 2.0), []
    shared = x.exp()
    shared.register_hook(lambda g: passes.append(g.tolist()))
    torch.autograd.backward([shared.sum(), (shared * 2).sum(), x.sum()])
    assert passes == [[3, 3]]
    np.testing.assert_allclose(x.grad.numpy(), 3 * np.exp([1.0, 2.0]) + 1)


def test_weights_of_the_gradients():  # mission: R-03
    x = leaf(1.0, 2.0)
    w = torch.tensor([10.0, 100.0], dtype=torch.float64)
    torch.autograd.backward([x * 2, (x * x).sum()], [w, None])
    assert x.grad.tolist() == [22, 204]
    x.grad = None
    torch.autograd.backward([x * 2, (x * x).sum()], grad_tensors=[w, torch.tensor(3.0, dtype=torch.float64)])
    assert x.grad.tolist() == [26, 212]
    x.grad = None
    torch.autograd.backward(x * 2, w)
    (x * 2).backward(w)
    (x * 2).backward(gradient=w)
    assert x.grad.tolist() == [60, 600]
    x.grad = None
    x.sum().backward(torch.tensor(4.0, dtype=torch.float64))
    assert x.grad.tolist() == [4, 4]
    assert torch.autograd.grad(x * 2, x, grad_outputs=w)[0].tolist() == [20, 200]


def test_weights_that_are_wrong():  # mission: R-04
    x = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar outputs"):
        (x * 2).backward()
    with pytest.raises(RuntimeError, match="scalar outputs"):
        torch.autograd.backward([x * 2], [None])
    with pytest.raises(RuntimeError, match=r"(?i)mismatch in shape.*\[3\].*\[2\]"):
        (x * 2).backward(torch.ones(3, dtype=torch.float64))
    with pytest.raises(RuntimeError, match="got 2 tensors and 1 gradients"):
        torch.autograd.backward([x.sum(), x.sum()], [None])
    with pytest.raises(RuntimeError, match="got 2 tensors and 1 gradients"):
        torch.autograd.backward([x.sum(), x.sum()], [torch.tensor(1.0)])
    assert x.grad is None


def test_the_graph_is_freed():  # mission: R-05
    x = leaf(1.0, 2.0)
    for again in (lambda y: y.backward(), lambda y: torch.autograd.grad(y, x)):
        y = (x * x).sum()
        y.backward()
        with pytest.raises(RuntimeError, match="retain_graph=True"):
            again(y)
    mid = x * x
    mid.exp().sum().backward()
    with pytest.raises(RuntimeError, match="retain_graph"):
        mid.sum().backward()


def test_the_graph_is_kept():  # mission: R-06
    x = leaf(3.0)
    y = (x * x).sum()
    for _ in range(3):
        y.backward(retain_graph=True)
    torch.autograd.backward(y, retain_graph=True)
    y.backward()
    assert x.grad.item() == 5 * 6


def test_derivatives_of_derivatives():  # mission: R-07
    x = leaf(2.0)
    (x ** 3).sum().backward(create_graph=True)
    g = x.grad
    assert g.requires_grad and g.item() == 12
    x.grad = None
    g.sum().backward()
    assert x.grad.item() == 12      # 6 x
    d = (x.exp() * x).sum()
    for k in range(1, 5):           # (x + k) exp(x)
        (d,) = torch.autograd.grad(d, x, create_graph=True)
        np.testing.assert_allclose(d.item(), (2 + k) * np.exp(2))


def test_a_gradient_has_no_history():  # mission: R-08
    x = leaf(2.0)
    (x ** 3).sum().backward()
    assert not x.grad.requires_grad and x.grad.grad_fn is None
    (g,) = torch.autograd.grad((x ** 3).sum(), x)
    assert not g.requires_grad
    with pytest.raises(RuntimeError, match="does not require grad"):
        g.backward()


def test_gradients_in_between():  # mission: R-09
    x = leaf(2.0)
    y = x * x
    z = y * 3
    y.retain_grad()
    y.retain_grad()
    assert y.retains_grad and not z.retains_grad and not x.retains_grad
    z.backward()
    assert y.grad.item() == 3 and x.grad.item() == 12 and z.retains_grad is False
    x.retain_grad()         # a leaf keeps its gradient anyway
    with pytest.raises(RuntimeError, match="requires_grad=False"):
        torch.ones(1).retain_grad()


OPERATIONS = {
    # joining, indexing, mutating (J)
    "cat": lambda x: torch.cat([x, x * 2], 1), "chunk": lambda x: x.chunk(2)[1] * x[:1],
    "split": lambda x: x.split([1, 2])[0], "stack": lambda x: torch.stack([x, x.exp()], 1),
    "gather": lambda x: x.gather(1, torch.tensor([[0, 0], [2, 1], [1, 1]])),
    "index_select": lambda x: x.index_select(0, torch.tensor([2, 2, 0])),
    "masked_select": lambda x: x.masked_select(x > 0), "squeeze": lambda x: x.unsqueeze(1).squeeze(),
    "t": lambda x: x.t() * x, "transpose": lambda x: x.transpose(0, 1).exp(),
    "unbind": lambda x: x.unbind(1)[2], "unsqueeze": lambda x: x.unsqueeze(-1) * x,
    "reshape": lambda x: x.t().reshape(9), "index": lambda x: x[[0, 2], 1:],
    "scatter": lambda x: x.scatter(1, torch.tensor([[0], [2], [1]]), x[:, :1] * 2),
    "scatter_": lambda x: (x * 1).scatter_(0, torch.tensor([[0, 1, 2]]), 1.5),
    "setitem": lambda x: set_row(x * 1, x[1] * x[2]), "take": lambda x: torch.take(x, torch.tensor([0, 8, 8])),
    "scatter_add": lambda x: x.scatter_add(0, torch.tensor([[0, 0, 2]]), x[:1]),
    # pointwise (M)
    "abs": torch.abs, "acos": lambda x: torch.acos(x / 4), "add": lambda x: torch.add(x, x * 2, alpha=3),
    "addcdiv": lambda x: torch.addcdiv(x, x, x + 5, value=2),
    "addcmul": lambda x: torch.addcmul(x, x, x.exp(), value=2), "asin": lambda x: torch.asin(x / 4), "atan": torch.atan,
    "atan2": lambda x: torch.atan2(x, x.exp()),
    "ceil": torch.ceil, "clamp": lambda x: x.clamp(-0.7, 0.8), "cos": torch.cos, "cosh": torch.cosh,
    "div": lambda x: x / (x * x + 1), "exp": torch.exp, "floor": torch.floor,
    "fmod": lambda x: torch.fmod(x, 0.7), "frac": torch.frac, "lerp": lambda x: torch.lerp(x, x.exp(), 0.3),
    "log": lambda x: torch.log(x + 5), "log1p": lambda x: torch.log1p(x + 5),
    "mul": lambda x: x * x.t(), "neg": torch.neg, "pow": lambda x: (x + 5) ** x,
    "reciprocal": lambda x: torch.reciprocal(x + 5), "remainder": lambda x: torch.remainder(x, 0.7),
    "round": torch.round, "rsqrt": lambda x: torch.rsqrt(x + 5), "sigmoid": torch.sigmoid, "sign": torch.sign,
    "sin": torch.sin, "sinh": torch.sinh,
    "sqrt": lambda x: torch.sqrt(x + 5), "tan": lambda x: torch.tan(x / 4), "tanh": torch.tanh, "trunc": torch.trunc,
    # reductions (N)
    "cumprod": lambda x: x.cumprod(1), "cumsum": lambda x: x.cumsum(0), "dist": lambda x: torch.dist(x, x.exp(), 3),
    "mean": lambda x: x.mean(1), "median": lambda x: x.median(0)[0],
    "mode": lambda x: x.mode(1)[0], "norm": lambda x: x.norm(3, 1), "prod": lambda x: x.prod(0),
    "std": lambda x: x.std(1), "sum": lambda x: x.sum(), "var": lambda x: x.var(0),
    # comparisons with values (O)
    "kthvalue": lambda x: x.kthvalue(2, 1)[0], "max": lambda x: x.max(), "max_dim": lambda x: x.max(1)[0],
    "maximum": lambda x: torch.max(x, x.t() * 2), "min": lambda x: x.min(0)[0],
    "sort": lambda x: x.sort(1, True)[0], "topk": lambda x: x.topk(2)[0],
    # others (P)
    "cross": lambda x: torch.cross(x, x.exp(), 1), "diag": lambda x: x.diag(), "renorm": lambda x: x.renorm(2, 0, 1.0),
    "trace": lambda x: x.trace(), "tril": lambda x: x.tril(), "triu": lambda x: x.triu(1),
    # matrices (Q)
    "addbmm": lambda x: torch.addbmm(x, x[None], x[None], beta=2, alpha=3),
    "addmm": lambda x: torch.addmm(x, x, x, beta=2, alpha=3), "addmv": lambda x: torch.addmv(x[0], x, x[1]),
    "addr": lambda x: torch.addr(x, x[0], x[1], beta=2), "baddbmm": lambda x: torch.baddbmm(x[None], x[None], x[None]),
    "bmm": lambda x: torch.bmm(x[None], x[None]), "dot": lambda x: torch.dot(x[0], x[1]),
    "eigh": lambda x: torch.linalg.eigh(x + x.t())[0], "ger": lambda x: torch.ger(x[0], x[1]),
    "inverse": lambda x: torch.inverse(x + 5 * torch.eye(3, dtype=x.dtype)), "matmul": lambda x: x @ x[0],
    "mm": lambda x: torch.mm(x, x), "mv": lambda x: torch.mv(x, x[0]),
    "cholesky": lambda x: torch.linalg.cholesky(x @ x.t() + torch.eye(3, dtype=x.dtype)),
    "qr": lambda x: torch.linalg.qr(x)[1],
    "svd": lambda x: torch.linalg.svd(x)[1],
    "solve": lambda x: torch.linalg.solve(x + 5 * torch.eye(3, dtype=x.dtype), x),
    "lstsq": lambda x: torch.linalg.lstsq(x, x.exp())[0],
    "triangular_solve": lambda x: torch.linalg.solve_triangular(x.tril() + 5 * torch.eye(3, dtype=x.dtype), x,
                                                                upper=False),
}


def set_row(x, row):
    x[0] = row
    return x


@pytest.mark.parametrize("f", OPERATIONS.values(), ids=OPERATIONS)
def test_gradients_agree_with_differences(f):  # mission: R-10
    x = torch.tensor(np.random.default_rng(5).standard_normal((3, 3)), requires_grad=True)
    assert gradcheck(f, (x,))
