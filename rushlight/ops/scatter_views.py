"""Scattering a part back: the inverses of views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.tensor import hooks
from . import execute
from .declare import writes
from .gather import dim_of
from .geometry import Geometry, restride

if TYPE_CHECKING:
    from ..core.tensor import Tensor

    Number = int | float | complex

ndarray = np.ndarray


def f(name: str) -> Any:
    return hooks.function(name)


def _part(name: str, get: Any, doc: str) -> Any:
    pass


@writes(method=True, exact=True)
def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
):
    """`src` written to every `step`-th slice along `dim` from `start` to `end`."""
    at = [slice(None)] * input.ndim
    at[dim_of(input, dim)] = slice(start, end, step)
    part = input[tuple(at)]
    if part.shape != src.shape:
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = {list(src.shape)}, slice size = "
            f"{list(part.shape)}"
        )
    part[...] = src


def _slice_zero(grad, src_meta, dim, start, end, step):
    return f("slice_scatter")(grad, f("zeros")(src_meta.shape, dtype=grad.dtype), dim, start, end, step)


def _slice_of(grad, dim, start, end, step):
    from .slices import slice_

    return execute.run(slice_, (grad, dim, start, end, step)).clone()


slice_scatter.gradient(input=_slice_zero, src=_slice_of)


@writes(method=True, exact=True)
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int):
    """`src` written to slice `index` of dimension `dim`."""
    at: list[Any] = [slice(None)] * input.ndim
    d = dim_of(input, dim)
    n = input.shape[d]
    if not -n <= index < n:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(input.shape)} at dimension {d}"
        )
    at[d] = index
    part = input[(*at, ...)]
    if part.shape != src.shape:
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = {list(src.shape)}, slice size = "
            f"{list(part.shape)}"
        )
    part[...] = src


select_scatter.gradient(
    input=lambda grad, src_meta, dim, index: f("select_scatter")(
        grad, f("zeros")(src_meta.shape, dtype=grad.dtype), dim, index
    ),
    src=lambda grad, dim, index: grad.select(dim, index).clone(),
)


@writes(method=True, exact=True)
def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1):
    """`src` written to the diagonal of two dimensions."""
    from .slices import diagonal

    part = restride(input, diagonal.fn(Geometry.of(input), offset, dim1, dim2))
    if part.shape != src.shape:
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = {list(src.shape)}, slice size = "
            f"{list(part.shape)}"
        )
    part[...] = src


diagonal_scatter.gradient(
    input=lambda grad, src_meta, offset, dim1, dim2: f("diagonal_scatter")(
        grad, f("zeros")(src_meta.shape, dtype=grad.dtype), offset, dim1, dim2
    ),
    src=lambda grad, offset, dim1, dim2: grad.diagonal(offset, dim1, dim2).clone(),
)


# --- Inputs for the generated tests (ops.samples) ---
slice_scatter.samples(lambda s: [s.call(s((4, 3)), s((2, 3)), 0, 1, 3), s.call(s((3, 4)), s((3, 2)), 1, 0, 4, 2)])
select_scatter.samples(lambda s: [s.call(s((4, 3)), s((3,)), 0, 2), s.call(s((4, 3)), s((4,)), -1, -1)])
diagonal_scatter.samples(lambda s: [s.call(s((3, 3)), s((3,))), s.call(s((3, 4)), s((3,)), 1)])
