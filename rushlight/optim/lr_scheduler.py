"""Learning-rate schedules.

A schedule sets `group["lr"]` of every group of its optimizer; `scheduler.step()` follows `optimizer.step()`. Most are
chainable: they multiply the rate that they find by a factor, so that several may act on one optimizer; where a closed
form from the initial rate exists, `step(epoch)` (deprecated) uses it. The state_dict is the scheduler's attributes,
named as PyTorch names them.
"""

from __future__ import annotations

import math
import types
import warnings
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import wraps
from typing import Any
from weakref import ref

import rushlight as torch
from rushlight import _missing

from .optimizer import Optimizer

__all__ = ["LambdaLR", "MultiplicativeLR", "StepLR", "MultiStepLR", "ConstantLR", "LinearLR", "ExponentialLR",
           "SequentialLR", "CosineAnnealingLR", "ChainedScheduler", "ReduceLROnPlateau", "CyclicLR",
           "CosineAnnealingWarmRestarts", "OneCycleLR", "PolynomialLR", "LRScheduler"]

_ORDER_URL = "https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"
EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where possible. Please use "
    "`scheduler.step()` to step the scheduler. During the deprecation, if epoch is different from None, the closed "
    "form is "
    "used instead of the new chainable form, where available.")


def _values(optimizer: Optimizer, key: str) -> list[Any]:
    """That option of every group; tensors are copied, since the optimizer's are written in place."""
    return [g[key].clone() if isinstance(g[key], torch.Tensor) else g[key] for g in optimizer.param_groups]


def _set(group: dict[str, Any], key: str, value: Any) -> None:
    if isinstance(group[key], torch.Tensor):
        group[key].fill_(value.squeeze() if isinstance(value, torch.Tensor) and value.dim() else value)
    else:
        group[key] = value


def _per_group(name: str, optimizer: Optimizer, value: Any) -> list[Any]:
    """`value` for each group: one for all, or a list with one each."""
    n = len(optimizer.param_groups)
    if isinstance(value, (list, tuple)):
        if len(value) != n:
            raise ValueError(f"{name} must have the same length as optimizer.param_groups. {name} has {len(value)} "
                             "values, "
                             f"param_groups has {n}.")
        value = list(value)
    else:
        value = [value] * n
    return [v.clone() if isinstance(v, torch.Tensor) else v for v in value]


def _check_optimizer(optimizer: Any) -> None:
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")


def _cosine(start: Any, end: Any, fraction: float) -> Any:
    """From `start` (fraction 0) to `end` (fraction 1) along half a cosine."""
    return end + (start - end) * (1 + math.cos(math.pi * fraction)) / 2


class _Flag:
    """Sets a boolean attribute for the length of a `with` block."""

    def __init__(self, owner: Any, name: str) -> None:
        self.owner, self.name = owner, name

    def __enter__(self) -> None:
        setattr(self.owner, self.name, True)

    def __exit__(self, *exc: object) -> None:
        setattr(self.owner, self.name, False)


