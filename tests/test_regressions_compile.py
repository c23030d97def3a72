"""What once went wrong in compiled calls. Each case runs a program twice, eagerly and compiled, on equal data: the same results, the same state
afterwards. What cannot be replayed must have run eagerly, with a reason."""

import collections
import copy
import dataclasses
import functools
import gc
import os
import pickle
import random
import subprocess
import sys
import threading
import types
import warnings
import weakref

import numpy as np
import pytest

import rushlight as torch
import rushlight.nn as nn
import rushlight.nn.functional as F
from rushlight.compiler import explain
from rushlight.compiler.compiled import compile_function
from rushlight.ops.declare import Operator

Tensor = torch.Tensor


def snapshot(x):
    """A value that later writes do not change."""
    if isinstance(x, Tensor):
        return (x.dtype, tuple(x.shape), x.requires_grad, x.detach().clone())
    if isinstance(x, np.ndarray):
        return x.copy()
    if isinstance(x, (list, tuple)):
        return [snapshot(y) for y in x]
    if isinstance(x, dict):
        return {k: snapshot(y) for k, y in x.items()}
    return x


def same(a, b):
    if isinstance(a, Tensor):
        if a.dtype is not b.dtype or a.shape != b.shape:
            return False
        if not (a.is_floating_point() or a.is_complex()):
            return torch.equal(a, b)
        tol = 2e-2 if a.dtype in (torch.float16, torch.bfloat16) else 2e-5
        return torch.allclose(a, b, rtol=tol, atol=tol / 10, equal_nan=True)
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, float):
        return a == b or a != a and b != b or abs(a - b) <= 1e-5 * max(1, abs(a))
    return type(a) is type(b) and a == b


def both(program, **options):
    """`program(wrap)` gives what is to be compared; `wrap` is `compile_function`, or nothing. Returns the compiled functions."""
    made = []

    def wrap(f):
        made.append(compile_function(f, **options))
        return made[-1]

    def run(w):
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        return snapshot(program(w))
    want, got = run(lambda f: f), run(wrap)
    assert same(want, got), f"eager: {want}\ncompiled: {got}\n{[c.calls for c in made]} {[c.reasons for c in made]}"
    return made


def replays(program):
    """`both`, and every function was replayed at least once."""
    made = both(program)
    assert all(c.calls["replayed"] for c in made), [(c.calls, c.reasons) for c in made]


def refuses(program, word):
    """`both`, and the functions ran eagerly for a reason that says `word`."""
    for c in both(program):
        assert c.calls["replayed"] == 0 and any(word in r for r in c.reasons), (c.calls, c.reasons)
        assert word in str(explain(c))


X = torch.tensor([[1.0, -2.0, 3.0, 0.5], [0.25, 4.0, -1.0, 2.0], [-3.0, 1.5, 0.125, -0.75]])


# --- effects in Python ------------------------------------------------------------------------------------------------
COUNT = 0


def _global(wrap):
    global COUNT
    COUNT = 0

    def f(x):
        global COUNT
        COUNT += 1
        return x * 2
    c = wrap(f)
    return [c(X) for _ in range(5)] + [COUNT]


def _nonlocal(wrap):
    n = 0

    def f(x):
        nonlocal n
        n += 1
        return x * n
    c = wrap(f)
    return [c(X) for _ in range(5)] + [n]


def _append(wrap):
    log = []

    def f(x):
        log.append(1)
        return x + 1
    c = wrap(f)
    return [c(X) for _ in range(5)] + [log]


def _dict(wrap):
    d = {"n": 0}

    def f(x):
        d["n"] += 1
        return x + 1
    c = wrap(f)
    return [c(X) for _ in range(5)] + [d]


def _default(wrap):
    def f(x, seen=[]):  # noqa: B006
        seen.append(1)
        return x * len(seen)
    c = wrap(f)
    return [c(X) for _ in range(5)]


def _module_attribute(wrap):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.n = 0

        def forward(self, x):
            self.n += 1
            return x + self.n
    m = M()
    c = wrap(m.__call__)
    return [c(X) for _ in range(5)] + [m.n]


def _argument_list(wrap):
    def f(x, items):
        items.append(1)
        return x * len(items)
    c = wrap(f)
    a = [1]
    return [c(X, a) for _ in range(5)] + [a]


@pytest.mark.parametrize("program", [_global, _nonlocal, _append, _dict, _default, _module_attribute, _argument_list])
def test_effects_are_not_lost(program):
    refuses(program, "changes")


def _next(wrap):
    it = iter([float(i) for i in range(9)])
    c = wrap(lambda x: x * next(it))
    return [c(X) for _ in range(5)]


def _for(wrap):
    it = iter(range(100))

    def f(x):
        for i in it:
            return x * i
    c = wrap(f)
    return [c(X) for _ in range(5)]


def _send(wrap):
    def numbers():
        i = 0
        while True:
            yield i
            i += 1
    g = numbers()
    c = wrap(lambda x: x * g.send(None))
    return [c(X) for _ in range(5)]


@pytest.mark.parametrize("program", [_next, _for, _send])
def test_iterators_of_outside_advance(program):
    refuses(program, "iterator")


GENERATOR = np.random.default_rng(0)


@pytest.mark.parametrize("draw, word", [
    (lambda: random.random(), "random"), (lambda: random.choice([1.0, 2.0, 3.0]), "random"), (lambda: float(np.random.rand()), "random"),
    (lambda: float(GENERATOR.normal()), "random"), (lambda: float(os.environ["RUSHLIGHT_TEST_NUMBER"]), "operating system"),
], ids=["random", "choice", "numpy", "generator", "environ"])
def test_what_comes_from_the_world_is_asked_anew(draw, word, monkeypatch):
    monkeypatch.setenv("RUSHLIGHT_TEST_NUMBER", "1")
    GENERATOR.bit_generator.state = np.random.default_rng(3).bit_generator.state
    c = compile_function(lambda x: x * draw())
    seen = {c(torch.ones(1)).item() for _ in range(5)}
    monkeypatch.setenv("RUSHLIGHT_TEST_NUMBER", "2")
    seen.add(c(torch.ones(1)).item())
    assert len(seen) > 1 and c.calls["replayed"] == 0


def test_prints_warnings_threads_and_clocks_run(capsys):
    import datetime

    def warns(x):
        warnings.warn("once", stacklevel=1)
        return x + 1

    def starts(x):
        r = []
        t = threading.Thread(target=lambda: r.append(x * 2))
        t.start()
        t.join()
        return r[0] + 1

    def prints(x):
        print("hello")
        return x + 1
    c = compile_function(prints)
    for _ in range(4):
        c(X)
    assert capsys.readouterr().out == "hello\n" * 4
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        c = compile_function(warns)
        for _ in range(4):
            c(X)
    assert len(seen) == 4
    refuses(lambda wrap: [wrap(starts)(X) for _ in range(4)], "thread")
    c = compile_function(lambda x: x * datetime.datetime.now().year)
    c(X), c(X)
    assert c.calls["replayed"] == 0


# --- what the function reads ------------------------------------------------------------------------------------------
class Plain:
    pass


class Slotted:
    __slots__ = ("v",)


class WithAttribute:
    v = 2.0


SPACE = types.ModuleType("a_module_of_settings")


def _deep():
    o = Plain()
    o.a, o.a.b, o.a.b.c = Plain(), Plain(), Plain()
    o.a, b, c = Plain(), Plain(), Plain()
    o.a.b, b.c, c.v = b, c, 2.0
    return lambda x: x * o.a.b.c.v, lambda: setattr(c, "v", 3.0)


