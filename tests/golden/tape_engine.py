"""Cases of the engine: hooks, accumulation, roots and inputs, modes, nodes. Each is run by Rushlight and was run by PyTorch 2.13
(make_tape.py); what they give must be the same."""

from __future__ import annotations

import threading
import warnings

from tape import LIBRARY, L, case, err, errt, leaf

T = LIBRARY    # torch, or Rushlight


@case
def retains_grad_flag():
    x = leaf(1.0)
    y = x * 2
    a = y.retains_grad
    y.retain_grad()
    return a, y.retains_grad, x.retains_grad


@case
def retain_grad_twice():  # mission: R-09
    x = leaf(1.0)
    y = x * 2
    y.retain_grad()
    y.retain_grad()
    y.sum().backward()
    return L(y.grad)


@case
def retain_grad_accumulates():
    x = leaf(1.0)
    y = x * 2
    y.retain_grad()
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    return L(y.grad), L(x.grad)


@case
def retain_grad_hook_order():
    x = leaf(1.0)
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda g: g * 5)
    y.sum().backward()
    return L(y.grad), L(x.grad)


@case
def retain_grad_hook_order2():
    x = leaf(1.0)
    y = x * 2
    y.register_hook(lambda g: g * 5)
    y.retain_grad()
    y.sum().backward()
    return L(y.grad), L(x.grad)


@case
def grad_alias_user():
    x = leaf(1.0, 2.0)
    g = T.ones(2, dtype=T.float64)
    x.backward(g)
    x.grad.mul_(5)
    return L(g), L(x.grad)


@case
def grad_alias_two_leaves():
    x = leaf(1.0, 2.0)
    y = leaf(1.0, 2.0)
    (x + y).backward(T.ones(2, dtype=T.float64))
    x.grad.mul_(5)
    return L(y.grad)


@case
def grad_alias_hook():
    x = leaf(1.0, 2.0)
    keep = []
    x.register_hook(lambda g: keep.append(g))
    (x * 2).sum().backward()
    x.grad.mul_(5)
    return L(keep)


@case
def grad_alias_hook2():
    x = leaf(1.0, 2.0)
    keep = []
    y = x * 1
    y.register_hook(lambda g: keep.append(g))
    (y + 0).sum().backward()
    (x.grad).mul_(5)
    return L(keep)


@case
def grad_alias_retain():
    x = leaf(1.0, 2.0)
    y = x + 0
    y.retain_grad()
    (y * 3).sum().backward()
    x.grad.mul_(5)
    return L(y.grad)


@case
def expanded_user_grad():
    x = leaf(1.0, 2.0)
    x.grad = T.ones(1, dtype=T.float64).expand(2)
    return errt(lambda: (x * T.tensor([1.0, 2.0], dtype=T.float64)).sum().backward())


@case
def accumulate_identity():  # mission: A-24
    x = leaf(1.0, 2.0)
    x.grad = T.zeros(2, dtype=T.float64)
    g = x.grad
    (x * 3).sum().backward()
    return g is x.grad, L(g)


@case
def create_graph_accumulate():  # mission: R-07
    x = leaf(1.0, 2.0)
    x.grad = T.zeros(2, dtype=T.float64)
    g = x.grad
    (x * x).sum().backward(create_graph=True)
    return g is x.grad, L(g), x.grad.requires_grad


@case
def acc_node_hook():
    x = leaf(1.0, 2.0)
    seen = []
    y = x * 2
    n = y.grad_fn.next_functions[0][0]
    n.register_hook(lambda gi, go: seen.append((len(gi), L(go))))
    y.sum().backward()
    return seen, L(x.grad)


@case
def acc_node_prehook():
    x = leaf(1.0, 2.0)
    y = x * 2
    n = y.grad_fn.next_functions[0][0]
    n.register_prehook(lambda go: (go[0] * 3,))
    y.sum().backward()
    return L(x.grad)


@case
def node_hook_order():
    x = leaf(1.0, 2.0)
    seen = []
    y = x * 2
    y.grad_fn.register_prehook(lambda go: seen.append("pre"))
    y.register_hook(lambda g: seen.append("tensor"))
    y.grad_fn.register_hook(lambda gi, go: seen.append("post"))
    x.register_hook(lambda g: seen.append("leaf"))
    x.register_post_accumulate_grad_hook(lambda t: seen.append("acc"))
    y.sum().backward()
    return seen


