"""Operators that PyTorch's others are made of, or that only its compilers call, under the names of its dispatcher.

Those with `ns="ops.aten"` are found as `torch.ops.aten.NAME` only.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import dtype as D
from .declare import composite, structural, view
from .execute import normalize_dims, reads_values
from .nn_common import f
from .pool import _take, _unpool_sum
from .resample import _resize, _table

if TYPE_CHECKING:
    from ..core.dtype import dtype as DType
    from ..core.tensor import Tensor

    Number = int | float | complex
    Dims = Any

ATEN = "ops.aten"


# --- softmax ----------------------------------------------------------------------------------------------------------
@composite(ns="torch")
def _softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: DType):
    """The gradient of `softmax` along `dim` from that of its result and the result, in `input_dtype`."""
    g = grad_output * output
    return (g - output * g.sum(dim, True)).to(input_dtype)


@composite(ns="torch")
def _log_softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: DType):
    """The gradient of `log_softmax` along `dim` from that of its result and the result, in `input_dtype`."""
    return (grad_output - output.exp() * grad_output.sum(dim, True)).to(input_dtype)


@composite(ns="torch")
def _softmax(input: Tensor, dim: int, half_to_float: bool):
    """`softmax` along `dim`; float16 to float32 if so said."""
    return f("softmax")(input, dim, dtype=D.float32 if half_to_float else None)


@composite(ns="torch")
def _log_softmax(input: Tensor, dim: int, half_to_float: bool):
    """`log_softmax` along `dim`; float16 to float32 if so said."""
    return f("log_softmax")(input, dim, dtype=D.float32 if half_to_float else None)


@composite(ns="torch")
def _safe_softmax(input: Tensor, dim: int, dtype: DType | None = None):
    """`softmax` along `dim`, 0 where a whole row is -inf (an attention that may look at nothing)."""
    nothing = (input == -math.inf).all(dim, True)
    return f("softmax")(input.masked_fill(nothing, 0), dim, dtype=dtype).masked_fill(nothing, 0)


# --- normalization ----------------------------------------------------------------------------------------------------
@composite(ns="torch")
def _native_batch_norm_legit(input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Any, running_var: Any, training: Any,
                             momentum: float | None = None, eps: float | None = None):
    """`native_batch_norm`; also (input, weight, bias, training, momentum, eps), without running statistics."""
    if isinstance(running_mean, bool):
        running_mean, running_var, training, momentum, eps = None, None, running_mean, running_var, training
    return f("native_batch_norm")(input, weight, bias, running_mean, running_var, training, momentum, eps)


@composite(ns=ATEN)
def _batch_norm_with_update(input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor, running_var: Tensor, momentum: float,
                            eps: float):
    """`native_batch_norm` in training, which moves the running statistics; its fourth result is the empty reserve that cuDNN would fill."""
    return (*f("native_batch_norm")(input, weight, bias, running_mean, running_var, True, momentum, eps), f("empty")((0,), dtype=D.by_name("uint8")))


# --- pictures ---------------------------------------------------------------------------------------------------------
def _upsample(mode: str) -> None:
    def upsample(input: Tensor, output_size: Any, align_corners: bool, scales_h: Any = None, scales_w: float | None = None, *, scale_factors: Any = None):
        if isinstance(scales_h, (tuple, list)):         # the overload with one list
            scales_h, scale_factors = None, scales_h
        if output_size is None:
            return f("nn.functional.interpolate")(input, scale_factor=tuple(scale_factors), mode=mode, align_corners=align_corners, antialias=True)
        if scales_h is None and scales_w is None:
            return f("nn.functional.interpolate")(input, size=tuple(output_size), mode=mode, align_corners=align_corners, antialias=True)
        single = input.dtype.name not in ("float64", "uint8")
        return _resize(input, tuple(_table("cubic" if mode == "bicubic" else "linear", i, o, bool(align_corners), s, True, single)
                                    for i, o, s in zip(input.shape[2:], output_size, (scales_h, scales_w), strict=True)))
    upsample.__doc__ = (f"{mode.capitalize()} interpolation of (N, C, H, W) to `output_size` or by `scale_factors`, the filter widened when shrinking; "
                        "`scales_h` and `scales_w` say the scales that the sizes were rounded from.")
    composite(upsample, name=f"_upsample_{mode}2d_aa", ns=ATEN)


_upsample("bilinear")
_upsample("bicubic")


def _pool_check(grad_output, input, kernel_size, stride, padding, dilation, ceil_mode, indices):
    if tuple(indices.shape) != tuple(grad_output.shape):
        raise RuntimeError(f"max_pool2d_with_indices_backward: indices of shape {list(indices.shape)} do not fit grad_output of shape "
                           f"{list(grad_output.shape)}")


@structural(ns=ATEN, exact=True, check=_pool_check, out=False)
def max_pool2d_with_indices_backward(grad_output: Tensor, input: Tensor, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool,
                                     indices: Tensor):
    """The gradient of `max_pool2d` by its input: each element of `grad_output` added where `indices` says."""
    return _unpool_sum.body(grad_output, indices, input.shape, 2)


max_pool2d_with_indices_backward.shape(lambda grad_output, input, kernel_size, stride, padding, dilation, ceil_mode, indices: input.shape)
max_pool2d_with_indices_backward.gradient(grad_output=lambda grad, indices: _take(grad, indices, 2), input=lambda grad: f("zeros_like")(grad))


MODES, PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


def _grid(name: str, dims: int) -> None:
    def sampler(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool):
        if name != "grid_sampler" and input.dim() != dims:
            raise RuntimeError(f"{name}(): expected input of {dims} dimensions, but got {input.dim()}")
        if not 0 <= interpolation_mode < 3 or not 0 <= padding_mode < 3:
            raise ValueError(f"{name}(): modes are 0, 1 and 2, but got interpolation_mode={interpolation_mode} and padding_mode={padding_mode}")
        return f("nn.functional.grid_sample")(input, grid, MODES[interpolation_mode], PADDINGS[padding_mode], bool(align_corners))
    sampler.__doc__ = (f"`nn.functional.grid_sample`{f' of {dims}-d input' if dims else ''} with its modes as numbers: "
                       f"{', '.join(f'{i} {m}' for i, m in enumerate(MODES))}; {', '.join(f'{i} {m}' for i, m in enumerate(PADDINGS))}.")
    composite(sampler, name=name)


_grid("grid_sampler", 0)
_grid("grid_sampler_2d", 4)
_grid("grid_sampler_3d", 5)


# --- 8-bit products ---------------------------------------------------------------------------------------------------
FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")


def _scaled_product(a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any, out_dtype: Any) -> Any:
    if a.dim() != 2 or b.dim() != 2:
        raise RuntimeError(f"mat1 and mat2 must be matrices, but got {a.dim()}-d and {b.dim()}-d")
    if a.shape[1] != b.shape[0]:
        raise RuntimeError(f"mat_a and mat_b shapes cannot be multiplied ({a.shape[0]}x{a.shape[1]} and {b.shape[0]}x{b.shape[1]})")
    one = scale_a.numel() == 1 and scale_b.numel() == 1
    rows = tuple(scale_a.shape) == (a.shape[0], 1) and tuple(scale_b.shape) == (1, b.shape[1])
    if a.dtype.name not in FLOAT8 or b.dtype.name not in FLOAT8 or scale_a.dtype is not D.float32 or scale_b.dtype is not D.float32 or not (one or rows):
        raise ValueError("Invalid scaling configuration: the matrices must be float8 and the scales float32, one number each or of shapes "
                         f"({a.shape[0]}, 1) and (1, {b.shape[1]}), but got matrices of {a.dtype!r} and {b.dtype!r} and scales of {scale_a.dtype!r} "
                         f"{list(scale_a.shape)} and {scale_b.dtype!r} {list(scale_b.shape)}")
    if one:
        scale_a, scale_b = scale_a.reshape(()), scale_b.reshape(())
    y = (a.to(D.float32) @ b.to(D.float32)) * scale_a * scale_b
    if bias is not None:
        y = y + bias.to(D.float32)
    to = out_dtype or a.dtype
    if to.name == "float8_e4m3fn":       # it has no inf: what is too large becomes its largest number
        y = y.clamp(-D.finfo(to).max, D.finfo(to).max)
    return y.to(to)


@composite(ns="torch", differentiable=False)
def _scaled_mm(input: Tensor, mat2: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Tensor | None = None, scale_result: Tensor | None = None,
               out_dtype: DType | None = None, use_fast_accum: bool = False):
    """The product of two float8 matrices times their scales (one number each, or one a row and one a column), plus `bias`, in
    `out_dtype` (that of `input`). ValueError for other dtypes and scales."""
    return _scaled_product(input, mat2, scale_a, scale_b, bias, out_dtype)


@composite(ns="torch", differentiable=False)
def _scaled_mm_v2(input: Tensor, mat2: Tensor, scale_a: Any, recipe_a: Any, swizzle_a: Any, scale_b: Any, recipe_b: Any, swizzle_b: Any,
                  bias: Tensor | None, out_dtype: DType | None, contraction_dim: Any = (), use_fast_accum: bool = False):
    """`_scaled_mm` with the scales in lists and the ways they are laid out named: one number (0) or one a row (1) each."""
    for name, scales, recipe in (("a", scale_a, recipe_a), ("b", scale_b, recipe_b)):
        if len(scales) != 1 or len(recipe) != 1 or int(getattr(recipe[0], "value", recipe[0])) not in (0, 1):
            raise ValueError(f"_scaled_mm_v2: scale_{name} must be one tensor, tensor-wise (0) or row-wise (1), but got {len(scales)} with recipes {list(recipe)}")
    return _scaled_product(input, mat2, scale_a[0], scale_b[0], bias, out_dtype)


# --- parts of tensors ---------------------------------------------------------------------------------------------------
@view(ns=ATEN, name="slice")
def slice_(input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1):
    """Every `step`-th slice along `dim` from `start` to `end`: a view."""
    from .slices import slice_ as view_slice
    return view_slice.fn(input, dim, start, end, step)


def _slice_back(grad: Any, input_meta: Any, dim: int, start: Any, end: Any, step: int) -> Any:
    from .slices import slice_ as view_slice
    return view_slice.gradients["input"].fn(grad, input_meta, dim, start, end, step)


slice_.gradient(input=_slice_back)


@composite(ns="torch", differentiable=False)
def _chunk_cat(tensors: Any, dim: int, num_chunks: int):
    """Each tensor padded with zeros along `dim` to a multiple of `num_chunks` and cut into as many chunks; the chunks of all tensors
    side by side: (leading sizes, num_chunks, elements)."""
    tensors = list(tensors)
    if num_chunks < 1:
        raise RuntimeError(f"_chunk_cat: expects num_chunks > 0, got num_chunks={num_chunks}")
    if not tensors:
        raise RuntimeError("_chunk_cat: received an empty tensor list")
    (d,) = normalize_dims((dim,), tensors[0].dim(), "_chunk_cat")
    parts = []
    for t in tensors:
        if t.dim() <= d or tuple(t.shape[:d]) != tuple(tensors[0].shape[:d]) or not t.numel():
            raise RuntimeError(f"_chunk_cat: expects non-empty tensors that agree in the sizes before dimension {d}, got {[list(t.shape) for t in tensors]}")
        short = -t.shape[d] % num_chunks
        if short:
            t = f("cat")([t, f("zeros")((*t.shape[:d], short, *t.shape[d + 1:]), dtype=t.dtype, device=t.device)], d)
        parts.append(t.reshape((*t.shape[:d], num_chunks, -1)))
    return f("cat")(parts, d + 1)


def _in_range(indices: Any, shape: Any) -> list[Any]:
    return [None if i is None else i.clamp(-n, n - 1) for i, n in zip(indices, shape, strict=False)]


@composite(ns="torch")
def _unsafe_masked_index(input: Tensor, mask: Tensor, indices: Any, fill: Number):
    """`input[indices]` where `mask` is true and `fill` elsewhere; indices that are out of range there do not matter."""
    picked = input[tuple(slice(None) if i is None else i for i in _in_range(indices, input.shape))]
    return picked.masked_fill(mask.logical_not(), fill)


@composite(ns="torch")
def _unsafe_masked_index_put_accumulate(input: Tensor, mask: Tensor, indices: Any, values: Tensor):
    """`input` with `values` added at `indices` where `mask` is true; indices that are out of range elsewhere do not matter."""
    return f("index_put")(input, _in_range(indices, input.shape), values.masked_fill(mask.logical_not(), 0), True)


# --- hashes -----------------------------------------------------------------------------------------------------------
def _hash_check(input: Any, dim: Any, keepdim: bool, mode: int) -> None:
    if mode != 0:
        raise RuntimeError(f"hash_tensor: Unknown hash mode {mode}: 0 (the exclusive or) is the one there is")
    if input.dtype.kind == "c":
        raise NotImplementedError("\"hash_tensor\" not implemented for complex numbers")
    if not input.size and (dim is None or dim == ()):
        raise RuntimeError("hash_tensor: Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument.")


@structural(method=True, exact=True, differentiable=False, check=_hash_check)
def hash_tensor(input: Tensor, dim: Dims = (), *, keepdim: bool = False, mode: int = 0):
    """The exclusive or of the elements' bits over `dim`, as uint64: those of floats as float64, of integers as int64."""
    bits = input.astype(np.float64).view(np.uint64) if input.dtype.kind in "fV" else input.astype(np.int64).view(np.uint64)
    return np.bitwise_xor.reduce(bits, normalize_dims(dim, input.ndim, "hash_tensor"), keepdims=keepdim)


