"""Linear layers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import dtype as D
from .declare import composite
from .execute import HALF, common_shape
from .generate import sum_to
from .nn_common import f, narrow, wide

if TYPE_CHECKING:
    from ..core.tensor import Tensor

_blas: list[Any] = []


def _gemm() -> Any:
    """backends.cpu.blas.gemm, imported at the first product."""
    if not _blas:
        from ..backends.cpu.blas import gemm
        _blas.append(gemm)
    return _blas[0]


def _linear_check(input: Any, weight: Any, bias: Any) -> None:
    if not (input.dtype == weight.dtype and (bias is None or bias.dtype == weight.dtype)):
        a, b = (input, weight) if input.dtype != weight.dtype else (bias, weight)
        raise RuntimeError(f"mat1 and mat2 must have the same dtype, but got {_name(a)} and {_name(b)}")
    if weight.ndim > 2 or weight.ndim == 0 or input.ndim == 0:
        raise RuntimeError(f"linear: weight must have 1 or 2 dimensions and input at least 1, but got shapes {list(weight.shape)} and {list(input.shape)}")
    if input.shape[-1] != weight.shape[-1]:
        rows = math.prod(input.shape[:-1])
        n = f"{weight.shape[-1]}x{weight.shape[0] if weight.ndim == 2 else 1}"
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({rows}x{input.shape[-1]} and {n}): "
                           f"input of shape {list(input.shape)}, weight of shape {list(weight.shape)}")


def _name(a: Any) -> str:
    from .execute import _scalar_name
    return _scalar_name(a.dtype if isinstance(a.dtype, D.dtype) else D.of(a.dtype))


def _as_rows(x: Any) -> Any:
    """(..., n) as (rows, n), for no elements too."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _linear_array(input: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    if input.dtype is not weight.dtype or bias is not None and bias.dtype is not weight.dtype or weight.ndim != 2 or not input.ndim \
            or input.shape[-1] != weight.shape[1]:
        _linear_check(input, weight, bias)
    to = input.dtype
    if to.itemsize <= 2:
        input, weight = wide(input), wide(weight)
        bias = None if bias is None else wide(bias)
    gemm = _gemm()
    if bias is not None and bias.ndim == 1 and weight.ndim == 2 and bias.shape[0] == weight.shape[0]:
        y = gemm(input if input.ndim == 2 else _as_rows(input), weight.T, bias=bias)
        return narrow(y if input.ndim == 2 else y.reshape(*input.shape[:-1], weight.shape[0]), to)
    if weight.ndim == 1:
        y = gemm(_as_rows(input), weight[:, None]).reshape(input.shape[:-1])
    elif input.ndim == 2:
        y = gemm(input, weight.T)
    else:
        y = gemm(_as_rows(input), weight.T).reshape(*input.shape[:-1], weight.shape[0])
    if bias is not None:
        if bias.ndim > 1 or bias.ndim and bias.shape[0] not in (1, y.shape[-1] if y.ndim else 1):
            common_shape(y.shape, bias.shape, name="linear")
            y = y + bias
        else:
            y += bias
    return narrow(y, to)


@composite(ns="nn.functional", exact=True, out=True, node="AddmmBackward0")
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None):
    """input @ weight.T + bias: input (..., in), weight (out, in) or (in,), bias (out,) or None."""
    _linear_check(input, weight, bias)
    weight = weight.t() if weight.dim() == 2 else weight
    if bias is not None and input.dtype.name in HALF:       # rounded once, as in the fast form
        return (f("matmul")(input.float(), weight.float()) + bias.float()).to(input.dtype)
    y = f("matmul")(input, weight)
    return y if bias is None else y + bias


def _folded(g: np.ndarray, shape: tuple) -> np.ndarray:
    """`g` summed over what broadcasting added to or stretched of an array of `shape`."""
    lead = g.ndim - len(shape)
    dims = (*range(lead), *(k + lead for k, n in enumerate(shape) if n == 1))
    return g.sum(dims, keepdims=True).reshape(shape)


def _linear_backward_array(grad: np.ndarray, needs: tuple, input: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> tuple:
    gemm = _gemm()
    gx = gw = gb = None
    g = wide(grad)
    if g.dtype.kind == "c":
        input, weight = input.conj(), weight.conj()
    out = weight.shape[0] if weight.ndim == 2 else 1
    g2 = g if g.ndim == 2 and weight.ndim == 2 else g.reshape(-1, 1) if weight.ndim < 2 else _as_rows(g)
    if needs[0]:
        gx = narrow(gemm(g2, wide(weight).reshape(out, weight.shape[-1])), input.dtype)
        if input.ndim != 2:
            gx = gx.reshape(input.shape)
    if needs[1]:
        x = wide(input)
        gw = narrow(gemm(g2.T, x if x.ndim == 2 else _as_rows(x)), weight.dtype)
        if weight.ndim == 1:
            gw = gw.reshape(weight.shape)
    if needs[2]:
        gb = narrow(np.add.reduce(g2, 0) if bias.shape == (out,) else _folded(g, bias.shape), bias.dtype)  # type: ignore[union-attr]
    return gx, gw, gb


@composite(public=False, multi=True, exact=True)
def _linear_backward(grad: Tensor, needs: tuple, input: Tensor, weight: Tensor, bias: Tensor | None):
    if weight.dtype.is_complex:
        input, weight = input.conj(), weight.conj()
    w = weight if weight.dim() == 2 else weight.unsqueeze(0)
    g = _as_rows(grad) if weight.dim() == 2 else grad.reshape(-1, 1)
    gx = f("mm")(g, w).reshape(input.shape) if needs[0] else None
    gw = f("mm")(g.t(), _as_rows(input)).reshape(weight.shape) if needs[1] else None
    gb = None
    if needs[2]:
        gb = g.sum(0) if bias.shape == (w.shape[0],) else sum_to(grad, bias._a.shape)  # type: ignore[union-attr]
    return gx, gw, gb


_linear_backward.fast(_linear_backward_array)
linear.fast(_linear_array)
linear.backward(lambda grad, needs, input, weight, bias: _linear_backward(grad, needs, input, weight, bias))


# --- Inputs for the generated tests (ops.samples) ---
linear.samples(lambda s: [s.call(s((2, 3)), s((4, 3))), s.call(s((2, 3)), s((4, 3)), s((4,))), s.call(s((3,)), s((2, 3)), s((2,))),
                          s.call(s((2, 2, 3)), s((2, 3)), s((2,)))])