def _namespace():
    o = types.SimpleNamespace(a=types.SimpleNamespace(v=2.0))
    return lambda x: x * o.a.v, lambda: setattr(o.a, "v", 3.0)


def _thread_local():
    o = threading.local()
    o.v = 2.0
    return lambda x: x * o.v, lambda: setattr(o, "v", 3.0)


def _event():
    e = threading.Event()
    return lambda x: x * (3 if e.is_set() else 2), e.set


def _slots():
    o = Slotted()
    o.v = 2.0
    return lambda x: x * o.v, lambda: setattr(o, "v", 3.0)


def _class():
    WithAttribute.v = 2.0
    o = WithAttribute()
    return lambda x: x * o.v, lambda: setattr(WithAttribute, "v", 3.0)


def _shadowed():
    WithAttribute.v = 2.0
    o = WithAttribute()
    return lambda x: x * o.v, lambda: setattr(o, "v", 3.0)


def _module():
    SPACE.v = 2.0
    return lambda x: x * SPACE.v, lambda: setattr(SPACE, "v", 3.0)


def _list():
    items = [2.0, 1.0]
    return lambda x: x * items[0], lambda: items.__setitem__(0, 3.0)


def _nested_list():
    items = [[[[2.0]]]]
    return lambda x: x * items[0][0][0][0], lambda: items[0][0][0].__setitem__(0, 3.0)


def _array():
    a = np.full(4, 2.0, np.float32)
    return lambda x: x * torch.tensor(a), lambda: a.__setitem__(0, 3.0)


def _defaults():
    def f(x, k=2.0):
        return x * k
    return f, lambda: setattr(f, "__defaults__", (3.0,))


def _code():
    def f(x):
        return x * 2

    def g(x):
        return x * 3
    return f, lambda: setattr(f, "__code__", g.__code__)


def _callable():
    class A:
        k = 2.0

        def __call__(self, x):
            return x * self.k
    a = A()
    return a, lambda: setattr(a, "k", 3.0)


def _method():
    class A:
        k = 2.0

        def f(self, x):
            return x * self.k
    a = A()
    return a.f, lambda: setattr(a, "k", 3.0)


def _factory():
    def make(k):
        return lambda x: x * k
    fs = [make(2.0), make(5.0)]
    return lambda x: fs[0](x) + fs[1](x), lambda: fs.__setitem__(1, make(3.0))


def _partial():
    options = {"k": 2.0}
    return functools.partial(lambda o, x: x * o["k"], options), lambda: options.update(k=3.0)


def _tensor_data():
    t = torch.full((4,), 2.0)
    return lambda x: x * t, lambda: setattr(t, "data", torch.full((4,), 3.0))


def _tensor_list():
    ts = [torch.full((4,), 2.0)]
    return lambda x: x * sum(ts), lambda: ts.append(torch.ones(4))


@pytest.mark.parametrize("make", [_deep, _namespace, _thread_local, _event, _slots, _class, _shadowed, _module, _list, _nested_list, _array, _defaults, _code,
                                  _callable, _method, _factory, _partial, _tensor_data, _tensor_list], ids=lambda f: f.__name__[1:])
def test_what_is_read_may_change(make):
    def program(wrap):
        f, change = make()
        c = wrap(f)
        out = [c(X) for _ in range(4)]
        change()
        return out + [c(X) for _ in range(4)]
    for c in both(program):
        assert c.calls["replayed"] >= 4 and c.calls["captured"] == 2, (c.calls, c.reasons)


class Net(nn.Module):
    scale = 2.0

    def __init__(self):
        super().__init__()
        self.l, self.items, self.act, self.settings = nn.Linear(4, 4), [1.0, 2.0], torch.relu, Plain()
        self.settings.k = 1.0

    def forward(self, x):
        return self.act(self.l(x)) * self.scale + self.items[0] * self.settings.k


CHANGES = {
    "list": lambda m: m.items.__setitem__(0, 5.0), "function": lambda m: setattr(m, "act", torch.tanh), "object": lambda m: setattr(m.settings, "k", 7.0),
    "dict": lambda m: m.__dict__.__setitem__("act", torch.tanh),
    "class": lambda m: setattr(type(m), "scale", 7.0), "hook": lambda m: m.l.register_forward_hook(lambda s, i, o: o + 10),
    "pre-hook": lambda m: m.l.register_forward_pre_hook(lambda s, i: (i[0] + 10,)), "data": lambda m: setattr(m.l.weight, "data", torch.zeros(4, 4)),
    "parameter": lambda m: setattr(m.l, "weight", nn.Parameter(torch.zeros(4, 4))), "submodule": lambda m: setattr(m, "l", nn.Linear(4, 4)),
    "forward": lambda m: setattr(m, "forward", lambda x: x * 3), "inner forward": lambda m: setattr(m.l, "forward", lambda x: x * 3),
    "table": lambda m: m.l._parameters.__setitem__("bias", None), "values": lambda m: m.l.weight.data.mul_(2),
    "state": lambda m: m.load_state_dict({k: v * 0 + 1 for k, v in m.state_dict().items()}, assign=True),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_module_may_change(change):
    def program(wrap):
        class Own(Net):
            pass
        m = Own()
        c = wrap(m.__call__)
        with torch.no_grad():
            out = [c(X) for _ in range(3)]
            change(m)
            return out + [c(X) for _ in range(3)]
    replays(program)


def test_hooks_of_all_modules_and_of_leaves_may_come_and_go():
    def program(wrap):
        m = nn.Linear(4, 2)
        opt = torch.optim.SGD(m.parameters(), 0.1)

        def step(x):
            opt.zero_grad()
            loss = m(x).square().sum()
            loss.backward()
            opt.step()
            return loss
        c = wrap(step)
        out = []
        for i in range(12):
            if i == 3:
                h = m.weight.register_hook(lambda g: g * 3)
            if i == 6:
                h.remove()
                h = m.bias.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(0))
            if i == 8:
                h.remove()
                h = nn.modules.module.register_module_forward_hook(lambda s, i, o: o + 1)
            if i == 10:
                h.remove()
            out += [c(X), m.weight.clone(), m.bias.grad.clone()]
        return out
    replays(program)


def test_modes_are_part_of_the_call():
    def program(wrap):
        c = wrap(lambda x: x + torch.zeros(4) + torch.tensor([1.0, 2.0, 3.0, 4.0]))
        out = [c(X) for _ in range(3)]
        torch.set_default_dtype(torch.float64)
        try:
            out += [c(X) for _ in range(3)]
        finally:
            torch.set_default_dtype(torch.float32)
        for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
            with mode():
                y = c(X)
                out += [y, y.is_inference()]
        return out
    replays(program)
    refuses(lambda wrap: [(wrap(lambda x: (torch.set_grad_enabled(False), x + 1)[1])(X), torch.is_grad_enabled(), torch.set_grad_enabled(True))[:2]
                          for _ in range(3)], "mode")


def test_arguments_are_told_apart_to_the_last_bit():
    def program(wrap):
        c = wrap(lambda x, s: 1 / (x * s))
        return [c(torch.ones(2), s) for s in (0.0, 0.0, -0.0, 0.0, 1, 1.0, True, float("nan"), float("nan"), 2.0, 2.0)]
    replays(program)

    def fresh(wrap):
        c = wrap(lambda x, g: g(x))
        return [c(X, eval(f"lambda a: a * {i}")) for i in range(6)]    # functions that may lie where the last one lay
    both(fresh)

    @dataclasses.dataclass
    class Batch:
        a: Tensor
        k: float

    def batches(wrap):
        c = wrap(lambda b: b.a * b.k)
        b = Batch(X, 1.0)
        out = []
        for i in range(8):
            b.k = i // 3
            out.append(c(b))
        return out
    replays(batches)


