"""Learning-rate schedules: tracks recorded from PyTorch 2.13, closed forms, order of calls, checkpoints, errors."""

from __future__ import annotations

import copy
import json
import math
import sys
import warnings
from pathlib import Path

import pytest

import rushlight as torch
from rushlight.optim import lr_scheduler as S

sys.path.insert(0, str(Path(__file__).parent / "golden"))
import optim_cases as cases  # noqa: E402

GOLDEN = json.loads((Path(__file__).parent / "golden" / "optim.json").read_text())["schedules"]


def optimizer(*rates, name="SGD", **options):
    rates = rates or (1.0,)
    groups = [{"params": [torch.nn.Parameter(torch.ones(1))], "lr": lr} for lr in rates]
    return getattr(torch.optim, name)(groups, lr=1.0, **options)


def run(o, s, steps, *args):
    rates = []
    for _ in range(steps):
        o.step()
        s.step(*args)
        rates.append(o.param_groups[0]["lr"])
    return rates


@pytest.mark.parametrize("name, options", cases.SCHEDULES, ids=lambda v: str(v))
def test_tracks_are_pytorchs(name, options):
    got, wanted = cases.track(torch, name, options), GOLDEN[cases.key(name, options)]
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted, strict=True):
        assert a == pytest.approx(b, rel=1e-12, abs=1e-15)


CLOSED = [("StepLR", {"step_size": 3}), ("MultiStepLR", {"milestones": [2, 5]}), ("ConstantLR", {}), ("LinearLR", {}),
          ("ExponentialLR", {"gamma": 0.7}), ("PolynomialLR", {"total_iters": 9, "power": 1.5}),
          ("CosineAnnealingLR", {"T_max": 4, "eta_min": 0.1})]


@pytest.mark.parametrize("name, options", CLOSED, ids=lambda v: str(v))
def test_closed_form_meets_the_recursion(name, options):
    o, p = optimizer(0.5, 2.0), optimizer(0.5, 2.0)
    chained, closed = getattr(S, name)(o, **options), getattr(S, name)(p, **options)
    for epoch in range(1, 9):
        o.step()
        p.step()
        chained.step()
        with pytest.warns(UserWarning, match="The epoch parameter in `scheduler.step"):
            closed.step(epoch)
        assert chained.get_last_lr() == pytest.approx(closed.get_last_lr(), rel=1e-12)
        assert closed.last_epoch == chained.last_epoch == epoch


def test_lambda_and_multiplicative_schedules():
    o = optimizer(0.5, 2.0)
    run(o, S.LambdaLR(o, [lambda e: 1 / (1 + e), lambda e: 2.0 ** e]), 3)
    assert [g["lr"] for g in o.param_groups] == [0.125, 16.0]
    o = optimizer(0.5)
    assert run(o, S.MultiplicativeLR(o, lambda e: e), 3) == [0.5, 1.0, 3.0]
    with pytest.raises(ValueError, match="Expected 1 lr_lambdas, but got 2"):
        S.LambdaLR(o, [abs, abs])
    with pytest.raises(TypeError, match="lr_lambda should be a function, but got float"):
        S.MultiplicativeLR(o, 0.5)


def test_lambdas_are_saved_only_where_they_are_objects():
    class Decay:
        def __init__(self, rate):
            self.rate = rate

        def __call__(self, epoch):
            return self.rate ** epoch
    o = optimizer(1.0, 1.0)
    s = S.LambdaLR(o, [Decay(0.5), lambda e: 1.0])
    saved = s.state_dict()
    assert saved["lr_lambdas"] == [{"rate": 0.5}, None]
    other = S.LambdaLR(optimizer(1.0, 1.0), [Decay(0.9), lambda e: 1.0])
    other.load_state_dict(saved)
    assert other.lr_lambdas[0].rate == 0.5
    assert "lr_lambdas" in saved


