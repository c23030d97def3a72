"""More promises of the records, held for every operator that has samples: memory, strides, precision, `out=`, odd values."""

import warnings

import numpy as np
import pytest

import rushlight as torch
from rushlight.ops import declare, load
from rushlight.ops.samples import build, samples_of, specs

load()
SAMPLED = {q: calls for q, op in sorted(declare.OPERATORS.items()) if (calls := samples_of(op))}
NAMES = [q for q, calls in SAMPLED.items() if specs(calls)]
COMPLEX = {"complex64", "complex128"}


def flat(x):
    return list(x) if isinstance(x, (tuple, list)) else [x]


def tensors_of(call, make=lambda a: torch.tensor(a)):
    """(args, kwargs) of a call and the tensors made for it."""
    made = []

    def one(spec):
        made.append(make(spec.array))
        return made[-1]
    args, kw = build(call, one)
    return args, kw, made


def spread(a):
    """The same elements in a view with gaps and its dimensions in another order."""
    t = torch.zeros([2 * n for n in reversed(a.shape)], dtype=torch.tensor(a).dtype)
    v = t.permute(*reversed(range(a.ndim)))[tuple(slice(None, None, 2) for _ in a.shape)]
    v.copy_(torch.tensor(a))
    return v


@pytest.mark.parametrize("q", NAMES)
def test_operands_stay_as_they_are(q):  # mission: T-02
    op = declare.OPERATORS[q]
    for call in SAMPLED[q]:
        args, kw, made = tensors_of(call)
        before = [(t.numpy().copy(), t._version) for t in made]
        op.function(*args, **kw)
        for t, (a, version), p in zip(made, before, [p for p in op.params if p.kind in ("tensor", "optional")] or [None] * len(made), strict=False):
            if p is not None and p.name in op.mutates:
                continue
            np.testing.assert_array_equal(t.numpy(), a)
            assert t._version == version


@pytest.mark.parametrize("q", [q for q in NAMES if declare.OPERATORS[q].kind in ("pointwise", "reduction", "structural", "writes", "creation")])
def test_results_have_memory_of_their_own(q):  # mission: T-02
    op = declare.OPERATORS[q]
    for call in SAMPLED[q]:
        args, kw, made = tensors_of(call)
        for r in flat(op.function(*args, **kw)):
            assert not r._is_view()
            assert not any(np.shares_memory(r.numpy(), t.numpy()) for t in made)


# their result is defined by strides, or they refuse strides that cannot be seen as what is asked for
BY_MEMORY = {"as_strided", "as_strided_scatter", "Tensor.view", "view_as", "view_as_complex"}


@pytest.mark.parametrize("q", [q for q in NAMES if q not in BY_MEMORY])
def test_strides_of_operands_do_not_matter(q):
    op = declare.OPERATORS[q]
    for call in SAMPLED[q]:
        args, kw, _ = tensors_of(call)
        want = flat(op.function(*args, **kw))
        args, kw, made = tensors_of(call, spread)
        got = flat(op.function(*args, **kw))
        for a, b in zip(got, want, strict=True):
            assert a.dtype is b.dtype and a.shape == b.shape
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("q", [q for q in NAMES if any(s.array.dtype == np.float64 for s in specs(SAMPLED[q]))])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_smaller_floats(q, dtype):
    """The result of rounded operands is the rounded result of float64, or the dtype is refused by name."""
    op = declare.OPERATORS[q]
    small = getattr(torch, dtype)
    loose = {"float32": 2e-4, "float16": 2e-2, "bfloat16": 1e-1}[dtype]
    for call in SAMPLED[q]:
        def cast(a):
            return torch.tensor(a).to(small) if a.dtype == np.float64 else torch.tensor(a)

        args, kw, _ = tensors_of(call, cast)
        try:
            got = flat(op.function(*args, **kw))
        except (RuntimeError, NotImplementedError, TypeError) as e:
            assert dtype != "float32", e
            continue
        args, kw, _ = tensors_of(call, lambda a: cast(a).double() if a.dtype == np.float64 else torch.tensor(a))
        want = flat(op.function(*args, **kw))
        for a, b in zip(got, want, strict=True):
            assert a.shape == b.shape
            if b.dtype is torch.float64 and a.dtype is not torch.float64:
                assert a.dtype is small or a.dtype is torch.float32
                x, y = a.double().numpy(), b.numpy()
                finite = np.isfinite(y)
                np.testing.assert_allclose(x[finite], y[finite], rtol=loose, atol=loose * max(1.0, np.abs(y[finite]).max(initial=0)))
            elif b.dtype not in (torch.float64, torch.complex128):
                assert a.dtype is b.dtype