@case
def hook_remove_with():
    x = leaf(1.0, 2.0)
    seen = []
    with x.register_hook(lambda g: seen.append(1)):
        x.sum().backward()
    x.sum().backward()
    return seen


@case
def hook_wrong_return():
    x = leaf(1.0, 2.0)
    x.register_hook(lambda g: 3)
    return errt(lambda: x.sum().backward())


@case
def hook_wrong_size():
    x = leaf(1.0, 2.0)
    x.register_hook(lambda g: g[:1])
    return errt(lambda: x.sum().backward())


@case
def hook_on_dead_leaf():
    x = leaf(1.0, 2.0)
    seen = []
    x.register_hook(lambda g: seen.append(L(g)))
    y = (x * 2).sum()
    del x
    y.backward()
    return seen


@case
def grad_capture_hooks():
    x = leaf(1.0, 2.0)
    x.register_hook(lambda g: g * 10)
    return L(T.autograd.grad((x * 2).sum(), x))


@case
def grad_capture_nonleaf():
    x = leaf(1.0, 2.0)
    y = x * 2
    z = y * 3
    return L(T.autograd.grad(z.sum(), [y, x], retain_graph=True)), x.grad


@case
def grad_same_twice():
    x = leaf(1.0, 2.0)
    return L(T.autograd.grad((x * 2).sum(), [x, x]))


@case
def grad_of_self():  # mission: R-07
    x = leaf(1.0, 2.0)
    return L(T.autograd.grad(x.sum(), x)), L(T.autograd.grad(x, x, T.ones(2, dtype=T.float64)))


@case
def backward_inputs_nonleaf():
    x = leaf(1.0, 2.0)
    y = x * 2
    (y * 3).sum().backward(inputs=[y])
    return L(y.grad), x.grad


@case
def backward_inputs_both():
    x = leaf(1.0, 2.0)
    y = x * 2
    (y * 3).sum().backward(inputs=[y, x])
    return L(y.grad), L(x.grad)


@case
def backward_inputs_empty():
    x = leaf(1.0, 2.0)
    return err(lambda: (x * 2).sum().backward(inputs=[]))


@case
def backward_inputs_tensor():
    x = leaf(1.0, 2.0)
    y = leaf(1.0, 2.0)
    (x * y).sum().backward(inputs=x)
    return L(x.grad), y.grad


@case
def backward_inputs_unused():
    x = leaf(1.0, 2.0)
    y = leaf(3.0)
    return errt(lambda: (x * 2).sum().backward(inputs=[y])), y.grad


@case
def roots_repeated():  # mission: R-02
    x = leaf(1.0, 2.0)
    y = (x * 2).sum()
    T.autograd.backward([y, y])
    return L(x.grad)


@case
def roots_dependent():  # mission: R-02
    x = leaf(1.0, 2.0)
    y = x * x
    z = (y * y).sum()
    T.autograd.backward([z, y.sum()])
    return L(x.grad)


@case
def grad_no_rg_input():
    x = leaf(1.0, 2.0)
    y = T.ones(2, dtype=T.float64)
    return err(lambda: T.autograd.grad((x * y).sum(), y))


@case
def grad_no_rg_output():  # mission: A-02
    return err(lambda: T.autograd.grad(T.ones(1), T.ones(1)))


@case
def grad_complex_output():  # mission: R-04
    x = T.tensor([1 + 1j], requires_grad=True)
    return err(lambda: (x * x).sum().backward())


@case
def grad_int_grads():  # mission: R-03
    x = leaf(1.0, 2.0)
    return errt(lambda: (x * 2).backward(T.ones(2, dtype=T.int64))), L(x.grad)


@case
def grad_dtype_cast():
    x = leaf(1.0, 2.0)
    return errt(lambda: (x * 2).backward(T.ones(2, dtype=T.float32))), str(x.grad.dtype)


@case
def second_backward_partial():  # mission: R-05
    x = leaf(1.0, 2.0)
    y = x * x
    (y * 1).sum().backward()
    return err(lambda: (y * 2).sum().backward())


@case
def second_backward_no_saved():  # mission: R-05
    x = leaf(1.0, 2.0)
    y = (x + 1).sum()
    y.backward()
    return errt(lambda: y.backward()), L(x.grad)