class LRScheduler:
    """Base of the schedules. A subclass defines `get_lr() -> list`, which may read `last_epoch`, `base_lrs`,
    `optimizer`.

    Args:
        optimizer: whose groups' rates are set. The first rates are kept as group["initial_lr"].
        last_epoch: number of the last epoch when training is resumed (KeyError without initial_lr); -1: a fresh start.
    """

    _get_lr_called_within_step = False
    _is_initial = False
    last_epoch: int
    base_lrs: list[Any]
    _last_lr: list[Any]

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        _check_optimizer(optimizer)
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                lr = group["lr"]
                group.setdefault("initial_lr", lr.clone() if isinstance(lr, torch.Tensor) else lr)
            elif "initial_lr" not in group:
                raise KeyError(f"param 'initial_lr' is not specified in param_groups[{i}] when resuming scheduler with "
                               "last_epoch >= 0.\nThis typically happens when:\n1. You're trying to resume training "
                               "from a "
                               "checkpoint but haven't properly loaded the optimizer state\n2. You're using last_epoch "
                               ">= 0 "
                               "for a fresh training run (not recommended)")
        self.base_lrs = _values(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        self._watch_optimizer()
        self._initial_step()

    def _watch_optimizer(self) -> None:
        """Make optimizer.step() leave a mark, so that a wrong order of calls can be warned about."""
        step = self.optimizer.step
        if hasattr(step, "_wrapped_by_lr_sched"):
            return
        owner, func = ref(self.optimizer), step.__func__  # type: ignore[attr-defined]

        @wraps(func)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            optimizer = owner()
            optimizer._opt_called = True  # type: ignore[union-attr]
            return func(optimizer, *args, **kwargs)

        wrapper._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
        self.optimizer.step = wrapper  # type: ignore[method-assign]

    def _initial_step(self) -> None:
        self._step_count = 0
        with _Flag(self, "_is_initial"):
            self.step()

    def state_dict(self) -> dict[str, Any]:
        """Every attribute but the optimizer."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> list[Any]:
        """The rates last set, one a group."""
        return self._last_lr

    def get_lr(self) -> list[Any]:
        """The rates of this epoch; called within `step`."""
        raise NotImplementedError

    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch (or, deprecated, to `epoch`) and set the rates."""
        if self._step_count == 1:
            if not hasattr(self.optimizer.step, "_wrapped_by_lr_sched"):
                warnings.warn("Seems like `optimizer.step()` has been overridden after learning rate scheduler "
                              "initialization. Please, make sure to call `optimizer.step()` before "
                              "`lr_scheduler.step()`. "
                              f"See more details at {_ORDER_URL}", UserWarning, stacklevel=2)
            elif not getattr(self.optimizer, "_opt_called", False):
                warnings.warn("Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch 1.1.0 and "
                              "later, you should call them in the opposite order: `optimizer.step()` before "
                              "`lr_scheduler.step()`.  Failure to do this will result in PyTorch skipping the first "
                              "value "
                              f"of the learning rate schedule. See more details at {_ORDER_URL}",
                              UserWarning, stacklevel=2)
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=2)
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        with _Flag(self, "_get_lr_called_within_step"):
            self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
            closed = None if epoch is None else getattr(self, "_get_closed_form_lr", None)
            lrs = self.get_lr() if closed is None else closed()
        for group, lr in zip(self.optimizer.param_groups, lrs, strict=True):
            _set(group, "lr", lr)
        self._last_lr = _values(self.optimizer, "lr")

    # --- for subclasses -----------------------------------------------------------------------------------------------
    def _warn_outside_step(self) -> None:
        if not self._get_lr_called_within_step:
            warnings.warn("To get the last learning rate computed by the scheduler, please use `get_last_lr()`.",
                          UserWarning, stacklevel=3)

    def _scaled(self, factor: float | None) -> list[Any]:
        """The present rates times `factor` (None: as they are)."""
        if factor is None:
            return _values(self.optimizer, "lr")
        return [group["lr"] * factor for group in self.optimizer.param_groups]


class _LRScheduler(LRScheduler):
    """The base class's name before PyTorch 2."""


class _FactorLR(LRScheduler):
    """A chainable schedule: `_factor()` is what the rates are multiplied by in this epoch (None: nothing)."""

    def _factor(self) -> float | None:
        raise NotImplementedError

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        return self._scaled(self._factor())