def odd(a):
    """The array with nan, infinities and zeros among its numbers."""
    if a.dtype.kind != "f":
        return torch.tensor(a)
    a = a.astype(np.float32)
    a.reshape(-1)[:6] = [np.nan, np.inf, -np.inf, 0.0, -0.0, 3e38][:a.size]
    return torch.tensor(a)


@pytest.mark.parametrize("q", NAMES)
@pytest.mark.parametrize("action", ["error", "always"])
def test_odd_values_do_not_warn(q, action):
    """Errors are the framework's own; NumPy's warnings stay within."""
    op = declare.OPERATORS[q]
    for call in SAMPLED[q]:
        args, kw, _ = tensors_of(call, odd)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter(action)
            try:
                op.function(*args, **kw)
            except (RuntimeError, IndexError, ValueError) as e:
                assert not isinstance(e, np.linalg.LinAlgError)
        assert not seen


OUT = [q for q in NAMES if declare.OPERATORS[q].has_out]


@pytest.mark.parametrize("q", OUT)
def test_out_is_resized_with_a_warning(q):  # mission: I-24
    op = declare.OPERATORS[q]
    call = SAMPLED[q][0]
    args, kw, _ = tensors_of(call)
    want = op.function(*args, **kw)
    for size, warns in (((0,), False), ((7, 5), True)):
        outs = [torch.zeros(size, dtype=w.dtype) for w in flat(want)]
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            op.function(*args, **kw, out=tuple(outs) if isinstance(want, tuple) else outs[0])
        assert all("resized" in str(w.message) for w in seen) and bool(seen) == warns
        for o, w in zip(outs, flat(want), strict=True):
            assert o.shape == w.shape
            np.testing.assert_array_equal(o.numpy(), w.numpy())


@pytest.mark.parametrize("q", OUT)
def test_out_is_refused(q):  # mission: B-12, I-24
    """Where the result does not fit its dtype, and where a gradient is wanted."""
    op = declare.OPERATORS[q]
    args, kw, made = tensors_of(SAMPLED[q][0])
    want = op.function(*args, **kw)
    if not isinstance(want, tuple) and want.dtype.is_floating_point and op.out_dtype != "dtype":     # "dtype": computed in that of out
        with pytest.raises(RuntimeError):
            op.function(*args, **kw, out=torch.zeros(want.shape, dtype=torch.int64))
    floats = [t for t in made if t.is_floating_point()]
    outs = [torch.zeros_like(w) for w in flat(want)]
    if floats and op.can_differentiate:
        floats[0].requires_grad_()
        with pytest.raises(RuntimeError, match="automatic differentiation|requires grad"):
            op.function(*args, **kw, out=tuple(outs) if isinstance(want, tuple) else outs[0])


@pytest.mark.parametrize("q", [q for q in NAMES if declare.OPERATORS[q].kind in ("pointwise", "structural", "reduction")])
def test_float32_gradients_are_those_of_float64(q):
    op = declare.OPERATORS[q]
    for call in SAMPLED[q]:
        found = []
        for dtype in (np.float32, np.float64):
            args, kw, made = tensors_of(call, lambda a, dtype=dtype: torch.tensor(
                a.astype(np.float32).astype(dtype) if a.dtype == np.float64 else a))
            leaves = [t.requires_grad_() for t, s in zip(made, specs(call), strict=True) if s.requires_grad and t.is_floating_point()]
            outs = [o for o in flat(op.function(*args, **kw)) if o.requires_grad and o.is_floating_point()]
            if not leaves or not outs:
                break
            rng = np.random.RandomState(1)
            weights = [torch.tensor(rng.standard_normal(o.shape).astype(np.float32)).to(o.dtype) for o in outs]
            grads = torch.autograd.grad(outs, leaves, weights, allow_unused=True)
            assert all(g is None or g.dtype is t.dtype and g.shape == t.shape for g, t in zip(grads, leaves, strict=True))
            found.append([None if g is None else g.double().numpy() for g in grads])
        for a, b in zip(*found, strict=True) if len(found) == 2 else ():
            if a is not None:
                np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4 * max(1.0, np.abs(b).max(initial=0)))
