"""L-BFGS: quasi-Newton steps from a limited memory of gradient differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import rushlight as torch

from .optimizer import Optimizer, _check_lr

__all__ = ["LBFGS"]


class _Point(NamedTuple):
    """A point on the search line: step `t`, loss, flat gradient, slope along the line."""
    t: Any
    loss: float
    grad: Any
    slope: Any


def _cubic_minimum(a: _Point, b: _Point, low: Any, high: Any) -> Any:
    """Where the cubic through the losses and slopes of `a` and `b` has its minimum, kept within [low, high]; the middle
    of that where it has none (Nocedal and Wright, Numerical Optimization, 3.59)."""
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    discriminant = d1 ** 2 - a.slope * b.slope
    if not discriminant >= 0:
        return (low + high) / 2.0
    d2 = discriminant.sqrt()
    left, right = (a, b) if a.t <= b.t else (b, a)
    best = right.t - (right.t - left.t) * ((right.slope + d2 - d1) / (right.slope - left.slope + 2 * d2))
    return min(max(best, low), high)


def _strong_wolfe(evaluate: Callable[[Any], _Point], start: _Point, t: Any, size: Any, max_evaluations: int,
                  smallest: float = 1e-9, c1: float = 1e-4, c2: float = 0.9) -> tuple[_Point, int]:
    """A step that satisfies the strong Wolfe conditions (Nocedal and Wright, algorithms 3.5 and 3.6).

    `evaluate(t)`: the point at step t. `size`: largest element of the direction; the search ends where the bracket
    times `size` is under `smallest`. Returns the best point and the number of evaluations.
    """
    def too_high(p: _Point) -> bool:
        return bool(p.loss > start.loss + c1 * p.t * start.slope)

    def flat(p: _Point) -> bool:
        return bool(abs(p.slope) <= -c2 * start.slope)

    before, point = start, evaluate(t)
    evaluations, tries = 1, 0
    bracket: list[_Point] | None = None
    done = False
    while tries < max_evaluations:      # lengthen the step until a minimum lies behind it
        if too_high(point) or tries > 1 and point.loss >= before.loss:
            bracket = [before, point]
            break
        if flat(point):
            bracket, done = [point], True
            break
        if point.slope >= 0:
            bracket = [before, point]
            break
        nearest, farthest = point.t + 0.01 * (point.t - before.t), point.t * 10
        t = _cubic_minimum(before, point, nearest, farthest)
        before, point = point, evaluate(t)
        evaluations, tries = evaluations + 1, tries + 1
    if bracket is None:
        bracket = [start, point]

    stuck = False
    low, high = (0, 1) if bracket[0].loss <= bracket[-1].loss else (1, 0)
    while not done and tries < max_evaluations:      # narrow the bracket
        ends = [p.t for p in bracket]
        if abs(ends[1] - ends[0]) * size < smallest:
            break
        left, right = min(ends), max(ends)
        t = _cubic_minimum(bracket[0], bracket[1], left, right)
        margin = 0.1 * (right - left)
        if min(right - t, t - left) < margin:
            # too near to an end, twice in a row or on it: step a tenth inside, or the bracket would hardly shrink
            if stuck or t >= right or t <= left:
                t = right - margin if abs(t - right) < abs(t - left) else left + margin
                stuck = False
            else:
                stuck = True
        else:
            stuck = False
        point = evaluate(t)
        evaluations, tries = evaluations + 1, tries + 1
        if too_high(point) or point.loss >= bracket[low].loss:
            bracket[high] = point
            low, high = (0, 1) if bracket[0].loss <= bracket[1].loss else (1, 0)
        else:
            if flat(point):
                done = True
            elif point.slope * (bracket[high].t - bracket[low].t) >= 0:
                bracket[high] = bracket[low]
            bracket[low] = point
    return bracket[low if len(bracket) > 1 else 0], evaluations


class LBFGS(Optimizer):
    """L-BFGS (Nocedal, 1980). `step(closure)` runs up to `max_iter` iterations; the closure clears the gradients,
    computes the loss and its gradients, and returns it.

    Args:
        params: one group only.
        lr: step length, or with a line search the first one tried (default 1).
        max_iter: iterations a step (default 20). max_eval: evaluations a step (default max_iter * 1.25).
        tolerance_grad: end at gradients no larger (default 1e-7). tolerance_change: at smaller changes (default 1e-9).
        history_size: pairs kept (default 100). line_search_fn: None or "strong_wolfe".
    """

    def __init__(self, params: Any, lr: Any = 1, max_iter: int = 20, max_eval: int | None = None,
                 tolerance_grad: float = 1e-7, tolerance_change: float = 1e-9, history_size: int = 100,
                 line_search_fn: str | None = None) -> None:
        _check_lr(lr)
        super().__init__(params, dict(
            lr=lr, max_iter=max_iter, max_eval=max_iter * 5 // 4 if max_eval is None else max_eval,
            tolerance_grad=tolerance_grad, tolerance_change=tolerance_change, history_size=history_size,
            line_search_fn=line_search_fn))
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    def _parameters(self) -> list[Any]:
        return self.param_groups[0]["params"]

    def _flat_grad(self) -> Any:
        parts = []
        for p in self._parameters():
            g = torch.zeros_like(p) if p.grad is None else p.grad.to_dense() if p.grad.is_sparse else p.grad
            parts.append((torch.view_as_real(g) if g.is_complex() else g).reshape(-1))
        return torch.cat(parts, 0)

    def _move(self, t: Any, direction: Any) -> None:
        t = float(t)
        at = 0
        for p in self._parameters():
            p = torch.view_as_real(p) if p.is_complex() else p
            p.add_(direction[at:at + p.numel()].view_as(p), alpha=t)
            at += p.numel()

    def _loss(self, closure: Callable[[], Any]) -> Any:
        with torch.enable_grad():
            return closure()

    def step(self, closure: Callable[[], Any]) -> Any:  # type: ignore[override]
        """Iterate until a tolerance or a limit is reached. Returns the loss before the first iteration."""
        with torch.no_grad():
            return self._minimise(closure, self.param_groups[0])

    def _minimise(self, closure: Callable[[], Any], group: dict[str, Any]) -> Any:
        lr = group["lr"].squeeze() if isinstance(group["lr"], torch.Tensor) else group["lr"]
        max_iter, max_eval = group["max_iter"], group["max_eval"]
        tolerance_grad, tolerance_change = group["tolerance_grad"], group["tolerance_change"]
        state = self.state[self._parameters()[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first_loss = self._loss(closure)
        loss = float(first_loss)
        evaluations = 1
        state["func_evals"] += 1
        grad = self._flat_grad()
        if grad.abs().max() <= tolerance_grad:
            return first_loss
        for iteration in range(1, max_iter + 1):
            state["n_iter"] += 1
            self._direction(state, grad, group["history_size"])
            d, previous = state["d"], loss
            state["prev_loss"] = loss
            t = min(1.0, 1.0 / grad.abs().sum()) * lr if state["n_iter"] == 1 else lr
            state["t"] = t
            slope = grad.dot(d)
            if slope > -tolerance_change:
                break
            small = False
            used = 0
            if group["line_search_fn"] is not None:
                if group["line_search_fn"] != "strong_wolfe":
                    raise RuntimeError("only 'strong_wolfe' is supported")
                point, used = self._search(closure, d, _Point(0, loss, grad, slope), t, max_eval - evaluations)
                t, loss, grad = point.t, point.loss, point.grad
                state["t"] = t
                self._move(t, d)
                small = bool(grad.abs().max() <= tolerance_grad)
            else:
                self._move(t, d)
                if iteration != max_iter:
                    loss = float(self._loss(closure))
                    grad = self._flat_grad()
                    small = bool(grad.abs().max() <= tolerance_grad)
                    used = 1
            evaluations += used
            state["func_evals"] += used
            if (iteration == max_iter or evaluations >= max_eval or small or d.mul(t).abs().max() <= tolerance_change
                    or abs(loss - previous) < tolerance_change):
                break
        return first_loss

    def _direction(self, state: dict[str, Any], grad: Any, history_size: int) -> None:
        """Update the memory by the last step, and state["d"] to minus the inverse Hessian's estimate times `grad`, by
        the two-loop recursion (Nocedal and Wright, algorithm 7.4)."""
        if state["n_iter"] == 1:
            state["d"] = grad.neg()
            state["old_dirs"], state["old_stps"], state["ro"], state["H_diag"] = [], [], [], 1
            state["prev_flat_grad"] = grad.clone()
            return
        y, s = grad.sub(state["prev_flat_grad"]), state["d"].mul(state["t"])
        ys = y.dot(s)
        if ys > 1e-10:
            memory = (state["old_dirs"], state["old_stps"], state["ro"])
            for kept, new in zip(memory, (y, s, 1.0 / ys), strict=True):
                if len(kept) == history_size:
                    kept.pop(0)
                kept.append(new)
            state["H_diag"] = ys / y.dot(y)
        dirs, steps, ro = state["old_dirs"], state["old_stps"], state["ro"]
        al = state.setdefault("al", [None] * history_size)
        q = grad.neg()
        for i in reversed(range(len(dirs))):
            al[i] = steps[i].dot(q) * ro[i]
            q.add_(dirs[i] * -al[i])
        r = q.mul(state["H_diag"])
        for i in range(len(dirs)):
            r.add_(steps[i] * (al[i] - dirs[i].dot(r) * ro[i]))
        state["d"] = r
        state["prev_flat_grad"] = grad.clone()

    def _search(self, closure: Callable[[], Any], d: Any, start: _Point, t: Any, limit: int) -> tuple[_Point, int]:
        params = self._parameters()
        origin = [p.clone() for p in params]

        def evaluate(t: Any) -> _Point:
            self._move(t, d)
            loss = float(self._loss(closure))
            grad = self._flat_grad()
            for p, before in zip(params, origin, strict=True):
                p.copy_(before)
            return _Point(t, loss, grad, grad.dot(d))

        return _strong_wolfe(evaluate, start, t, d.abs().max(), limit)