@case
def saved_attr():  # mission: A-10
    x = leaf(1.0, 2.0)
    y = x * x
    return L(y.grad_fn._saved_self), L(y.grad_fn._saved_other)


@case
def saved_attr_exp():
    x = leaf(0.0)
    y = x.exp()
    r = y.grad_fn._saved_result
    return L(r), r.grad_fn is y.grad_fn


@case
def saved_attr_freed():
    x = leaf(1.0, 2.0)
    y = x * x
    y.sum().backward()
    return errt(lambda: y.grad_fn._saved_self)


@case
def no_grad_class():  # mission: A-21
    @T.no_grad()
    class A:
        def __init__(self):
            self.t = T.ones(1, requires_grad=True) * 2

    return errt(lambda: A().t.requires_grad)


@case
def no_grad_plain_decorator():  # mission: A-21
    @T.no_grad
    def f():
        return (T.ones(1, requires_grad=True) * 2).requires_grad

    return f(), f.__name__


@case
def no_grad_generator_send():  # mission: A-21
    seen = []

    @T.no_grad()
    def g():
        try:
            x = yield T.is_grad_enabled()
            seen.append(x)
            yield T.is_grad_enabled()
        except ValueError:
            seen.append(["caught", T.is_grad_enabled()])
            yield 7
        finally:
            seen.append("fin")

    it = g()
    a = next(it)
    b = T.is_grad_enabled()
    c = it.send(5)
    d = it.throw(ValueError())
    it.close()
    return a, b, c, d, seen


@case
def set_grad_decorator():  # mission: A-22
    @T.set_grad_enabled(False)
    def f():
        return T.is_grad_enabled()

    return f(), T.is_grad_enabled()


@case
def set_grad_nested():  # mission: A-22
    with T.no_grad():
        with T.set_grad_enabled(True):
            a = T.is_grad_enabled()
        b = T.is_grad_enabled()
    return a, b, T.is_grad_enabled()


@case
def inference_decor():
    @T.inference_mode()
    def f():
        return T.is_grad_enabled(), T.is_inference_mode_enabled()

    @T.inference_mode
    def g():
        return T.is_grad_enabled(), T.is_inference_mode_enabled()

    with T.inference_mode(False):
        c = T.is_grad_enabled()
    with T.no_grad():
        with T.inference_mode(False):
            d = T.is_grad_enabled()
    return f(), g(), c, d


@case
def grad_mode_in_backward():
    seen = []
    x = leaf(1.0)
    y = x * 2
    y.register_hook(lambda g: seen.append(T.is_grad_enabled()))
    y.sum().backward(retain_graph=True)
    y.sum().backward(create_graph=True)
    with T.no_grad():
        pass
    return seen


@case
def anomaly():
    x = leaf(-1.0)

    def f():
        with T.autograd.detect_anomaly():
            x.sqrt().sum().backward()

    return errt(f), T.is_anomaly_enabled()


@case
def anomaly_set():
    with T.autograd.set_detect_anomaly(True):
        a = T.is_anomaly_enabled(), T.is_anomaly_check_nan_enabled()
    return a, T.is_anomaly_enabled()


@case
def batched_grads():
    x = leaf(1.0, 2.0)
    y = x * x
    return L(T.autograd.grad(y, x, T.eye(2, dtype=T.float64), is_grads_batched=True))


@case
def grad_mode_thread():  # mission: A-20
    out = []

    def run():
        out.append(T.is_grad_enabled())

    with T.no_grad():
        t = threading.Thread(target=run)
        t.start()
        t.join()
    return out


@case
def grad_setter():
    x = leaf(1.0, 2.0)

    def s(v):
        x.grad = v

    return [errt(lambda v=v: s(v)) for v in (3, T.ones(3, dtype=T.float64), T.ones(2), x, None)]


@case
def output_nr():
    x = leaf(3.0, 1.0)
    v, i = x.sort()
    a, b = x.chunk(2)
    return v.output_nr, b.output_nr, x.output_nr


@case
def next_functions_multi():  # mission: A-10
    x = leaf(3.0, 1.0)
    a, b = x.chunk(2)
    return a.grad_fn is b.grad_fn, [(type(n).__name__, i) for n, i in (a + b).grad_fn.next_functions]


