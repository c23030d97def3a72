"""Random numbers: constructors and in-place samplers, on PyTorch's CPU stream (core.random)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..autograd.modes import modes
from ..backends.cpu import allocator
from ..backends.meta import MetaArray
from ..core import dtype as D
from ..core.random import stream
from ..core.tensor import Tensor as T
from ..core.tensor import hooks, wrap
from .create import layout_like
from .declare import composite, creation, structural, writes
from .execute import as_int, common_shape, run

if TYPE_CHECKING:
    from ..core.tensor import Tensor

    Number = int | float | complex
    Sizes = tuple[int, ...]


def f(name: str) -> Any:
    return hooks.function(name)


def _uniform(a: np.ndarray, generator: Any) -> np.ndarray:
    if a.dtype.kind == "c":
        stream(generator).uniform_(a[..., None].view(a.real.dtype), 0.0, 1.0)
        return a
    if a.dtype.kind in "biu":
        raise NotImplementedError(
            f"\"check_uniform_bounds\" not implemented for '{D.of(a.dtype).name}': random floats need a floating dtype"
        )
    stream(generator).uniform_(a, 0.0, 1.0)
    return a


def _normal(a: np.ndarray, generator: Any, mean: float = 0.0, std: float = 1.0) -> np.ndarray:
    if a.dtype.kind == "c":
        stream(generator).normal_(a[..., None].view(a.real.dtype), mean, std / 2**0.5)
        return a
    if a.dtype.kind in "biu":
        raise NotImplementedError(
            f"\"normal_kernel_cpu\" not implemented for '{D.of(a.dtype).name}': normal numbers need a floating dtype"
        )
    stream(generator).normal_(a, mean, std)
    return a


@creation(random=True)
def rand(size: Sizes, *, generator=None, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    """Uniform numbers in [0, 1)."""
    return _uniform(allocator.empty(tuple(size), dtype.np), generator)


@creation(random=True)
def randn(size: Sizes, *, generator=None, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    """Numbers from the standard normal distribution."""
    return _normal(allocator.empty(tuple(size), dtype.np), generator)


for _op in (rand, randn):
    _op.shape(lambda size, generator: size)


@creation(random=True)
def rand_like(
    input: Tensor, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False, memory_format=None
):
    """Uniform numbers in [0, 1), in the shape and dtype of `input`."""
    return _uniform(layout_like(input.shape, input, dtype, memory_format), None)


@creation(random=True)
def randn_like(
    input: Tensor, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False, memory_format=None
):
    """Standard normal numbers, in the shape and dtype of `input`."""
    return _normal(layout_like(input.shape, input, dtype, memory_format), None)


for _op in (rand_like, randn_like):
    _op.shape(lambda input, **kw: input.shape)


def _integers(a: np.ndarray, low: int, high: int, generator: Any) -> np.ndarray:
    if high <= low:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    stream(generator).random_(a, int(low), int(high))
    return a


def _randint(
    *args: Any,
    generator: Any = None,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    **kw: Any,
) -> Any:
    """Integers in [low, high): `randint(high, size)` or `randint(low, high, size)`. int64 by default."""
    names = ["low", "high", "size"]
    vals = dict(kw)
    rest = list(args)
    if (
        "size" not in vals
        and rest
        and not isinstance(rest[-1], (int, T))
        or rest
        and isinstance(rest[-1], (tuple, list))
    ):
        vals["size"] = rest.pop()
    if len(rest) == 2:
        vals["low"], vals["high"] = rest
    elif len(rest) == 1:
        vals["high" if "high" not in vals else "low"] = rest[0]
    bad = [k for k in vals if k not in names]
    if bad or len(rest) > 2 or "high" not in vals or "size" not in vals:
        raise TypeError(
            "randint() received an invalid combination of arguments: expected (high, size) or (low, high, size)"
            + (f", got an unexpected keyword '{bad[0]}'" if bad else "")
        )
    low, high = (as_int(randint, p, vals.get(p.name, 0)) for p in randint.params[:2])
    if out is not None:
        from .inplace import check_out, dtype_of_out, write_out

        check_out(randint, (out,), ())
        dtype = dtype_of_out(dtype, out)
    t = f("empty")(tuple(vals["size"]), dtype=dtype or D.int64, device=device)
    if t._a.__class__ is not MetaArray:
        if high <= low:
            raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
        _integers(t._a, low, high, generator)
    if out is not None:
        write_out(randint, out, t, [])
        return out
    return t.requires_grad_() if requires_grad else t


@composite()
def randint(low: int, high: int, size: tuple):
    """Integers in [low, high)."""


randint._derived["function"] = _randint


@composite()
def randint_like(
    input: Tensor,
    low: int,
    high: int | None = None,
    *,
    dtype=None,
    layout=None,
    device=None,
    requires_grad=False,
    memory_format=None,
    generator=None,
):
    """Integers in [low, high), in the shape and dtype of `input`."""
    low, high = (0, low) if high is None else (low, high)
    t = f("empty_like")(input, dtype=dtype, device=device, memory_format=memory_format)
    if t._a.__class__ is not MetaArray:
        _integers(t._a, low, high, generator)
    return t.requires_grad_() if requires_grad else t


@composite(out="dtype")
def randperm(n: int, *, generator=None, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    """A random permutation of 0 ... n - 1."""
    n = as_int(randperm, randperm.params[0], n)
    if n < 0:
        raise RuntimeError(f"n must be non-negative, got {n}")
    from ..core.device import as_device

    d = dtype or D.int64
    if as_device(device).type == "meta":
        return wrap(MetaArray((n,), d.np))
    a = stream(generator).randperm(n, d.np)
    return wrap(np.asarray(a))


# --- samplers in place ------------------------------------------------------------------------------------------------
SAMPLER = {"method": False, "exact": True, "random": True}
ZERO = {"input": lambda grad: grad * 0}


def _float_only(name: str) -> Any:
    def check(input, *rest):
        if input.dtype.kind in "biu":
            raise NotImplementedError(
                f"\"{name}\" not implemented for '{D.of(input.dtype).name.capitalize()}': it needs a floating dtype"
            )

    return check


@writes(ns="Tensor", name="uniform", check=_float_only("check_uniform_bounds"), **SAMPLER)
def uniform_(input: Tensor, from_: float = 0.0, to: float = 1.0, *, generator=None):
    """Uniform numbers in [from, to), in place."""
    if from_ > to:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={from_} > to={to}")
    stream(generator).uniform_(input, float(from_), float(to))


uniform_.old = {"from": "from_", "a": "from_", "b": "to"}


@writes(ns="Tensor", name="normal", check=_float_only("normal_kernel_cpu"), **SAMPLER)
def normal_(input: Tensor, mean: float = 0.0, std: float = 1.0, *, generator=None):
    """Normal numbers of the given mean and standard deviation, in place."""
    if std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    _normal(input, generator, float(mean), float(std))


def _bernoulli_check(input, p, generator):
    q = np.asarray(p)
    if q.size and not bool(((q >= 0) & (q <= 1)).all()):
        raise RuntimeError(
            f"bernoulli_ expects p to be in [0, 1], but got p={p if q.ndim == 0 else 'a tensor with elements outside'}"
        )
    if (shape := common_shape(input.shape, q.shape)) != input.shape:
        raise RuntimeError(f"bernoulli_: p of shape {list(q.shape)} does not fit the tensor of shape {list(input.shape)} (they give {list(shape)})")


@writes(ns="Tensor", name="bernoulli_into", public=False, check=_bernoulli_check, **SAMPLER)
def _bernoulli_into(input: Tensor, p: Tensor | Number = 0.5, generator=None):
    stream(generator).bernoulli_(input, p if isinstance(p, np.ndarray) else float(p))


_bernoulli_into.gradient(**ZERO)


def _bernoulli_(self: Any, p: Any = 0.5, *, generator: Any = None) -> Any:
    """1 with probability `p` (a number or a tensor), else 0, in place."""
    from .inplace import run_inplace

    return run_inplace(_bernoulli_into, (self, p, generator))


T.bernoulli_ = _bernoulli_  # type: ignore[attr-defined]


@structural(method=True, exact=True, random=True)
def bernoulli(input: Tensor, p: float | None = None, *, generator=None):
    """1 with the probability that each element of `input` (or `p`) gives, else 0."""
    if input.dtype.kind in "biu" and p is None:
        raise NotImplementedError(f"\"bernoulli_tensor_cpu_p_\" not implemented for '{D.of(input.dtype).name}'")
    q = input if p is None else p
    _bernoulli_check(input, q, generator)
    a = allocator.empty(input.shape, input.dtype)
    stream(generator).bernoulli_(a, q if isinstance(q, np.ndarray) else float(q))
    return a


bernoulli.shape(lambda input, p, generator: input.shape)
bernoulli.gradient(input=lambda grad: f("zeros_like")(grad))


@writes(ns="Tensor", name="random", **SAMPLER)
def random_(input: Tensor, from_: int | None = None, to: int | None = None, *, generator=None):
    """Integers in [from, to), or in [0, to), or over the dtype's range, in place."""
    if from_ is not None and to is None:
        from_, to = 0, from_
    if to is not None and to <= (from_ or 0):
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={from_ or 0} >= to={to}")
    stream(generator).random_(input, from_, to)


