"""Convolutions, their transposes, and sliding blocks."""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import dtype as D
from .declare import composite, structural
from .nn_common import f, ints, keep_format, narrow, wide

if TYPE_CHECKING:
    from ..core.tensor import Tensor

_arrays: list[Any] = []


def _conv() -> Any:
    """backends.cpu.conv, imported at the first convolution."""
    if not _arrays:
        from ..backends.cpu import conv
        _arrays.append(conv)
    return _arrays[0]


# --- the general convolution ----------------------------------------------------------------------------------------
def _check_types(input: Any, weight: Any, bias: Any, *rest: Any) -> None:
    for name, a in (("weight", weight), ("bias", bias)):
        if a is not None and a.dtype != input.dtype:
            raise RuntimeError(f"Input type ({_name(input)}) and {name} type ({_name(a)}) should be the same")


def _name(a: Any) -> str:
    return D.of(a.dtype).name


@structural(public=False, exact=True, check=_check_types, name="convolution")
def convolve(input: Tensor, weight: Tensor, bias: Tensor | None, stride: tuple, padding: tuple, dilation: tuple, transposed: bool,
             output_padding: tuple, groups: int):
    """(N, C, ...) with (O, C / groups, ...), or transposed with (C, O / groups, ...): one value per spatial dimension of everything else."""
    if transposed:
        return _conv().conv_transpose(input, weight, bias, stride, padding, output_padding, groups, dilation)
    return _conv().conv_forward(input, weight, bias, stride, padding, dilation, groups)


keep_format(convolve, 2)


