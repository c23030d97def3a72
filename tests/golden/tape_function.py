"""Cases of custom functions. Each is run by Rushlight and was run by PyTorch 2.13
(make_tape.py); what they give must be the same."""

from __future__ import annotations

from tape import LIBRARY, L, case, err, errt, leaf

T = LIBRARY    # torch, or Rushlight


@case
def reentrant_backward():
    x = leaf(2.0)

    class C(T.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            ctx.save_for_backward(a)
            return a * a

        @staticmethod
        def backward(ctx, g):
            (a,) = ctx.saved_tensors
            with T.enable_grad():
                b = a.detach().requires_grad_()
                (b * b).sum().backward()
            return g * b.grad

    (C.apply(x) * 3).sum().backward()
    return L(x.grad)


# T.autograd.Function


@case
def fn_identity():  # mission: E-01
    class Own(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = leaf(1.0, 2.0)
    y = Own.apply(x)
    y.sum().backward()
    return y is x, L(x.grad), y._is_view(), y.is_leaf


@case
def fn_view():
    class Own(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view(-1)

        @staticmethod
        def backward(ctx, g):
            return g.view(2, 1) * 2

    x = T.ones(2, 1, dtype=T.float64, requires_grad=True)
    y = Own.apply(x)
    y.sum().backward()
    return L(x.grad), y._is_view()


@case
def fn_view_inplace():
    class Own(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view(-1)

        @staticmethod
        def backward(ctx, g):
            return g.view(2, 1) * 2

    x = T.ones(2, 1, dtype=T.float64, requires_grad=True)
    z = x * 1
    y = Own.apply(z)
    return errt(lambda: y.mul_(2))


@case
def fn_dirty():  # mission: E-01
    class Own(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x.add_(1)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 3

    x = leaf(1.0, 2.0)
    y = x * 1
    v0 = y._version
    z = Own.apply(y)
    r = z is y, y._version - v0
    z.sum().backward()
    return r, L(x.grad), errt(lambda: Own.apply(x)), L(y)


@case
def fn_dirty_not_returned():
    class Own(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x.add_(1)
            ctx.mark_dirty(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 3

    x = leaf(1.0, 2.0)
    y = x * 1
    return errt(lambda: Own.apply(y))


@case
def fn_dirty_view():
    class Own(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = leaf(1.0, 2.0, 3.0)
    y = x * 1
    v = y[:2]
    Own.apply(v)
    (y * y).sum().backward()
    return L(x.grad)


@case
def fn_dirty_nograd():
    class Own(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = T.ones(2)
    y = Own.apply(x)
    return y is x, x._version, y.requires_grad


@case
def fn_nondiff():
    class Own(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            a, b = x.sort()
            ctx.mark_non_differentiable(b)
            c = x * 2
            ctx.mark_non_differentiable(b, c)
            return a, b, c

        @staticmethod
        def backward(ctx, g, gb, gc):
            return g + gc

    x = leaf(1.0, 2.0)
    a, b, c = Own.apply(x)
    r = a.requires_grad, b.requires_grad, c.requires_grad
    a.sum().backward()
    return r, L(x.grad)


@case
def fn_materialize():  # mission: E-03
    seen = []

    class Own(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 1, x * 2

        @staticmethod
        def backward(ctx, a, b):
            seen.append((a is None, b is None))
            return a

    x = leaf(1.0, 2.0)
    a, b = Own.apply(x)
    a.sum().backward()
    return seen


@case
def fn_setup_context():
    class Own(T.autograd.Function):
        @staticmethod
        def forward(x, k):
            return x * k

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.k = inputs[1]
            ctx.save_for_backward(inputs[0], output)

        @staticmethod
        def backward(ctx, g):
            a, o = ctx.saved_tensors
            return g * ctx.k, None

    x = leaf(1.0, 2.0)
    y = Own.apply(x, 3.0)
    y.sum().backward()
    return L(x.grad)


@case
def fn_none_output():  # mission: E-03
    class Own(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, None, 5

        @staticmethod
        def backward(ctx, g, a, b):
            return g * 2

    x = leaf(1.0, 2.0)
    a, b, c = Own.apply(x)
    a.sum().backward()
    return b, c, L(x.grad)


@case
def fn_int_output():
    class Own(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, T.tensor([1, 2])

        @staticmethod
        def backward(ctx, g, a):
            return g * 2

    x = leaf(1.0, 2.0)
    a, b = Own.apply(x)
    return a.requires_grad, b.requires_grad


@case
def fn_too_few():  # mission: E-04
    class Own(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g

    x = leaf(1.0)
    return err(lambda: Own.apply(x, x).sum().backward())


@case
def fn_wrong_shape():  # mission: E-04
    class Own(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return T.ones(3, dtype=T.float64)

    x = leaf(1.0, 2.0)
    return err(lambda: Own.apply(x).sum().backward())


@case
def fn_broadcast_shape():
    class Own(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return T.ones(3, 2, dtype=T.float64)

    x = leaf(1.0, 2.0)
    return errt(lambda: Own.apply(x).sum().backward()), L(x.grad)


@case
def fn_nontensor_grad():  # mission: E-04
    class Own(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return 3

    x = leaf(1.0, 2.0)
    return errt(lambda: Own.apply(x).sum().backward())


@case
def fn_grad_for_nontensor():  # mission: E-05
    class Own(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, k):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g, g

    x = leaf(1.0, 2.0)
    return errt(lambda: Own.apply(x, 2).sum().backward()), L(x.grad)


@case
def fn_no_backward():
    class Own(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    x = leaf(1.0, 2.0)
    y = Own.apply(x)
    return y.requires_grad, errt(lambda: y.sum().backward())


@case
def fn_save_nontensor():
    class Own(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(3)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g

    return errt(lambda: Own.apply(leaf(1.0)))


@case
def fn_save_none():
    class Own(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(None, x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            return g * b

    x = leaf(3.0)
    Own.apply(x).sum().backward()
    return L(x.grad)


@case
def fn_save_modified():  # mission: B-09
    class Own(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            (a,) = ctx.saved_tensors
            return g * a

    x = leaf(3.0)
    y = x * 1
    z = Own.apply(y)
    y.add_(1)
    return errt(lambda: z.sum().backward())


@case
def fn_double_backward():  # mission: E-01
    class Own(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            (a,) = ctx.saved_tensors
            return g * 3 * a**2

    x = leaf(3.0)
    (g,) = T.autograd.grad(Own.apply(x).sum(), x, create_graph=True)
    return L(T.autograd.grad(g.sum(), x))


@case
def fn_once_diff():
    from_mod = T.autograd.function.once_differentiable

    class Own(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        @from_mod
        def backward(ctx, g):
            (a,) = ctx.saved_tensors
            return g * 3 * a**2

    x = leaf(3.0)
    (g,) = T.autograd.grad(Own.apply(x).sum(), x, create_graph=True)
    return L(g), errt(lambda: T.autograd.grad(g.sum(), x))


@case
def fn_needs_input():  # mission: E-05
    seen = []

    class Own(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, y, k):
            seen.append(ctx.needs_input_grad)
            return x * y

        @staticmethod
        def backward(ctx, g):
            seen.append(ctx.needs_input_grad)
            return g, g, None

    x = leaf(3.0)
    Own.apply(x, T.ones(1, dtype=T.float64), 2).sum().backward()
    return seen


@case
def fn_no_grad_context():
    class Own(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g

    with T.no_grad():
        return Own.apply(leaf(1.0)).requires_grad


@case
def fn_grad_mode_in_forward():
    seen = []

    class Own(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            seen.append((T.is_grad_enabled(), x.requires_grad))
            return x * 2

        @staticmethod
        def backward(ctx, g):
            seen.append(T.is_grad_enabled())
            return g

    Own.apply(leaf(1.0)).sum().backward()
    return seen


@case
def fn_instance():
    class Own(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    return errt(lambda: Own()(leaf(1.0)))


@case
def fn_name():  # mission: E-01
    class MyOp(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g

    y = MyOp.apply(leaf(1.0))
    return type(y.grad_fn).__name__, y.grad_fn.name(), len(y.grad_fn.next_functions)


@case
def fn_kwargs():
    class Own(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, k=2):
            return x * k

        @staticmethod
        def backward(ctx, g):
            return g, None

    return errt(lambda: Own.apply(leaf(1.0), k=3))


@case
def fn_two_outputs_same():  # mission: E-03
    class Own(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * 2
            return y, y

        @staticmethod
        def backward(ctx, a, b):
            return a + b

    x = leaf(1.0)
    a, b = Own.apply(x)
    (a + b).sum().backward()
    return L(x.grad)


@case
def fn_list_return():
    class Own(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return [x * 2, x * 3]

        @staticmethod
        def backward(ctx, a, b):
            return a + b

    x = leaf(1.0)
    return errt(lambda: type(Own.apply(x)).__name__)


@case
def fn_ctx_attr():  # mission: E-01
    class Own(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.foo = 5
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g

    return Own.apply(leaf(1.0)).grad_fn.foo


@case
def fn_inplace_on_output():
    class Own(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = leaf(1.0)
    y = Own.apply(x)
    y.mul_(3)
    y.sum().backward()
    return L(x.grad)


@case
def fn_inplace_on_multi_output():
    class Own(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            return a * 2 + b * 3

    x = leaf(1.0)
    a, b = Own.apply(x)
    a.mul_(3)
    (a + b).sum().backward()
    return L(x.grad)


@case
def fn_saved_output_freed():
    class Own(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            return g * y

    x = leaf(0.0)
    y = Own.apply(x)
    s = y.sum()
    s.backward()
    return errt(lambda: s.backward()), errt(lambda: y.grad_fn.saved_tensors)


@case
def fn_complex_real_grad():
    class Own(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * (1 + 1j)

    x = leaf(1.0)
    return errt(lambda: Own.apply(x).sum().backward()), L(x.grad)


# graph

