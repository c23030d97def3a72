"""Cases of views and in-place operations under the tape. Each is run by Rushlight and was run by PyTorch 2.13
(make_tape.py); what they give must be the same."""

from __future__ import annotations

import copy
import warnings

from tape import LIBRARY, L, case, errt, leaf

T = LIBRARY    # torch, or Rushlight


@case
def hooks_before_inplace():
    x = leaf(1.0, 2.0)
    y = x * 2
    seen = []
    y.register_hook(lambda g: seen.append(L(g)))
    y.mul_(3)
    y.register_hook(lambda g: seen.append(["after", L(g)]))
    (y * y).sum().backward()
    return seen, L(x.grad)


@case
def retain_then_inplace():
    x = leaf(1.0, 2.0)
    y = x * 2
    y.retain_grad()
    y.mul_(3)
    (y * y).sum().backward()
    return L(y.grad), L(x.grad)


@case
def retain_then_view_inplace():
    x = leaf(1.0, 2.0)
    y = x * 2
    y.retain_grad()
    y[0].mul_(3)
    (y * y).sum().backward()
    return L(y.grad), L(x.grad)


@case
def retain_view():
    x = leaf(1.0, 2.0, 3.0)
    y = x * 2
    v = y[:2]
    v.retain_grad()
    v.mul_(3)
    (v * v).sum().backward()
    return L(v.grad), L(x.grad)


@case
def grad_alias_view():
    x = leaf(1.0, 2.0, 3.0, 4.0)
    y = x.view(2, 2)
    y.retain_grad()
    (y * 3).sum().backward()
    x.grad.mul_(5)
    return L(y.grad)


@case
def view_no_grad_inplace():
    x = leaf(1.0, 2.0) * 1
    with T.no_grad():
        v = x[:1]
    return errt(lambda: v.mul_(2))


@case
def chunk_inplace_no_grad():
    x = leaf(1.0, 2.0) * 1
    with T.no_grad():
        c = x.chunk(2)
    return errt(lambda: c[0].mul_(2))


@case
def chunk_inplace_plain():  # mission: B-08
    x = T.ones(2)
    c = x.chunk(2)
    c[0].mul_(2)
    return L(x)


@case
def chunk_inplace_w():  # mission: B-08
    x = T.ones(2, dtype=T.float64)
    c = x.chunk(2)
    w = leaf(2.0)
    return errt(lambda: c[0].mul_(w))


@case
def unbind_iter_inplace():  # mission: B-08
    x = T.ones(2, 2, dtype=T.float64, requires_grad=True) * 1

    def f():
        for r in x:
            r.mul_(2)

    return errt(f)


@case
def view_of_view_inplace():  # mission: B-06
    x = leaf(1.0, 2.0, 3.0, 4.0)
    y = x * 1
    v = y.view(2, 2)[0]
    v.mul_(T.tensor([2.0, 3.0], dtype=T.float64))
    y[1].mul_(10.0)
    (y * T.arange(1.0, 5.0, dtype=T.float64)).sum().backward()
    return L(x.grad), L(y), L(v)


@case
def view_grad_after_base_inplace():
    x = leaf(1.0, 2.0, 3.0, 4.0)
    y = x * 1
    v = y[:2]
    y.mul_(2)
    (v * v).sum().backward()
    return L(x.grad), type(v.grad_fn).__name__


@case
def view_ng_base_then_grad():
    y = T.zeros(4, dtype=T.float64)
    v = y[:2]
    w = leaf(2.0, 3.0)
    y[1:3] = w
    (v * v).sum().backward()
    return L(w.grad), v.requires_grad, v.is_leaf


@case
def transposed_view_inplace():  # mission: B-06
    x = T.arange(6.0, dtype=T.float64).view(2, 3).requires_grad_()
    y = x * 1
    y.t()[1].mul_(5.0)
    (y * y).sum().backward()
    return L(x.grad)


@case
def expand_then_inplace_base():
    x = leaf(1.0, 2.0)
    y = x * 1
    e = y.expand(3, 2)
    y.mul_(2)
    e.sum().backward()
    return L(x.grad)


@case
def copy_into_view():  # mission: B-06
    x = leaf(1.0, 2.0)
    buf = T.zeros(2, 2, dtype=T.float64)
    buf[0].copy_(x)
    buf[1].copy_(x * 2)
    (buf * buf).sum().backward()
    return L(x.grad)


@case
def setitem_mask():  # mission: B-06
    x = leaf(1.0, 2.0, 3.0)
    y = x * 1
    y[y > 1.5] = 0.0
    y.sum().backward()
    return L(x.grad)


@case
def setitem_saved():  # mission: B-03
    x = leaf(1.0, 2.0, 3.0)
    y = x * 1
    z = y * y
    y[0] = 5.0
    return errt(lambda: z.sum().backward())


@case
def inplace_saved_result():  # mission: B-03
    x = leaf(1.0, 2.0)
    y = x.exp()
    y.add_(1)
    return errt(lambda: y.sum().backward())


@case
def inplace_unneeded():  # mission: B-04
    x = leaf(1.0, 2.0)
    y = x.exp()
    z = y + 1
    z.mul_(2)
    z.sum().backward()
    return L(x.grad)