def test_initial_rates_and_resuming():
    o = optimizer(0.5, 0.25)
    s = S.StepLR(o, 2)
    assert [g["initial_lr"] for g in o.param_groups] == [0.5, 0.25] == s.base_lrs
    with pytest.raises(KeyError, match="param 'initial_lr' is not specified in param_groups"):
        S.StepLR(optimizer(), 2, last_epoch=3)
    o.param_groups[0]["lr"] = 0.05
    again = S.StepLR(o, 2, last_epoch=1)      # epoch 2 begins: the rates found are taken one step on
    assert again.last_epoch == 2
    assert again.get_last_lr() == pytest.approx([0.005, 0.025])


def test_state_dict_goes_on_where_it_was():
    o = optimizer(0.5)
    s = S.CosineAnnealingLR(o, 5)
    straight = run(o, s, 7)
    o = optimizer(0.5)
    s = S.CosineAnnealingLR(o, 5)
    run(o, s, 3)
    saved, saved_o = copy.deepcopy(s.state_dict()), copy.deepcopy(o.state_dict())
    assert set(saved) == {"T_max", "eta_min", "base_lrs", "last_epoch", "_step_count", "_is_initial",
                          "_get_lr_called_within_step", "_last_lr"}
    p = optimizer(9.0)
    t = S.CosineAnnealingLR(p, 99)
    t.load_state_dict(saved)
    p.load_state_dict(saved_o)
    assert run(p, t, 4) == straight[3:]


def test_tensor_rates_are_written_in_place():
    lr = torch.tensor(1.0)
    o = torch.optim.Adam([torch.nn.Parameter(torch.ones(1))], lr=lr)
    s = S.ExponentialLR(o, 0.5)
    o.step()
    s.step()
    assert o.param_groups[0]["lr"] is lr and lr.item() == 0.5
    assert o.param_groups[0]["initial_lr"].item() == 1.0
    assert s.get_last_lr()[0] is not lr


# --- order of calls ---------------------------------------------------------------------------------------------------
def test_stepping_the_schedule_first_is_warned_about():
    o = optimizer()
    s = S.StepLR(o, 2)
    with pytest.warns(UserWarning, match="Detected call of `lr_scheduler.step\\(\\)` before `optimizer.step\\(\\)`"):
        s.step()
    o.step()
    s.step()


def test_a_replaced_step_is_warned_about():
    o = optimizer()
    s = S.StepLR(o, 2)
    o.step = lambda: None
    with pytest.warns(UserWarning, match="`optimizer.step\\(\\)` has been overridden after learning rate scheduler"):
        s.step()


def test_get_lr_outside_a_step_is_warned_about():
    o = optimizer()
    s = S.StepLR(o, 2)
    with pytest.warns(UserWarning, match="please use `get_last_lr\\(\\)`"):
        s.get_lr()


def test_watched_steps_still_pass_arguments_and_hooks():
    o = optimizer()
    S.StepLR(o, 2)
    S.StepLR(o, 3)
    seen = []
    o.register_step_post_hook(lambda *a: seen.append(1))
    assert o.step(lambda: 3.0) == 3.0
    assert seen == [1]
    assert o.step.__name__ == "step"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        S.StepLR(o, 2).step()


# --- schedules of schedules -------------------------------------------------------------------------------------------
def test_sequential():
    o = optimizer(1.0)
    s = S.SequentialLR(o, [S.ConstantLR(o, factor=0.1, total_iters=10), S.ExponentialLR(o, 0.5)], [2])
    assert o.param_groups[0]["lr"] == pytest.approx(0.1)
    assert run(o, s, 4) == pytest.approx([0.1, 1.0, 0.5, 0.25])
    saved = copy.deepcopy(s.state_dict())
    p = optimizer(1.0)
    t = S.SequentialLR(p, [S.ConstantLR(p, factor=0.1, total_iters=10), S.ExponentialLR(p, 0.5)], [2])
    t.load_state_dict(saved)
    p.load_state_dict(o.state_dict())
    assert run(p, t, 2) == pytest.approx([0.125, 0.0625])


def test_chained():
    o = optimizer(1.0)
    s = S.ChainedScheduler([S.ConstantLR(o, factor=0.1, total_iters=2), S.ExponentialLR(o, 0.5)])
    assert run(o, s, 3) == pytest.approx([0.05, 0.25, 0.125])
    assert s.get_last_lr() == pytest.approx([0.125])
    other = S.ChainedScheduler([S.ConstantLR(o, factor=0.1, total_iters=2), S.ExponentialLR(o, 0.5)], optimizer=o)
    other.load_state_dict(s.state_dict())
    assert other._schedulers[1].last_epoch == 3