# --- memory -----------------------------------------------------------------------------------------------------------
def test_constants_are_made_anew():
    def program(wrap):
        def f(x):
            a, total = torch.arange(4.0), torch.tensor(0.0)
            a.mul_(2)
            a[0] = 5
            total += x.sum()
            return a + x, total, torch.arange(3)
        c = wrap(f)
        out = []
        for _ in range(5):
            y, total, r = c(X)
            out += [y.clone(), total.clone(), r.clone()]
            y.zero_(), total.zero_(), r.zero_()
        return out
    replays(program)


def test_results_are_the_callers():
    def program(wrap):
        c = wrap(lambda x: x * 2)
        out = [c(X), c(X)[1:], c(X).detach(), c(X).numpy(), c(X).t()]
        for _ in range(3):
            y = c(X)
            y.data = torch.zeros(3)
            y = c(X)
            out.append(y.clone())
            y.resize_(2)
            y = c(X)
            out.append(y.clone())
            y.requires_grad_()
            (y * 2).sum().backward()
            y = c(X)
            out += [y.clone(), y.requires_grad, y.grad, y._version]
            y.note = 1
            y = c(X)
            out.append(hasattr(y, "note"))
            r = weakref.ref(y)
            y = None
            out.append(r() is None)
        return out
    replays(program)


def test_results_that_are_arguments_views_or_containers():
    pair = collections.namedtuple("pair", "a b")

    @dataclasses.dataclass
    class Out:
        a: Tensor
        n: int = 3

    class Items(list):
        pass

    def program(wrap):
        fs = [wrap(f) for f in (lambda x: x, lambda x: pair(x + 1, 2), lambda x: (x.shape, x.dtype, None, "a", 2.5, [{"k": (x - 1,)}]),
                                lambda x: collections.OrderedDict(z=x * 2, y=x + 1), lambda x: (x + 1).t(), lambda x: x.sum().expand(3, 3),
                                lambda x: [x + 1] * 2)]
        out = []
        for i in range(4):
            x = X + i
            rs = [f(x) for f in fs]
            out += rs + [rs[0] is x, type(rs[1]).__name__, type(rs[2][0]).__name__, type(rs[3]).__name__, rs[6][0] is rs[6][1]]
        return out
    replays(program)

    def objects(wrap):
        c = wrap(lambda x: Out(x + 1))
        return [(r.a, r.n, type(r).__name__) for r in (c(X) for _ in range(4))]
    replays(objects)
    refuses(lambda wrap: [(c := wrap(lambda x: Items([x + 1])), type(c(X)).__name__, type(c(X)).__name__)[1:] for _ in range(1)], "made anew")
    refuses(lambda wrap: [(c := wrap(lambda x: x[1:]), c(X), c(X))[1:] for _ in range(1)], "view of memory")
    shared = [X]
    refuses(lambda wrap: [(c := wrap(lambda x: (x + 1, shared)[1]), c(X) is shared, c(X) is shared)[1:] for _ in range(1)], "lives outside")


def test_arguments_that_are_written_to_or_share_memory():
    def program(wrap):
        c = wrap(lambda x, y: (x.add_(1), y * 2))
        out = []
        for case in (0, 0, 0, 0, 1, 2, 3, 0):
            a = X.clone()
            a, b = ((a, X.clone()), (a, a), (a, a[:]), (a[:2], a[1:]))[case]
            r = c(a, b)
            out += [r[0] is a, a.clone(), b.clone(), r[1], a._version]
        return out
    replays(program)

    def parameter(wrap):
        m = nn.Linear(4, 2)
        opt = torch.optim.SGD(m.parameters(), 0.1)

        def step(x, v):
            opt.zero_grad()
            loss = m(x).square().sum() + v.sum()
            loss.backward()
            opt.step()
            return loss, v * 1
        c = wrap(step)
        return [c(X, torch.ones(4)) for _ in range(4)] + [c(X, m.weight.detach()[0]) for _ in range(3)] + [c(X, torch.ones(4))]
    replays(parameter)


@pytest.mark.parametrize("layout", [lambda: torch.randn(4, 3).t(), lambda: torch.randn(3, 8)[:, ::2], lambda: torch.randn(5, 4)[1:4],
                                    lambda: torch.randn(1, 4).expand(3, 4), lambda: torch.randn(0, 4), lambda: torch.randn(())],
                         ids=["transposed", "gaps", "part", "expanded", "empty", "scalar"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "uint8", "bool", "complex64"])
def test_layouts_and_dtypes(layout, dtype):
    def program(wrap):
        c = wrap(lambda x: (x * 2 + 1, x.sum(), x.reshape(-1)[:2] + x.sum()))
        return [c(layout().to(getattr(torch, dtype))) for _ in range(4)]
    replays(program)


def test_gradients_that_come_from_outside_are_read_where_they_are():
    def program(wrap):
        m = nn.Linear(4, 2)
        opt = torch.optim.SGD(m.parameters(), 0.1)

        def update():
            nn.utils.clip_grad_norm_(m.parameters(), 0.5)
            opt.step()
        c = wrap(update)
        out = []
        for i in range(6):
            opt.zero_grad()
            m(X * (i + 1)).square().sum().backward()
            c()
            out += [m.weight.clone(), m.weight.grad.clone()]
        return out
    replays(program)

    def shared(wrap):
        v, w = (torch.ones(3, requires_grad=True) for _ in range(2))

        def step(x):
            ((v + w) * x).sum().backward()
            return v.grad + w.grad
        c = wrap(step)
        out = []
        for i in range(6):
            flat = torch.zeros(6)
            v.grad, w.grad = flat[:3], flat[3:] if i != 4 else flat[:3]
            out += [c(torch.ones(3) * i), flat]
        return out
    both(shared)


def test_a_gradient_that_is_dropped_stays_dropped():
    def program(wrap):
        m = nn.Linear(4, 2)
        opt = torch.optim.Adam(m.parameters(), 0.01)

        def step(x):
            loss = m(x).square().sum()
            loss.backward()
            opt.step()
            opt.zero_grad()
            return loss
        c = wrap(step)
        out = []
        for i in range(8):
            if i == 5:
                m.weight.grad = torch.ones(2, 4)
            out += [c(X), m.weight.grad, m.weight.clone()]
        return out
    replays(program)


def test_leaves_and_graphs_of_outside():
    def argument(wrap):
        def f(x):
            (x * x).sum().backward()
            return x.grad
        c = wrap(f)
        return [c((X + i).requires_grad_()) for i in range(4)]
    both(argument)

    def graph(wrap):
        w = torch.ones(3, requires_grad=True)
        loss = (w * 2).sum()

        def f(x):
            loss.backward()
            return x + 1
        c = wrap(f)
        out = []
        for _ in range(3):
            try:
                out.append(c(X))
            except RuntimeError as e:
                out.append(str(e)[:20])
        return out + [w.grad]
    both(graph)

    def inner(wrap):
        def f(x):
            y = x.detach().requires_grad_()
            g, = torch.autograd.grad((y ** 3).sum(), y, create_graph=True)
            g.square().sum().backward()
            return y.grad
        c = wrap(f)
        return [c(X + i) for i in range(4)]
    replays(inner)


# --- optimizers -------------------------------------------------------------------------------------------------------
O = torch.optim
OPTIMIZERS = {
    "SGD": lambda p: O.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01), "Adam": lambda p: O.Adam(p, 0.01, amsgrad=True, maximize=True),
    "AdamW": lambda p: O.AdamW(p, 0.01), "Adagrad": lambda p: O.Adagrad(p, 0.05, lr_decay=0.1), "Adadelta": O.Adadelta, "Adamax": O.Adamax,
    "ASGD": lambda p: O.ASGD(p, 0.05), "NAdam": O.NAdam, "RAdam": O.RAdam, "RMSprop": lambda p: O.RMSprop(p, 0.01, momentum=0.5), "Rprop": O.Rprop,
}