@case
def inplace_relu():  # mission: B-05
    x = leaf(-1.0, 2.0)
    y = x * 1
    T.nn.functional.relu_(y)
    y.sum().backward()
    return L(x.grad)


@case
def inplace_broadcast_fail():  # mission: T-03
    return errt(lambda: T.ones(2).add_(T.ones(3, 2)))


@case
def inplace_dtype_fail():  # mission: T-03
    return errt(lambda: T.ones(2, dtype=T.int64).add_(1.5)), errt(
        lambda: T.ones(2, dtype=T.int64).div_(2)
    )


@case
def detach_inplace_view():
    x = leaf(1.0, 2.0) * 1
    return errt(lambda: x[:1].detach_())


@case
def detach_version():  # mission: B-11
    x = T.ones(2)
    d = x.detach()
    d.add_(1)
    return x._version, d._version, d._is_view()


@case
def data_version():  # mission: B-11
    x = T.ones(2)
    d = x.data
    d.add_(1)
    return x._version, d._version


@case
def requires_grad_view():
    x = T.ones(3)
    v = x[:2]
    v.requires_grad_()
    return v.is_leaf, x.requires_grad


@case
def leaf_view_base_inplace():  # mission: B-07
    x = T.ones(3, dtype=T.float64)
    v = x[:2]
    v.requires_grad_()
    return errt(lambda: x.add_(1)), errt(lambda: v.add_(1))


@case
def set_data_leaf():  # mission: A-26
    x = leaf(1.0, 2.0)
    x.data = T.zeros(2, dtype=T.float64)
    return L(x), x.requires_grad, x.is_leaf


@case
def deepcopy_leaf():
    x = leaf(1.0, 2.0)
    x.grad = T.ones(2, dtype=T.float64)
    y = copy.deepcopy(x)
    return L(y.grad), y.requires_grad, errt(lambda: copy.deepcopy(x * 2))


@case
def is_leaf_table():  # mission: A-25
    x = T.ones(2)
    return x.is_leaf, x.requires_grad_().is_leaf, (x * 2).is_leaf, (x * 2).detach().is_leaf, x[0].is_leaf


@case
def index_put_acc():  # mission: B-06
    x = leaf(1.0, 2.0, 3.0)
    y = T.zeros(3, dtype=T.float64)
    y.index_put_((T.tensor([0, 0, 2]),), x, accumulate=True)
    (y * y).sum().backward()
    return L(y), L(x.grad)


@case
def swap_history():
    x = leaf(1.0, 2.0)
    a = x * 2
    b = a.detach()
    a.mul_(2)
    return b.requires_grad, L(b)


@case
def saved_scalar_tensor():
    x = leaf(1.0, 2.0)
    s = T.tensor(3.0, dtype=T.float64)
    y = x * s
    s.add_(1)
    return errt(lambda: y.sum().backward())


@case
def optimizer_step_between():  # mission: B-03
    w = leaf(1.0, 2.0)
    x = T.ones(2, dtype=T.float64)
    y = (w * w * x).sum()
    with T.no_grad():
        w.sub_(0.1)
    return errt(lambda: y.backward())


@case
def nonleaf_grad_warn():
    x = leaf(1.0, 2.0)
    y = x * 2
    with warnings.catch_warnings(record=True) as w:
        warnings.simplefilter("always")
        g = y.grad
    return len(w), g


@case
def inplace_view_chain_double():
    x = leaf(1.0, 2.0, 3.0)
    y = x * 1
    y[1:].mul_(y[:2].clone())
    (g,) = T.autograd.grad((y**3).sum(), x, create_graph=True)
    return L(g), L(T.autograd.grad(g.sum(), x))


@case
def inplace_unsqueeze_():
    x = leaf(1.0, 2.0)
    y = x * 1
    y.unsqueeze_(0)
    y.t_()
    return list(y.shape), L(T.autograd.grad((y * y).sum(), x))


@case
def fill_grad():
    x = leaf(1.0, 2.0)
    y = x * 1
    w = T.tensor(3.0, dtype=T.float64, requires_grad=True)
    y[:1].fill_(w)
    (y * y).sum().backward()
    return L(x.grad), L(w.grad)


@case
def zero_grad_():  # mission: B-05
    x = leaf(1.0, 2.0)
    y = x * 1
    y.zero_()
    y.sum().backward()
    return L(x.grad)


@case
def relu_inplace_view():
    x = leaf(-1.0, 2.0, -3.0)
    y = x * 1
    y[:2].relu_()
    y.sum().backward()
    return L(x.grad)


@case
def clamp_through_copy():  # mission: B-05
    x = leaf(1.0, 2.0)
    y = T.empty(2, dtype=T.float64)
    y.copy_(x)
    y.sum().backward()
    return L(x.grad), y.is_leaf


@case
def copy_broadcast_cast():
    x = T.ones(1, requires_grad=True)
    y = T.zeros(3, dtype=T.float64)
    y.copy_(x)
    (y * 2).sum().backward()
    return L(x.grad), str(x.grad.dtype)

