"""Cases of `autograd.graph` and `autograd.functional`. Each is run by Rushlight and was run by PyTorch 2.13
(make_tape.py); what they give must be the same."""

from __future__ import annotations

from tape import LIBRARY, L, case, err, errt, leaf

T = LIBRARY    # torch, or Rushlight


@case
def gr_saved_hooks():
    seen = []
    with T.autograd.graph.saved_tensors_hooks(
        lambda t: (seen.append("p"), t.detach().clone())[1], lambda t: (seen.append("u"), t)[1]
    ):
        x = leaf(2.0)
        y = x * x
        z = y.exp()
    z.sum().backward()
    return seen, L(x.grad)


@case
def gr_saved_hooks_double():
    with T.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t):
        x = leaf(0.5)
        y = (x * x).exp()
        (g,) = T.autograd.grad(y.sum(), x, create_graph=True)
    return L(g), L(T.autograd.grad(g.sum(), x))


@case
def gr_saved_hooks_numpy():
    with T.autograd.graph.saved_tensors_hooks(lambda t: t.detach().numpy().copy(), lambda a: T.from_numpy(a)):
        x = leaf(2.0)
        y = x * x
    y.sum().backward()
    return L(x.grad)


@case
def gr_saved_hooks_bad():
    with T.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: 3):
        x = leaf(2.0)
        y = x * x
    return errt(lambda: y.sum().backward())


@case
def gr_disable():
    def f():
        with T.autograd.graph.disable_saved_tensors_hooks("no hooks here"):
            with T.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
                pass

    return err(f)


@case
def gr_save_on_cpu():
    with T.autograd.graph.save_on_cpu():
        x = leaf(2.0)
        y = x * x
    y.sum().backward()
    return L(x.grad)


@case
def gr_gradient_edge():
    x = leaf(2.0)
    y = x * x
    e = T.autograd.graph.get_gradient_edge(y)
    z = y.exp()
    return (
        e.output_nr,
        e.node is y.grad_fn,
        L(T.autograd.grad(z.sum(), e)),
        type(T.autograd.graph.get_gradient_edge(x).node).__name__,
        errt(lambda: T.autograd.graph.get_gradient_edge(T.ones(1))),
    )


@case
def gr_gradient_edge_root():
    x = leaf(2.0)
    y = x * x
    e = T.autograd.graph.get_gradient_edge(y)
    T.autograd.backward([e], [T.ones(1, dtype=T.float64)])
    return L(x.grad)


@case
def gr_gradient_edge_inputs():
    x = leaf(2.0)
    y = x * x
    e = T.autograd.graph.get_gradient_edge(x)
    y.backward(inputs=(e,))
    return L(x.grad)


@case
def gr_edge_multi():
    x = leaf(2.0, 1.0)
    v, i = x.sort()
    e = T.autograd.graph.get_gradient_edge(v)
    return e.output_nr, L(T.autograd.grad((v * v).sum(), e))


@case
def gr_isinstance():
    y = leaf(2.0) * 2
    return isinstance(y.grad_fn, T.autograd.graph.Node), issubclass(type(y.grad_fn), T.autograd.graph.Node)


@case
def gr_multi_grad_hook():
    seen = []
    a, b, c = leaf(1.0), leaf(2.0), leaf(3.0)
    h = T.autograd.graph.register_multi_grad_hook((a, b, c), lambda gs: seen.append([L(g) for g in gs]))
    (a * b).sum().backward()
    (a * b * c).sum().backward()
    h.remove()
    (a * b).sum().backward()
    return seen


@case
def gr_multi_grad_hook_any():
    seen = []
    a, b = leaf(1.0), leaf(2.0)
    T.autograd.graph.register_multi_grad_hook((a, b), lambda g: seen.append(L(g)), mode="any")
    (a * b).sum().backward()
    return len(seen)


@case
def gr_increment():
    x = T.ones(2)
    T.autograd.graph.increment_version(x)
    return x._version


@case
def gr_allow_mutation():
    with T.autograd.graph.allow_mutation_on_saved_tensors():
        x = leaf(2.0, 3.0)
        a = x.clone()
        out = (a**2).sum()
        a.sin_()
        out.backward()
    return L(x.grad)


@case
def gr_metadata():
    y = leaf(2.0) * 2
    y.grad_fn.metadata["k"] = 1
    return y.grad_fn.metadata


@case
def fun_jac():
    FN = T.autograd.functional
    x = leaf(1.0, 2.0)
    return (
        L(FN.jacobian(lambda a: a * a, x.detach())),
        L(FN.jacobian(lambda a, b: (a * b, a + b), (x.detach(), x.detach()))),
        L(FN.hessian(lambda a: (a**3).sum(), x.detach())),
        L(FN.hessian(lambda a, b: (a * b * b).sum(), (x.detach(), x.detach()))),
    )


@case
def fun_vjp():
    FN = T.autograd.functional
    x = T.tensor([1.0, 2.0], dtype=T.float64)
    v = T.tensor([3.0, 4.0], dtype=T.float64)
    return (
        L(FN.vjp(lambda a: a * a, x, v)),
        L(FN.jvp(lambda a: a * a, x, v)),
        L(FN.vhp(lambda a: (a**3).sum(), x, v)),
        L(FN.hvp(lambda a: (a**3).sum(), x, v)),
        L(FN.vjp(lambda a: (a * a).sum(), x)),
    )


@case
def fun_strict():
    FN = T.autograd.functional
    x = T.tensor([1.0, 2.0], dtype=T.float64)
    return (
        errt(lambda: FN.jacobian(lambda a: T.ones(2, dtype=T.float64), x, strict=True)),
        L(FN.jacobian(lambda a: T.ones(2, dtype=T.float64), x)),
        errt(lambda: FN.vjp(lambda a: a * a, x)),
        errt(lambda: FN.vjp(lambda a: a * a, 3.0)),
        errt(lambda: FN.hessian(lambda a: a, x)),
    )


@case
def fun_create_graph():
    FN = T.autograd.functional
    x = leaf(1.0, 2.0)
    j = FN.jacobian(lambda a: a**3, x, create_graph=True)
    return j.requires_grad, L(T.autograd.grad(j.sum(), x))