@pytest.mark.parametrize("make, message", [
    (lambda o, p: S.SequentialLR(o, [], []), "expects at least one scheduler, but got no scheduler"),
    (lambda o, p: S.ChainedScheduler([]), "expects at least one scheduler to be chained"),
    (lambda o, p: S.SequentialLR(o, [S.StepLR(o, 1)], [3]), "number of schedulers provided to be one more"),
    (lambda o, p: S.SequentialLR(o, [S.StepLR(p, 1)], []), "expects all schedulers to belong to the same optimizer"),
    (lambda o, p: S.ChainedScheduler([S.StepLR(o, 1), S.StepLR(p, 1)]), "expects all schedulers to belong to the same"),
    (lambda o, p: S.ChainedScheduler([S.ReduceLROnPlateau(o)]), "does not support `ReduceLROnPlateau` scheduler"),
])
def test_parts_that_do_not_fit(make, message):
    with pytest.raises(ValueError, match=message):
        make(optimizer(), optimizer())


# --- plateaus ---------------------------------------------------------------------------------------------------------
def test_plateau_waits_reduces_and_cools_down():
    o = optimizer(1.0)
    s = S.ReduceLROnPlateau(o, factor=0.5, patience=1, cooldown=1, threshold=0.1)
    rates = []
    for metric in (1.0, 0.95, 0.99, 0.98, 0.99, 0.99, 0.5, 0.46):
        o.step()
        s.step(torch.tensor(metric))
        rates.append(o.param_groups[0]["lr"])
    # improvement means below 0.9 of the best: epochs 1 and 2 don't, 3 cools down, 4 and 5 don't, 6 does
    assert rates == [1.0, 1.0, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25]
    assert s.best == 0.5 and s.last_epoch == 8 and s.get_last_lr() == [0.25]


def test_plateau_modes_bounds_and_checkpoints():
    o = optimizer(1.0, 1.0)
    s = S.ReduceLROnPlateau(o, "max", factor=0.1, patience=0, threshold=0.5, threshold_mode="abs", min_lr=[0.5, 0.0])
    for metric in (1.0, 1.4):
        s.step(metric)
    assert [g["lr"] for g in o.param_groups] == [0.5, 0.1]
    t = S.ReduceLROnPlateau(o)
    t.load_state_dict(s.state_dict())
    assert t.mode == "max" and t.mode_worse == -math.inf and t.best == 1.0
    o.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))]})
    with pytest.raises(RuntimeError, match="The number of param groups in the `optimizer` \\(3\\) differs"):
        s.step(0.0)
    with pytest.raises(ValueError, match="Factor should be < 1.0"):
        S.ReduceLROnPlateau(o, factor=1.0)
    with pytest.raises(ValueError, match="mode best is unknown"):
        S.ReduceLROnPlateau(o, "best")
    with pytest.raises(ValueError, match="threshold mode x is unknown"):
        S.ReduceLROnPlateau(o, threshold_mode="x")
    with pytest.raises(ValueError, match="expected 3 min_lrs, got 1"):
        S.ReduceLROnPlateau(o, min_lr=[0.1])


# --- cycles -----------------------------------------------------------------------------------------------------------
def test_one_cycle_moves_the_first_beta_of_adam():
    o = optimizer(1.0, name="Adam")
    s = S.OneCycleLR(o, max_lr=0.1, total_steps=11, pct_start=0.5)
    assert o.param_groups[0]["betas"] == (0.95, 0.999)
    assert o.param_groups[0]["lr"] == pytest.approx(0.1 / 25)
    rates = run(o, s, 10)
    assert max(rates) == pytest.approx(0.1, rel=0.05)
    assert rates[-1] == pytest.approx(0.1 / 25 / 1e4)
    assert o.param_groups[0]["betas"] == (pytest.approx(0.95), 0.999)
    o.step()
    s.step()
    with pytest.raises(ValueError, match="Tried to step 12 times. The specified number of total steps is 11"):
        s.step()


