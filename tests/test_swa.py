"""Averages of parameters: means, exponential averages, buffers, batch norm statistics, the schedule."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as torch
from rushlight.optim import swa_utils


def model(value):
    m = torch.nn.Linear(2, 1)
    with torch.no_grad():
        for p in m.parameters():
            p.fill_(value)
    return m


def averaged(values, **options):
    m = model(values[0])
    average = swa_utils.AveragedModel(m, **options)
    for v in values:
        with torch.no_grad():
            m.weight.fill_(v)
        average.update_parameters(m)
    return average.module.weight.detach().numpy()


def test_running_mean():
    assert np.allclose(averaged([1.0, 2.0, 6.0]), 3.0)
    assert np.allclose(averaged([1.0, 2.0, 6.0], multi_avg_fn=swa_utils.get_swa_multi_avg_fn()), 3.0)
    assert np.allclose(averaged([1.0, 2.0], avg_fn=lambda old, new, n: old + 10 * new), 21.0)


@pytest.mark.parametrize("options", [{"avg_fn": swa_utils.get_ema_avg_fn(0.9)},
                                     {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.9)}])
def test_exponential_mean(options):
    assert np.allclose(averaged([1.0, 2.0, 6.0], **options), 0.9 * (0.9 * 1 + 0.1 * 2) + 0.1 * 6)


def test_the_average_is_a_copy_that_computes_and_is_saved():
    m = model(1.0)
    average = swa_utils.AveragedModel(m)
    x = torch.ones(3, 2)
    assert average(x).tolist() == m(x).tolist()
    assert average.module is not m
    average.update_parameters(m)
    assert set(average.state_dict()) == {"n_averaged", "module.weight", "module.bias"}
    assert average.n_averaged.item() == 1
    with pytest.raises(AssertionError, match="Only one of avg_fn and multi_avg_fn"):
        swa_utils.AveragedModel(m, avg_fn=max, multi_avg_fn=max)
    for make in (swa_utils.get_ema_avg_fn, swa_utils.get_ema_multi_avg_fn):
        with pytest.raises(ValueError, match="Invalid decay value 1.5 provided"):
            make(1.5)


@pytest.mark.parametrize("use_buffers, wanted", [(False, 6.0), (True, 4.0)])
def test_buffers_are_copied_or_averaged(use_buffers, wanted):
    m = torch.nn.BatchNorm1d(1)
    average = swa_utils.AveragedModel(m, use_buffers=use_buffers)
    for v in (2.0, 6.0):
        m.running_mean.fill_(v)
        average.update_parameters(m)
    assert average.module.running_mean.item() == wanted


def test_update_bn_computes_the_statistics_of_all_batches():
    m = torch.nn.BatchNorm1d(2)
    m.eval()
    arrays = [np.random.default_rng(i).normal(i, 2, size=(5, 2)).astype(np.float32) for i in range(3)]
    m.running_mean.fill_(99.0)
    swa_utils.update_bn([(torch.from_numpy(a), "label") for a in arrays], m)
    np.testing.assert_allclose(m.running_mean.numpy(), np.mean([a.mean(0) for a in arrays], 0), rtol=1e-5)
    np.testing.assert_allclose(m.running_var.numpy(), np.mean([a.var(0, ddof=1) for a in arrays], 0), rtol=1e-5)
    assert m.momentum == 0.1 and not m.training
    swa_utils.update_bn(iter(()), torch.nn.Linear(1, 1))      # nothing to do: not even the loader is read


@pytest.mark.parametrize("strategy, half", [("linear", 0.55), ("cos", 0.55)])
def test_rate_goes_to_the_averages_rate(strategy, half):
    p = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([p], lr=1.0)
    s = swa_utils.SWALR(optimizer, swa_lr=0.1, anneal_epochs=4, anneal_strategy=strategy)
    rates = []
    for _ in range(6):
        optimizer.step()
        s.step()
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates[1] == pytest.approx(half) and rates[3:] == pytest.approx([0.1] * 3)
    assert rates[0] == pytest.approx({"linear": 0.775, "cos": 0.1 + 0.9 * (1 + np.cos(np.pi / 4)) / 2}[strategy])
    with pytest.raises(ValueError, match="anneal_strategy must be one of 'cos' or 'linear', instead got x"):
        swa_utils.SWALR(optimizer, 0.1, anneal_strategy="x")
    with pytest.raises(ValueError, match="anneal_epochs must be equal or greater than 0, got -1"):
        swa_utils.SWALR(optimizer, 0.1, anneal_epochs=-1)
