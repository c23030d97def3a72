"""Discrete Fourier transforms.

Three array functions do the work: complex to complex, real to half the complex spectrum, and back; each times an
explicit scale.
The adjoint of a transform is the transform in the other direction with the same scale, which gives all gradients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import dtype as D
from ..core.tensor import hooks
from .declare import composite, creation, structural
from .execute import _scalar_name, normalize_dims, run

if TYPE_CHECKING:
    from ..core.tensor import Tensor

    Sizes = tuple[int, ...]


def f(name: str) -> Any:
    return hooks.function(name)


def _complex(a: np.ndarray) -> np.dtype:
    return np.dtype("complex64" if a.dtype.name in ("float32", "complex64") else "complex128")


def _scaled(a: np.ndarray, scale: float, like: np.dtype) -> np.ndarray:
    a = a.astype(like, copy=False)
    return a if scale == 1 else a * like.type(scale)


@structural(public=False, exact=True, name="fft_c2c", node="FftC2CBackward0")
def _c2c(input: Tensor, dim: tuple, scale: float, forward: bool):
    r = np.fft.fftn(input, axes=dim) if forward else np.fft.ifftn(input, axes=dim, norm="forward")
    return _scaled(r, scale, input.dtype)


_c2c.shape(lambda input, dim, scale, forward: input.shape)
_c2c.gradient(input=lambda grad, dim, scale, forward: run(_c2c, (grad, dim, scale, not forward)))


@structural(public=False, exact=True, name="fft_r2c", node="FftR2CBackward0")
def _r2c(input: Tensor, dim: tuple, scale: float, forward: bool):
    """Half the spectrum along the last of `dim`."""
    r = np.fft.rfftn(input, axes=dim)
    return _scaled(r if forward else r.conj(), scale, _complex(input))


def _half_shape(input, dim, scale, forward):
    s = list(input.shape)
    s[dim[-1]] = s[dim[-1]] // 2 + 1
    return s, D.of(input.dtype).to_complex()


def _r2c_gradient(grad, input_meta, dim, scale, forward):
    n = input_meta.shape[dim[-1]]
    return f("real")(run(_c2c, (fit(grad, n, dim[-1]), dim, scale, not forward)))


_r2c.shape(_half_shape)
_r2c.gradient(input=_r2c_gradient)


@structural(public=False, exact=True, name="fft_c2r", node="FftC2RBackward0")
def _c2r(input: Tensor, dim: tuple, n: int, scale: float):
    """Real numbers from half their spectrum along the last of `dim`; inverse direction."""
    s = [input.shape[d] for d in dim[:-1]] + [n]
    return _scaled(
        np.fft.irfftn(input, s=s, axes=dim, norm="forward"), scale, np.dtype(f"f{input.dtype.itemsize // 2}")
    )


def _c2r_shape(input, dim, n, scale):
    s = list(input.shape)
    s[dim[-1]] = n
    return s, D.of(input.dtype).to_real()


def _c2r_gradient(grad, input_meta, dim, n, scale):
    g = run(_r2c, (grad, dim, scale, True))
    k = (n - 1) // 2
    if k > 0:  # the elements whose mirror images are not stored count twice
        d = dim[-1]
        m = g.shape[d]
        twice = np.ones(m)
        twice[1 : 1 + k] = 2
        from ..core.tensor import wrap

        g = g * wrap(twice.astype(grad._a.dtype)).reshape([m if i == d else 1 for i in range(g.dim())])
    return g


_c2r.shape(_c2r_shape)
_c2r.gradient(input=_c2r_gradient)


def fit(x: Any, n: int, d: int) -> Any:
    """`x` cut off, or continued with zeros, to size `n` along dimension `d`."""
    have = x.shape[d]
    if have == n:
        return x
    if have > n:
        return x.narrow(d, 0, n)
    return f("cat")(
        [x, f("zeros")([n - have if k == d else m for k, m in enumerate(x.shape)], dtype=x.dtype, device=x.device)], d
    )


def _scale(norm: str | None, count: int, forward: bool) -> float:
    if norm not in (None, "forward", "backward", "ortho"):
        raise RuntimeError(f'Invalid normalization mode: "{norm}"')
    if norm == "ortho":
        return count**-0.5
    return 1.0 / count if (norm == "forward") == forward else 1.0


def _promoted(name: str, x: Any, to_complex: bool) -> Any:
    d = x.dtype
    if d.category < D.FLOAT:
        d = D.default[0]
    if d.itemsize < 4 or d.name == "complex32":
        raise RuntimeError(f"Unsupported dtype {_scalar_name(d)}: {name} needs float, double or complex")
    if to_complex and not d.is_complex:
        d = d.to_complex()
    return x if x.dtype is d else x.to(d)


def _one(name: str, x: Any, n: int | None, dim: int) -> tuple[int, int | None]:
    if x.dim() == 0:
        raise IndexError(f"{name}: Dimension specified as {dim} but tensor has no dimensions")
    (d,) = normalize_dims((dim,), x.dim(), name)
    if n is not None and n < 1:
        raise RuntimeError(f"Invalid number of data points ({n}) specified")
    return d, n


def _several(name: str, x: Any, s: Any, dim: Any) -> tuple[tuple[int, ...], list[int]]:
    """The dimensions and the size of the signal in each."""
    s = None if s is None else [s] if isinstance(s, int) else list(s)
    if dim is None:
        if s is None:
            dims = tuple(range(x.dim()))
        else:
            if len(s) > x.dim():
                raise RuntimeError(f"Got shape with {len(s)} values but input tensor only has {x.dim()} dimensions.")
            dims = tuple(range(x.dim() - len(s), x.dim()))
    else:
        dims = tuple(normalize_dims((d,), x.dim(), name)[0] for d in ((dim,) if isinstance(dim, int) else dim))
        if len(set(dims)) != len(dims):
            raise RuntimeError("FFT dims must be unique")
        if s is not None and len(s) != len(dims):
            raise RuntimeError("When given, dim and shape arguments must have the same length")
    sizes = [x.shape[d] if s is None or s[k] == -1 else s[k] for k, d in enumerate(dims)]
    for n in sizes:
        if n < 1:
            raise RuntimeError(f"Invalid number of data points ({n}) specified")
    return dims, sizes


def _product(xs: Any) -> int:
    n = 1
    for x in xs:
        n *= x
    return n


def _complex_n(name: str, x: Any, s: Any, dim: Any, norm: str | None, forward: bool) -> Any:
    dims, sizes = _several(name, x, s, dim)
    x = _promoted(name, x, True)
    for d, n in zip(dims, sizes, strict=True):
        x = fit(x, n, d)
    return run(_c2c, (x, dims, _scale(norm, _product(sizes), forward), forward)) if dims else x.clone()


def _need_real(name: str, x: Any) -> None:
    if x.dtype.is_complex:
        raise RuntimeError(f"{name} expects a real input tensor, but got {_scalar_name(x.dtype)}")


def _real_n(name: str, x: Any, s: Any, dim: Any, norm: str | None, forward: bool) -> Any:
    _need_real(name, x)
    dims, sizes = _several(name, x, s, dim)
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")
    x = _promoted(name, x, False)
    for d, n in zip(dims, sizes, strict=True):
        x = fit(x, n, d)
    return run(_r2c, (x, dims, _scale(norm, _product(sizes), forward), forward))


def _to_real(name: str, x: Any, s: Any, dim: Any, norm: str | None, forward: bool) -> Any:
    """The transform to real numbers; `forward` (hfft) is the inverse one of the conjugate."""
    given = None if s is None else [s] if isinstance(s, int) else list(s)
    if given is not None and given[-1] == -1:
        given = [*given[:-1], None]
    dims, sizes = _several(name, x, None if given is None else [1 if n is None else n for n in given], dim)
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")
    last = 2 * (x.shape[dims[-1]] - 1) if given is None or given[-1] is None else sizes[-1]
    if last < 1:
        raise RuntimeError(f"Invalid number of data points ({last}) specified")
    x = _promoted(name, x, True)
    sizes = [*sizes[:-1], last]
    for d, n in zip(dims, [*sizes[:-1], last // 2 + 1], strict=True):
        x = fit(x, n, d)
    scale = _scale(norm, _product(sizes), forward)
    return run(_c2r, (x.conj() if forward else x, dims, last, scale))


NS = {"ns": "fft", "out": "cast"}


@composite(**NS)
def fft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None):
    """The Fourier transform along `dim`, of `n` points (cut off or continued with zeros). `norm`: "backward"
    (unscaled), "ortho", "forward"."""
    d, n = _one("fft", input, n, dim)
    return _complex_n("fft", input, None if n is None else [n], (d,), norm, True)


@composite(**NS)
def ifft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None):
    """The inverse Fourier transform along `dim`."""
    d, n = _one("ifft", input, n, dim)
    return _complex_n("ifft", input, None if n is None else [n], (d,), norm, False)


@composite(**NS)
def rfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None):
    """The Fourier transform of real numbers: n // 2 + 1 elements, the others being their conjugates."""
    d, n = _one("rfft", input, n, dim)
    return _real_n("rfft", input, None if n is None else [n], (d,), norm, True)