def training(make, between=lambda i, m, opt: None, n=9):
    def program(wrap):
        torch.manual_seed(5)
        m = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
        opt = make(m.parameters())
        y = torch.tensor([0, 2, 1])

        def step(x):
            opt.zero_grad()
            loss = F.cross_entropy(m(x), y)
            loss.backward()
            opt.step()
            return loss
        c = wrap(step)
        out = []
        for i in range(n):
            out.append(c(X + i / 10))
            out += [p.detach().clone() for p in m.parameters()] + [None if p.grad is None else p.grad.clone() for p in m.parameters()]
            out += [{k: v for k, v in opt.state[p].items() if isinstance(v, Tensor)} for p in m.parameters() if p in opt.state]
            out = [snapshot(x) if isinstance(x, dict) else x for x in out]
            between(i, m, opt)
        return out
    return program


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_steps_of_every_optimizer(make):
    replays(training(make))


@pytest.mark.parametrize("make", [lambda p: O.LBFGS(p), lambda p: O.Adafactor(p)], ids=["LBFGS", "Adafactor"])
def test_optimizers_that_compute_in_python_run_eagerly(make):
    def program(wrap):
        w = torch.ones(2, 4, requires_grad=True)
        opt = make([w])

        def closure():
            opt.zero_grad()
            loss = (w * X[:2]).square().sum()
            loss.backward()
            return loss
        c = wrap(lambda: opt.step(closure))
        return [(c(), w.clone()) for _ in range(3)]
    refuses(program, "is not captured")


def _numbers(i, m, opt):
    g = opt.param_groups[0]
    if i == 3:
        g["lr"] *= 0.1
    if i == 5:
        g["weight_decay"] = 0.3
    if i == 6:
        g["maximize"] = not g["maximize"]


def _loaded(i, m, opt):
    if i == 3:
        opt.saved = copy.deepcopy(opt.state_dict())
    if i == 5:
        opt.load_state_dict(opt.saved)


def _frozen(i, m, opt):
    if i in (3, 5):
        m[0].weight.requires_grad_(i == 5)


def _group(i, m, opt):
    if i == 4:
        p = nn.Parameter(torch.ones(2))
        p.grad = torch.ones(2)
        opt.add_param_group({"params": [p], "lr": 0.5})


def _without_gradient(i, m, opt):
    if i == 3:
        m[0].bias.grad = None
    if i == 6:
        m[0].bias.grad = torch.ones(5)


@pytest.mark.parametrize("between", [_numbers, _loaded, _frozen, _group, _without_gradient], ids=lambda f: f.__name__[1:])
@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_an_optimizer_may_change_between_steps(name, between):
    replays(training(OPTIMIZERS[name], between))


# --- operators --------------------------------------------------------------------------------------------------------
def test_random_streams_stand_where_eager_leaves_them():
    def program(wrap):
        g = torch.Generator().manual_seed(1)

        def f(x):
            a = F.dropout(x) + torch.rand(4) + torch.randn(3, 4) + torch.randint(0, 9, (4,)) + torch.rand(4, generator=g)
            return a, torch.randperm(5), torch.randint_like(x, 5), torch.empty(3).exponential_(), torch.bernoulli(torch.full((4,), 0.5))
        c = wrap(f)
        out = []
        for i in range(6):
            if i % 2:
                torch.manual_seed(i)
            out += [c(X), torch.rand(1), torch.rand(1, generator=g)]
        return out
    replays(program)
    for f in (lambda x: (torch.manual_seed(3), x + torch.rand(4))[1], lambda x: (torch.get_rng_state(), x + torch.rand(4))[1],
              lambda x: torch.multinomial(x.abs(), 2), lambda x: torch.poisson(x.abs())):
        both(lambda wrap, f=f: [(c := wrap(f), [(c(X + i), torch.rand(1)) for i in range(4)])[1]])

    def forked(wrap):
        def f(x):
            with torch.random.fork_rng():
                y = torch.rand(4)
            return x + y
        c = wrap(f)
        return [(c(X), torch.rand(1)) for _ in range(4)]
    both(forked)


def test_every_operator_gives_what_eager_gives_for_other_values(monkeypatch):
    from rushlight.compiler import compiled
    from rushlight.compiler.program import Interpreter
    from rushlight.ops import declare, load
    from rushlight.ops.samples import build, samples_of
    monkeypatch.setattr(compiled, "build", Interpreter)     # what is captured is looked at here, not machine code
    load()
    wrong = []
    for q, op in sorted(declare.OPERATORS.items()):
        for call in samples_of(op) or ():
            rng = np.random.default_rng(0)

            def make(k, call=call, rng=rng):
                made = []

                def one(spec):
                    a = spec.array
                    made.append(torch.tensor(rng.permutation(a.ravel()).reshape(a.shape).astype(a.dtype) if k and a.size > 1 else a))
                    return made[-1]
                return build(call, one), made

            def outcome(f, args, kw):
                torch.manual_seed(0)
                try:
                    return snapshot(f(*copy.deepcopy(args), **copy.deepcopy(kw)))
                except Exception as e:
                    return type(e).__name__
            if not make(0)[1]:
                continue
            c = compile_function(lambda *a, op=op, **k: op.function(*a, **k))
            for k in (0, 1, 2):
                (args, kw), _ = make(k)
                want, got = outcome(c.fn, args, kw), outcome(c, args, kw)
                if not same(want, got):
                    wrong.append((q, k, dict(c.calls)))
                    break
    assert not wrong


def test_operations_that_only_compiled_code_got_wrong():
    def program(wrap):
        def f(x, p, q):
            y, z = x.clone(), x.clone()
            torch.add(y, 1, out=y)                      # out= writes
            y.add_(1)
            a = (p + q).float() + (p * q) * 2 + (p + q).sum()   # truth values stay truth values in a fused loop
            z[z > 0.5] = 0
            return y, 1 - a, z, F.softmax(x[:0], -1) * 2, x[:, :0] @ x[:, :0].t()
        c = wrap(f)
        r = torch.tensor([True, False, True, True])
        return [c(X + i, r, r.roll(i)) for i in range(4)]
    replays(program)

    def frozen(wrap):
        m = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2)).eval()
        opt = torch.optim.SGD(m.parameters(), 0.1)

        def step(x):
            opt.zero_grad()
            loss = m(x).square().sum()
            loss.backward()
            opt.step()
            return loss, m[0].weight.grad.clone()
        c = wrap(step)
        return [c(X) for _ in range(4)]
    replays(frozen)


@pytest.mark.parametrize("f, word", [
    (lambda x: torch.where(x > 0), "values"), (lambda x: (x > 0).nonzero(), "size"), (lambda x: x[x > 0], "size"),
    (lambda x: torch.unique((x * 2).long(), return_counts=True), "values"), (lambda x: torch.bincount((x > 0).long().flatten(), minlength=3), "values"),
    (lambda x: torch.repeat_interleave(x[0], (x[1].abs() * 2).long()), "values"), (lambda x: x[(x[0, 0] > 0).long()], "values"),
    (lambda x: torch.linalg.inv(x[:, :3]), "values"), (lambda x: torch.from_numpy(np.sin(x.numpy())), "value"), (lambda x: x * x.sum().item(), "value"),
    (lambda x: x * 2 if x.sum() > 0 else x * 3, "value"), (lambda x: torch.tensor([x[0, 0], x[1, 1]]) + 1, "value"), (lambda x: f"{x.sum():.2f}", "value"),
])
def test_what_depends_on_values_runs_eagerly(f, word):
    refuses(lambda wrap: (c := wrap(f), [c(torch.randn(3, 4)) for _ in range(4)])[1], word)


