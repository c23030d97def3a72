"""Writing into tensors: `out=`, the in-place forms, and what they do to histories.

An in-place operation with history gives its tensor a new node. If the tensor is a view, its base gets a `CopySlices` node, and every
view of the base finds its own node again (`regenerate`) when it is next asked.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..autograd.modes import modes
from ..autograd.node import Node, edge, next_seq
from ..backends.cpu import loops
from ..core import dtype as D
from ..core.promotion import can_cast
from ..core.tensor import Tensor, bump, hooks, inference, wrap
from .declare import Operator
from .execute import (
    _RUN,
    HALF,
    _scalar_name,
    arrays_of,
    bad_argument,
    broadcast,
    capture,
    common_shape,
    compute_dtypes,
    form_of,
    has_sparse,
    pointwise_arrays,
    run,
    sparse_seen,
)
from .geometry import Geometry

__all__ = ["run_out", "write_out", "check_overlap", "check_partial_overlap", "check_writable", "run_inplace", "set_history", "CopySlices",
           "ViewOfBase", "regenerate"]

ndarray = np.ndarray


def run_out(op: Operator, values: tuple, out: Any) -> Any:
    """Write the result into `out` (a tensor, or a tuple of them), resized if need be."""
    outs = out if isinstance(out, (tuple, list)) else (out,)
    flat = [x for v in values for x in (v if isinstance(v, (list, tuple)) else (v,))]
    check_out(op, outs, flat)
    if op.out_view:
        return _become(op, out, run(op, values))
    if op.out_dtype == "dtype" and isinstance(out, Tensor):
        i = next(i for i, p in enumerate(op.params) if p.name == "dtype")
        if values[i] is None:
            values = (*values[:i], out.dtype, *values[i + 1:])
        elif op.kind != "reduction":
            dtype_of_out(values[i], out)
    for o in outs:
        check_overlap(o._a, op.name)
    operands = [x._a for x in flat if isinstance(x, Tensor)] if op.kind != "creation" else []
    for o in outs:
        if o._a.__class__ is ndarray:
            for b in operands:
                check_partial_overlap(o._a, b, op.name, op.out_dtype in ("apart", "moved"))
    r = run(op, values)
    rs = r if isinstance(r, tuple) else (r,)
    if len(rs) != len(outs):
        raise TypeError(f"{op.name}(): out= takes {len(rs)} tensors, got {len(outs)}")
    for o, x in zip(outs, rs, strict=True):
        write_out(op, o, x, operands, len(outs) > 1)
    return out if isinstance(out, Tensor) else type(r)._make(outs) if hasattr(r, "_make") else tuple(outs)


def check_out(op: Operator, outs: Any, operands: Any) -> None:
    """TypeError if what `out=` got is no tensor, RuntimeError if it or an operand requires grad."""
    for o in outs:
        if not isinstance(o, Tensor):
            raise TypeError(f"{op.name}(): argument 'out' must be Tensor, not {type(o).__name__}")
        inference.check_write(o)
    if modes.grad and (any(o.requires_grad for o in outs) or op.can_differentiate and any(isinstance(x, Tensor) and x.requires_grad for x in operands)):
        raise RuntimeError(f"{op.name}(): functions with out=... arguments don't support automatic differentiation, but one of the arguments "
                           "requires grad.")


def dtype_of_out(dtype: Any, out: Tensor) -> D.dtype:
    """The dtype of a constructor with `out=`: that of `out`, which `dtype=` must not contradict."""
    if dtype is not None and dtype is not out.dtype:
        raise RuntimeError(f"dtype {dtype!r} does not match dtype of out parameter ({out.dtype!r})")
    return out.dtype


def _become(op: Operator, out: Tensor, view: Tensor) -> Tensor:
    """`out` as the view itself, on the memory of the input: what `out=` of a view means (0.3; PyTorch has it no longer)."""
    if out.dtype is not view.dtype:
        raise RuntimeError(f"{op.name}(): expected out tensor to have dtype {view.dtype!r}, but got {out.dtype!r}: a view has the dtype of its input")
    if out._a.__class__ is not view._a.__class__:
        raise RuntimeError(f"Expected all tensors to be on the same device, but out is on {out.device} and the input on {view.device}")
    out._a, out._v, out._base, out._rg, out._node = view._a, view._v, view._base, view._rg, view._node
    if view._base is not None:
        out._vg = view._vg
    return out


def write_out(op: Operator, out: Tensor, r: Tensor, operands: list[Any], several: bool = False) -> None:
    strict = op.out_dtype in ("same", "apart") or op.out_dtype == "one" and several
    if strict and r.dtype is not out.dtype:
        raise RuntimeError(f"Expected out tensor to have dtype {C_NAMES.get(r.dtype.name, r.dtype.name)}, but got "
                           f"{C_NAMES.get(out.dtype.name, out.dtype.name)} instead")
    if not can_cast(r.dtype, out.dtype):
        raise RuntimeError(f"result type {_scalar_name(r.dtype)} can't be cast to the desired output type {_scalar_name(out.dtype)}")
    a = out._a
    if a.__class__ is not r._a.__class__:
        raise RuntimeError(f"Expected all tensors to be on the same device, but out is on {out.device} and the result on {r.device}")
    if a.shape != r._a.shape:
        if a.size:
            import warnings
            warnings.warn(f"An output with one or more elements was resized since it had shape {list(a.shape)}, which does not match the required "
                          f"output shape {list(r._a.shape)}. This behavior is deprecated, and in a future PyTorch release outputs will not be "
                          "resized unless they have zero elements. You can explicitly reuse an out tensor t by resizing it, inplace, to zero "
                          "elements with t.resize_(0).", UserWarning, stacklevel=4)
        from .copy import resize
        resize(out, r._a.shape)
        a = out._a
    if a.__class__ is ndarray:
        for b in operands:
            check_partial_overlap(a, b, op.name, op.out_dtype in ("apart", "moved"))
        if capture[0] is not None:
            out.copy_(r)      # an operator: it is noted
            return
        with np.errstate(all="ignore"):
            np.copyto(a, r._a, casting="unsafe")
    bump(out)


C_NAMES = {"float32": "float", "float64": "double", "float16": "c10::Half", "bfloat16": "c10::BFloat16", "int64": "long", "int32": "int", "int16": "short",
           "int8": "signed char", "uint8": "unsigned char", "complex64": "c10::complex<float>", "complex128": "c10::complex<double>"}


def check_overlap(a: Any, name: str) -> None:
    """RuntimeError if several elements of the written array are one place in memory (an expanded tensor)."""
    if a.size > 1 and any(s == 0 and n > 1 for s, n in zip(a.strides, a.shape, strict=True)):
        raise RuntimeError("unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
                           f"Please clone() the tensor before performing the operation ({name} on a tensor of shape {list(a.shape)} and strides "
                           f"{[s // a.itemsize for s in a.strides]}).")


def check_partial_overlap(a: ndarray, b: Any, name: str, apart: bool = False) -> bool:
    """RuntimeError if the written array and an operand share memory without being the same elements; with `apart`, if they share any.

    Where one of the two has gaps (`x /= x[:, -1:]`, `x[:, :-1] = x[:, 1:]`) they may share, as in PyTorch: then True, and the operand is
    to be read before anything is written."""
    if b.__class__ is ndarray and (apart or b is not a) and (a is b or a.base is not None or b.base is not None) and (a is b or np.may_share_memory(a, b)):
        if not apart and a.shape == b.shape and a.strides == b.strides and a.__array_interface__["data"][0] == b.__array_interface__["data"][0]:
            return False
        if a is not b and not _sharing(a, b):
            return False
        if a is b or _without_gaps(a) and _without_gaps(b):
            raise RuntimeError("unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory "
                               f"location. Please clone() the tensor before performing the operation ({name}).")
        return True
    return False


def _sharing(a: ndarray, b: ndarray) -> bool:
    if not a.size or not b.size:
        return False
    try:
        return np.shares_memory(a, b, max_work=10000)
    except np.exceptions.TooHardError:
        return True


def _without_gaps(a: ndarray) -> bool:
    """Whether the elements fill a piece of memory, each its own place, in any order of dimensions."""
    if a.flags.forc:
        return True
    step = a.itemsize
    for s, n in sorted((s, n) for s, n in zip(a.strides, a.shape, strict=True) if n != 1):
        if s != step:
            return False
        step *= n
    return True


def _cloned(op: Operator, values: tuple) -> tuple:
    """The arguments of an in-place operation, with clones of operands that share the memory that is written where they may."""
    a, out = values[0]._a, list(values)
    if a.__class__ is ndarray and op.kind != "view" and not op.inplace_view:
        for i, v in enumerate(values[1:], 1):
            if isinstance(v, Tensor) and (v._a.ndim or op.kind != "writes") and check_partial_overlap(a, v._a, op.name + "_"):
                out[i] = v.clone()
    return tuple(out)


def check_writable(t: Tensor, name: str) -> bool:
    """Whether a write to `t` is to be recorded; RuntimeError for a leaf that requires grad, for one of several views and, outside of
    inference mode, for an inference tensor."""
    inference.check_write(t)
    if not modes.grad:
        return False
    if t.requires_grad:
        base = t._base
        if t._node.is_accumulator:
            raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
        if base is not None and base.requires_grad and base._node.is_accumulator:
            raise RuntimeError("a view of a leaf Variable that requires grad is being used in an in-place operation.")
        if base is not None and t._vg < 0:
            raise RuntimeError(f"Output {t._node.index} of {t._node.name()} is a view and is being modified inplace. {_why_not(t)}")
    elif t._base is not None and t._base.requires_grad and t.dtype.category >= D.FLOAT:
        raise RuntimeError("A view was created in no_grad mode and is being modified inplace with grad mode enabled. Given that this use case is "
                           "ambiguous and error-prone, it is forbidden. You can clarify your code by moving both the view and the inplace either "
                           "both inside the no_grad block (if you don't want the inplace to be tracked) or both outside (if you want the inplace to "
                           "be tracked).")
    return True


def _why_not(t: Tensor) -> str:
    if t._node.public.custom:
        return ("This view was created inside a custom Function (or because an input was returned as-is) and the autograd logic to handle "
                "view+inplace would override the custom backward associated with the custom Function, leading to incorrect gradients. This "
                "behavior is forbidden. You can fix this by cloning the output of the custom Function.")
    return ("This view is the output of a function that returns multiple views. Such functions do not allow the output views to be modified "
            "inplace. You should replace the inplace operation by an out-of-place one.")


def _straight_inplace(op: Operator, a: ndarray, values: tuple) -> bool:
    """A big in-place operation, by a generated loop straight to its place where there is one; False where the general way must decide."""
    arrays, cpu = arrays_of(op, values)
    if not cpu or op.check is not None and op.check(*arrays) is not None:
        return False
    compute, result = compute_dtypes(op, arrays)
    if result.np != a.dtype or compute.name in HALF or compute.category in op.forms or broadcast(op, arrays) != a.shape:
        return False
    r = pointwise_arrays(op, arrays, compute, result, a)
    if r is not a:
        np.copyto(a, r)
    return True


def run_inplace(op: Operator, values: tuple) -> Tensor:
    """The form `name_`: the result is written into the first operand, whose history is rewritten."""
    t = values[0]
    if not isinstance(t, Tensor):
        raise bad_argument(op, op.params[0], t)
    if sparse_seen[0] and has_sparse(values):
        from .sparse_rules import run_inplace as run_sparse_inplace
        return run_sparse_inplace(op, values)
    if capture[0] is not None:
        return capture[0].call(op, _cloned(op, values), True)
    return run_inplace_plain(op, values)


def run_inplace_plain(op: Operator, values: tuple) -> Tensor:
    """`run_inplace` that no capture sees."""
    t = values[0]
    name = op.name + "_"
    recording = check_writable(t, name) and any(_requires(v) for v in values)
    if recording and not t.requires_grad and t._base is not None and t._vg < 0:
        needs = any(isinstance(v, Tensor) and v.requires_grad for v in values[1:])
        if needs:
            raise RuntimeError("Output 0 is a view made by a function that returns multiple views and is being modified inplace: "
                               "use an out-of-place operation")
    a = t._a
    if op.kind == "view" or op.inplace_view:
        return _inplace_view(op, t, values)
    if a.__class__ is ndarray and not a.flags.writeable:      # native code would write, or die of it
        raise ValueError(f"{name}: the memory of this tensor is read-only, as the array was that it was made of; write to a clone() of it")
    if not op.expanded:
        check_overlap(a, name)
    others = values[1:]
    if recording and form_of(op, values) is not None:
        # another operator computes it: its result is copied
        kept = [_copy_of(v, v._a.copy()) if isinstance(v, Tensor) and (v is t or v._v is t._v is not None) else v for v in values]
        r = run(op, tuple(kept))
        if not can_cast(r.dtype, t.dtype):
            raise RuntimeError(f"result type {_scalar_name(r.dtype)} can't be cast to the desired output type {_scalar_name(t.dtype)}")
        return t.copy_(r)
    before_write = _keep_operand(op, values) if recording else t
    if recording and t._v is not None:     # views of what is about to be lost
        others = tuple([_copy_of(v, v._a.copy()) if v is not t and isinstance(v, Tensor) and v._v is t._v else v for v in others])
    if op.kind == "writes":
        arrays, cpu = arrays_of(op, values)
        if op.check is not None:
            r = op.check(*arrays)
            if r is not None:
                arrays = list(r)
        for i, b in enumerate(arrays[1:], 1):
            if b.__class__ is ndarray and cpu and b.ndim and check_partial_overlap(a, b, name):     # one value may be an element of what it fills
                arrays[i] = b.copy()
        if cpu:
            with np.errstate(all="ignore"):
                op.body(a, *[b.copy() if b.__class__ is ndarray and not b.ndim else b for b in arrays[1:]])
    else:
        if a.__class__ is ndarray:
            for i, v in enumerate(values[1:], 1):
                if isinstance(v, Tensor):
                    if v._a.shape != a.shape and op.kind == "pointwise" and (shape := common_shape(a.shape, v._a.shape, name=op.name)) != a.shape:
                        raise RuntimeError(f"output with shape {list(a.shape)} doesn't match the broadcast shape {list(shape)}")
                    if check_partial_overlap(a, v._a, name):
                        values = (*values[:i], wrap(v._a.copy()), *values[i + 1:])
        if op.kind == "pointwise" and a.size >= loops.BIG and a.__class__ is ndarray and _straight_inplace(op, a, values):
            r = None
        else:
            before = modes.grad
            modes.grad = False
            try:
                r = run(op, values)
            finally:
                modes.grad = before
        if r is None:
            pass
        elif r._a.shape != a.shape:
            raise RuntimeError(f"output with shape {list(a.shape)} doesn't match the broadcast shape {list(r._a.shape)}")
        if r is not None and not can_cast(r.dtype, t.dtype):
            raise RuntimeError(f"result type {_scalar_name(r.dtype)} can't be cast to the desired output type {_scalar_name(t.dtype)}")
        if a.__class__ is ndarray and r is not None:
            with np.errstate(all="ignore"):
                np.copyto(a, r._a, casting="unsafe")
    bump(t)
    if recording:
        from .paths import has_gradient
        if has_gradient(op):
            if before_write is not t:
                others = tuple([before_write if v is t else v for v in others])
            op.derived("record_inplace")(t, before_write, *others)
    return t


def _requires(v: Any) -> bool:
    """Whether an argument requires grad."""
    if isinstance(v, Tensor):
        return v._rg is not False and v.requires_grad
    return v.__class__ in (list, tuple) and any(_requires(x) for x in v)


def _keep_operand(op: Operator, values: tuple) -> Tensor:
    """The first operand of an in-place operation, for its record: a copy where the gradient reads what is about to be lost."""
    t = values[0]
    read = {n for g in ([op.joint] if op.joint is not None else op.derived("formulas").values()) for n in g.reads}
    if not any(p.name in read and v is t for p, v in zip(op.params, values, strict=True)):
        return t
    return _copy_of(t, t._a.copy())


def _copy_of(t: Tensor, array: Any) -> Tensor:
    """A tensor on another array with the history of `t`."""
    old = wrap(array)
    if t._rg and (n := edge(t)) is not None:
        old._node, old._rg = n, True
    return old


def _inplace_view(op: Operator, t: Tensor, values: tuple) -> Tensor:
    """`t_()`, `squeeze_()`, ...: the tensor itself becomes the view."""
    v = _RUN[op.kind](op, values)
    if t._base is None and t.requires_grad and modes.grad or v._rg is True:
        t._node, t._rg = v._node, v._rg
    t._a = v._a
    bump(t)
    if t._base is None and t._rg is True:      # its views hang on the new node from now on
        t._v[1] += 1
    return t


def set_history(t: Tensor, n: Node, at: int = 0) -> None:
    """`t`, operand number `at` of node `n`, was written to by its operation: rewrite its history, and that of its base if it is a view."""
    base = t._base
    if base is None:
        n.take_retained(t._node)
        t._node, t._rg = n, True
        v = t._v
        v[1] += 1
        return
    c = CopySlices(base, t, n, at)
    c.take_retained(base._node)
    base._node, base._rg = c, True
    v = t._v
    v[1] += 1
    regenerate(t)


class CopySlices(Node):
    """The history of a base after an in-place operation `inner` on a view of it: the gradient goes through as it is, except for the
    view's elements, which go through `inner`."""

    __slots__ = ("inner", "at", "geometry", "shape", "strides", "complex")

    def __init__(self, base: Tensor, view: Tensor, inner: Node, at: int = 0) -> None:
        self.seq = next_seq()
        self.where = inner.where
        self.inner, self.at = inner, at
        self.geometry = Geometry.relative(view._a, base._a)
        self.shape, self.strides = base._a.shape, base._a.strides
        self.complex = view.dtype.is_complex
        self.next = (edge(base) if base._rg else None, *inner.next[:at], *inner.next[at + 1:])
        self.saved = (inner,)

    def backward(self, grad: Any, next: tuple) -> tuple:
        from ..autograd.node import freed
        if self.saved is None:
            raise freed()
        f = hooks.function
        g = f("empty_strided")(self.shape, tuple(s // grad._a.itemsize for s in self.strides), dtype=grad.dtype) if not grad.is_contiguous() or \
            self.strides != grad._a.strides else None
        g = f("clone")(grad) if g is None else g.copy_(grad)
        part = f("as_strided")(_numbers(g, self.complex), self.geometry.shape, self.geometry.stride, self.geometry.offset)
        inner, at = self.inner, self.at
        own = self if inner.next[at] is not None else None
        r = inner.backward(f("clone")(part), (*next[1:at + 1], own, *next[at + 1:]))
        if r[at] is not None:
            part.copy_(r[at])
        else:
            part.fill_(0)
        return (g, *r[:at], *r[at + 1:])


def _numbers(g: Tensor, complex: bool) -> Tensor:
    """A fresh tensor's memory as complex or as real numbers: views may be of the other kind than their base."""
    f = hooks.function
    if g.dtype.is_complex == complex:
        return g
    if not complex:
        return f("view_as_real")(g)
    n = 1 + sum((k - 1) * s for k, s in zip(g.shape, g.stride(), strict=True))
    return f("view_as_complex")(f("as_strided")(g, (n // 2, 2), (2, 1), 0))


class ViewOfBase(Node):
    """The node of a view whose base got a new history: as_strided of the base."""

    __slots__ = ("geometry", "base_shape", "base_strides", "base_complex")

    def backward(self, grad: Any, next: tuple) -> tuple:
        f = hooks.function
        shape, stride = self.geometry.shape, self.geometry.stride
        spread = [i for i, s in enumerate(stride) if s == 0 and shape[i] > 1]
        if spread:      # an expanded view: the gradients of one element add up
            grad = f("sum")(grad, spread, True)
            shape = tuple(1 if i in spread else n for i, n in enumerate(shape))
        complex, d = grad.dtype.is_complex, grad.dtype
        if complex != self.base_complex:
            d = d.to_real() if complex else d.to_complex()
        g = f("zeros")(self.base_shape, dtype=d)
        if self.base_strides is not None:
            g = f("empty_strided")(self.base_shape, self.base_strides, dtype=d).fill_(0)
        numbers = _numbers(g, complex)
        if overlaps(shape, stride):
            places = np.zeros((1,) * len(shape), np.int64)
            for i, (n, s) in enumerate(zip(shape, stride, strict=True)):
                places = places + (np.arange(n) * s).reshape([-1 if k == i else 1 for k in range(len(shape))])
            flat = f("as_strided")(numbers, (int(places.max()) + 1,), (1,), self.geometry.offset)
            flat.index_add_(0, wrap(places.reshape(-1)), f("reshape")(grad, (-1,)))
        else:
            f("as_strided")(numbers, shape, stride, self.geometry.offset).copy_(grad)
        return (g,)


ViewOfBase.__name__ = ViewOfBase.__qualname__ = "AsStridedBackward0"


def overlaps(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Whether several indices may mean one place: in order of stride, a dimension begins before the ones below it end."""
    reach = 0
    for s, n in sorted((abs(s), n) for s, n in zip(stride, shape, strict=True) if n > 1):
        if s <= reach:
            return True
        reach += s * (n - 1)
    return False


def regenerate(t: Tensor) -> None:
    """A view's node, after the history of its base changed."""
    base, v, old = t._base, t._v, t._node
    if t._vg < 0:
        if t._vg == -1 - v[1]:
            return
        if old is not None and old.public.custom:
            raise RuntimeError(f"Output {old.index} of {old.name()} is a view and its base or another view of its base has been modified inplace. "
                               + _why_not(t))
    t._vg = v[1] if t._vg >= 0 else -1 - v[1]
    if base is None or not base.requires_grad:
        return
    n = ViewOfBase()
    n.take_retained(old)
    n.seq, n.next, n.saved, n.where = next_seq(), (edge(base),), (), None
    n.geometry = Geometry.relative(t._a, base._a)
    n.base_shape, n.base_complex = base._a.shape, base.dtype.is_complex
    dense = base._a.flags.c_contiguous
    n.base_strides = None if dense else tuple(s // base._a.itemsize for s in base._a.strides)
    t._node, t._rg = n, True


hooks.regenerate = regenerate
