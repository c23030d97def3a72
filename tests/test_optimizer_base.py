"""The Optimizer base class: groups, checkpoints, hooks, gradients, pickling."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest

import rushlight as torch
from rushlight.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
    required,
)


def parameter(*values):
    return torch.nn.Parameter(torch.tensor(values))


def stepped(name="Adam", n=2, **options):
    params = [parameter(1.0, 2.0) for _ in range(n)]
    optimizer = getattr(torch.optim, name)(params, lr=0.1, **options)
    for p in params:
        p.grad = torch.ones(2)
    optimizer.step()
    return optimizer, params


# --- groups -----------------------------------------------------------------------------------------------------------
def test_groups_take_the_defaults_they_do_not_give():
    a, b = parameter(1.0), parameter(2.0)
    optimizer = torch.optim.SGD([{"params": a, "lr": 0.5}, {"params": (b,), "momentum": 0.3}], lr=0.1)
    assert [g["lr"] for g in optimizer.param_groups] == [0.5, 0.1]
    assert [g["momentum"] for g in optimizer.param_groups] == [0, 0.3]
    assert optimizer.param_groups[0]["params"] == [a] and optimizer.param_groups[1]["params"][0] is b


def test_generators_and_named_parameters():
    a, b = parameter(1.0), parameter(2.0)
    assert torch.optim.SGD(p for p in (a, b)).param_groups[0]["params"] == [a, b]
    named = torch.optim.SGD(iter([("w", a), ("v", b)]))
    assert named.param_groups[0]["param_names"] == ["w", "v"]
    assert named.state_dict()["param_groups"][0]["param_names"] == ["w", "v"]
    with pytest.raises(ValueError, match="Some param names are missing"):
        torch.optim.SGD([("w", a), b])
    with pytest.raises(ValueError, match="cannot add param group without names to the optimizer"):
        named.add_param_group({"params": [parameter(3.0)]})


@pytest.mark.parametrize("params, kind, message", [
    ([], ValueError, "optimizer got an empty parameter list"),
    ([1.0], TypeError, "optimizer can only optimize Tensors, but one of the params is float"),
    ([{"params": {parameter(1.0)}}], TypeError, "organized in ordered collections"),
    (parameter(1.0), TypeError, "should be an iterable of Tensors or dicts, but got"),
    ([parameter(1.0) * 2], ValueError, "can't optimize a non-leaf Tensor"),
])
def test_what_cannot_be_optimised(params, kind, message):
    with pytest.raises(kind, match=message):
        torch.optim.SGD(params)


def test_a_parameter_belongs_to_one_group_once():
    p = parameter(1.0)
    optimizer = torch.optim.SGD([p])
    with pytest.raises(ValueError, match="some parameters appear in more than one parameter group"):
        optimizer.add_param_group({"params": [p]})
    with pytest.raises(TypeError, match="param_group must be a dict, but got <class 'list'>"):
        optimizer.add_param_group([p])
    with pytest.warns(UserWarning, match="parameter group with duplicate parameters"):
        torch.optim.SGD([p, p])


def test_required_options():
    class Own(Optimizer):
        def __init__(self, params):
            super().__init__(params, {"rate": required})

        def step(self, closure=None):
            return "stepped"
    with pytest.raises(ValueError, match="didn't specify a value of required optimization parameter rate"):
        Own([parameter(1.0)])
    assert repr(required) == "<required parameter>"
    own = Own([{"params": [parameter(1.0)], "rate": 3}])
    assert own.step() == "stepped"
    assert repr(own) == "Own (\nParameter Group 0\n    rate: 3\n)"


def test_added_groups_are_stepped_and_saved():
    optimizer, _ = stepped("SGD", momentum=0.9)
    late = parameter(5.0)
    late.grad = torch.ones(1)
    optimizer.add_param_group({"params": late, "lr": 2.0})
    optimizer.step()
    assert late.item() == 3.0
    saved = optimizer.state_dict()
    assert [g["params"] for g in saved["param_groups"]] == [[0, 1], [2]]
    assert list(saved["state"]) == [0, 1, 2]


# --- steps ------------------------------------------------------------------------------------------------------------
def test_base_class_has_no_step():
    with pytest.raises(NotImplementedError):
        Optimizer([parameter(1.0)], {}).step()


def test_closure_runs_once_with_gradients_enabled_and_its_value_is_returned():
    p = parameter(2.0)
    optimizer = torch.optim.SGD([p], lr=0.25)

    def closure():
        calls.append(torch.is_grad_enabled())
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss
    calls = []
    with torch.no_grad():
        assert optimizer.step(closure).item() == 4.0
        assert not torch.is_grad_enabled()
    assert calls == [True]
    assert p.item() == 1.0
    assert optimizer.step() is None


def test_parameters_without_gradient_stay_and_get_no_state():
    optimizer, params = stepped()
    idle = parameter(7.0)
    optimizer.add_param_group({"params": [idle]})
    optimizer.step()
    assert idle.item() == 7.0
    assert idle not in optimizer.state


def test_zero_grad():
    optimizer, (p, q) = stepped()
    kept = p.grad
    optimizer.zero_grad(set_to_none=False)
    assert p.grad is kept and kept.tolist() == [0.0, 0.0]
    optimizer.zero_grad()
    assert p.grad is None and q.grad is None


def test_zero_grad_detaches_gradients_that_have_a_history():
    p, x = parameter(3.0), parameter(2.0)
    p.grad = x * 2
    assert p.grad.grad_fn is not None
    torch.optim.SGD([p]).zero_grad(set_to_none=False)
    assert p.grad.grad_fn is None and p.grad.item() == 0.0


# --- checkpoints ------------------------------------------------------------------------------------------------------
def test_state_dict_numbers_parameters_over_groups_and_refers_to_the_state():
    a, b, c = parameter(1.0), parameter(2.0), parameter(3.0)
    optimizer = torch.optim.Adam([{"params": [a, b]}, {"params": [c], "lr": 0.5}])
    c.grad = torch.ones(1)
    optimizer.step()
    saved = optimizer.state_dict()
    assert [g["params"] for g in saved["param_groups"]] == [[0, 1], [2]]
    assert list(saved["state"]) == [2]
    assert saved["state"][2]["exp_avg"] is optimizer.state[c]["exp_avg"]
    assert optimizer.param_groups[0]["params"] == [a, b]


def test_loading_casts_to_the_parameters_but_keeps_steps():
    optimizer, _ = stepped(n=1)
    saved = copy.deepcopy(optimizer.state_dict())
    p = torch.nn.Parameter(torch.ones(2, dtype=torch.float64))
    other = torch.optim.Adam([p], lr=9.0)
    other.load_state_dict(saved)
    assert other.param_groups[0]["lr"] == 0.1
    assert other.param_groups[0]["params"][0] is p
    assert other.state[p]["exp_avg"].dtype == torch.float64
    assert other.state[p]["step"].dtype == torch.float32
    assert other.state[p]["step"].item() == 1.0


def test_loading_renumbers_and_keeps_unknown_entries():
    optimizer, (p, q) = stepped("SGD", momentum=0.9)
    saved = optimizer.state_dict()
    saved["param_groups"][0]["params"] = ["a", "b"]
    saved["state"] = {"b": {"momentum_buffer": torch.full((2,), 5.0)}, "extra": 7}
    optimizer.load_state_dict(saved)
    assert p not in optimizer.state
    assert optimizer.state[q]["momentum_buffer"].tolist() == [5.0, 5.0]
    assert optimizer.state["extra"] == 7
    assert optimizer.state_dict()["state"]["extra"] == 7


def test_loading_refuses_other_groups():
    optimizer, _ = stepped()
    saved = optimizer.state_dict()
    one = torch.optim.Adam([parameter(1.0)])
    with pytest.raises(ValueError, match="parameter group that doesn't match the size of optimizer's group"):
        one.load_state_dict(saved)
    one.add_param_group({"params": [parameter(2.0)]})
    with pytest.raises(ValueError, match="different number of parameter groups"):
        one.load_state_dict(saved)


def test_checkpoints_from_before_an_option_existed():
    optimizer, (p, _) = stepped()
    saved = copy.deepcopy(optimizer.state_dict())
    for name in ("maximize", "amsgrad", "fused", "decoupled_weight_decay"):
        del saved["param_groups"][0][name]
    for entries in saved["state"].values():
        entries["step"] = 1      # a number, as it was once
    optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["maximize"] is False
    assert isinstance(optimizer.state[p]["step"], torch.Tensor)
    optimizer.step()
    assert optimizer.state[p]["step"].item() == 2.0


def test_counters_follow_the_default_dtype():
    torch.set_default_dtype(torch.float64)
    try:
        optimizer, (p, _) = stepped()
    finally:
        torch.set_default_dtype(torch.float32)
    assert optimizer.state[p]["step"].dtype == torch.float64


def test_deepcopy_and_pickle_are_independent_and_go_on_alike():
    optimizer, (p, _) = stepped()
    optimizer.register_step_pre_hook(lambda *a: None)
    loaded = pickle.load(io.BytesIO(pickle.dumps(optimizer)))
    for other in (copy.deepcopy(optimizer), loaded):
        q = other.param_groups[0]["params"][0]
        assert q is not p and np.array_equal(q.detach().numpy(), p.detach().numpy())
        assert set(other.state) == set(other.param_groups[0]["params"])
        assert other.state[q]["exp_avg"].tolist() == optimizer.state[p]["exp_avg"].tolist()
        q.grad = torch.ones(2)
        other.step()
        assert q.tolist() != p.tolist()
        assert other.state[q]["step"].item() == 2.0
    p.grad = torch.ones(2)
    optimizer.step()
    assert p.tolist() == q.tolist()


# --- hooks ------------------------------------------------------------------------------------------------------------
def test_step_hooks_run_in_order_and_may_change_the_arguments():
    optimizer, _ = stepped()
    seen = []

    def closure():
        seen.append("closure")
        return 5.0
    handles = [
        register_optimizer_step_pre_hook(lambda o, args, kw: seen.append(("global", o is optimizer, args[1:], kw))),
        optimizer.register_step_pre_hook(lambda o, args, kw: seen.append("before")),
        optimizer.register_step_pre_hook(lambda o, args, kw: ((args[0], closure), {})),
        optimizer.register_step_post_hook(lambda o, args, kw: seen.append(("after", args[1:]))),
        register_optimizer_step_post_hook(lambda o, args, kw: seen.append("global after")),
    ]
    assert optimizer.step() == 5.0
    assert seen == [("global", True, (), {}), "before", "closure", ("after", (closure,)), "global after"]
    for h in handles:
        h.remove()
    seen.clear()
    assert optimizer.step() is None
    assert seen == []
    optimizer.register_step_pre_hook(lambda o, args, kw: 3)
    with pytest.raises(RuntimeError, match="must return None or a tuple of"):
        optimizer.step()


def test_state_dict_hooks():
    optimizer, _ = stepped()
    seen = []
    optimizer.register_state_dict_pre_hook(lambda o: seen.append("second"))
    optimizer.register_state_dict_pre_hook(lambda o: seen.append("first"), prepend=True)
    optimizer.register_state_dict_post_hook(lambda o, d: {**d, "more": 1})
    optimizer.register_load_state_dict_pre_hook(lambda o, d: {k: v for k, v in d.items() if k != "more"})
    optimizer.register_load_state_dict_post_hook(lambda o: seen.append("loaded"))
    saved = optimizer.state_dict()
    assert seen == ["first", "second"] and saved["more"] == 1
    optimizer.load_state_dict(saved)
    assert seen[-1] == "loaded" and saved["more"] == 1


def test_subclasses_of_users_get_hooks_too():
    class Plain(torch.optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    p.add_(p.grad, alpha=-group["lr"])
    p = parameter(1.0)
    p.grad = torch.ones(1)
    optimizer = Plain([p], 0.25)
    seen = []
    optimizer.register_step_post_hook(lambda *a: seen.append(p.item()))
    optimizer.step()
    assert seen == [0.75]
    assert Plain.step.hooked
