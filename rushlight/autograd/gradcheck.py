"""Derivatives against finite differences."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rushlight import _missing

from ..core.tensor import Tensor, wrap
from .engine import grad as _grad

__all__ = ["gradcheck", "gradgradcheck", "GradcheckError"]


class GradcheckError(RuntimeError):
    """The analytical and the numerical derivative differ."""


def _tuple(x: Any) -> tuple:
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)


def _outputs(fn: Callable, inputs: tuple) -> tuple[Tensor, ...]:
    return tuple(o for o in _tuple(fn(*inputs)) if isinstance(o, Tensor) and o.requires_grad)


def _numerical(fn: Callable, inputs: tuple, target: Tensor, eps: float) -> list[np.ndarray]:
    """d output / d target for each differentiable output, one row per element of `target`, by central differences."""
    x = target._a
    which = [i for i, o in enumerate(_tuple(fn(*inputs))) if isinstance(o, Tensor) and o.requires_grad]

    def values() -> list[np.ndarray]:
        outs = _tuple(fn(*inputs))
        return [np.array(outs[i]._a, copy=True).reshape(-1) for i in which]

    rows: list[list[Any]] = []
    for at in np.ndindex(*x.shape):
        old = x[at]
        parts = []
        for step in ((eps, eps * 1j) if x.dtype.kind == "c" else (eps,)):
            x[at] = old + step
            hi = values()
            x[at] = old - step
            lo = values()
            x[at] = old
            parts.append([(h - m) / (2 * eps) for h, m in zip(hi, lo, strict=True)])
        # conjugate Wirtinger derivative, as PyTorch's convention for the gradient of a real function of complex numbers
        rows.append([p for p in parts[0]] if len(parts) == 1 else [[a, b] for a, b in zip(*parts, strict=True)])
    return [np.array([r[k] for r in rows]) if rows else np.zeros((0,)) for k in range(len(which))]


def gradcheck(func: Callable, inputs: Tensor | Sequence[Any], *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
              raise_exception: bool = True, nondet_tol: float = 0.0, check_undefined_grad: bool = True, check_grad_dtypes: bool = False,
              check_batched_grad: bool = False, check_batched_forward_grad: bool = False, check_forward_ad: bool = False,
              check_backward_ad: bool = True, fast_mode: bool = False, masked: bool | None = None) -> bool:
    """Whether the derivatives of `func` by those `inputs` that require grad (float64 or complex128) agree with central differences of
    step `eps` within atol + rtol * |numerical|. GradcheckError (or False, without `raise_exception`) if not; ValueError if no input
    requires grad."""
    ins = _tuple(inputs)
    targets = [t for t in ins if isinstance(t, Tensor) and t.requires_grad]
    if not targets:
        raise ValueError("gradcheck expects at least one input tensor to require gradient, but none of the them have requires_grad=True.")
    for t in targets:
        if t.dtype.name not in ("float64", "complex128"):
            import warnings
            warnings.warn("Input requires gradient and is not a double precision floating point or complex. This check will likely fail if all the "
                          "inputs are not of double precision floating point or complex.", stacklevel=2)
    try:
        _check(func, ins, targets, eps, atol, rtol, nondet_tol)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _check(func: Callable, ins: tuple, targets: list[Tensor], eps: float, atol: float, rtol: float, nondet_tol: float) -> None:
    outs = _outputs(func, ins)
    if not outs:
        return
    for j, t in enumerate(targets):
        numerical = _numerical(func, ins, t, eps)
        for k, num in enumerate(numerical):
            o = _outputs(func, ins)[k]
            complex_in, complex_out = t.dtype.is_complex, o.dtype.is_complex
            n, m = t.numel(), o.numel()
            ana = np.zeros((n, m, 2 if complex_out else 1), np.complex128 if complex_in else np.float64)
            again = np.zeros_like(ana)
            for i in range(m):
                for c, seed in enumerate((1.0, 1j) if complex_out else (1.0,)):
                    g = np.zeros(o._a.shape, o._a.dtype)
                    g.reshape(-1)[i] = seed
                    for store in (ana, again) if i == 0 else (ana,):
                        r = _grad(o, t, wrap(g), retain_graph=True, allow_unused=True)[0]
                        if r is not None:
                            if r.shape != t.shape:
                                raise GradcheckError(f"the gradient of input {j} has shape {list(r.shape)}, the input {list(t.shape)}")
                            store[:, i, c] = r._a.reshape(-1)
            if m and np.abs(ana[:, 0] - again[:, 0]).max(initial=0) > nondet_tol:
                raise GradcheckError("Backward is not reentrant, i.e., running backward with same input and grad_output multiple times gives different values")
            if not n or not m:
                continue
            if complex_in:
                # numerical: rows (re, im) steps; for output component c the gradient is dRe/dre + i dRe/dim (real or imaginary part of the output)
                d = num  # (n, 2, m)
                want = np.stack([d[:, 0].real + 1j * d[:, 1].real, d[:, 0].imag + 1j * d[:, 1].imag] if complex_out else [d[:, 0] + 1j * d[:, 1]], -1)
            else:
                want = np.stack([num.real, num.imag], -1) if complex_out else num[..., None]
            bad = np.abs(ana - want) > atol + rtol * np.abs(want)
            bad |= np.isnan(ana) != np.isnan(want)
            if bad.any():
                raise GradcheckError(f"Jacobian mismatch for output {k} with respect to input {j},\nnumerical:{want.squeeze(-1) if want.shape[-1] == 1 else want}\n"
                                     f"analytical:{ana.squeeze(-1) if ana.shape[-1] == 1 else ana}\n")


def gradgradcheck(func: Callable, inputs: Tensor | Sequence[Any], grad_outputs: Any = None, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
                  gen_non_contig_grad_outputs: bool = False, raise_exception: bool = True, nondet_tol: float = 0.0, check_undefined_grad: bool = True,
                  check_grad_dtypes: bool = False, check_batched_grad: bool = False, check_fwd_over_rev: bool = False,
                  check_rev_over_rev: bool = True, fast_mode: bool = False, masked: bool = False) -> bool:
    """`gradcheck` of the derivatives themselves, by the inputs and by the weights `grad_outputs` (random if not given)."""
    ins = _tuple(inputs)
    outs = _outputs(func, ins)
    rng = np.random.default_rng(0)
    if grad_outputs is None:
        gos = []
        for o in outs:
            a = rng.standard_normal(o._a.shape).astype(o._a.dtype)
            if o.dtype.is_complex:
                a = a + 1j * rng.standard_normal(o._a.shape)
            gos.append(wrap(np.asarray(a, o._a.dtype)).requires_grad_())
    else:
        gos = [g.detach().clone().requires_grad_() for g in _tuple(grad_outputs)]
    n = len(ins)

    def derivatives(*args: Any) -> tuple:
        xs, gs = args[:n], args[n:]
        os_ = _outputs(func, xs)
        targets = [x for x in xs if isinstance(x, Tensor) and x.requires_grad]
        gr = _grad(os_, targets, gs, create_graph=True, allow_unused=True)
        return tuple(g for g in gr if g is not None and g.requires_grad)

    return gradcheck(derivatives, (*ins, *gos), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception, nondet_tol=nondet_tol)


class _Module(type(sys)):  # type: ignore[misc]
    """`torch.autograd.gradcheck` is the function; importing the module of that name puts the module there, so it can be called too."""

    def __call__(self, *args: Any, **kw: Any) -> bool:
        return gradcheck(*args, **kw)


sys.modules[__name__].__class__ = _Module


_missing.hint(__name__)
