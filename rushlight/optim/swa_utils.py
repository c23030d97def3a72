"""Averages of parameters over training: stochastic weight averaging, exponential moving averages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

import rushlight as torch
from rushlight import _missing
from rushlight.nn import Module

from .lr_scheduler import LRScheduler, _per_group
from .optimizer import Optimizer

__all__ = ["AveragedModel", "update_bn", "SWALR", "get_ema_multi_avg_fn", "get_swa_multi_avg_fn", "get_ema_avg_fn",
           "get_swa_avg_fn"]


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def get_ema_avg_fn(decay: float = 0.999) -> Callable:
    """fn(average, current, number) -> decay * average + (1 - decay) * current."""
    _check_decay(decay)

    def ema_update(ema_param: Any, current_param: Any, num_averaged: Any) -> Any:
        with torch.no_grad():
            return decay * ema_param + (1 - decay) * current_param
    return ema_update


def get_swa_avg_fn() -> Callable:
    """fn(average, current, number) -> the mean of number + 1 parameters."""
    def swa_update(averaged_param: Any, current_param: Any, num_averaged: Any) -> Any:
        with torch.no_grad():
            return averaged_param + (current_param - averaged_param) / (num_averaged + 1)
    return swa_update


def _move(averages: list[Any], currents: list[Any], weight: float) -> None:
    with torch.no_grad():
        for a, c in zip(averages, currents, strict=True):
            if a.is_floating_point() or a.is_complex():
                a.lerp_(c, weight)
            else:
                a.copy_(a + (c - a) * weight)


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable:
    """fn(averages, currents, number): `get_ema_avg_fn` in place on lists of tensors."""
    _check_decay(decay)

    def ema_update(ema_param_list: list[Any], current_param_list: list[Any], num_averaged: Any) -> None:
        _move(ema_param_list, current_param_list, 1 - decay)
    return ema_update


def get_swa_multi_avg_fn() -> Callable:
    """fn(averages, currents, number): `get_swa_avg_fn` in place on lists of tensors."""
    def swa_update(averaged_param_list: list[Any], current_param_list: list[Any], num_averaged: Any) -> None:
        _move(averaged_param_list, current_param_list, float(1 / (num_averaged + 1)))
    return swa_update


class AveragedModel(Module):
    """A copy of `model` whose parameters are averages of those given to `update_parameters`.

    Args:
        model: copied. device: of the copy.
        avg_fn: (average, current, number averaged) -> new average, for one tensor; default the running mean.
        multi_avg_fn: the same in place on lists of tensors; excludes avg_fn.
        use_buffers: average the buffers too, instead of copying them.
    """

    n_averaged: Any

    def __init__(self, model: Module, device: Any = None, avg_fn: Callable | None = None,
                 multi_avg_fn: Callable | None = None, use_buffers: bool = False) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", torch.tensor(0, dtype=torch.int64, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def _averaged(self, module: Module) -> list[Any]:
        return [*module.parameters(), *(module.buffers() if self.use_buffers else ())]

    def update_parameters(self, model: Module) -> None:
        """Take the present parameters of `model` into the averages."""
        own = [p.detach() for p in self._averaged(self.module)]
        new = [p.detach().to(o.device) for p, o in zip(self._averaged(model), own, strict=True)]
        n = self.n_averaged
        if n.item() == 0:
            for o, p in zip(own, new, strict=True):
                o.copy_(p)
        elif self.multi_avg_fn is not None:
            kinds: dict[Any, list[tuple[Any, Any]]] = {}
            for o, p in zip(own, new, strict=True):
                kinds.setdefault((o.device, o.dtype), []).append((o, p))
            for (device, _), pairs in kinds.items():
                self.multi_avg_fn([o for o, _ in pairs], [p for _, p in pairs], n.to(device))
        else:
            average = self.avg_fn or get_swa_avg_fn()
            for o, p in zip(own, new, strict=True):
                o.copy_(average(o, p, n.to(o.device)))
        if not self.use_buffers:
            for o, p in zip(self.module.buffers(), model.buffers(), strict=True):
                o.detach().copy_(p.detach().to(o.device))
        self.n_averaged += 1


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Compute the running statistics of the batch norms of `model` anew, over the inputs of `loader` (of tuples and
    lists the first item)."""
    from rushlight.nn.modules.batchnorm import _BatchNorm
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm)]
    if not norms:
        return
    momenta = [m.momentum for m in norms]
    was_training = model.training
    model.train()
    for m in norms:
        m.reset_running_stats()
        m.momentum = None      # a plain mean over the batches
    with torch.no_grad():
        for batch in loader:
            x = batch[0] if isinstance(batch, (list, tuple)) else batch
            model(x if device is None else x.to(device))
    for m, momentum in zip(norms, momenta, strict=True):
        m.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """The rate goes from what it is to `swa_lr` (one, or one a group) within `anneal_epochs` (10), then stays.

    Args:
        anneal_strategy: "cos" or "linear".
    """

    def __init__(self, optimizer: Optimizer, swa_lr: Any, anneal_epochs: int = 10, anneal_strategy: str = "cos",
                 last_epoch: int = -1) -> None:
        for rate, group in zip(_per_group("swa_lr", optimizer, swa_lr), optimizer.param_groups, strict=True):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self._anneal_strategy = anneal_strategy
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def anneal_func(self, t: float) -> float:
        """How far the rate has gone at part `t` of the way."""
        return (1 - math.cos(math.pi * t)) / 2 if self._anneal_strategy == "cos" else t

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        length = max(1, self.anneal_epochs)
        before, now = (self.anneal_func(max(0, min(1, s / length))) for s in (step - 1, step))
        rates = []
        for group in self.optimizer.param_groups:
            # the rate before annealing, from the present one
            start = group["swa_lr"] if before == 1 else (group["lr"] - before * group["swa_lr"]) / (1 - before)
            rates.append(group["swa_lr"] * now + start * (1 - now))
        return rates


_missing.hint(__name__)
