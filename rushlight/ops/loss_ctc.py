"""Connectionist temporal classification (Graves et al., 2006)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import dtype as D
from .declare import composite, structural
from .nn_common import f

if TYPE_CHECKING:
    from ..core.tensor import Tensor

NEVER = -np.inf


def _labels(targets: np.ndarray, lengths: list[int], blank: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(labels with blanks between, (N, 2 S + 1); how many of each row count; where a step may skip the blank before it)."""
    longest = max(lengths, default=0)
    ext = np.full((len(lengths), 2 * longest + 1), blank, np.int64)
    flat = targets.reshape(-1) if targets.ndim == 1 else None
    at = 0
    for i, n in enumerate(lengths):
        ext[i, 1:2 * n + 1:2] = flat[at:at + n] if flat is not None else targets[i, :n]
        at += n
    skip = np.zeros(ext.shape, bool)
    skip[:, 2:] = (ext[:, 2:] != blank) & (ext[:, 2:] != ext[:, :-2])
    return ext, 2 * np.asarray(lengths, np.int64) + 1, skip


def _logsum(*xs: np.ndarray) -> np.ndarray:
    m = np.maximum.reduce(xs)
    safe = np.where(np.isneginf(m), 0, m)
    return np.log(sum(np.exp(x - safe) for x in xs)) + safe


def _shift(x: np.ndarray, by: int) -> np.ndarray:
    """Columns moved by `by`; what comes in is impossible."""
    out = np.full_like(x, NEVER)
    if by > 0:
        out[:, by:] = x[:, :-by] if x.shape[1] > by else x[:, :0]
    else:
        out[:, :by] = x[:, -by:]
    return out


def _forward_backward(lp: np.ndarray, targets: np.ndarray, steps: list[int], lengths: list[int], blank: int, want_grad: bool) -> tuple:
    """(negative log likelihoods (N,), their gradient (T, N, C) as PyTorch defines it: for log-probabilities that are normalised)."""
    total, n, c = lp.shape
    ext, counts, skip = _labels(targets, lengths, blank)
    width = ext.shape[1]
    rows = np.arange(n)
    column = np.arange(width)
    outside = column >= counts[:, None]
    emit = np.take_along_axis(lp, np.broadcast_to(ext, (total, n, width)), 2) if total else np.empty((0, n, width), lp.dtype)
    alpha = np.full((max(total, 1), n, width), NEVER, lp.dtype)
    if total:
        alpha[0] = np.where(column < np.minimum(counts, 2)[:, None], emit[0], NEVER)
    for t in range(1, total):
        a = alpha[t - 1]
        alpha[t] = np.where(outside, NEVER, _logsum(a, _shift(a, 1), np.where(skip, _shift(a, 2), NEVER)) + emit[t])
    last = np.asarray(steps) - 1
    end = alpha[np.maximum(last, 0), rows]
    likelihood = _logsum(end[rows, counts - 1], np.where(counts > 1, end[rows, np.maximum(counts - 2, 0)], NEVER))
    empty = last < 0      # without a step only the empty target is possible
    likelihood = np.where(empty, np.where(counts == 1, 0, NEVER), likelihood).astype(lp.dtype)
    nll = -likelihood
    if not want_grad:
        return nll, None
    beta = np.full((n, width), NEVER, lp.dtype)
    grad = np.zeros_like(lp)
    ahead = np.zeros_like(skip)
    ahead[:, :-2] = skip[:, 2:]
    for t in range(total - 1, -1, -1):
        nxt = np.where(outside, NEVER, _logsum(beta, _shift(beta, -1), np.where(ahead, _shift(beta, -2), NEVER)) + emit[t])
        start = np.where((column == counts[:, None] - 1) | (column == counts[:, None] - 2), emit[t], NEVER)
        beta = np.where((last == t)[:, None], start, np.where((last > t)[:, None], nxt, NEVER))
        both = alpha[t] + beta
        post = np.full((n, c), NEVER, lp.dtype)
        for s in range(width):       # labels repeat, so their posteriors are summed
            k = ext[:, s]
            post[rows, k] = _logsum(post[rows, k], both[:, s])
        g = np.exp(lp[t]) - np.exp(post + nll[:, None] - lp[t])
        grad[t] = np.where((last >= t)[:, None], g, 0)
    return nll, grad


@structural(public=False, exact=True)
def _ctc(log_probs: Tensor, targets: Tensor, steps: tuple, lengths: tuple, blank: int, zero_infinity: bool):
    return _ctc_array(log_probs, targets, steps, lengths, blank, zero_infinity, False)[0]


def _ctc_array(log_probs, targets, steps, lengths, blank, zero_infinity, keep):
    nll, grad = _forward_backward(log_probs, targets, list(steps), list(lengths), blank, keep)
    if zero_infinity:
        bad = np.isinf(nll)
        nll = np.where(bad, 0, nll).astype(nll.dtype)
        if grad is not None:
            grad[:, bad] = 0
    return nll, grad