random_.old = {"from": "from_"}


@writes(ns="Tensor", name="exponential", check=_float_only("exponential_"), **SAMPLER)
def exponential_(input: Tensor, lambd: float = 1.0, *, generator=None):
    """Numbers from the exponential distribution of rate `lambd`, in place."""
    if lambd <= 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    stream(generator).exponential_(input, float(lambd))


@writes(ns="Tensor", name="geometric", **SAMPLER)
def geometric_(input: Tensor, p: float, *, generator=None):
    """The number of trials until success of probability `p`, in place."""
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p}")
    stream(generator).geometric_(input, float(p))


@writes(ns="Tensor", name="log_normal", check=_float_only("log_normal_"), **SAMPLER)
def log_normal_(input: Tensor, mean: float = 1.0, std: float = 2.0, *, generator=None):
    """exp of normal numbers, in place."""
    if std <= 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std}")
    stream(generator).log_normal_(input, float(mean), float(std))


@writes(ns="Tensor", name="cauchy", check=_float_only("cauchy_"), **SAMPLER)
def cauchy_(input: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator=None):
    """Numbers from the Cauchy distribution, in place."""
    if sigma <= 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
    stream(generator).cauchy_(input, float(median), float(sigma))


for _op in (uniform_, normal_, random_, exponential_, geometric_, log_normal_, cauchy_):
    _op.gradient(**ZERO)