@convolve.shape
def _(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    b = None if bias is None else bias.shape
    if transposed:
        return _conv().conv_transpose_output_shape(input.shape, weight.shape, stride, padding, output_padding, groups, dilation, b)
    return _conv().conv_output_shape(input.shape, weight.shape, stride, padding, dilation, groups, b)


@composite(public=False)
def _channel_sum(input: Tensor):
    return input.sum((0, *range(2, input.dim())))


_channel_sum.fast(lambda input: _conv().conv_bias_grad(input))


def _input_grad(grad, weight, shape, stride, padding, dilation, transposed, groups):
    """The gradient of the input, of that shape: the transposed convolution, or the plain one of a transposed."""
    spatial = shape[2:]
    if transposed:
        return _to_size(convolve(grad, weight, None, stride, padding, dilation, False, (0,) * len(spatial), groups), spatial)
    # what the stride left over at the end
    rest = tuple(n - ((o - 1) * s - 2 * p + d * (k - 1) + 1)
                 for n, o, s, p, d, k in zip(spatial, grad.shape[2:], stride, padding, dilation, weight.shape[2:], strict=True))
    return convolve(grad, weight, None, stride, padding, dilation, True, rest, groups)


def _to_size(t: Any, spatial: Any) -> Any:
    """Cut at the end: an output_padding beyond the stride leaves windows that nothing came from."""
    for i, n in enumerate(spatial):
        if t.shape[i + 2] != n:
            t = t.narrow(i + 2, 0, n)
    return t


@structural(public=False, exact=True)
def _weight_grad(output: Tensor, input: Tensor, shape: tuple, stride: tuple, padding: tuple, dilation: tuple, groups: int):
    """The gradient of a convolution's weight, of that shape, from that of its `output`. For a transposed convolution with both exchanged."""
    return _conv().conv_weight_grad(output, input, shape, stride, padding, dilation, groups)


_weight_grad.shape(lambda output, input, shape, stride, padding, dilation, groups: shape)
_weight_grad.gradient(
    output=lambda grad, input, stride, padding, dilation, groups, output_meta: _to_size(
        convolve(_conj(input), grad, None, stride, padding, dilation, False, (0,) * len(stride), groups), output_meta.shape[2:]),
    input=lambda grad, output, input_meta, stride, padding, dilation, groups: _input_grad(
        _conj(output), grad, tuple(input_meta.shape), stride, padding, dilation, False, groups))


def _conj(t: Any) -> Any:
    return t.conj() if t._a.dtype.kind == "c" else t


def _conv_gradient(grad, needs, input, weight, stride, padding, dilation, transposed, groups):
    gx = _input_grad(grad, _conj(weight), tuple(input.shape), stride, padding, dilation, transposed, groups) if needs[0] else None
    gw = None
    if needs[1]:
        a, b = (_conj(input), grad) if transposed else (grad, _conj(input))
        gw = _weight_grad(a, b, tuple(weight.shape), stride, padding, dilation, groups)
    return gx, gw, _channel_sum(grad) if needs[2] else None


convolve.backward(_conv_gradient)


def _same_padding(input: Any, weight: Any, n: int, stride: tuple, dilation: tuple) -> tuple[Any, tuple[int, ...]]:
    """padding="same": (the input, padded at its end where an odd number is needed, and what is left for both sides)."""
    if any(s != 1 for s in stride):
        raise RuntimeError("padding='same' is not supported for strided convolutions")
    total = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
    if any(t % 2 for t in total):
        input = f("nn.functional.pad")(input, [x for t in reversed(total) for x in (0, t % 2)])
    return input, tuple(t // 2 for t in total)


def _convolution(name: str, n: int, input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    stride, dilation = ints(stride, n, "stride"), ints(dilation, n, "dilation")
    single = input.dim() == n + 1
    if not single and input.dim() != n + 2 or weight.dim() != n + 2:
        if weight.dim() != n + 2:
            raise RuntimeError(f"{name}: expected a weight of {n + 2} dimensions (out, in / groups, *kernel), but got shape {list(weight.shape)}")
        raise RuntimeError(f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to {name}, but got input of size: {list(input.shape)}")
    if padding.__class__ is str:
        if padding not in ("same", "valid"):
            raise RuntimeError(f"Invalid padding string: '{padding}'")
        input, padding = _same_padding(input, weight, n, stride, dilation) if padding == "same" else (input, (0,) * n)
    else:
        padding = ints(padding, n, "padding")
    if single:
        return convolve(input.unsqueeze(0), weight, bias, stride, padding, dilation, False, (0,) * n, groups).squeeze(0)
    return convolve.function(input, weight, bias, stride, padding, dilation, False, (0,) * n, groups)


def _transposed(name: str, n: int, input: Any, weight: Any, bias: Any, stride: Any, padding: Any, output_padding: Any, groups: int, dilation: Any) -> Any:
    single = input.dim() == n + 1
    if not single and input.dim() != n + 2:
        raise RuntimeError(f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to {name}, but got input of size: {list(input.shape)}")
    y = convolve(input.unsqueeze(0) if single else input, weight, bias, ints(stride, n, "stride"), ints(padding, n, "padding"), ints(dilation, n, "dilation"),
                 True, ints(output_padding, n, "output_padding"), groups)
    return y.squeeze(0) if single else y


TWIN = {"ns": ("nn.functional", "torch")}


@composite(**TWIN)
def conv1d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1):
    """Cross-correlation of (N, C, L) or (C, L) with (O, C / groups, K); `padding` may be "same" or "valid"."""
    return _convolution("conv1d", 1, input, weight, bias, stride, padding, dilation, groups)


@composite(**TWIN)
def conv2d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1):
    """Cross-correlation of (N, C, H, W) or (C, H, W) with (O, C / groups, KH, KW); `padding` may be "same" or "valid"."""
    return _convolution("conv2d", 2, input, weight, bias, stride, padding, dilation, groups)


@composite(**TWIN)
def conv3d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1):
    """Cross-correlation of (N, C, D, H, W) or (C, D, H, W) with (O, C / groups, KD, KH, KW); `padding` may be "same" or "valid"."""
    return _convolution("conv3d", 3, input, weight, bias, stride, padding, dilation, groups)


@composite(**TWIN)
def conv_transpose1d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
                     groups: int = 1, dilation: Any = 1):
    """The gradient of `conv1d` with respect to its input, as an operator: (N, C, L) with (C, O / groups, K)."""
    return _transposed("conv_transpose1d", 1, input, weight, bias, stride, padding, output_padding, groups, dilation)


@composite(**TWIN)
def conv_transpose2d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
                     groups: int = 1, dilation: Any = 1):
    """The gradient of `conv2d` with respect to its input, as an operator: (N, C, H, W) with (C, O / groups, KH, KW)."""
    return _transposed("conv_transpose2d", 2, input, weight, bias, stride, padding, output_padding, groups, dilation)


