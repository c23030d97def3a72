"""Functions of modules whose gradient in PyTorch is not the derivative of their forward."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight.autograd import Function
from rushlight.core.tensor import Tensor

__all__ = ["CrossMapLRN2d"]


def _window_sums(x: Tensor, first: int, size: int) -> list[Tensor]:
    """For every channel c of (N, C, H, W) the sum of channels c + first .. c + first + size - 1 that exist."""
    return [x[:, max(0, c + first):max(0, c + first + size)].sum(1) for c in range(x.shape[1])]


class CrossMapLRN2d(Function):
    """Normalisation across channels as PyTorch has it since Lua Torch, slips of its running sums included.

    Forward: the window reaches `before` channels to either side, but channel 0 never leaves it again. Backward: the
    window of the gradients lies to the left of the one that the derivative has.
    """

    @staticmethod
    def forward(ctx: Any, input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> Tensor:
        if input.dim() != 4:
            raise ValueError(f"CrossMapLRN2d: Expected input to be 4D, got {input.dim()}D instead.")
        before = int((size - 1) / 2 + 1) - 1
        square = input.pow(2)
        sums = _window_sums(square, -before, 2 * before + 1)
        sums = [s if c <= before else s + square[:, 0] for c, s in enumerate(sums)]
        scale = rushlight.stack(sums, 1) * (alpha / size) + k
        output = input * scale.pow(-beta)
        ctx.save_for_backward(input, output, scale)
        ctx.size, ctx.alpha, ctx.beta = size, alpha, beta
        return output

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        input, output, scale = ctx.saved_tensors
        ratio = grad_output * output / scale
        sums = rushlight.stack(_window_sums(ratio, -int(ctx.size - (ctx.size - 1) / 2), ctx.size), 1)
        grad = scale.pow(-ctx.beta) * grad_output - (2 * ctx.alpha * ctx.beta / ctx.size) * input * sums
        return grad, None, None, None, None