@structural(public=False, exact=True, random=True, name="normal", node="NormalBackward0")
def _normal_of(mean: Tensor, std: Tensor, dtype: Any, generator: Any):
    a = _normal(allocator.empty(common_shape(mean.shape, std.shape), dtype.np), generator)
    a *= std
    a += mean
    return a


_normal_of.shape(lambda mean, std, dtype, generator: (common_shape(mean.shape, std.shape), dtype))
_normal_of.gradient(
    mean=lambda grad, mean_meta: f("zeros")(mean_meta.shape, dtype=grad.dtype),
    std=lambda grad, std_meta: f("zeros")(std_meta.shape, dtype=grad.dtype),
)


def _normal_function(
    mean: Any = 0.0,
    std: Any = 1.0,
    size: Any = None,
    *,
    generator: Any = None,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    means: Any = None,
) -> Any:
    """Separate normal distributions, one for each element: `normal(mean, std)` with tensors or numbers, or
    `normal(mean, std, size)`."""
    mean = mean if means is None else means
    if out is not None:
        from .inplace import check_out, dtype_of_out, write_out

        check_out(normal, (out,), (mean, std))
        if size is not None:
            dtype = dtype_of_out(dtype, out)
    if size is not None:
        r = f("empty")(tuple(size), dtype=dtype, device=device)
        if r._a.__class__ is not MetaArray:
            r.normal_(float(mean), float(std), generator=generator)
        r = r.requires_grad_() if requires_grad else r
    elif isinstance(mean, T) or isinstance(std, T):
        if isinstance(std, T):
            if std.dtype.is_complex:
                raise RuntimeError("normal expects standard deviation to be non-complex")
            if std._a.__class__ is not MetaArray and std.numel() and bool((std < 0).any().item()):
                raise RuntimeError("normal expects all elements of std >= 0.0")
        elif std < 0:
            raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
        ref = mean if isinstance(mean, T) else std
        m, s = (
            x if isinstance(x, T) else f("scalar_tensor")(x, dtype=ref.dtype, device=ref.device) for x in (mean, std)
        )
        r = run(_normal_of, (m, s, ref.dtype, generator))
    else:
        raise TypeError("normal() received an invalid combination of arguments: numbers for mean and std need a size")
    if out is None:
        return r
    write_out(normal, out, r, [])
    return out


