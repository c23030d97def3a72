"""Schedules that move the momentum with the rate: CyclicLR and OneCycleLR, and the plateau rule.

Part of `lr_scheduler`, which re-exports them; kept apart for the size of the file.
"""

from __future__ import annotations

import math
import types
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from .lr_scheduler import EPOCH_DEPRECATION_WARNING, LRScheduler, _check_optimizer, _cosine, _per_group, _set, _values
from .optimizer import Optimizer

__all__ = ["CyclicLR", "OneCycleLR", "ReduceLROnPlateau"]


class ReduceLROnPlateau(LRScheduler):
    """The rate is multiplied by `factor` when a metric has not improved for more than `patience` epochs.

    Args:
        mode: "min" or "max": what is an improvement. factor: below 1, default 0.1. patience: default 10.
        threshold, threshold_mode: smallest improvement that counts, relative ("rel", default 1e-4) or "abs".
        cooldown: epochs after a reduction that do not count (default 0). min_lr: lower bound, one or one a group.
        eps: smaller changes of the rate are not made (default 1e-8).
    """

    def __init__(self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1, patience: int = 10,
                 threshold: float = 1e-4, threshold_mode: str = "rel", cooldown: int = 0, min_lr: Any = 0,
                 eps: float = 1e-8) -> None:
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        self.factor = factor
        _check_optimizer(optimizer)
        self.optimizer = optimizer
        n = len(optimizer.param_groups)
        if isinstance(min_lr, (list, tuple)):
            if len(min_lr) != n:
                raise ValueError(f"expected {n} min_lrs, got {len(min_lr)}")
            self.default_min_lr, self.min_lrs = None, list(min_lr)
        else:
            self.default_min_lr, self.min_lrs = min_lr, [min_lr] * n
        self.patience, self.cooldown, self.eps = patience, cooldown, eps
        self.last_epoch = 0
        self._last_lr = _values(optimizer, "lr")
        self._init_is_better(mode, threshold, threshold_mode)
        self._reset()

    def _reset(self) -> None:
        self.best = self.mode_worse
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Judge the metric of this epoch."""
        current = float(metrics)
        if epoch is None:
            epoch = self.last_epoch + 1
        else:
            warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=2)
        self.last_epoch = epoch
        if self._is_better(current, self.best):
            self.best, self.num_bad_epochs = current, 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr(epoch)
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = _values(self.optimizer, "lr")

    def _reduce_lr(self, epoch: int) -> None:
        n = len(self.optimizer.param_groups)
        if n != len(self.min_lrs):
            if self.default_min_lr is None:
                raise RuntimeError(f"The number of param groups in the `optimizer` ({n}) differs from when "
                                   "`ReduceLROnPlateau` "
                                   f"was initialized ({len(self.min_lrs)}), usually due to a new param group being "
                                   "added to "
                                   "the optimizer. Please modify the `min_lrs` field to match the length of the "
                                   "`optimizer` "
                                   "param groups.")
            self.min_lrs = [self.default_min_lr] * n
        for group, lowest in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
            old = float(group["lr"])
            new = max(old * self.factor, lowest)
            if old - new > self.eps:
                _set(group, "lr", new)

    @property
    def in_cooldown(self) -> bool:
        return self.cooldown_counter > 0

    def _is_better(self, a: float, best: float) -> bool:
        down = self.mode == "min"
        if self.threshold_mode == "rel":
            bound = best * (1.0 - self.threshold if down else self.threshold + 1.0)
        else:
            bound = best - self.threshold if down else best + self.threshold
        return a < bound if down else a > bound

    def _init_is_better(self, mode: str, threshold: float, threshold_mode: str) -> None:
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_mode} is unknown!")
        self.mode_worse = math.inf if mode == "min" else -math.inf
        self.mode, self.threshold, self.threshold_mode = mode, threshold, threshold_mode

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.__dict__.update(state_dict)
        self._init_is_better(self.mode, self.threshold, self.threshold_mode)


class _MomentumCycle(LRScheduler):
    """Schedules that move the momentum (or the first beta) against the rate."""

    cycle_momentum: bool

    def _cycle_momentum(self, base_momentum: Any, max_momentum: Any, fresh: bool) -> tuple[list[Any], list[Any]]:
        optimizer = self.optimizer
        if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
            raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
        self.use_beta1 = "betas" in optimizer.defaults
        low = _per_group("base_momentum", optimizer, base_momentum)
        high = _per_group("max_momentum", optimizer, max_momentum)
        if fresh:
            for group, b, m in zip(optimizer.param_groups, low, high, strict=True):
                self._set_momentum(group, m)
                group["max_momentum"], group["base_momentum"] = m, b
        return low, high

    def _set_momentum(self, group: dict[str, Any], value: Any) -> None:
        if self.use_beta1:
            group["betas"] = (value, *group["betas"][1:])
        else:
            group["momentum"] = value


class CyclicLR(_MomentumCycle):
    """The rate goes up and down between `base_lr` and `max_lr`, the momentum opposite to it (Smith, 2015).

    Args:
        base_lr, max_lr: bounds, one or one a group. step_size_up, step_size_down: steps up (2000) and down (the same).
        mode: "triangular", "triangular2" (halves in each cycle) or "exp_range" (gamma ** step).
        scale_fn, scale_mode: an own function of the "cycle" or of the "iterations" that scales the height.
        cycle_momentum, base_momentum, max_momentum: defaults True, 0.8, 0.9.
    """

    def __init__(self, optimizer: Optimizer, base_lr: Any, max_lr: Any, step_size_up: int = 2000,
                 step_size_down: int | None = None, mode: str = "triangular", gamma: float = 1.0,
                 scale_fn: Callable[[float], float] | None = None, scale_mode: str = "cycle",
                 cycle_momentum: bool = True, base_momentum: Any = 0.8, max_momentum: Any = 0.9,
                 last_epoch: int = -1) -> None:
        _check_optimizer(optimizer)
        self.optimizer = optimizer
        base_lrs = _per_group("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for lr, group in zip(base_lrs, optimizer.param_groups, strict=True):
                _set(group, "lr", lr)
        self.max_lrs = _per_group("max_lr", optimizer, max_lr)
        up = float(step_size_up)
        self.total_size = up + (up if step_size_down is None else float(step_size_down))
        self.step_ratio = up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        self.mode, self.gamma, self.scale_mode = mode, gamma, scale_mode
        self._scale_fn_custom = scale_fn
        self._init_scale_fn()
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            low, high = self._cycle_momentum(base_momentum, max_momentum, last_epoch == -1)
            self.base_momentums, self.max_momentums = low, high
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def _init_scale_fn(self) -> None:
        if self._scale_fn_custom is None:
            shape: dict[str, Callable[[float], float]] = {
                "triangular": _flat, "triangular2": _halving, "exp_range": partial(pow, self.gamma)}
            self._scale_fn_ref = shape[self.mode]
            self.scale_mode = "iterations" if self.mode == "exp_range" else "cycle"

    def scale_fn(self, x: float) -> float:
        """The height of that cycle or at that iteration, in parts of the full one."""
        return self._scale_fn_ref(x) if self._scale_fn_custom is None else self._scale_fn_custom(x)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)

        def scale(span: float) -> float:
            return span * height * self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)

        lrs = [base + scale(top - base) for base, top in zip(self.base_lrs, self.max_lrs, strict=True)]
        if self.cycle_momentum:
            groups = self.optimizer.param_groups
            for group, base, top in zip(groups, self.base_momentums, self.max_momentums, strict=True):
                self._set_momentum(group, top - scale(top - base))
        return lrs

    def state_dict(self) -> dict[str, Any]:
        """Every attribute but the optimizer; of an own scale_fn only the attributes of a callable object."""
        state = super().state_dict()
        state.pop("_scale_fn_ref", None)
        fn = state["_scale_fn_custom"]
        state["_scale_fn_custom"] = None if fn is None or isinstance(fn, types.FunctionType) else fn.__dict__.copy()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        fn = state_dict["_scale_fn_custom"]
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "_scale_fn_custom"})
        if fn is not None:
            self._scale_fn_custom.__dict__.update(fn)
        self._init_scale_fn()


def _flat(x: float) -> float:
    return 1.0


def _halving(x: float) -> float:
    return 1 / 2.0 ** (x - 1)


class OneCycleLR(_MomentumCycle):
    """Up from max_lr / div_factor to `max_lr`, then down to the start divided by final_div_factor; the momentum
    opposite (Smith and Topin, 2017). Step it after every batch.

    Args:
        max_lr: the peak, one or one a group. total_steps, or epochs and steps_per_epoch: the length.
        pct_start: part of the steps that go up (0.3). anneal_strategy: "cos" or "linear".
        cycle_momentum, base_momentum, max_momentum: defaults True, 0.85, 0.95. div_factor: 25. final_div_factor: 1e4.
        three_phase: go down to the initial rate symmetrically, then to the final one.
    """

    def __init__(self, optimizer: Optimizer, max_lr: Any, total_steps: int | None = None, epochs: int | None = None,
                 steps_per_epoch: int | None = None, pct_start: float = 0.3, anneal_strategy: str = "cos",
                 cycle_momentum: bool = True, base_momentum: Any = 0.85, max_momentum: Any = 0.95,
                 div_factor: float = 25.0, final_div_factor: float = 1e4, three_phase: bool = False,
                 last_epoch: int = -1) -> None:
        _check_optimizer(optimizer)
        self.optimizer = optimizer
        if total_steps is None and (epochs is None or steps_per_epoch is None):
            raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
        given = {"total_steps": total_steps} if total_steps is not None else {
            "epochs": epochs, "steps_per_epoch": steps_per_epoch}
        for name, value in given.items():
            if not isinstance(value, int) or value <= 0:
                raise ValueError(f"Expected positive integer {name}, but got {value}")
        self.total_steps: int = math.prod(given.values())  # type: ignore[arg-type]
        if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self._schedule_phases = self._phases(pct_start, three_phase)
        self._anneal_func_type = anneal_strategy
        max_lrs = _per_group("max_lr", optimizer, max_lr)
        if last_epoch == -1:
            for group, top in zip(optimizer.param_groups, max_lrs, strict=True):
                group["initial_lr"], group["max_lr"] = top / div_factor, top
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._cycle_momentum(base_momentum, max_momentum, last_epoch == -1)
        super().__init__(optimizer, last_epoch)

    def _phases(self, up: float, three: bool) -> list[dict[str, Any]]:
        def phase(end_step: float, start: str, end: str, start_momentum: str, end_momentum: str) -> dict[str, Any]:
            return {"end_step": end_step, "start_lr": f"{start}_lr", "end_lr": f"{end}_lr",
                    "start_momentum": f"{start_momentum}_momentum", "end_momentum": f"{end_momentum}_momentum"}

        n = self.total_steps
        first = phase(float(up * n) - 1, "initial", "max", "max", "base")
        if not three:
            return [first, phase(n - 1, "max", "min", "base", "max")]
        return [first, phase(float(2 * up * n) - 2, "max", "initial", "base", "max"),
                phase(n - 1, "initial", "min", "max", "max")]

    def _anneal_func(self, start: Any, end: Any, fraction: float) -> Any:
        return _cosine(start, end, fraction) if self._anneal_func_type == "cos" else (end - start) * fraction + start

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        at = self.last_epoch
        if at > self.total_steps:
            raise ValueError(f"Tried to step {at} times. The specified number of total steps is {self.total_steps}")
        phases = self._schedule_phases
        i = next((i for i, p in enumerate(phases) if at <= p["end_step"]), len(phases) - 1)
        begin = phases[i - 1]["end_step"] if i else 0.0
        now = phases[i]
        fraction = (at - begin) / (now["end_step"] - begin)
        lrs = []
        for group in self.optimizer.param_groups:
            lrs.append(self._anneal_func(group[now["start_lr"]], group[now["end_lr"]], fraction))
            if self.cycle_momentum:
                self._set_momentum(group, self._anneal_func(group[now["start_momentum"]], group[now["end_momentum"]],
                                                            fraction))
        return lrs