@hash_tensor.shape
def _(input, dim, keepdim, mode):
    dims = normalize_dims(dim, len(input.shape), "hash_tensor")
    return tuple(1 if i in dims else n for i, n in enumerate(input.shape) if keepdim or i not in dims), D.by_name("uint64")


# --- segments ---------------------------------------------------------------------------------------------------------
_SEGMENTS = {"sum": (np.add, 0.0), "mean": (np.add, 0.0), "prod": (np.multiply, 1.0), "max": (np.maximum, -math.inf), "min": (np.minimum, math.inf),
             "amax": (np.maximum, -math.inf), "amin": (np.minimum, math.inf)}


def _segment_check(data, reduce, lengths, indices, offsets, axis, unsafe, initial):
    if data.dtype.kind not in "fV":
        raise NotImplementedError(f"\"_segment_reduce_cpu\" not implemented for '{D.of(data.dtype).name}': segments are reduced in floating point")
    if reduce not in _SEGMENTS:
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    if indices is not None:
        raise RuntimeError("segment_reduce(): indices based reduction is not supported yet.")
    if lengths is None and offsets is None:
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
    ends = lengths if offsets is None else offsets
    (d,) = normalize_dims((axis,), len(data.shape), "segment_reduce") or (0,)
    if ends.dtype.kind not in "iu":
        raise NotImplementedError("segment_reduce(): lengths and offsets must be int32 or int64")
    if len(ends.shape) != d + 1 or tuple(ends.shape[:d]) != tuple(data.shape[:d]):
        raise RuntimeError(f"segment_reduce(): Expected axis to be the last dimension of {'lengths' if offsets is None else 'offsets'} but got {axis}.")
    if isinstance(ends, np.ndarray) and not unsafe:
        if offsets is None and (ends < 0).any():
            raise RuntimeError("lengths contains negative value!")
        if offsets is None and (ends.sum(-1) != data.shape[d]).any():
            raise RuntimeError(f"segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when !unsafe, but got {ends.sum(-1)} "
                               f"for size {data.shape[d]}")
        if offsets is not None and (ends.size and (ends.min() < 0 or ends.max() > data.shape[d]) or (np.diff(ends, axis=-1) < 0).any()):
            raise RuntimeError(f"segment_reduce(): offsets must rise from 0 to {data.shape[d]} at most, but got {ends.tolist()}")