class _FunctionLR(LRScheduler):
    """A schedule given by a function of the epoch, or one function a group."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1) -> None:
        self.optimizer = optimizer
        n = len(optimizer.param_groups)
        if isinstance(lr_lambda, (list, tuple)):
            if len(lr_lambda) != n:
                raise ValueError(f"Expected {n} lr_lambdas, but got {len(lr_lambda)}")
            self.lr_lambdas = list(lr_lambda)
        else:
            self.lr_lambdas = [lr_lambda] * n
        self._check_functions()
        super().__init__(optimizer, last_epoch)

    def _check_functions(self) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        """Every attribute but the optimizer; of the functions only the attributes of callable objects."""
        state = {k: v for k, v in self.__dict__.items() if k not in ("optimizer", "lr_lambdas")}
        state["lr_lambdas"] = [None if isinstance(f, types.FunctionType) else f.__dict__.copy()
                               for f in self.lr_lambdas]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.__dict__.update({k: v for k, v in state_dict.items() if k != "lr_lambdas"})
        for fn, saved in zip(self.lr_lambdas, state_dict["lr_lambdas"], strict=False):
            if saved is not None:
                fn.__dict__.update(saved)


class LambdaLR(_FunctionLR):
    """The initial rate times lr_lambda(epoch).

    Args:
        lr_lambda: a function of the epoch, or a list with one for each group.
    """

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        return [lr * fn(self.last_epoch) for fn, lr in zip(self.lr_lambdas, self.base_lrs, strict=True)]


class MultiplicativeLR(_FunctionLR):
    """In each epoch the rate is multiplied by lr_lambda(epoch); arguments as `LambdaLR`."""

    def _check_functions(self) -> None:
        for fn in self.lr_lambdas:
            if not callable(fn):
                raise TypeError(f"lr_lambda should be a function, but got {type(fn).__name__}")

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        if self._is_initial:
            return self._scaled(None)
        return [group["lr"] * fn(self.last_epoch)
                for fn, group in zip(self.lr_lambdas, self.optimizer.param_groups, strict=True)]


class StepLR(_FactorLR):
    """The rate is multiplied by `gamma` (default 0.1) every `step_size` epochs."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float | None:
        return None if self.last_epoch == 0 or self.last_epoch % self.step_size else self.gamma

    def _get_closed_form_lr(self) -> list[Any]:
        return [lr * self.gamma ** (self.last_epoch // self.step_size) for lr in self.base_lrs]


class MultiStepLR(_FactorLR):
    """The rate is multiplied by `gamma` (default 0.1) at each of the `milestones`; a repeated one counts again."""

    def __init__(self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1,
                 last_epoch: int = -1) -> None:
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float | None:
        times = self.milestones.get(self.last_epoch)
        return None if times is None else self.gamma ** times

    def _get_closed_form_lr(self) -> list[Any]:
        passed = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return [lr * self.gamma ** passed for lr in self.base_lrs]


class ConstantLR(_FactorLR):
    """The rate is multiplied by `factor` (default 1/3) until epoch `total_iters` (default 5)."""

    def __init__(self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5,
                 last_epoch: int = -1) -> None:
        if not 0 <= factor <= 1.0:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float | None:
        if self.last_epoch == 0:
            return self.factor
        return 1.0 / self.factor if self.last_epoch == self.total_iters else None

    def _get_closed_form_lr(self) -> list[Any]:
        factor = self.factor + (self.last_epoch >= self.total_iters) * (1 - self.factor)
        return [lr * factor for lr in self.base_lrs]


class LinearLR(_FactorLR):
    """The factor on the rate goes linearly from `start_factor` (1/3) to `end_factor` (1) over `total_iters` (5)
    epochs."""

    def __init__(self, optimizer: Optimizer, start_factor: float = 1.0 / 3, end_factor: float = 1.0,
                 total_iters: int = 5, last_epoch: int = -1) -> None:
        if not 0 < start_factor <= 1.0:
            raise ValueError("Starting multiplicative factor expected to be greater than 0 and less or equal to 1.")
        if not 0 <= end_factor <= 1.0:
            raise ValueError("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float | None:
        if self.last_epoch == 0:
            return self.start_factor
        if self._is_initial or self.last_epoch > self.total_iters:
            return None
        change = self.end_factor - self.start_factor
        return 1.0 + change / (self.total_iters * self.start_factor + (self.last_epoch - 1) * change)

    def _get_closed_form_lr(self) -> list[Any]:
        done = min(self.total_iters, self.last_epoch) / self.total_iters
        return [lr * (self.start_factor + (self.end_factor - self.start_factor) * done) for lr in self.base_lrs]


class ExponentialLR(_FactorLR):
    """The rate is multiplied by `gamma` in every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float | None:
        return None if self._is_initial else self.gamma

    def _get_closed_form_lr(self) -> list[Any]:
        return [lr * self.gamma ** self.last_epoch for lr in self.base_lrs]


class PolynomialLR(_FactorLR):
    """The rate falls as (1 - epoch / total_iters) ** power (defaults 5 and 1) to zero."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float | None:
        if self._is_initial or self.last_epoch > self.total_iters:
            return None
        left, before = 1.0 - self.last_epoch / self.total_iters, 1.0 - (self.last_epoch - 1) / self.total_iters
        return (left / before) ** self.power

    def _get_closed_form_lr(self) -> list[Any]:
        left = 1.0 - min(self.total_iters, self.last_epoch) / self.total_iters
        return [lr * left ** self.power for lr in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """The rate goes along a cosine from its initial value to `eta_min` (default 0) in `T_max` epochs, and back.

    Source: SGDR (Loshchilov and Hutter, 2016), without the restarts.
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        if self._is_initial:
            return self._scaled(None)
        t, period, low = self.last_epoch, self.T_max, self.eta_min
        if self._step_count == 1 and t > 0:
            return self._get_closed_form_lr()
        if (t - 1 - period) % (2 * period) == 0:      # the last rate was eta_min: no ratio to it exists
            rise = (1 - math.cos(math.pi / period)) / 2
            groups = self.optimizer.param_groups
            return [g["lr"] + (lr - low) * rise for lr, g in zip(self.base_lrs, groups, strict=True)]
        ratio = (1 + math.cos(math.pi * t / period)) / (1 + math.cos(math.pi * (t - 1) / period))
        return [ratio * (g["lr"] - low) + low for g in self.optimizer.param_groups]

    def _get_closed_form_lr(self) -> list[Any]:
        return [_cosine(lr, self.eta_min, self.last_epoch / self.T_max) for lr in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Cosine from the initial rate to `eta_min` within `T_0` epochs, then again from the top; each cycle is `T_mult`
    times as long as the one before. `step(epoch)` takes fractions of epochs. Source: SGDR (Loshchilov and Hutter,
    2016)."""

    def __init__(self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0,
                 last_epoch: int = -1) -> None:
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, int)):
            raise ValueError(f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}")
        self.T_0, self.T_i, self.T_mult, self.eta_min = T_0, T_0, T_mult, eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        return [_cosine(lr, self.eta_min, self.T_cur / self.T_i) for lr in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:  # type: ignore[override]
        """Go on by one epoch, or to `epoch`, which may have a fraction."""
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        elif epoch < 0:
            raise ValueError(f"Expected non-negative epoch, but got {epoch}")
        elif epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            cycle = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult ** cycle - 1) / (self.T_mult - 1)
            self.T_i = self.T_0 * self.T_mult ** cycle
        self.last_epoch = math.floor(epoch)
        with _Flag(self, "_get_lr_called_within_step"):
            lrs = self.get_lr()
        for group, lr in zip(self.optimizer.param_groups, lrs, strict=True):
            _set(group, "lr", lr)
        self._last_lr = _values(self.optimizer, "lr")


class _Combined(LRScheduler):
    """A schedule made of others, kept in `_schedulers`."""

    _schedulers: Sequence[LRScheduler]

    def _check_parts(self, schedulers: Sequence[Any], optimizer: Any) -> None:
        name = type(self).__name__
        for i, s in enumerate(schedulers):
            if not hasattr(s, "optimizer"):
                raise TypeError(f"{name} at index {i} should have `optimizer` as its attribute.")
            if isinstance(s, ReduceLROnPlateau):
                raise ValueError(f"{name} does not support `ReduceLROnPlateau` scheduler as it requires additional "
                                 "kwargs to be "
                                 f"specified when calling `step`, but got one at index {i} in the given schedulers "
                                 "sequence.")
            if optimizer is not s.optimizer:
                raise ValueError(f"{name} expects all schedulers to belong to the same optimizer, but got scheduler "
                                 f"{type(s).__name__} at index {i} has {s.optimizer}, which is different from "
                                 f"{type(optimizer).__name__}.")

    def state_dict(self) -> dict[str, Any]:
        """Every attribute but the optimizer; the parts by their own state_dict."""
        state = {k: v for k, v in self.__dict__.items() if k not in ("optimizer", "_schedulers")}
        state["_schedulers"] = [s.state_dict() for s in self._schedulers]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.__dict__.update({k: v for k, v in state_dict.items() if k != "_schedulers"})
        for s, saved in zip(self._schedulers, state_dict["_schedulers"], strict=False):
            s.load_state_dict(saved)


class SequentialLR(_Combined):
    """One schedule after another: `schedulers[i + 1]` starts at epoch `milestones[i]`, from its own epoch 0."""

    def __init__(self, optimizer: Optimizer, schedulers: list[LRScheduler], milestones: list[int],
                 last_epoch: int = -1) -> None:
        if len(schedulers) < 1:
            raise ValueError(f"{type(self).__name__} expects at least one scheduler, but got no scheduler.")
        self._check_parts(schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError("Sequential Schedulers expects number of schedulers provided to be one more than the "
                             "number of "
                             f"milestone points, but got number of schedulers {len(schedulers)} and the number of "
                             "milestones "
                             f"to be equal to {len(milestones)}")
        self._schedulers, self._milestones = schedulers, milestones
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        # every part took its first step when it was made: take all of them back, then start the first part alone
        for group in optimizer.param_groups:
            _set(group, "lr", group["initial_lr"])
        self.recursive_undo()
        first = self._schedulers[bisect_right(milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def recursive_undo(self, sched: Any = None) -> None:
        """Take one step back in `sched` (default: in all parts), without touching rates."""
        sched = self if sched is None else sched
        if hasattr(sched, "_schedulers"):
            for s in sched._schedulers:
                self.recursive_undo(s)
        elif hasattr(sched, "last_epoch"):
            sched.last_epoch -= 1

    def step(self) -> None:  # type: ignore[override]
        """Step the part whose turn it is; a part whose milestone this is begins at its epoch 0."""
        self.last_epoch += 1
        at = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[at]
        if at > 0 and self._milestones[at - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


class ChainedScheduler(_Combined):
    """All `schedulers` at once, each acting on what those before it have set."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        if len(schedulers) < 1:
            raise ValueError(f"{type(self).__name__} expects at least one scheduler to be chained, but got no "
                             "scheduler.")
        optimizer = optimizer or schedulers[0].optimizer
        self._check_parts(schedulers, optimizer)
        self._schedulers = schedulers
        self.optimizer = optimizer
        self._last_lr = _values(optimizer, "lr")

    def step(self) -> None:  # type: ignore[override]
        """Step every part."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = _values(self.optimizer, "lr")


# these read the names above
from ._lr_feedback import CyclicLR, OneCycleLR, ReduceLROnPlateau  # noqa: E402

for _cls in (CyclicLR, OneCycleLR, ReduceLROnPlateau):
    _cls.__module__ = __name__


_missing.hint(__name__)