@composite(**TWIN)
def conv_transpose3d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
                     groups: int = 1, dilation: Any = 1):
    """The gradient of `conv3d` with respect to its input, as an operator: (N, C, D, H, W) with (C, O / groups, KD, KH, KW)."""
    return _transposed("conv_transpose3d", 3, input, weight, bias, stride, padding, output_padding, groups, dilation)


@composite()
def convolution(input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any, groups: int):
    """A plain or transposed convolution of any number of dimensions, as `conv1d` ... `conv_transpose3d`."""
    n = weight.dim() - 2
    return convolve(input, weight, bias, ints(stride, n, "stride"), ints(padding, n, "padding"), ints(dilation, n, "dilation"), transposed,
                    ints(output_padding, n, "output_padding"), groups)


@composite(**TWIN)
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0):
    """`conv1d` of (time, batch, channels) with (K, in, out)."""
    return conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, 1, pad).permute(2, 0, 1)


# --- sliding blocks -------------------------------------------------------------------------------------------------
def _block_counts(size: Any, kernel: tuple, dilation: tuple, padding: tuple, stride: tuple) -> tuple[int, ...]:
    return tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, d, p, s in zip(size, kernel, dilation, padding, stride, strict=True))


def _block_check(size: Any, kernel: tuple, dilation: tuple, padding: tuple, stride: tuple, shape: Any) -> tuple[int, ...]:
    for name, v, least in (("kernel_size", kernel, 1), ("dilation", dilation, 1), ("padding", padding, 0), ("stride", stride, 1)):
        if any(x < least for x in v):
            raise RuntimeError(f"{name} should be {'greater than zero' if least else 'non-negative'}, but got {name}={list(v)}")
    out = _block_counts(size, kernel, dilation, padding, stride)
    if any(o < 1 for o in out):
        raise RuntimeError(f"Given input with spatial size {tuple(size)} (of shape {list(shape)}), kernel_size={kernel}, dilation={dilation}, padding={padding}, "
                           f"stride={stride}, calculated shape of the array of sliding blocks as {out}, but its components must be at least one.")
    return out


@structural(public=False, exact=True, name="im2col", node="Im2ColBackward0")
def _im2col(input: Tensor, kernel: tuple, dilation: tuple, padding: tuple, stride: tuple):
    out = _block_check(input.shape[2:], kernel, dilation, padding, stride, input.shape)
    x = np.pad(input, [(0, 0), (0, 0), *[(p, p) for p in padding]]) if any(padding) else input
    n, c = x.shape[:2]
    b, ch, *s = x.strides
    blocks = np.lib.stride_tricks.as_strided(x, (n, c, *kernel, *out), (b, ch, *[t * d for t, d in zip(s, dilation, strict=True)],
                                                                        *[t * d for t, d in zip(s, stride, strict=True)]), writeable=False)
    return blocks.reshape(n, c * math.prod(kernel), math.prod(out))


@_im2col.shape
def _(input, kernel, dilation, padding, stride):
    out = _block_check(input.shape[2:], kernel, dilation, padding, stride, input.shape)
    return input.shape[0], input.shape[1] * math.prod(kernel), math.prod(out)


@structural(public=False, exact=True, name="col2im", node="Col2ImBackward0")
def _col2im(input: Tensor, size: tuple, kernel: tuple, dilation: tuple, padding: tuple, stride: tuple):
    out = _block_counts(size, kernel, dilation, padding, stride)
    n, c = input.shape[0], input.shape[1] // math.prod(kernel)
    x = wide(input).reshape(n, c, *kernel, *out)
    full = np.zeros((n, c, *[m + 2 * p for m, p in zip(size, padding, strict=True)]), x.dtype)
    for at in product(*map(range, kernel)):
        full[(..., *[slice(i * d, i * d + (o - 1) * s + 1, s) for i, d, o, s in zip(at, dilation, out, stride, strict=True)])] += x[(slice(None), slice(None), *at)]
    full = full[(..., *[slice(p, p + m) for m, p in zip(size, padding, strict=True)])]
    return narrow(np.ascontiguousarray(full), input.dtype)