_ctc.fast(_ctc_array, keeps=("unit",))
_ctc.shape(lambda log_probs, targets, steps, lengths, blank, zero_infinity: (log_probs.shape[1],))


@structural(public=False, exact=True, name="_ctc_loss_backward")
def _ctc_backward(grad: Tensor, unit: Tensor, log_probs: Tensor):
    """The gradient by the log probabilities from that of the losses; linear in `grad`, and no more is known of its derivative."""
    return unit * grad[None, :, None]


def _ctc_backward_backward(grad: Any, needs: Any, unit: Any) -> tuple:
    if needs[2]:
        raise NotImplementedError("the derivative for '_ctc_loss_backward' is not implemented.")
    return (grad * unit).sum((0, 2)), None, None


_ctc_backward.shape(lambda grad, unit, log_probs: unit.shape)
_ctc_backward.backward(_ctc_backward_backward)
_ctc.gradient(log_probs=lambda grad, unit, log_probs: _ctc_backward(grad, unit, log_probs))
_ctc.node_name = "CtcLossBackward0"


def _lengths(x: Any, name: str) -> tuple[int, ...]:
    if hasattr(x, "tolist"):
        if x.dtype.category != D.INTEGER:
            raise RuntimeError(f"{name} must be integral")
        v = x.tolist()
        return tuple(v) if isinstance(v, list) else (v,)
    return (x,) if isinstance(x, int) else tuple(int(i) for i in x)


@composite(ns="nn.functional")
def ctc_loss(log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False):
    """-log of the probability of the label sequences `targets` under all alignments with `log_probs`: (T, N, C) or (T, C), of
    log_softmax. `targets` is (N, S), or all sequences one after the other. "mean" divides each loss by its target's length first;
    `zero_infinity` gives 0 where no alignment exists."""
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    single = log_probs.dim() == 2
    if log_probs.dim() not in (2, 3):
        raise RuntimeError(f"log_probs must have 2 or 3 dimensions, but got shape {list(log_probs.shape)}")
    lp = log_probs.unsqueeze(1) if single else log_probs
    if not lp.is_floating_point() or lp.dtype.itemsize < 4:
        raise NotImplementedError(f"\"ctc_loss_cpu\" not implemented for {lp.dtype}")
    total, n, c = lp.shape
    if n == 0:
        raise RuntimeError("log_probs tensor must not be empty")
    steps, lengths = _lengths(input_lengths, "input_lengths"), _lengths(target_lengths, "target_lengths")
    if targets.dtype.category != D.INTEGER:
        raise RuntimeError("targets must be integral")
    if not 0 <= blank < c:
        raise RuntimeError("blank must be in label range")
    for name, v in (("input_lengths", steps), ("target_lengths", lengths)):
        if len(v) != n:
            raise RuntimeError(f"{name} must be of size batch_size ({n}), but got {len(v)}")
        if any(x < 0 for x in v):
            raise RuntimeError(f"Expected {name} to have value at least 0, but got value {min(v)} (while checking arguments for ctc_loss_allocate_outputs)")
    if any(s > total for s in steps):
        raise RuntimeError(f"Expected input_lengths to have value at most {total}, but got value {max(steps)} (while checking arguments for ctc_loss_allocate_outputs)")
    if targets.dim() == 2:
        if targets.shape[0] != n or targets.shape[1] < max(lengths, default=0):
            raise RuntimeError(f"Expected tensor to have size at least {max(lengths, default=0)} at dimension 1, but got size {targets.shape[1]} for argument #2 'targets' "
                               "(while checking arguments for ctc_loss_allocate_outputs)")
    elif targets.dim() == 1 and targets.shape[0] != sum(lengths):
        raise RuntimeError(f"Expected tensor to have size {sum(lengths)} at dimension 0, but got size {targets.shape[0]} for argument #2 'targets' "
                           "(while checking arguments for ctc_loss_allocate_outputs)")
    elif targets.dim() not in (1, 2):
        raise RuntimeError(f"targets must have 1 or 2 dimensions, but got shape {list(targets.shape)}")
    loss = _ctc(lp, targets.to(D.int64), steps, lengths, blank, zero_infinity)
    if reduction == "mean":
        return (loss / f("tensor")([max(x, 1) for x in lengths], dtype=loss.dtype, device=loss.device)).mean()
    return loss.sum() if reduction == "sum" else loss.squeeze(0) if single else loss


@composite(ns="torch", name="ctc_loss")
def _ctc_torch(log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0, reduction: int = 0, zero_infinity: bool = False):
    """`nn.functional.ctc_loss` with the reduction as a number: 0 none, 1 mean, 2 sum."""
    return ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, ("none", "mean", "sum")[reduction], zero_infinity)


# --- Inputs for the generated tests (ops.samples) ---
ctc_loss.samples(lambda s: [s.call(s((5, 2, 3), low=-3.0, high=-0.5, requires_grad=False), s.array([[1, 2], [2, 1]]), (5, 4), (2, 1))])