# --- errors -----------------------------------------------------------------------------------------------------------
def test_a_call_that_fails_leaves_what_eager_leaves():
    def program(wrap):
        m = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))
        opt = torch.optim.SGD(m.parameters(), 0.01, momentum=0.9)

        def step(x, t):
            opt.zero_grad()
            loss = F.cross_entropy(m(x), t)
            loss.backward()
            opt.step()
            return loss
        c = wrap(step)
        out = []
        for i in range(8):
            try:
                out.append(c(X.repeat(2, 1) + torch.arange(6.0).view(6, 1), torch.tensor([0, 1, 2, 0, 1, 9 if i == 5 else 2])))
            except IndexError as e:
                out.append(str(e))
            out += [m[1].running_mean.clone(), m[1].num_batches_tracked.clone(), [p.grad is None for p in m.parameters()], torch.rand(1)]
        return out
    replays(program)

    def caught(wrap):
        def f(x, i):
            try:
                return x.index_select(0, i) + 1
            except IndexError:
                return x - 1
        c = wrap(f)
        return [c(X, torch.tensor([k])) for k in (0, 1, 2, 7, 1, 9)]
    replays(caught)

    def raises(wrap):
        def f(x, bad):
            y = x.add_(1)
            if bad:
                raise ValueError("no")
            return y * 2
        c = wrap(f)
        x = X.clone()
        out = []
        for bad in (0, 0, 1, 0, 1, 0):
            try:
                out.append(c(x, bool(bad)))
            except ValueError as e:
                out.append(str(e))
            out.append(x.clone())
        return out
    replays(raises)