@composite()
def normal(mean: Tensor | Number, std: Tensor | Number = 1.0):
    """Separate normal distributions, one for each element."""


normal._derived["function"] = _normal_function


@composite(method=True, out="same")
def multinomial(input: Tensor, num_samples: int, replacement: bool = False, *, generator=None):
    """Indices of categories, drawn with the weights in the rows of `input` (which need not sum to one). int64,
    num_samples in a row."""
    a = input._a
    if input.dtype.category != D.FLOAT:
        raise RuntimeError(
            f"multinomial only supports floating-point dtypes for input, got: {input.dtype.name.capitalize()}"
        )
    if a.ndim not in (1, 2):
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if a.shape[-1] > 2**24:
        raise RuntimeError("number of categories cannot exceed 2^24")
    if num_samples <= 0:
        raise RuntimeError(f"cannot sample n_sample <= 0 samples: got {num_samples}")
    if a.__class__ is MetaArray:
        return wrap(MetaArray((*a.shape[:-1], num_samples), np.dtype("int64")))
    if not replacement and num_samples > a.shape[-1]:
        raise RuntimeError(
            f"cannot sample n_sample > prob_dist.size(-1) samples without replacement: {num_samples} of {a.shape[-1]}"
        )
    if not np.isfinite(a.astype(np.float64)).all() or (a < 0).any():
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    if a.size and (a.sum(-1) == 0).any():
        raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
    return wrap(np.asarray(stream(generator).multinomial(a, num_samples, replacement)))


@composite(method=False)
def poisson(input: Tensor, generator=None):
    """Numbers from Poisson distributions of the given rates."""
    if input.numel() and bool((input < 0).any().item()):
        raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
    return wrap(np.asarray(stream(generator).poisson(np.ascontiguousarray(input._a).reshape(input._a.shape))).astype(input._a.dtype))


def _sampled(name: str, x: Tensor) -> np.ndarray:
    """The array of a sampler's parameter. NotImplementedError where its gradient would be wanted, or it has no memory."""
    if modes.grad and x.requires_grad:
        raise NotImplementedError(f"{name}: gradients of samples by the distribution's parameters are not implemented yet")
    if not isinstance(x._a, np.ndarray):
        raise NotImplementedError(f"{name} is for dense CPU tensors")
    return x._a


def _in_order(a: np.ndarray) -> np.ndarray:
    """`a` in row-major order, the order in which PyTorch visits the results."""
    return np.ascontiguousarray(a).reshape(a.shape)


@composite(method=False)
def binomial(count: Tensor, prob: Tensor, generator=None):
    """Numbers of successes in `count` trials that succeed with probability `prob`, two tensors of the same floating dtype."""
    n, p = _sampled("binomial", count), _sampled("binomial", prob)
    if not count.dtype.is_floating_point:
        raise ValueError(f"binomial only supports floating-point dtypes for count, got: {count.dtype}")
    if n.dtype != p.dtype:
        raise RuntimeError(f"binomial: expected prob of count's dtype, {count.dtype}, got {prob.dtype}")
    n, p = np.broadcast_arrays(n, p)
    return wrap(np.asarray(stream(generator).binomial(_in_order(n), _in_order(p))))


@composite(method=False)
def _standard_gamma(input: Tensor, generator=None):
    """Numbers from gamma distributions of the shapes `input` and scale 1."""
    return wrap(np.asarray(stream(generator).standard_gamma(_in_order(_sampled("_standard_gamma", input)))))


@composite(method=False)
def _sample_dirichlet(input: Tensor, generator=None):
    """Points of the simplex over the last dimension, from Dirichlet distributions of the concentrations `input`."""
    return wrap(np.asarray(stream(generator).dirichlet(_in_order(_sampled("_sample_dirichlet", input)))))