@composite(**NS)
def irfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None):
    """The inverse of `rfft`: `n` real numbers, 2 (size - 1) by default."""
    d, n = _one("irfft", input, n, dim)
    return _to_real("irfft", input, None if n is None else [n], (d,), norm, False)


@composite(**NS)
def hfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None):
    """The Fourier transform, real, of a signal that is Hermitian and of which half is given."""
    d, n = _one("hfft", input, n, dim)
    return _to_real("hfft", input, None if n is None else [n], (d,), norm, True)


@composite(**NS)
def ihfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None):
    """The inverse of `hfft`."""
    d, n = _one("ihfft", input, n, dim)
    return _real_n("ihfft", input, None if n is None else [n], (d,), norm, False)


@composite(**NS)
def fftn(input: Tensor, s: Sizes | None = None, dim: tuple | None = None, norm: str | None = None):
    """The Fourier transform over several dimensions."""
    return _complex_n("fftn", input, s, dim, norm, True)


@composite(**NS)
def ifftn(input: Tensor, s: Sizes | None = None, dim: tuple | None = None, norm: str | None = None):
    """The inverse Fourier transform over several dimensions."""
    return _complex_n("ifftn", input, s, dim, norm, False)


@composite(**NS)
def rfftn(input: Tensor, s: Sizes | None = None, dim: tuple | None = None, norm: str | None = None):
    """The Fourier transform of real numbers over several dimensions, half of it along the last."""
    return _real_n("rfftn", input, s, dim, norm, True)