# --- threads, lifetime, environment -----------------------------------------------------------------------------------
def test_threads_may_call_one_function_at_once():
    m = nn.Linear(4, 4)
    shared = compile_function(lambda x: m(x).softmax(-1))
    want = [m(X + i).softmax(-1).detach() for i in range(12)]
    wrong = []

    def go(k):
        own = compile_function(lambda x: (x * k).exp().sum(0))
        with torch.no_grad():
            for i in range(40):
                if not torch.allclose(shared(X + i % 12), want[i % 12], atol=1e-6) or not torch.allclose(own(X), (X * k).exp().sum(0), rtol=1e-5):
                    wrong.append((k, i))
        z = torch.ones(3, requires_grad=True)
        (z * k).sum().backward()
        if z.grad.tolist() != [k] * 3:
            wrong.append(k)
    threads = [threading.Thread(target=go, args=(k,)) for k in range(5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and shared.calls["replayed"] > 0


def test_compiled_functions_die_and_copy():
    class Big:
        pass
    b = Big()

    def f(x, b=b):
        return x * 2
    c = compile_function(f)
    c(X), c(X)
    r = weakref.ref(b)
    del b, f, c
    gc.collect()
    assert r() is None
    m = torch.compile(nn.Linear(4, 2))
    with torch.no_grad():
        want = m(X), m(X)
        for n in (copy.deepcopy(m), pickle.loads(pickle.dumps(m))):
            assert torch.equal(n(X), want[0])
            n.weight.zero_()
            assert torch.equal(m(X), want[0]) and torch.equal(n(X), n.bias.expand(3, 2))


def test_memory_does_not_grow():
    m = nn.Linear(4, 2)
    opt = torch.optim.Adam(m.parameters())

    def step(x):
        opt.zero_grad()
        loss = m(x).square().sum()
        loss.backward()
        opt.step()
        return loss
    c = compile_function(step)
    for _ in range(5):
        c(X)
    gc.collect()
    before = len(gc.get_objects())
    for i in range(200):
        c(X + i)
    gc.collect()
    assert len(gc.get_objects()) - before < 40 and c.calls["captured"] == 1


PROGRAM = """
import rushlight as torch, rushlight.nn.functional as F
w = torch.full((4, 3), 0.1, requires_grad=True)
opt = torch.optim.Adam([w], 0.01)
def step(x, t):
    opt.zero_grad(); loss = F.cross_entropy(x @ w, t); loss.backward(); opt.step(); return loss
c = torch.compile(step)
for _ in range(4): loss = c(torch.ones(5, 4), torch.tensor([0, 1, 2, 1, 0]))
print(round(loss.item(), 5), c.calls["replayed"])
"""


def test_a_damaged_or_missing_cache_is_no_matter(tmp_path):
    def run(cache, path=""):
        env = {**os.environ, "RUSHLIGHT_CACHE": str(cache), "PYTHONPATH": os.pathsep.join([str(path), *sys.path])}
        r = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True)
        assert r.returncode == 0, r.stderr
        return r.stdout.split()
    want = run(tmp_path / "cache")
    assert want[1] == "2"
    files = [p for p in (tmp_path / "cache").rglob("*") if p.is_file()]
    for k, p in enumerate(files):
        b = p.read_bytes()
        p.write_bytes((b[:100], b"", bytes(300), b[:200] + bytes(x ^ 90 for x in b[200:]))[k % 4])
    assert run(tmp_path / "cache") == want
    (tmp_path / "file").write_text("")
    assert run(tmp_path / "file") == want
    (tmp_path / "llvmlite.py").write_text("raise ImportError('not here')")
    assert run(tmp_path / "cache", tmp_path) == want


# --- the names ----------------------------------------------------------------------------------------------------------
def test_the_names_of_torch_compiler_and_dynamo():
    def f(x):
        return x + 1
    c = torch.compile(f, mode="max-autotune", dynamic=True)
    assert torch.compile(c) is c and torch.compile(f, disable=True) is f and c.__name__ == "f"
    m = torch.compile(nn.Linear(4, 2))
    assert torch.compile(m) is m
    s = torch.compile(nn.Sequential(nn.Linear(4, 2)))
    assert s[0] is s._orig_mod[0] and len(s) == 1 and [type(k) for k in s] == [nn.Linear]
    for options, word in (({"mode": "fastest"}, "mode"), ({"backend": "nonsense"}, "backend"), ({"mode": "default", "options": {}}, "both")):
        with pytest.raises(RuntimeError, match=word):
            torch.compile(f, **options)
    c(X), c(X)
    assert c.calls["replayed"] == 1
    torch.compiler.reset()
    assert torch.equal(c(X), X + 1) and c.calls == {"replayed": 0, "captured": 1, "eager": 0}
    with torch.compiler.set_stance("force_eager"):
        c(X)
    with torch.compiler.set_stance("fail_on_recompile"):
        c(X)
        with pytest.raises(RuntimeError, match="captured anew"):
            c(X[:1])
    assert c.calls == {"replayed": 1, "captured": 1, "eager": 1}
    with pytest.raises(RuntimeError, match="stance"):
        torch.compiler.set_stance("slow")
    assert not torch.compiler.is_compiling() and torch._dynamo.list_backends() == torch.compiler.list_backends() == ["inductor"]
    refuses(lambda wrap: (c := wrap(lambda x: (torch._dynamo.graph_break(), x + 1)[1]), [c(X) for _ in range(3)])[1], "graph break")
    refuses(lambda wrap: (c := wrap(torch.compiler.disable(f)), [c(X) for _ in range(3)])[1], "disable")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_narrow_linear_layer_rounds_once(dtype):
    x, w, b = (torch.randn(s).to(getattr(torch, dtype)) for s in ((8, 64), (16, 64), (16,)))
    c = compile_function(lambda x: F.linear(x, w, b))
    want = (x.float() @ w.float().t() + b.float()).to(x.dtype)
    for _ in range(3):
        assert torch.equal(c(x), want)


HALVES = {
    "layer_norm": lambda x, w: F.layer_norm(x, (32,), w), "rms_norm": lambda x, w: F.rms_norm(x, (32,), w), "softmax": lambda x, w: (x * 1).softmax(-1),
    "batch_norm": lambda x, w: F.batch_norm(x, torch.zeros(32, dtype=x.dtype), torch.ones(32, dtype=x.dtype), w, None, True),
    "batch_norm of eval": lambda x, w: F.batch_norm(x, w, w.abs(), w, w), "log_softmax": lambda x, w: x.log_softmax(-1),
    "group_norm": lambda x, w: F.group_norm(x, 2, w), "cross_entropy": lambda x, w: F.cross_entropy(x, torch.arange(32), reduction="none"),
    "mse_loss": lambda x, w: F.mse_loss(x, w.expand(x.shape), reduction="none"), "linear": lambda x, w: F.linear(x, torch.stack([w, w * 2])),
    "max_pool1d": lambda x, w: F.max_pool1d(x, 2), "binary_cross_entropy": lambda x, w: F.binary_cross_entropy_with_logits(x, w.expand(x.shape).sigmoid()),
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", HALVES)
def test_composites_of_half_precision_round_once(name, dtype):
    """A row of numbers near each other: rounding what is centred, not the result, would lose most digits."""
    f, dt = HALVES[name], getattr(torch, dtype)
    g = torch.Generator().manual_seed(5)
    x, w = (torch.randn(32, 32, generator=g) * 3 + 2).to(dt), torch.randn(32, generator=g).to(dt)
    exact = f(x.double(), w.double()).numpy()
    eps = torch.finfo(dt).eps
    c = compile_function(f)
    for _ in range(3):
        got = c(x, w)
        assert got.dtype is dt
        assert (np.abs(got.double().numpy() - exact) <= eps * np.abs(exact) + 1e-5).all(), np.abs(got.double().numpy() - exact).max()
    assert c.calls["replayed"] == 2
    w.requires_grad_()
    y, ramp = x.clone().requires_grad_(), (torch.arange(exact.size).reshape(exact.shape) % 7 - 2).to(dt)

    def step():
        y.grad = w.grad = None
        (f(y, w) * ramp).sum().backward()
    step()
    want = [t.grad.clone() for t in (y, w) if t.grad is not None]
    c = compile_function(step)
    for _ in range(3):
        c()
        for a, b in zip([t.grad for t in (y, w) if t.grad is not None], want, strict=True):
            assert a.dtype is dt and torch.allclose(a, b, rtol=2 * eps, atol=2 * eps * b.abs().max().item()), (a - b).abs().max()
    assert c.calls["replayed"]


def _repeated(wrap):
    """Calls in which one tensor is several arguments, as the input and target of an autoencoder."""
    c = wrap(lambda x, y, z: (x * 2 + y, z - x))
    a, b, d = X.clone(), X + 1, X - 3
    return [c(*t) for t in ((a, a, b), (a, a, b), (b, b, a), (a, b, d), (a, b, d), (a, a, a), (a, b, a), (b, a, b), (a, a, d), (a, b, b))]


def _repeated_and_written(wrap):
    c = wrap(lambda x, y: (x.add_(y), x * y)[1])
    a, b = X.clone(), X + 1
    return [snapshot([c(*t), a, b]) for t in ((a, a), (a, a), (a, b), (b, b), (a, b), (b, a), (a, a), (a, a[:]), (a, b))]


def _autoencoder(wrap):
    torch.manual_seed(3)
    m = nn.Sequential(nn.Linear(4, 2), nn.LayerNorm(2), nn.Linear(2, 4))
    o = torch.optim.SGD(m.parameters(), lr=0.1)

    def step(x, target):
        o.zero_grad()
        loss = F.mse_loss(m(x), target)
        loss.backward()
        o.step()
        return loss
    c = wrap(step)
    return [[c(x, x).item() for x in (X, X + 1, X * 2, X)], [c(X, X * 2).item() for _ in range(3)], [c(X, X).item() for _ in range(3)], list(m.parameters())]


@pytest.mark.parametrize("program", [_repeated, _repeated_and_written, _autoencoder])
def test_one_tensor_as_two_arguments(program):
    replays(program)


def test_meta_tensors_of_half_precision_within_a_call():
    def f(x):
        m = torch.empty(4, 4, dtype=torch.bfloat16, device="meta")
        return x * F.layer_norm(m, (4,)).shape[0] * m.softmax(-1).shape[1]
    refuses(lambda wrap: (c := wrap(f), [c(X) for _ in range(3)])[1], "not on the CPU")


def test_capturing_asks_no_object_of_the_process_for_its_class():
    class Odd:
        asked = 0

        @property
        def __class__(self):
            Odd.asked += 1
            raise RuntimeError("computed")
    keep = Odd()
    c = compile_function(lambda x: (x * 2 + torch.zeros(3), HELD * x))
    for i in range(3):
        got = c(torch.ones(3) + i)
        assert got[1].tolist() == [5.0 * (1 + i)] * 3
    assert keep is not None and not Odd.asked


HELD = torch.full((3,), 5.0)


def test_operators_with_forms_for_some_dtypes():
    """Bools, integers and complex numbers have formulas of their own; they are compiled, too."""
    big = torch.tensor([2**62 + 1, -(2**62) - 1, 7, -7])
    by = torch.tensor([3, 3, -2, 2])
    z = torch.tensor([1 + 2j, 0j, -3 + 0.5j])
    truth = torch.tensor([True, False, True])

    def f(big, by, z, truth):
        kept = big.clone()
        kept.div_(by, rounding_mode="trunc")
        return (torch.div(big, by, rounding_mode="trunc") + 0, torch.div(big, by, rounding_mode="floor") + 0, kept, z.abs() + 0, z.sgn() * 1,
                truth.square() + 0, truth.sign(), torch.lerp(z, z + 1, 0.25) * 1, torch.nan_to_num(z) * 1, torch.isreal(z))
    want = f(big, by, z, truth)
    assert want[0].tolist() == [1537228672809129301, -1537228672809129301, -3, -3] and want[1].tolist() == [1537228672809129301, -1537228672809129302, -4, -4]
    c = compile_function(f)
    for _ in range(4):
        for got, expected in zip(c(big, by, z, truth), want, strict=True):
            assert got.dtype is expected.dtype
            assert torch.equal(got, expected) or torch.allclose(got, expected)


# --- the graph of an observed call outlives it --------------------------------------------------------------------------
TARGET = torch.tensor([0, 2, 1])
W4, B4 = torch.tensor([0.5, -1.0, 2.0, 1.0]), torch.tensor([0.1, 0.2, -0.3, 0.4])
GRID = torch.tensor([[[0.5, -2.0, 1.0, 3.0, 0.25, -1.0], [2.0, 1.0, -0.5, 0.0, 4.0, 1.5]]])
# for every record whose fast form hands more to its gradient: calls on what backward is wanted of
KEEPS = {
    "layer_norm": [lambda x, w, b: F.layer_norm(x, (4,), w, b), lambda x, w, b: F.group_norm(x, 2, w, b)],
    "rms_norm": [lambda x, w, b: F.rms_norm(x, (4,), w) + b],
    "batch_norm": [lambda x, w, b: F.batch_norm(x, None, None, w, b, True), lambda x, w, b: F.batch_norm(x, B4.clone(), W4.abs(), w, b, True),
                     lambda x, w, b: F.instance_norm(torch.stack([x, x.flip(0) * 2], 2), weight=w, bias=b),
                     lambda x, w, b: F.batch_norm(x, B4, W4.abs(), w, b, False)],
    "cross_entropy": [lambda x, w, b: F.cross_entropy(x * w + b, TARGET, label_smoothing=0.1),
                                    lambda x, w, b: F.cross_entropy(x, TARGET, w.detach().abs(), reduction="none")],
    "_ctc": [lambda x, w, b: F.ctc_loss((x * w + b).log_softmax(-1).unsqueeze(1), torch.tensor([[1]]), (3,), (1,))],
    "max_pool": [lambda x, w, b: F.max_pool1d(x * w + b, 2), lambda x, w, b: F.max_pool2d((x * w + b).unsqueeze(0), 2, ceil_mode=True)],
}


def test_every_record_that_keeps_is_called():
    kept = [o.name for o in gc.get_objects() if type(o) is Operator and o.keeps]      # private records too, which no table holds
    assert sorted(set(kept)) == sorted(KEEPS) and len(kept) == 7


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("call", [c for calls in KEEPS.values() for c in calls])
def test_backward_after_a_compiled_call(call, dtype):
    """Gradients as eager has them, of the observed calls and those after; with create_graph too."""
    def leaves():
        return [t.detach().to(getattr(torch, dtype)).requires_grad_() for t in (X, W4, B4)]

    def grads(f, second):
        ts = leaves()
        y = f(*ts)
        if not second:
            (y * y).sum().backward()
            return [t.grad for t in ts if t.grad is not None]
        first = torch.autograd.grad((y * y).sum(), ts, create_graph=True, allow_unused=True)
        return [*(g for g in first if g is not None), *(g for g in torch.autograd.grad(first[0].square().sum(), ts, allow_unused=True) if g is not None)]
    for second in (False, True):
        c = compile_function(call)
        if second and call in KEEPS["_ctc"]:
            for f in (call, c, c):
                with pytest.raises(NotImplementedError, match="_ctc_loss_backward"):
                    grads(f, second)
            continue
        want = grads(call, second)
        for _ in range(6):
            got = grads(c, second)
            assert len(got) == len(want) > 0 and all(torch.allclose(a, b, 1e-4, 1e-5) for a, b in zip(got, want, strict=True)), (got, want)


def test_the_gradient_of_a_compiled_layer_norm_is_the_mathematical_one():
    # y = (x - m) r with m the mean and r = 1 / sqrt(v + eps): dx = r (g - mean(g) - y mean(g y))
    x = torch.tensor([[1.0, -2.0, 3.0, 0.5]], dtype=torch.float64)
    g = np.array([1.0, 2.0, -1.0, 0.5])
    a = x.numpy()[0]
    r = 1 / np.sqrt(a.var() + 1e-5)
    y = (a - a.mean()) * r
    want = r * (g - g.mean() - y * (g * y).mean())
    c = torch.compile(nn.LayerNorm(4, dtype=torch.float64))
    for _ in range(6):
        t = x.clone().requires_grad_()
        c(t).backward(torch.tensor(g)[None])
        assert np.allclose(t.grad.numpy()[0], want, 1e-12, 1e-12)


def test_a_compiled_batch_norm_whose_backward_is_outside_moves_its_statistics_once():
    m = nn.BatchNorm1d(4, dtype=torch.float64)
    c = torch.compile(m)
    mean, var = np.zeros(4), np.ones(4)
    for k in range(6):
        x = X.double() * (k + 1)
        c(x.requires_grad_()).sum().backward()
        a = x.detach().numpy()
        mean, var = 0.9 * mean + 0.1 * a.mean(0), 0.9 * var + 0.1 * a.var(0, ddof=1)
        assert np.allclose(m.running_mean.numpy(), mean) and np.allclose(m.running_var.numpy(), var) and m.num_batches_tracked == k + 1


class _Block(nn.Module):
    """A transformer's block: LayerNorm, causal attention, dropout."""

    def __init__(self, d=8, p=0.1):
        super().__init__()
        self.ln1, self.ln2, self.p = nn.LayerNorm(d), nn.LayerNorm(d), p
        self.qkv, self.proj = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d)      # the gradient by the keys' bias would be noise around 0
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d), nn.Dropout(p))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, 2, c // 2).transpose(1, 2) for y in self.qkv(self.ln1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.p if self.training else 0.0)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.ln2(x))