def _segments(shape: tuple, lengths: Any, offsets: Any, axis: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(the rows that belong to segments, the segment of each, the length of each segment); rows and segments are counted through the
    leading dimensions."""
    d = axis % max(len(shape), 1)
    if offsets is None:
        counts = lengths.astype(np.int64)
        start = np.cumsum(counts, -1) - counts
    else:
        counts, start = np.diff(offsets, axis=-1), offsets[..., :-1]
    lead = np.arange(math.prod(shape[:d])).reshape(*shape[:d], 1) * shape[d]
    start, counts = (start + lead).reshape(-1), counts.reshape(-1)
    segment = np.repeat(np.arange(counts.size), counts)
    first = np.cumsum(counts) - counts
    return np.arange(segment.size) + (start - first)[segment], segment, counts


@structural(aliases=("_segment_reduce",), check=_segment_check, out=False)
def segment_reduce(data: Tensor, reduce: str, *, lengths: Tensor | None = None, indices: Tensor | None = None, offsets: Tensor | None = None,
                   axis: int = 0, unsafe: bool = False, initial: Number | None = None):
    """The sum, mean, prod, max or min of consecutive segments along `axis`, whose sizes are `lengths` or whose borders are `offsets`
    (of the leading sizes up to `axis`, then one number a segment).

    Each begins with `initial` if that is given. A segment without elements is that, or 0, nan, 1, -inf, inf."""
    d = axis % max(data.ndim, 1)
    rows, segment, counts = _segments(data.shape, lengths, offsets, axis)
    fold, identity = _SEGMENTS[reduce]
    flat = data.reshape(-1, *data.shape[d + 1:])[rows]
    out = np.full((counts.size, *data.shape[d + 1:]), identity if initial is None else initial, data.dtype)
    some = np.flatnonzero(counts)
    if some.size:
        first = np.cumsum(counts) - counts
        out[some] = fold(fold.reduceat(flat, first[some], 0), out[some])
    if reduce == "mean":
        share = counts.reshape(-1, *(1,) * (out.ndim - 1))
        out = np.where(share > 0, out / np.maximum(share, 1), np.nan if initial is None else out).astype(data.dtype)
    return out.reshape(*data.shape[:d], -1 if counts.size else (lengths.shape[-1] if offsets is None else offsets.shape[-1] - 1), *data.shape[d + 1:])


@segment_reduce.shape
def _(data, reduce, lengths, indices, offsets, axis, unsafe, initial):
    d = axis % max(len(data.shape), 1)
    n = lengths.shape[-1] if offsets is None else offsets.shape[-1] - 1
    return (*data.shape[:d], n, *data.shape[d + 1:])


def _segment_gradient(grad, result, data, reduce, lengths, offsets, axis, initial):
    from ..core.tensor import wrap
    reads_values("segment_reduce")
    d = axis % max(data.dim(), 1)
    rows, segment, counts = (wrap(a) for a in _segments(tuple(data.shape), None if lengths is None else lengths._a, None if offsets is None else offsets._a, axis))
    tail = tuple(data.shape[d + 1:])

    def of_rows(t: Any) -> Any:
        """What a tensor of segments has for each row."""
        return t.reshape((-1, *tail)).index_select(0, segment)

    x, g = data.reshape((-1, *tail)).index_select(0, rows), of_rows(grad)
    if reduce == "mean":
        g = g / counts.to(grad.dtype).index_select(0, segment).reshape((-1, *(1,) * len(tail)))
    elif reduce in ("max", "min", "amax", "amin"):
        y = of_rows(result)
        hit = ((x == y) | (x != x)).to(grad.dtype)      # nan is the result where there is one
        share = f("zeros")((counts.numel(), *tail), dtype=grad.dtype).index_add(0, segment, hit)
        g = g * hit / share.clamp(min=1).index_select(0, segment)
    elif reduce == "prod":
        # the product of the others: by division, and where there are zeros, the product of what is left
        zero = x == 0
        zeros = f("zeros")((counts.numel(), *tail), dtype=D.int64).index_add(0, segment, zero.to(D.int64)).index_select(0, segment)
        kept = f("segment_reduce")(x.masked_fill(zero, 1), "prod", lengths=counts, initial=1 if initial is None else initial)
        others = kept.index_select(0, segment) / x.masked_fill(zero, 1)
        g = g * others.masked_fill((zeros > 1) | (zeros == 1) & zero.logical_not(), 0)
    full = f("zeros")((math.prod(data.shape[:d + 1]), *tail), dtype=grad.dtype).index_add(0, rows, g)
    return full.reshape(tuple(data.shape))


segment_reduce.gradient(data=_segment_gradient)


# --- Inputs for the generated tests (ops.samples) ---
_safe_softmax.samples(lambda s: [s.call(s((3, 4)), 1), s.call(s.array([[0.5, -math.inf], [-math.inf, -math.inf]], "float64"), 1)])
segment_reduce.samples(lambda s: [s.call(s((5, 2)), r, lengths=s.array([2, 3])) for r in ("sum", "mean", "prod", "max", "min")]
                       + [s.call(s((2, 4)), "sum", offsets=s.array([[0, 2, 4], [0, 1, 4]]), axis=1), s.call(s((5,)), "mean", lengths=s.array([2, 3]), initial=1.5)])
hash_tensor.samples(lambda s: [s.call(s((2, 3), requires_grad=False)), s.call(s.ints((2, 3), 9), 1, keepdim=True), s.call(s((2, 3), "float32", requires_grad=False), 0)])
_unsafe_masked_index.samples(lambda s: [s.call(s((3, 4)), s.bools((2, 2)), [s.ints((2, 2), 3), s.ints((2, 2), 4)], 0.5)])
_unsafe_masked_index_put_accumulate.samples(lambda s: [s.call(s((3, 4)), s.bools((2, 2)), [s.ints((2, 2), 3), s.ints((2, 2), 4)], s((2, 2)))])