@composite(**NS)
def irfftn(input: Tensor, s: Sizes | None = None, dim: tuple | None = None, norm: str | None = None):
    """The inverse of `rfftn`."""
    return _to_real("irfftn", input, s, dim, norm, False)


def _hermitian(name: str, x: Any, s: Any, dim: Any, norm: str | None) -> Any:
    dims, _ = _several(name, x, None if s is None else [1 if n == -1 else n for n in s], dim)
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")
    if len(dims) > 1:
        x = _complex_n(name, x, None if s is None else list(s)[:-1], dims[:-1], norm, True)
    return _to_real(name, x, None if s is None else [list(s)[-1]], dims[-1:], norm, True)


def _inverse_hermitian(name: str, x: Any, s: Any, dim: Any, norm: str | None) -> Any:
    dims, _ = _several(name, x, s, dim)
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")
    r = _real_n(name, x, None if s is None else [list(s)[-1]], dims[-1:], norm, False)
    return _complex_n(name, r, None if s is None else list(s)[:-1], dims[:-1], norm, False) if len(dims) > 1 else r


@composite(**NS)
def hfftn(input: Tensor, s: Sizes | None = None, dim: tuple | None = None, norm: str | None = None):
    """The Fourier transform, real, of a Hermitian signal of which half along the last dimension is given."""
    return _hermitian("hfftn", input, s, dim, norm)


@composite(**NS)
def ihfftn(input: Tensor, s: Sizes | None = None, dim: tuple | None = None, norm: str | None = None):
    """The inverse of `hfftn`."""
    return _inverse_hermitian("ihfftn", input, s, dim, norm)


def _plane(name: str, of: Any) -> None:
    def body(input: Tensor, s: tuple | None = None, dim: tuple = (-2, -1), norm: str | None = None):
        return of(input, s, dim, norm)

    body.__name__, body.__doc__ = name, f"`{name[:-1]}n` over two dimensions."
    composite(body, **NS)


for _name, _op in (
    ("fft2", fftn),
    ("ifft2", ifftn),
    ("rfft2", rfftn),
    ("irfft2", irfftn),
    ("hfft2", hfftn),
    ("ihfft2", ihfftn),
):
    _plane(_name, _op.fn)


# Sizes may come as one tuple only: `s` is no list of separate arguments
for _op in (fftn, ifftn, rfftn, irfftn, hfftn, ihfftn):
    for _p in _op.params:
        if _p.name == "s":
            _p.kind = "plain"


