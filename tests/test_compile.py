"""`compile`: what a program sees. Captured steps give eager's numbers, and what they depended on is guarded."""

import pytest

import rushlight as torch
import rushlight.nn as nn
import rushlight.nn.functional as F
from rushlight.compiler import explain
from rushlight.compiler.compiled import compile_function


def make(optimizer, hidden=16):
    torch.manual_seed(0)
    m = nn.Sequential(nn.Linear(8, hidden), nn.ReLU(), nn.Linear(hidden, 4))
    return m, optimizer(m.parameters())


OPTIMIZERS = [lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=1e-3), lambda p: torch.optim.Adam(p, 1e-2),
              lambda p: torch.optim.AdamW(p, 1e-2, amsgrad=True)]


def losses(optimizer, wrap, n=8, schedule=False):
    m, opt = make(optimizer)
    x, y = torch.randn(32, 8), torch.randint(0, 4, (32,))
    sched = torch.optim.lr_scheduler.StepLR(opt, 2, 0.5)

    def step():
        opt.zero_grad()
        loss = F.cross_entropy(m(x), y)
        loss.backward()
        opt.step()
        return loss

    f = wrap(step)
    out = []
    for _ in range(n):
        out.append(f())
        if schedule:
            sched.step()
    grads = [p.grad.tolist() for p in m.parameters()]
    return [v.item() for v in out], grads, f, out


@pytest.mark.parametrize("schedule", [False, True])
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=["sgd", "adam", "adamw"])
def test_a_whole_step(optimizer, schedule):
    want, grads, _, _ = losses(optimizer, lambda f: f, schedule=schedule)
    got, cgrads, f, kept = losses(optimizer, compile_function, schedule=schedule)
    assert got == pytest.approx(want, rel=1e-5)  # kept losses are not overwritten either
    assert f.calls["replayed"] >= 4 and f.calls["captured"] >= 1
    for a, b in zip(grads, cgrads, strict=True):
        assert torch.allclose(torch.tensor(a), torch.tensor(b), atol=1e-6)
    assert kept[-1].requires_grad
    with pytest.raises(RuntimeError, match="second time"):
        kept[-1].backward()
    assert "captured" in str(explain(f))


def test_equal_bits_for_any_number_of_threads():
    n = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = losses(OPTIMIZERS[1], compile_function)[0]
        torch.set_num_threads(2)
        assert losses(OPTIMIZERS[1], compile_function)[0] == one
    finally:
        torch.set_num_threads(n)


def test_arguments_of_other_shapes():
    f = compile_function(lambda x, y: (x * y + 1).exp())
    for shape in [(3, 4), (3, 4), (5,), (5,), (3, 4)]:
        x, y = torch.randn(shape), torch.randn(shape)
        assert torch.allclose(f(x, y), (x * y + 1).exp())
    assert f.calls["captured"] == 2 and f.calls["replayed"] == 3


SCALE = 2.0


def test_a_changed_global_is_seen(monkeypatch):
    f = compile_function(lambda x: x * SCALE)
    x = torch.ones(3)
    assert f(x).tolist() == f(x).tolist() == [2, 2, 2]
    monkeypatch.setattr(__import__(__name__, fromlist=["x"]), "SCALE", 3.0)
    assert f(x).tolist() == [3, 3, 3]


def test_a_changed_closure_is_seen():
    k = 2.0

    def f(x):
        return x * k

    c = compile_function(f)
    x = torch.ones(2)
    assert c(x).tolist() == c(x).tolist() == [2, 2]
    k = 5.0
    assert c(x).tolist() == [5, 5]


def test_train_and_eval():
    m = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    c = torch.compile(m)
    x = torch.randn(8, 4)
    with torch.no_grad():
        for mode in (True, True, False, False, True):
            m.train(mode)
            before = m[1].running_mean.clone()
            m2 = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
            m2.load_state_dict(m.state_dict())
            m2.train(mode)
            assert torch.allclose(c(x), m2(x), atol=1e-6)
            assert torch.allclose(m[1].running_mean, m2[1].running_mean, atol=1e-6)
            assert torch.equal(before, m[1].running_mean) is not mode


def test_a_replaced_parameter_is_seen():
    m = nn.Linear(2, 2)
    c = torch.compile(m)
    x = torch.ones(1, 2)
    with torch.no_grad():
        c(x), c(x)
        m.weight = nn.Parameter(torch.zeros(2, 2))
        assert torch.equal(c(x), m.bias.detach().view(1, 2))
        m.weight.data = torch.ones(2, 2)
        assert torch.allclose(c(x), m.bias.detach() + 2)


def test_dropout_advances_the_stream_as_eager():
    def run(wrap):
        torch.manual_seed(1)
        d = nn.Dropout(0.5)
        f = wrap(lambda x: d(x) * 2)
        return [f(torch.ones(40)).tolist() for _ in range(4)]

    assert run(compile_function) == run(lambda f: f)


def test_gradients_accumulate_as_eager():
    def run(wrap):
        m, opt = make(OPTIMIZERS[0])
        x = torch.randn(8, 8)

        def half():
            loss = m(x).square().mean()
            loss.backward()
            return loss

        f = wrap(half)
        out = []
        for _ in range(4):
            opt.zero_grad()
            f(), f()
            opt.step()
            out.append(m[0].weight.grad.sum().item())
        return out

    assert run(compile_function) == pytest.approx(run(lambda f: f), rel=1e-5)


def test_what_cannot_be_captured_runs_eagerly_and_says_why():
    f = compile_function(lambda x: x * x.sum().item())
    x = torch.tensor([1.0, 2.0])
    for _ in range(6):
        assert f(x).tolist() == [3.0, 6.0]
    assert f.calls["replayed"] == 0 and any("item" in r for r in f.reasons)
    assert "item" in str(explain(f))
    g = compile_function(lambda x: (x * 2).sum())
    w = torch.ones(2, requires_grad=True)
    for _ in range(3):
        w.grad = None
        g(w).backward()
        assert w.grad.tolist() == [2.0, 2.0]
    with pytest.raises(RuntimeError, match="could not be compiled"):
        h = torch.compile(lambda x: x.sum().item(), fullgraph=True)
        for _ in range(6):
            h(x)


def test_an_error_in_a_replay_leaves_the_optimizer_alone():
    m, opt = make(OPTIMIZERS[1])
    x = torch.randn(4, 8)

    def step(y):
        opt.zero_grad()
        loss = F.cross_entropy(m(x), y)
        loss.backward()
        opt.step()
        return loss

    f = compile_function(step)
    good = torch.tensor([0, 1, 2, 3])
    for _ in range(4):
        f(good)
    assert f.calls["replayed"] >= 1
    before = [p.tolist() for p in m.parameters()]
    count = opt.state[m[0].weight]["step"].item()
    with pytest.raises(IndexError):
        f(torch.tensor([0, 1, 2, 9]))
    assert [p.tolist() for p in m.parameters()] == before and opt.state[m[0].weight]["step"].item() == count
    f(good)


def test_compile_refuses_what_is_not_callable():
    with pytest.raises(TypeError):
        torch.compile(3)
    with pytest.raises(RuntimeError, match="mode"):
        torch.compile(lambda x: x, mode="fastest")

    @torch.compile
    def f(x):
        return x + 1

    assert f(torch.ones(1)).item() == 2