class _GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe, self.block, self.ln, self.head = nn.Embedding(11, 8), nn.Embedding(6, 8), _Block(), nn.LayerNorm(8), nn.Linear(8, 11, False)
        self.head.weight = self.wte.weight

    def forward(self, i):
        return self.head(self.ln(self.block(self.wte(i) + self.wpe(torch.arange(i.shape[1])))))[:, -1]


class _Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.n, self.b = nn.Linear(4, 4), nn.RMSNorm(4), nn.Linear(4, 3)

    def forward(self, x):
        h = self.n(self.a(x))
        return {"hidden": h, "logits": self.b(h)}


class _Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return 2 * ctx.saved_tensors[0] * g


class _Custom(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.n, self.b = nn.Linear(4, 8), nn.GroupNorm(2, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.b(_Square.apply(self.n(self.a(x))))


def _cnn():
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3),
                         nn.GroupNorm(2, 6), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3))


def _mlp():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Dropout(0.2), nn.Linear(8, 3))


def _data(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


ROWS, IMAGES, CLASSES = _data(6, 4), _data(6, 1, 8, 8), torch.tensor([0, 1, 2, 0, 1, 2])
TOKENS = torch.randint(0, 11, (6, 6), generator=torch.Generator().manual_seed(3))


def _loop(make, x, loss=lambda c, x: F.cross_entropy(c(x), CLASSES), opt=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), after=None):
    """A program: the model compiled; loss, backward and step outside."""
    def program(compiled):
        m = make()
        c = compiled(m)
        o, out = opt(c.parameters()), []
        for _ in range(5):
            o.zero_grad()
            y = loss(c, x)
            y.backward()
            o.step()
            out.append(y.detach())
            if after is not None:
                out.append(after(c, x))
        return [out, list(m.state_dict().values())]
    return program


def _evaluated(c, x):
    c.eval()
    with torch.no_grad():
        a = c(x).clone()
    with torch.inference_mode():
        b = c(x).clone()
    c.train()
    return [a, b]


def _accumulated(compiled):
    m = _cnn()
    c = compiled(m)
    o = torch.optim.SGD(c.parameters(), lr=0.1)
    for _ in range(5):
        o.zero_grad()
        for i in range(0, 6, 2):
            (F.cross_entropy(c(IMAGES[i:i + 2]), CLASSES[i:i + 2]) / 3).backward()
        o.step()
    return list(m.state_dict().values())


def _penalised(c, x):
    x = x.clone().requires_grad_()
    y = c(x)
    g, = torch.autograd.grad(y.sum(), x, create_graph=True)
    return ((g.norm(dim=1) - 1) ** 2).mean() + F.cross_entropy(y, CLASSES)


def _both_results(c, x):
    r = c(x)
    return F.cross_entropy(r["logits"], CLASSES) + r["hidden"].square().mean()


def _retained(c, x):
    y = c(x)
    y.retain_grad()
    F.cross_entropy(y, CLASSES).backward(retain_graph=True)
    assert y.grad is not None
    return (y ** 2).mean()