_col2im.shape(lambda input, size, kernel, dilation, padding, stride: (input.shape[0], input.shape[1] // math.prod(kernel), *size))
_im2col.gradient(input=lambda grad, input_meta, kernel, dilation, padding, stride: _col2im(grad, tuple(input_meta.shape[2:]), kernel, dilation, padding, stride))
_col2im.gradient(input=lambda grad, kernel, dilation, padding, stride: _im2col(grad, kernel, dilation, padding, stride))


@composite(ns="nn.functional")
def unfold(input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1):
    """The sliding blocks of (N, C, H, W) or (C, H, W) as columns: (N, C * KH * KW, blocks)."""
    single = input.dim() == 3
    if input.dim() not in (3, 4) or any(n == 0 for n in input.shape[-3:]):
        raise RuntimeError("Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for input, but got: "
                           f"{list(input.shape)}")
    y = _im2col(input.unsqueeze(0) if single else input, ints(kernel_size, 2, "kernel_size"), ints(dilation, 2, "dilation"), ints(padding, 2, "padding"),
                ints(stride, 2, "stride"))
    return y.squeeze(0) if single else y


@composite(ns="nn.functional")
def fold(input: Tensor, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1):
    """Columns (N, C * KH * KW, blocks) added up at the places of their blocks: (N, C, *output_size)."""
    single = input.dim() == 2
    if input.dim() not in (2, 3) or any(n == 0 for n in input.shape[-2:]):
        raise RuntimeError("Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and non-zero dimensions for input, but got: "
                           f"{list(input.shape)}")
    size, kernel = ints(output_size, 2, "output_size"), ints(kernel_size, 2, "kernel_size")
    dilation, padding, stride = ints(dilation, 2, "dilation"), ints(padding, 2, "padding"), ints(stride, 2, "stride")
    if input.shape[-2] % math.prod(kernel):
        raise RuntimeError("Expected size of input's dimension 1 to be divisible by the product of kernel_size, but got input.size(1)="
                           f"{input.shape[-2]} and kernel_size={kernel}.")
    blocks = _block_check(size, kernel, dilation, padding, stride, input.shape)
    if input.shape[-1] != math.prod(blocks):
        raise RuntimeError(f"Given output_size={size}, kernel_size={kernel}, dilation={dilation}, padding={padding}, stride={stride}, expected size of input's "
                           f"dimension 2 to match the calculated number of sliding blocks {' * '.join(map(str, blocks))} = {math.prod(blocks)}, but got "
                           f"input.size(2)={input.shape[-1]}.")
    y = _col2im(input.unsqueeze(0) if single else input, size, kernel, dilation, padding, stride)
    return y.squeeze(0) if single else y


# --- channels to space ----------------------------------------------------------------------------------------------
@composite(**TWIN)
def pixel_shuffle(input: Tensor, upscale_factor: int):
    """(..., C * r^2, H, W) as (..., C, H * r, W * r)."""
    if input.dim() < 3:
        raise RuntimeError(f"pixel_shuffle expects input to have at least 3 dimensions, but got input with {input.dim()} dimension(s)")
    r = upscale_factor
    if r <= 0:
        raise RuntimeError(f"pixel_shuffle expects a positive upscale_factor, but got {r}")
    *lead, c, h, w = input.shape
    if c % (r * r):
        raise RuntimeError("pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, but "
                           f"input.size(-3)={c} is not divisible by {r * r}")
    if r == 1:
        return input.clone()
    n = len(lead)
    x = input.reshape((*lead, c // (r * r), r, r, h, w)).permute((*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return x.reshape((*lead, c // (r * r), h * r, w * r))


@composite(**TWIN)
def pixel_unshuffle(input: Tensor, downscale_factor: int):
    """(..., C, H * r, W * r) as (..., C * r^2, H, W)."""
    if input.dim() < 3:
        raise RuntimeError(f"pixel_unshuffle expects input to have at least 3 dimensions, but got input with {input.dim()} dimension(s)")
    r = downscale_factor
    if r <= 0:
        raise RuntimeError(f"pixel_unshuffle expects a positive downscale_factor, but got {r}")
    *lead, c, h, w = input.shape
    for name, size in (("height", h), ("width", w)):
        if size % r:
            raise RuntimeError(f"pixel_unshuffle expects {name} to be divisible by downscale_factor, but input.size({-2 if name == 'height' else -1})={size} "
                               f"is not divisible by {r}")
    if r == 1:
        return input.clone()
    n = len(lead)
    x = input.reshape((*lead, c, h // r, r, w // r, r)).permute((*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return x.reshape((*lead, c * r * r, h // r, w // r))


@composite(aliases=("native_channel_shuffle",), **TWIN)
def channel_shuffle(input: Tensor, groups: int):
    """The channels of (N, C, ...) dealt out: channel i of group g becomes channel i * groups + g."""
    if input.dim() < 3:
        raise RuntimeError(f"channel_shuffle expects input with > 2 dims, but got input with sizes {list(input.shape)}")
    c = input.shape[1]
    if groups <= 0:
        raise RuntimeError(f"Number of groups to divide channels in must be positive. Value of groups:{groups}")
    if c % groups:
        raise RuntimeError(f"Number of channels must be divisible by groups. Got {c} channels and {groups} groups.")
    return input.reshape((input.shape[0], groups, c // groups, *input.shape[2:])).transpose(1, 2).reshape(input.shape)


# --- Inputs for the generated tests (ops.samples) ---
conv1d.samples(lambda s: [s.call(s((1, 2, 5)), s((3, 2, 3)), s((3,))), s.call(s((2, 2, 6)), s((2, 1, 2)), None, 2, 1, 1, 2)])
conv2d.samples(lambda s: [s.call(s((1, 2, 4, 4)), s((2, 2, 3, 3)), s((2,)), padding=1), s.call(s((1, 1, 5, 4)), s((1, 1, 2, 2)), None, (2, 1), 0, (1, 2)),
                          s.call(s((2, 2, 3, 3)), s((2, 1, 2, 2)), groups=2), s.call(s((1, 1, 3, 3)), s((1, 1, 3, 3)), padding="same")])
conv3d.samples(lambda s: [s.call(s((1, 1, 3, 3, 3)), s((2, 1, 2, 2, 2)), s((2,)))])
conv_transpose1d.samples(lambda s: [s.call(s((1, 2, 3)), s((2, 2, 2)), s((2,)), 2, 0, 1)])
conv_transpose2d.samples(lambda s: [s.call(s((1, 2, 3, 2)), s((2, 1, 2, 2))), s.call(s((1, 2, 2, 2)), s((2, 1, 3, 2)), s((2,)), 2, 1, 1, 2)])
conv_transpose3d.samples(lambda s: [s.call(s((1, 1, 2, 2, 2)), s((1, 1, 2, 2, 2)))])
convolution.samples(lambda s: [s.call(s((1, 2, 4)), s((2, 2, 2)), s((2,)), (1,), (1,), (1,), False, (0,), 1)])
conv_tbc.samples(lambda s: [s.call(s((4, 2, 2)), s((2, 2, 3)), s((3,)), 1)])
unfold.samples(lambda s: [s.call(s((1, 2, 4, 4)), 2), s.call(s((1, 1, 4, 5)), (2, 3), 1, 1, 2)])
fold.samples(lambda s: [s.call(s((1, 4, 9)), (4, 4), 2)])
pixel_shuffle.samples(lambda s: [s.call(s((1, 4, 2, 3)), 2)])
pixel_unshuffle.samples(lambda s: [s.call(s((1, 1, 4, 2)), 2)])
channel_shuffle.samples(lambda s: [s.call(s((1, 4, 2)), 2)])
