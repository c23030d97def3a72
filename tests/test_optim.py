"""Optimizers: numbers recorded from PyTorch 2.13, the derivation of rules, groups, state, hooks."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import rushlight as torch
from rushlight.ops import expr as E
from rushlight.optim.update import PIECE, Variant, apply_update, lerp, update

sys.path.insert(0, str(Path(__file__).parent / "golden"))
import optim_cases as cases  # noqa: E402

GOLDEN = json.loads((Path(__file__).parent / "golden" / "optim.json").read_text())
TOLERANCE = {"float32": 2e-6, "float64": 1e-13}


def parameter(values, dtype="float32"):
    return torch.nn.Parameter(torch.from_numpy(np.array(values, dtype=dtype)))


def close(got, wanted, dtype):
    np.testing.assert_allclose(np.asarray(got, np.float64), np.asarray(wanted, np.float64),
                               rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.fixture(params=["native", "numpy"])
def kernels(request, monkeypatch):
    """Updates by the native kernels, or as where llvmlite is missing."""
    if request.param == "numpy":
        def compile(self):
            self.native = None      # ask again at the next step
            return lambda columns, numbers: False
        for cls in vars(torch.optim).values():
            for v in getattr(getattr(cls, "rule", None), "_variants", {}).values():
                monkeypatch.setattr(v, "native", None)
        monkeypatch.setattr(Variant, "compile", compile)
    return request.param


# --- numbers ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name, options", cases.OPTIMIZERS, ids=lambda v: str(v))
def test_numbers_and_state_are_pytorchs(name, options, dtype, kernels):
    wanted = GOLDEN["optimizers"][cases.key(name, options, dtype)]
    optimizer, params = cases.optimize(torch, name, options, dtype)
    for p, w in zip(params, wanted["params"], strict=True):
        assert str(p.dtype) == f"torch.{dtype}"
        close(p.detach().numpy().reshape(-1), w, dtype)
    saved = optimizer.state_dict()
    group = json.loads(json.dumps(saved["param_groups"][0]))
    assert list(group) == list(wanted["group"])
    assert group == wanted["group"]
    assert {str(i) for i in saved["state"]} == set(wanted["state"])
    for i, entries in saved["state"].items():
        assert list(entries) == list(wanted["state"][str(i)]) or name == "LBFGS"
        assert set(entries) == set(wanted["state"][str(i)])
        for key, value in entries.items():
            w = wanted["state"][str(i)][key]
            if isinstance(value, torch.Tensor):
                close(value.numpy().reshape(-1), w, dtype)
            else:
                assert type(value).__name__ == w, (i, key)


@pytest.mark.parametrize("name, options", cases.OPTIMIZERS, ids=lambda v: str(v))
def test_repr_is_pytorchs(name, options):
    optimizer, _ = cases.optimize(torch, name, options, "float32", steps=0)
    assert repr(optimizer) == GOLDEN["repr"][cases.key(name, options)]


@pytest.mark.parametrize("name, options", [c for c in cases.OPTIMIZERS if c[0] not in ("LBFGS", "Adafactor")],
                         ids=lambda v: str(v))
def test_tensor_operators_give_the_same_numbers(name, options):
    """The rule on tensors (differentiable=True) and the rule on arrays are one declaration."""
    _, arrays = cases.optimize(torch, name, options, "float64")
    params = cases.parameters(torch, "float64")
    optimizer = getattr(torch.optim, name)(params, **options, differentiable=True)
    optimizer.defaults["differentiable"] = False      # in tensor operators, but not recorded: these are leaves
    for step in range(cases.STEPS):
        cases.set_gradients(torch, params, step)
        if step == 1:
            params[1].grad = None
        optimizer.step()
    for p, q in zip(arrays, params, strict=True):
        close(q.detach().numpy(), p.detach().numpy(), "float64")


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_resuming_from_a_state_dict_continues_the_run(name):
    options = {"lr": 0.05, **({"momentum": 0.9} if name == "SGD" else {})}
    _, straight = cases.optimize(torch, name, options, "float64", steps=6)
    first, params = cases.optimize(torch, name, options, "float64", steps=3)
    saved = copy.deepcopy(first.state_dict())
    fresh = [torch.nn.Parameter(p.detach().clone()) for p in params]
    second = getattr(torch.optim, name)(fresh, lr=123.0)
    second.load_state_dict(saved)
    for step in range(3, 6):
        cases.set_gradients(torch, fresh, step)
        second.step()
    for p, q in zip(straight, fresh, strict=True):
        assert np.array_equal(p.detach().numpy(), q.detach().numpy())


def test_hyper_parameters_are_read_at_each_step():
    p = parameter([1.0, 2.0])
    optimizer = torch.optim.SGD([p], lr=1.0)
    for lr in (0.5, 0.25):
        p.grad = torch.ones(2)
        optimizer.param_groups[0]["lr"] = lr
        optimizer.step()
    assert p.tolist() == [0.25, 1.25]


def test_tensor_learning_rate():
    p, q = parameter([1.0, 2.0]), parameter([1.0, 2.0])
    a = torch.optim.Adam([p], lr=torch.tensor(0.5))
    b = torch.optim.Adam([q], lr=0.5)
    for o, x in ((a, p), (b, q)):
        x.grad = torch.tensor([1.0, -3.0])
        o.step()
    assert p.tolist() == q.tolist()
    with pytest.raises(ValueError, match="Tensor lr must be 1-element"):
        torch.optim.SGD([p], lr=torch.ones(2))
    with pytest.raises(ValueError, match="lr as a Tensor is not supported for capturable=False and foreach=True"):
        torch.optim.Adam([p], lr=torch.tensor(0.1), foreach=True)


# --- rules ------------------------------------------------------------------------------------------------------------
def tensors(*arrays):
    return [torch.from_numpy(a) for a in arrays]


def test_numbers_are_split_off_and_computed_in_doubles():
    @update
    def rule(param, grad, *, lr, beta, step):
        return {"param": param - lr / (1 - beta ** step) * grad}
    v = rule.variant()
    assert v.reads == ("param", "grad")
    assert E.inputs_of(*v.outputs.values()) == ["param", "h0", "grad"]
    assert v.host(0.1, 0.9, 3.0) == (0.1 / (1 - 0.9 ** 3.0),)
    assert v.outputs["param"].op == "sub"


def test_variants_are_traced_once_and_drop_what_they_do_not_read():
    @update
    def rule(param, grad, buffer, *, lr, plain=False):
        return {"param": param - lr * grad} if plain else {"buffer": buffer + grad, "param": param - lr * buffer}
    assert rule.variant(True) is rule.variant(True)
    assert rule.variant(True).reads == ("param", "grad")
    assert rule.variant().reads == ("param", "grad", "buffer")
    assert rule.variant(True).name == "rule_plain"


def test_outputs_may_exchange_places(kernels):
    """Every result is a function of the values before the step, whatever is overwritten first."""
    @update
    def swap(param, other, *, lr):
        return {"param": other, "other": param}
    a, b = tensors(np.arange(4.0), np.arange(4.0) + 10)
    apply_update(swap.variant(), {"param": [a], "other": [b]}, {"lr": 0.0})
    assert a.tolist() == [10, 11, 12, 13]
    assert b.tolist() == [0, 1, 2, 3]


def test_old_values_stay_readable_until_their_last_reader(kernels):
    @update
    def rule(param, other, *, lr):
        return {"param": param * lr, "other": other + param + E.where(other > param, param, E.sqrt(abs(other)))}
    x, y = np.array([1.0, 4.0, -2.0]), np.array([2.0, 1.0, -4.0])
    a, b = tensors(x.copy(), y.copy())
    apply_update(rule.variant(), {"param": [a], "other": [b]}, {"lr": 3.0})
    assert np.array_equal(a.numpy(), x * 3)
    assert np.array_equal(b.numpy(), y + x + np.where(y > x, x, np.sqrt(np.abs(y))))


@pytest.mark.parametrize("far", [False, True])
def test_lerp_meets_both_ends(far):
    assert lerp(2.0, 7.0, 0.0, far=far) == 2.0
    assert lerp(2.0, 7.0, 1.0, far=far) == 7.0


LAYOUTS = ["contiguous", "transposed", "strided"]


@pytest.mark.parametrize("grad_layout", LAYOUTS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (3, 5), (200, PIECE // 100 + 7)])
def test_every_layout_and_size_is_updated_alike(shape, layout, grad_layout, kernels):
    rng = np.random.default_rng(0)
    x, g = rng.normal(size=shape).astype(np.float32), rng.normal(size=shape).astype(np.float32)
    p = torch.nn.Parameter(_view(x, layout))
    p.grad = _view(g, grad_layout)
    optimizer = torch.optim.Adam([p], lr=0.1)
    optimizer.step()
    # the first step of Adam: m / (1 - b1) = g, v / (1 - b2) = g^2
    wanted = x - 0.1 * g / (np.abs(g) + 1e-8)
    np.testing.assert_allclose(p.detach().numpy(), wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(optimizer.state[p]["exp_avg"].numpy(), 0.1 * g, rtol=1e-5)
    assert np.array_equal(p.grad.numpy(), g)


def _view(a, layout):
    if layout == "contiguous":
        return torch.from_numpy(a.copy())
    if layout == "transposed":
        return torch.from_numpy(a.T.copy()).t()
    return torch.from_numpy(np.repeat(np.repeat(a, 2, 0), 2, 1))[::2, ::2]


def test_zero_dimensional_parameter():
    p = parameter(3.0, "float64")
    p.grad = torch.tensor(2.0, dtype=torch.float64)
    torch.optim.SGD([p], lr=0.5).step()
    assert p.item() == 2.0
    assert p.shape == ()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_types_are_computed_wide_and_rounded_once(dtype, kernels):
    dt = getattr(torch, dtype)
    start = torch.tensor([1.0, -2.0, 3.0]).to(dt)
    p = torch.nn.Parameter(start)
    p.grad = torch.tensor([0.5, 0.25, -4.0]).to(dt)
    optimizer = torch.optim.Adam([p], lr=0.01, betas=(0.9, 0.999))
    optimizer.step()
    m = optimizer.state[p]["exp_avg_sq"]
    assert p.dtype == dt and m.dtype == dt
    # 0.999 rounds to 1 in bfloat16: in that arithmetic this would be 0
    np.testing.assert_allclose(m.float().numpy(), [0.00025, 0.0000625, 0.016], rtol=1e-2)
    np.testing.assert_allclose(p.detach().float().numpy(), [0.99, -2.01, 3.01], rtol=1e-2)


@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop", "Adadelta", "Rprop", "Adagrad"])
def test_complex_parameters_are_pairs_of_real_ones(name, kernels):
    options = {"lr": 0.1, **({"momentum": 0.5} if name == "SGD" else {})}
    z = np.array([[1 + 2j, -0.5 + 1j], [0.25 - 3j, 2 + 0j]])
    grads = [np.conj(z) * 0.3 + 0.1, z * 0.2 - 0.1j]
    p = torch.nn.Parameter(torch.from_numpy(z.copy()))
    q = torch.nn.Parameter(torch.from_numpy(np.stack([z.real, z.imag], -1)))
    a, b = getattr(torch.optim, name)([p], **options), getattr(torch.optim, name)([q], **options)
    for g in grads:
        p.grad = torch.from_numpy(g.copy())
        q.grad = torch.from_numpy(np.stack([g.real, g.imag], -1))
        a.step()
        b.step()
    got = p.detach().numpy()
    np.testing.assert_allclose(np.stack([got.real, got.imag], -1), q.detach().numpy(), rtol=1e-12)


def test_steps_are_counted_as_writes():
    p = parameter([1.0, 2.0])
    p.grad = torch.ones(2)
    optimizer = torch.optim.Adam([p])
    before, grad_before = p._version, p.grad._version
    optimizer.step()
    assert p._version == before + 1
    assert p.grad._version == grad_before
    w = parameter([1.0, 2.0])
    y = (w * w).sum()      # saves w
    w.grad = torch.ones(2)
    torch.optim.SGD([w], lr=0.1).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_state_keeps_its_identity_and_layout():
    p = torch.nn.Parameter(torch.from_numpy(np.zeros((3, 2), np.float32)).t())
    optimizer = torch.optim.Adam([p], amsgrad=True)
    p.grad = torch.ones(2, 3)
    optimizer.step()
    state = dict(optimizer.state[p])
    assert state["exp_avg"].stride() == p.stride()
    optimizer.step()
    assert all(optimizer.state[p][k] is v for k, v in state.items())
    assert state["step"].item() == 2 and state["step"].dtype == torch.float32


def test_parameters_with_different_step_counts_get_their_own_corrections():
    late, early = parameter([1.0]), parameter([1.0])
    optimizer = torch.optim.Adam([early, late], lr=0.1)
    early.grad = torch.tensor([2.0])
    optimizer.step()
    late.grad = torch.tensor([2.0])
    optimizer.step()
    assert [optimizer.state[p]["step"].item() for p in (early, late)] == [2.0, 1.0]
    assert late.item() == pytest.approx(0.9, rel=1e-6)
    assert early.item() == pytest.approx(0.8, rel=1e-6)


# --- recording the step -----------------------------------------------------------------------------------------------
def test_differentiable_step_has_a_gradient_with_respect_to_the_gradient():
    start = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    g = torch.tensor([3.0, -1.0], dtype=torch.float64, requires_grad=True)
    p = start.clone()
    optimizer = torch.optim.SGD([p], lr=0.1, momentum=0.9, differentiable=True)
    p.grad = g.clone()
    optimizer.step()
    (p * torch.tensor([1.0, 10.0], dtype=torch.float64)).sum().backward()
    assert start.grad.tolist() == [1.0, 10.0]
    close(g.grad.numpy(), [-0.1, -1.0], "float64")


def test_differentiable_adam_has_the_derivative_of_its_formula():
    x = np.array([0.7, -0.4])
    g = torch.from_numpy(x.copy()).requires_grad_()
    p = torch.tensor([1.0, 2.0], dtype=torch.float64) + 0 * g
    optimizer = torch.optim.Adam([p], lr=0.1, eps=0.5, differentiable=True)
    p.grad = g * 1.0
    optimizer.step()
    p.sum().backward()
    # the first step is p - lr g / (|g| + eps), whose derivative is -lr eps / (|g| + eps)^2
    close(g.grad.numpy(), -0.1 * 0.5 / (np.abs(x) + 0.5) ** 2, "float64")


def test_recording_is_switched_on_by_the_optimizer():
    x = torch.tensor([2.0], requires_grad=True)
    p = x * 1.0
    p.grad = torch.ones(1)
    with torch.no_grad():
        torch.optim.SGD([p], lr=0.5, differentiable=True).step()
    assert p.grad_fn is not None and p.item() == 1.5
    leaf = parameter([1.0])
    leaf.grad = torch.ones(1)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        torch.optim.SGD([leaf], differentiable=True).step()


def test_parameters_without_memory_are_stepped_in_shapes():
    p = torch.nn.Parameter(torch.empty(3, 2, device="meta"))
    p.grad = torch.empty(3, 2, device="meta")
    optimizer = torch.optim.Adam([p], amsgrad=True)
    optimizer.step()
    assert optimizer.state[p]["exp_avg"].device.type == "meta"
    assert optimizer.state[p]["step"].item() == 1.0


def test_differentiable_and_foreach_exclude_each_other():
    p = parameter([1.0]).detach().clone()
    p.grad = torch.ones(1)
    with pytest.raises(AssertionError, match="_foreach ops don't support autograd"):
        torch.optim.SGD([p], differentiable=True, foreach=True).step()


# --- optimizers beyond one rule ---------------------------------------------------------------------------------------
class Rows:
    """What the optimizers ask of a sparse gradient: some rows of the whole, the indices perhaps repeated."""

    is_sparse, _a = True, None

    def __init__(self, rows, values):
        self.rows, self.values = rows, np.asarray(values, np.float64)

    def coalesce(self):
        unique = sorted(set(self.rows))
        return Rows(unique, [self.values[[i for i, r in enumerate(self.rows) if r == u]].sum(0) for u in unique])

    def __neg__(self):
        return Rows(self.rows, -self.values)

    def _indices(self):
        return torch.tensor([self.rows])

    def _values(self):
        return torch.from_numpy(self.values)


def test_sparse_adam_is_adam_on_the_rows_it_gets():
    start = np.arange(8.0).reshape(4, 2)
    p, q = parameter(start, "float64"), parameter(start[[1, 3]], "float64")
    sparse, dense = torch.optim.SparseAdam([p], lr=0.1), torch.optim.Adam([q], lr=0.1)
    for scale in (1.0, -0.5):
        p._grad = Rows([3, 1, 3], np.array([[1.0, 2.0], [3.0, 4.0], [0.5, 0.5]]) * scale)
        sparse.step()
        q.grad = torch.tensor([[3.0, 4.0], [1.5, 2.5]], dtype=torch.float64) * scale
        dense.step()
    got = p.detach().numpy()
    assert np.array_equal(got[[0, 2]], start[[0, 2]])
    # eps is inside the correction there and outside here
    np.testing.assert_allclose(got[[1, 3]], q.detach().numpy(), rtol=1e-7)
    assert sparse.state[p]["step"] == 2
    p._grad = torch.ones(4, 2, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="SparseAdam does not support dense gradients, please consider Adam"):
        sparse.step()


def test_adagrad_takes_rows_and_the_others_refuse_them():
    start = np.arange(8.0).reshape(4, 2)
    p, q = parameter(start, "float64"), parameter(start[[3]], "float64")
    a, b = torch.optim.Adagrad([p], lr=0.1, maximize=True), torch.optim.Adagrad([q], lr=0.1, maximize=True)
    for _ in range(2):
        p._grad = Rows([3, 3], [[1.0, 2.0], [0.5, 0.5]])
        a.step()
        q.grad = torch.tensor([[1.5, 2.5]], dtype=torch.float64)
        b.step()
    np.testing.assert_allclose(p.detach().numpy(), np.vstack([start[:3], q.detach().numpy()]), rtol=1e-12)
    for name in ("RMSprop", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop", "Adafactor", "Muon"):
        with pytest.raises(RuntimeError, match=f"{name} does not support sparse gradients"):
            getattr(torch.optim, name)([p]).step()
    with pytest.raises(RuntimeError, match="Adam does not support sparse gradients, please consider SparseAdam"):
        torch.optim.Adam([p]).step()
    with pytest.raises(RuntimeError, match="weight_decay option is not compatible with sparse gradients"):
        torch.optim.Adagrad([p], weight_decay=0.1).step()


@pytest.mark.parametrize("shape", [(4, 7), (7, 4)])
def test_muon_steps_along_nearly_orthogonal_matrices(shape):
    g = np.random.default_rng(0).normal(size=shape)
    p = parameter(np.zeros(shape), "float64")
    optimizer = torch.optim.Muon([p], lr=1.0, weight_decay=0.0, momentum=0.0, nesterov=False)
    p.grad = torch.from_numpy(g)
    optimizer.step()
    u, s, vt = np.linalg.svd(-p.detach().numpy() / np.sqrt(max(1, shape[0] / shape[1])), full_matrices=False)
    assert np.all((s > 0.6) & (s < 1.3))
    # the same singular vectors as the gradient: their product with it is symmetric and positive
    m = g.T @ -p.detach().numpy()
    np.testing.assert_allclose(m, m.T, atol=0.05 * np.abs(m).max())
    assert np.all(np.linalg.eigvalsh((m + m.T) / 2) > -0.05)
    with pytest.raises(ValueError, match="Muon only supports 2D parameters"):
        torch.optim.Muon([parameter([1.0])])


# --- options ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name, options, message", [
    ("SGD", {"lr": -1.0}, "Invalid learning rate: -1.0"),
    ("SGD", {"momentum": -0.5}, "Invalid momentum value: -0.5"),
    ("SGD", {"weight_decay": -2}, "Invalid weight_decay value: -2"),
    ("SGD", {"nesterov": True}, "Nesterov momentum requires a momentum and zero dampening"),
    ("SGD", {"nesterov": True, "momentum": 0.9, "dampening": 0.1}, "Nesterov momentum requires"),
    ("Adam", {"lr": -1e-3}, "Invalid learning rate: -0.001"),
    ("Adam", {"eps": -1.0}, "Invalid epsilon value: -1.0"),
    ("Adam", {"betas": (1.0, 0.9)}, "Invalid beta parameter at index 0: 1.0"),
    ("AdamW", {"betas": (0.9, -0.1)}, "Invalid beta parameter at index 1: -0.1"),
    ("AdamW", {"weight_decay": -1}, "Invalid weight_decay value: -1"),
    ("Adam", {"betas": (0, 0.9)}, "betas must be either both floats or both Tensors"),
    ("RMSprop", {"momentum": -1.0}, "Invalid momentum value: -1.0"),
    ("RMSprop", {"alpha": -1.0}, "Invalid alpha value: -1.0"),
    ("Adagrad", {"lr_decay": -0.5}, "Invalid lr_decay value: -0.5"),
    ("Adagrad", {"initial_accumulator_value": -0.5}, "Invalid initial_accumulator_value value: -0.5"),
    ("Adadelta", {"rho": 1.1}, "Invalid rho value: 1.1"),
    ("NAdam", {"momentum_decay": -0.2}, "Invalid momentum_decay value: -0.2"),
    ("ASGD", {"weight_decay": -0.5}, "Invalid weight_decay value: -0.5"),
    ("Rprop", {"etas": (1.0, 0.5)}, r"Invalid eta values: 1.0, 0.5"),
    ("SparseAdam", {"lr": 0.0}, "Invalid learning rate: 0.0"),
    ("SparseAdam", {"eps": 0.0}, "Invalid epsilon value: 0.0"),
])
def test_options_out_of_range(name, options, message):
    with pytest.raises(ValueError, match=message):
        getattr(torch.optim, name)([parameter([1.0])], **options)


def test_flags_for_other_kernels():
    p = parameter([1.0])
    p.grad = torch.ones(1)
    for name in ("SGD", "Adam", "AdamW", "Adagrad"):
        getattr(torch.optim, name)([p], fused=True).step()
        with pytest.raises(RuntimeError, match="`fused` and `foreach` cannot be `True` together"):
            getattr(torch.optim, name)([p], fused=True, foreach=True)
        with pytest.raises(RuntimeError, match="`fused` does not support `differentiable`"):
            getattr(torch.optim, name)([p], fused=True, differentiable=True)
    with pytest.raises(AssertionError, match="If capturable=True, params and state_steps must be on supported devices"):
        torch.optim.Adam([p], capturable=True).step()


def test_lbfgs_takes_one_group_and_minimises():
    with pytest.raises(ValueError, match="LBFGS doesn't support per-parameter options"):
        torch.optim.LBFGS([{"params": [parameter([1.0])]}, {"params": [parameter([1.0])]}])
    p = parameter([-1.2, 1.0], "float64")
    optimizer = torch.optim.LBFGS([p], max_iter=50, tolerance_change=1e-15, line_search_fn="strong_wolfe")

    def rosenbrock():
        optimizer.zero_grad()
        value = (1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2
        value.backward()
        return value
    first = optimizer.step(rosenbrock)
    assert first.item() == pytest.approx(24.2)
    np.testing.assert_allclose(p.detach().numpy(), [1.0, 1.0], atol=1e-6)


def test_lbfgs_knows_one_line_search():
    p = parameter([1.0, 2.0])
    optimizer = torch.optim.LBFGS([p], line_search_fn="armijo")

    def closure():
        p.grad = p.detach().clone()
        return (p.detach() ** 2).sum() / 2
    with pytest.raises(RuntimeError, match="only 'strong_wolfe' is supported"):
        optimizer.step(closure)