@case
def grad_fn_names():  # mission: A-11
    x = leaf(3.0, 1.0)
    m = T.ones(2, 2, dtype=T.float64, requires_grad=True)
    fs = dict(
        add=x + 1,
        mul=x * 2,
        sub=x - 1,
        div=x / 2,
        pow=x**2,
        exp=x.exp(),
        log=x.log(),
        sum=x.sum(),
        mean=x.mean(),
        mm=m @ m,
        view=m.view(4),
        t=m.t(),
        relu=x.relu(),
        sm=x.softmax(0),
        cat=T.cat([x, x]),
        stack=T.stack([x, x]),
        mx=x.max(),
        idx=x[T.tensor([0])],
        clone=x.clone(),
        neg=-x,
        sqrt=x.sqrt(),
        perm=m.permute(1, 0),
        exp2=m.expand(3, 2, 2),
        uns=x.unsqueeze(0),
        ln=T.nn.functional.layer_norm(m, (2,)),
        mse=T.nn.functional.mse_loss(x, x * 1),
        where=T.where(x > 0, x, x),
        gelu=T.nn.functional.gelu(x),
        sig=x.sigmoid(),
        tanh=x.tanh(),
        cumsum=x.cumsum(0),
        sort=x.sort()[0],
        gather=x.gather(0, T.tensor([0])),
        mf=x.masked_fill(x > 1, 0),
        abs=x.abs(),
        emb=T.nn.functional.embedding(T.tensor([0]), m),
    )
    return {k: type(v.grad_fn).__name__ for k, v in fs.items()}


@case
def rg_setter():  # mission
    x = T.ones(2)
    x.requires_grad = True
    y = x * 2

    def s():
        y.requires_grad = False

    return x.requires_grad, errt(s)


@case
def gradcheck_mod():
    from_ = T.autograd.gradcheck
    return callable(from_), from_(lambda x: x * 2, (leaf(1.0),))


@case
def zero_dim_grads():
    x = T.tensor(2.0, dtype=T.float64, requires_grad=True)
    y = x * T.ones(3, dtype=T.float64)
    y.sum().backward()
    return L(x.grad), list(x.grad.shape)


@case
def empty_grads():
    x = T.ones(0, 3, dtype=T.float64, requires_grad=True)
    (x * 2).sum().backward()
    return list(x.grad.shape)


@case
def grad_strides():
    x = T.ones(2, 3, dtype=T.float64).t().requires_grad_()
    (x * 2).sum().backward()
    a = x.grad.stride()
    y = T.ones(2, 3, dtype=T.float64, requires_grad=True)
    (y.t() * T.ones(3, 2, dtype=T.float64)).sum().backward()
    return a, y.grad.stride()


@case
def mixed_dtype_grad():
    x = T.ones(2, requires_grad=True)
    y = T.ones(2, dtype=T.float64, requires_grad=True)
    (x * y).sum().backward()
    return str(x.grad.dtype), str(y.grad.dtype)


@case
def complex_grads():
    z = T.tensor([1 + 2j], requires_grad=True)
    (z * z.conj()).real.sum().backward()
    x = T.tensor([2.0], requires_grad=True)
    (x * (1 + 2j)).abs().sum().backward()
    return str(L(z.grad)), str(L(x.grad))


@case
def unused_int_out():
    x = leaf(3.0, 1.0)
    v, i = T.topk(x, 1)
    return v.requires_grad, i.requires_grad, i.grad_fn is None


@case
def grad_inputs_order():
    a, b = leaf(1.0), leaf(2.0)
    return L(T.autograd.grad((a * b + a).sum(), (b, a)))


@case
def resize_rg():
    x = leaf(1.0, 2.0)
    return errt(lambda: x.resize_(3))


@case
def numpy_rg():  # mission: H-15
    x = leaf(1.0, 2.0)
    return errt(lambda: x.numpy())


@case
def tensor_grads_kw():  # mission: R-03
    x = leaf(1.0, 2.0)
    return errt(lambda: (x * 2).backward(gradient=T.ones(2, dtype=T.float64))), L(x.grad)


@case
def create_graph_warn():
    x = leaf(1.0, 2.0)
    with warnings.catch_warnings(record=True) as w:
        warnings.simplefilter("always")
        (x * x).sum().backward(create_graph=True)
    return len(w)