@composite(ns="fft")
def fftshift(input: Tensor, dim: int | tuple | None = None):
    """The zero frequency in the middle."""
    dims = tuple(range(input.dim())) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    return f("roll")(input, tuple(input.shape[d] // 2 for d in dims), dims)


@composite(ns="fft")
def ifftshift(input: Tensor, dim: int | tuple | None = None):
    """The inverse of `fftshift`."""
    dims = tuple(range(input.dim())) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    return f("roll")(input, tuple((input.shape[d] + 1) // 2 for d in dims), dims)


@creation(ns="fft")
def fftfreq(n: int, d: float = 1.0, *, dtype=None, layout=None, device=None, requires_grad=False):
    """The frequencies of `fft` for n samples at distance d: 0, 1, ..., -2, -1, over n d."""
    return (np.fft.ifftshift(np.arange(-(n // 2), n - n // 2)) * (1.0 / (n * d))).astype(dtype.np)


@creation(ns="fft")
def rfftfreq(n: int, d: float = 1.0, *, dtype=None, layout=None, device=None, requires_grad=False):
    """The frequencies of `rfft` for n samples at distance d: 0, 1, ..., n // 2, over n d."""
    return (np.arange(n // 2 + 1) * (1.0 / (n * d))).astype(dtype.np)


fftfreq.shape(lambda n, d: (n,))
rfftfreq.shape(lambda n, d: (n // 2 + 1,))


# --- short-time transforms --------------------------------------------------------------------------------------------
@composite(method=True)
def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
):
    """The Fourier transforms of overlapping windows: (..., frequencies, windows)."""
    hop = n_fft // 4 if hop_length is None else hop_length
    win = n_fft if win_length is None else win_length
    if return_complex is None and not input.dtype.is_complex and (window is None or not window.dtype.is_complex):
        raise RuntimeError(
            "stft requires the return_complex parameter be given for real inputs, and will further require that "
            "return_complex=True in a future "
            "PyTorch release."
        )
    if input.dim() not in (1, 2):
        raise RuntimeError(f"stft: expected a 1D or 2D tensor, but got {input.dim()}D")
    if center and align_to_window:
        raise RuntimeError("stft align_to_window should only be set when center = false.")
    x = input.unsqueeze(0) if input.dim() == 1 else input
    if center:
        half = n_fft // 2
        x = f("nn.functional.pad")(x.unsqueeze(1), (half, half), pad_mode).squeeze(1)
    if not 0 < n_fft <= x.shape[1]:
        raise RuntimeError(f"stft(..., n_fft={n_fft}): expected 0 < n_fft <= {x.shape[1]}, but got n_fft={n_fft}")
    if hop <= 0:
        raise RuntimeError(f"stft: expected hop_length > 0, but got hop_length={hop}")
    if not 0 < win <= n_fft:
        raise RuntimeError(f"stft: expected 0 < win_length <= n_fft, but got win_length={win}")
    if window is not None and (window.dim() != 1 or window.shape[0] != win):
        raise RuntimeError(
            f"stft: expected a 1D window tensor of size equal to win_length={win}, but got window with size "
            f"{list(window.shape)}"
        )
    w = _centered(window, win, n_fft, x)
    frames = x.unfold(1, n_fft, hop)
    if w is not None:
        frames = frames * w
    full = frames.dtype.is_complex
    onesided = not full if onesided is None else onesided
    norm = "ortho" if normalized else None
    if full and onesided:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    r = (rfft if onesided else fft).fn(frames, None, -1, norm).transpose(1, 2)
    r = r.squeeze(0) if input.dim() == 1 else r
    return r if return_complex is not False else f("view_as_real")(r.contiguous())


def _centered(window: Any, win: int, n_fft: int, like: Any) -> Any:
    if window is None:
        if win == n_fft:
            return None
        window = f("ones")((win,), dtype=like.dtype.to_real(), device=like.device)
    if win < n_fft:
        left = (n_fft - win) // 2
        window = f("constant_pad_nd")(window, (left, n_fft - win - left), 0)
    return window


@composite(method=True)
def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
):
    """The signal of which `stft` gave the transforms, by least squares (Griffin and Lim, 1984)."""
    hop = n_fft // 4 if hop_length is None else hop_length
    win = n_fft if win_length is None else win_length
    if not input.dtype.is_complex:
        raise RuntimeError(
            "istft requires a complex-valued input tensor matching the output from stft with return_complex=True."
        )
    if input.dim() not in (2, 3):
        raise RuntimeError(f"istft: expected a tensor with 2 or 3 dimensions, but got {input.dim()}")
    if not 0 < hop <= win:
        raise RuntimeError("istft: expected 0 < hop_length <= win_length")
    if not 0 < win <= n_fft:
        raise RuntimeError("istft: expected 0 < win_length <= n_fft")
    x = input.unsqueeze(0) if input.dim() == 2 else input
    onesided = x.shape[1] != n_fft if onesided is None else onesided
    if onesided and x.shape[1] != n_fft // 2 + 1 or not onesided and x.shape[1] != n_fft:
        raise RuntimeError(
            "istft: expected the frequency dimension (3rd to the last) of the input tensor to match n_fft / 2 + 1 "
            "when onesided=True, but got "
            f"{x.shape[1]}"
        )
    if return_complex and onesided:
        raise RuntimeError("istft: complex output needs onesided=False")
    norm = "ortho" if normalized else None
    frames = x.transpose(1, 2)
    if return_complex:
        y = ifft.fn(frames, None, -1, norm)
    else:
        y = irfft.fn(frames if onesided else frames.narrow(-1, 0, n_fft // 2 + 1), n_fft, -1, norm)
    real = y.dtype.to_real() if y.dtype.is_complex else y.dtype
    w = _centered(window, win, n_fft, y)
    if w is None:
        w = f("ones")((n_fft,), dtype=real)
    count = x.shape[-1]
    total = n_fft + hop * (count - 1)
    at = f("arange")(0, total).unfold(0, n_fft, hop).reshape(-1)
    out = f("index_add")(f("zeros")((y.shape[0], total), dtype=y.dtype), 1, at, (y * w).reshape(y.shape[0], -1))
    weight = f("index_add")(f("zeros")((total,), dtype=w.dtype), 0, at, (w * w).expand(count, n_fft).reshape(-1))
    start = n_fft // 2 if center else 0
    end = total - n_fft // 2 if length is None and center else total if length is None else min(start + length, total)
    out, weight = out.narrow(1, start, end - start), weight.narrow(0, start, end - start)
    if bool((f("abs")(weight) < 1e-11).any().item()):
        raise RuntimeError(
            "istft: window overlap add min: 1 and the squared windows must not vanish: they do where signal is to be "
            "restored"
        )
    out = out / weight
    if length is not None and out.shape[1] < length:
        import warnings

        warnings.warn(
            "The length of signal is shorter than the length parameter. Result is being padded with zeros in the tail. "
            "Please check your center and "
            "hop_length settings.",
            stacklevel=4,
        )
        out = f("constant_pad_nd")(out, (0, length - out.shape[1]), 0)
    return out.squeeze(0) if input.dim() == 2 else out


# --- Inputs for the generated tests (ops.samples) ---
fft.samples(lambda s: [s.call(s((5,))), s.call(s((2, 4), 'complex128'), 3, 0, 'ortho'), s.call(s((2, 3)), n=6)])
ifft.samples(lambda s: [s.call(s((5,))), s.call(s((2, 4), 'complex128'), 3, 0, 'ortho'), s.call(s((2, 3)), n=6)])
rfft.samples(lambda s: [s.call(s((5,))), s.call(s((2, 4)), 6, 1, 'forward')])
ihfft.samples(lambda s: [s.call(s((5,))), s.call(s((2, 4)), 6, 1, 'forward')])
irfft.samples(lambda s: [s.call(s((2, 3), 'complex128')), s.call(s((4,), 'complex128'), 5)])
hfft.samples(lambda s: [s.call(s((2, 3), 'complex128')), s.call(s((4,), 'complex128'), 5)])
fftn.samples(lambda s: [s.call(s((2, 3))), s.call(s((2, 3), 'complex128'), norm='ortho')])
ifftn.samples(lambda s: [s.call(s((2, 3))), s.call(s((2, 3), 'complex128'), norm='ortho')])
rfftn.samples(lambda s: [s.call(s((2, 3)))])
irfftn.samples(lambda s: [s.call(s((2, 3), 'complex128'))])
fftshift.samples(lambda s: [s.call(s((2, 5))), s.call(s((4, 3)), 0)])
ifftshift.samples(lambda s: [s.call(s((2, 5)))])
fftfreq.samples(lambda s: [s.call(5), s.call(4, 0.5)])
rfftfreq.samples(lambda s: [s.call(5, 0.25)])
stft.samples(lambda s: [s.call(s((12,)), 4, 2, window=s.array([1.0, 0.5, 0.25, 0.5], 'float64'), return_complex=True)])