def _partly_inside(compiled):
    trunk, h1, h2 = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Tanh()), nn.Linear(8, 3), nn.Linear(8, 3)
    every = nn.ModuleList([trunk, h1, h2])
    o = torch.optim.SGD(every.parameters(), lr=0.1)

    def step(x):
        t = trunk(x)
        a, b = F.cross_entropy(h1(t), CLASSES), F.cross_entropy(F.rms_norm(h2(t.detach()), (3,)), CLASSES)
        a.backward()
        return a, b
    f = compiled(step)
    for _ in range(6):
        o.zero_grad()
        f(ROWS)[1].backward()
        o.step()
    return list(every.state_dict().values())


def _frozen(compiled):
    m = _cnn()
    c = compiled(m)
    for k in range(6):
        m[:6].requires_grad_(k >= 3)
        m.zero_grad()
        F.cross_entropy(c(IMAGES), CLASSES).backward()
        with torch.no_grad():
            for p in m.parameters():
                if p.grad is not None:
                    p -= 0.1 * p.grad
    return list(m.state_dict().values())


def _adversary(compiled):
    g = nn.Sequential(nn.Linear(2, 8), nn.LayerNorm(8), nn.LeakyReLU(0.2), nn.Linear(8, 4))
    d = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    cg, cd = compiled(g), compiled(d)
    og, od = torch.optim.SGD(g.parameters(), lr=0.1), torch.optim.SGD(d.parameters(), lr=0.1)
    bce = nn.BCEWithLogitsLoss()
    for _ in range(5):
        fake = cg(torch.randn(6, 2))
        od.zero_grad()
        (bce(cd(ROWS), torch.ones(6, 1)) + bce(cd(fake.detach()), torch.zeros(6, 1))).backward()
        od.step()
        og.zero_grad()
        bce(cd(fake), torch.ones(6, 1)).backward()
        og.step()
    return [*g.state_dict().values(), *d.state_dict().values()]


def _other_shapes(compiled):
    m = _cnn()
    c = compiled(m)
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    for n in (6, 4, 6, 2, 4, 6, 5, 6):
        o.zero_grad()
        F.cross_entropy(c(IMAGES[:n]), CLASSES[:n]).backward()
        o.step()
    return list(m.state_dict().values())


def _parts(compiled):
    m = _cnn()
    kept = list(m)
    for i in (1, 5):
        m[i] = compiled(m[i])
    F.cross_entropy(m(IMAGES), CLASSES).backward()
    F.cross_entropy(m(IMAGES), CLASSES).backward()
    return [p.grad for k in kept for p in k.parameters()]


def _inside_and_outside(compiled):
    m = _mlp()
    c = compiled(m)
    o, out = torch.optim.SGD(m.parameters(), lr=0.1), []

    def step(x):
        y = F.cross_entropy(c(x), CLASSES)
        y.backward()
        o.step()
        o.zero_grad()
        return y
    whole = compiled(step)
    for f in (whole, step, whole):
        out += [f(ROWS).detach() for _ in range(3)]
    return [out, list(m.state_dict().values())]


LOOPS = {
    "mlp": _loop(_mlp, ROWS), "cnn": _loop(_cnn, IMAGES), "gpt": _loop(_GPT, TOKENS, opt=lambda p: torch.optim.AdamW(p, lr=0.01)),
    "train and evaluate": _loop(_cnn, IMAGES, after=_evaluated), "accumulation": _accumulated, "gradient penalty": _loop(_mlp, ROWS, _penalised),
    "two results": _loop(_Heads, ROWS, _both_results), "one of two results": _loop(_Heads, ROWS, lambda c, x: c(x)["hidden"].square().mean()),
    "retained": _loop(_mlp, ROWS, _retained), "partly inside": _partly_inside, "frozen at first": _frozen, "adversary": _adversary,
    "other shapes": _other_shapes, "parts": _parts, "inside and outside": _inside_and_outside, "custom function": _loop(_Custom, ROWS),
    "called twice": _loop(_mlp, ROWS, lambda c, x: F.mse_loss(c(x), c(x * 2))),
    "channels last": _loop(lambda: _cnn().to(memory_format=torch.channels_last), IMAGES.contiguous(memory_format=torch.channels_last)),
    "fullgraph": _loop(_mlp, ROWS),
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_compiled_model_in_a_loop_that_is_not(name):
    torch.manual_seed(0)
    want = snapshot(LOOPS[name](lambda m: m))
    torch.manual_seed(0)
    got = snapshot(LOOPS[name](lambda f: torch.compile(f, fullgraph=name == "fullgraph")))
    assert same(want, got), (want, got)


def test_a_result_whose_graph_is_used_up_says_so():
    w = torch.ones(3, requires_grad=True)

    def step(x):
        y = (x * w).sum()
        y.backward()
        return y
    c = compile_function(step)
    eager = step(X[:, :3])
    for _ in range(3):
        y = c(X[:, :3])
        assert y.requires_grad and str(y) == str(eager) and y.grad_fn.name() == "SumBackward0" and repr(y.grad_fn).startswith("<SumBackward0 object")
    assert c.calls["replayed"] == 2
    with pytest.raises(RuntimeError, match=r"backward through the graph a second time.*SumBackward0.*used up inside the compiled call"):
        y.backward()


# --- packages -----------------------------------------------------------------------------------------------------------
WALK = """
import importlib, pkgutil, sys, types
import rushlight
first, found = sys.argv[1] == "files", []
def walk(name):
    package = importlib.import_module(name)
    for s in pkgutil.iter_modules(package.__path__):
        if s.name in ("__main__", "_site") or s.name == "cpp_extension":
            continue
        full = f"{name}.{s.name}"
        if first:
            importlib.import_module(full)
        value = getattr(package, s.name, None)
        if callable(value):
            found.append(full)
        importlib.import_module(full)
        if callable(value) is not callable(getattr(package, s.name)) and value is not None:
            found.append(full + " is replaced by its file")
        if s.ispkg:
            walk(full)
walk("rushlight")
print(*found, sep="\\n")
"""


def test_no_file_takes_the_place_of_its_package_s_function():
    def run(order):
        r = subprocess.run([sys.executable, "-c", WALK, order], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, capture_output=True, text=True)
        assert r.returncode == 0, r.stderr
        return r.stdout.split("\n")
    names = run("names")
    assert names == run("files") and "rushlight.autograd.gradcheck" in names and not any(" is replaced" in n for n in names)


def test_explain_takes_whatever_was_compiled():
    class Doubler:
        @torch.compile
        def twice(self, x):
            return x * 2
    m, d = nn.Linear(4, 2), Doubler()
    m.compile()
    m(X), d.twice(X)
    assert "1 eager" in str(explain(m)) and "1 captured" in str(explain(d.twice)) and "0 captured" in str(explain(torch.compile(nn.ReLU())))
    with pytest.raises(TypeError, match="what compile.. gave, not Linear"):
        explain(nn.Linear(4, 2))


def test_a_compiled_module_has_the_state_of_its_original():
    m = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.9))
    c = torch.compile(m)
    for value in (False, True, False):
        m.train(value)
        assert c.training is value and "training" not in c.__dict__
    c.training = True
    assert m.training and not m[1].training     # the attribute is of one module
    c.train()
    assert m[1].training and c.training
    with torch.no_grad():
        assert (c(X) == 0).any() and c.eval() is c and torch.equal(c(X), m[0](X))
    c.note = 3
    assert m.note == 3
    del c.note
    assert not hasattr(m, "note") and not hasattr(c, "note")
    again = pickle.loads(pickle.dumps(c))
    assert not again.training and torch.equal(again(X), m[0](X)) and copy.deepcopy(c).train().training and not c.training


def test_explain_can_be_asked_twice():
    c = torch.compile(lambda x: x * 2)
    for _ in range(2):
        c(X)
    first, second = torch.compiler.explain(c), torch.compiler.explain(c)
    assert str(first) == str(second) and "1 replayed" in str(first)