def test_cyclic_scale_function_and_checkpoint():
    o = optimizer(1.0, momentum=0.9)
    s = S.CyclicLR(o, 0.1, 1.1, step_size_up=2, scale_fn=lambda c: 1 / c)
    rates = run(o, s, 8)
    assert rates == pytest.approx([0.6, 1.1, 0.6, 0.1, 0.35, 0.6, 0.35, 0.1])
    saved = s.state_dict()
    assert saved["_scale_fn_custom"] is None and "_scale_fn_ref" not in saved
    t = S.CyclicLR(o, 0.1, 1.1, step_size_up=2, mode="exp_range", gamma=0.5)
    saved = t.state_dict()
    t.load_state_dict(saved)
    assert t.scale_fn(3) == 0.125 and t.scale_mode == "iterations"


@pytest.mark.parametrize("make, message", [
    (lambda o: S.OneCycleLR(o, 0.1), "You must define either total_steps OR"),
    (lambda o: S.OneCycleLR(o, 0.1, total_steps=0), "Expected positive integer total_steps, but got 0"),
    (lambda o: S.OneCycleLR(o, 0.1, epochs=2, steps_per_epoch=-1), "Expected positive integer steps_per_epoch"),
    (lambda o: S.OneCycleLR(o, 0.1, total_steps=5, pct_start=2.0), "between 0 and 1 pct_start, but got 2.0"),
    (lambda o: S.OneCycleLR(o, 0.1, total_steps=5, anneal_strategy="x"), "must be one of 'cos' or 'linear'"),
    (lambda o: S.OneCycleLR(o, [0.1, 0.2], total_steps=5), "must have the same length as optimizer.param_groups"),
    (lambda o: S.CyclicLR(o, 0.1, 0.2, mode="x"), "mode is invalid and scale_fn is None"),
    (lambda o: S.CyclicLR(torch.optim.Rprop(o.param_groups[0]["params"]), 0.1, 0.2), "must support momentum or beta1"),
    (lambda o: S.CosineAnnealingWarmRestarts(o, 0), "Expected positive integer T_0, but got 0"),
    (lambda o: S.CosineAnnealingWarmRestarts(o, 2, 0), "Expected integer T_mult >= 1, but got 0"),
    (lambda o: S.ConstantLR(o, factor=1.5), "Constant multiplicative factor expected to be between 0 and 1"),
    (lambda o: S.LinearLR(o, start_factor=0.0), "Starting multiplicative factor expected to be greater than 0"),
    (lambda o: S.LinearLR(o, end_factor=1.5), "Ending multiplicative factor expected to be between 0 and 1"),
])
def test_options_out_of_range(make, message):
    with pytest.raises(ValueError, match=message):
        make(optimizer(1.0))


def test_warm_restarts_take_fractions_of_epochs():
    o = optimizer(1.0)
    s = S.CosineAnnealingWarmRestarts(o, 2, T_mult=2)
    for epoch, wanted in ((0.5, (1 + math.cos(math.pi / 4)) / 2), (3.0, (1 + math.cos(math.pi / 4)) / 2), (2.0, 1.0)):
        s.step(epoch)
        assert o.param_groups[0]["lr"] == pytest.approx(wanted)
    with pytest.raises(ValueError, match="Expected non-negative epoch, but got -1"):
        s.step(-1)


def test_schedules_need_an_optimizer():
    for make in (lambda: S.StepLR([1], 2), lambda: S.ReduceLROnPlateau([1]), lambda: S.OneCycleLR([1], 0.1, 5)):
        with pytest.raises(TypeError, match="list is not an Optimizer"):
            make()


def test_old_name_of_the_base_class():
    class Half(S._LRScheduler):
        def get_lr(self):
            return [lr * 0.5 ** self.last_epoch for lr in self.base_lrs]
    o = optimizer(1.0)
    assert run(o, Half(o), 3) == [0.5, 0.25, 0.125]
    assert issubclass(S.StepLR, S.LRScheduler)
