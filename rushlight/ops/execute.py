"""Running operators: the general path of each kind, for any arguments.

`run(op, values)` checks the arguments, evaluates on the backend of the arrays, wraps the results and records them on the
tape. A capture (compiler/capture.py) sees every call here first.
"""

from __future__ import annotations

from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from ..autograd.modes import modes
from ..backends.cpu import loops
from ..backends.meta import MetaArray
from ..backends.sparse import SparseArray
from ..backends.sparse import seen as sparse_seen
from ..core import dtype as D
from ..core.promotion import require_fits, result_of
from ..core.tensor import MAYBE, Tensor, bump, hooks, view_of, wrap
from . import expr as E
from .declare import REQUIRED, Operator, Param
from .geometry import Geometry, restride, row_major

__all__ = ["run", "binary", "keep", "reads_values", "capture", "pointwise_arrays", "fold_arrays", "compute_dtypes",
           "normalize_dims", "HALF"]

ndarray = np.ndarray
capture: list[Any] = [None]      # the active capture, if any
F32 = np.dtype("float32")
# dtypes that are stored only, and what is computed in instead
HALF = {**dict.fromkeys(("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"), "float32"), "complex32": "complex64"}


def run(op: Operator, values: tuple) -> Any:
    """Call an operator with values for all of its parameters, in order."""
    if sparse_seen[0] and has_sparse(values):
        from .sparse_rules import run as run_sparse
        reads_values("an operation on sparse tensors")
        return run_sparse(op, values)
    if capture[0] is not None:
        return capture[0].call(op, values)
    return _RUN[op.kind](op, values)


def has_sparse(values: Any) -> bool:
    """Whether an argument is a sparse tensor, or a list with one."""
    for v in values:
        if isinstance(v, Tensor):
            if isinstance(v._a, SparseArray):
                return True
        elif (v.__class__ is list or v.__class__ is tuple) and has_sparse(v):
            return True
    return False


def reads_values(name: str) -> None:
    """Said by a composite whose body looks at the values of its operands outside of operators: a capture cannot replay that."""
    if capture[0] is not None:
        capture[0].fail(f"{name} looks at values in Python")


def keep(**values: Tensor) -> None:
    """Said by the body of a composite with a fast form: these are what that form hands to the gradient under these names (`keeps`)."""
    if capture[0] is not None:
        capture[0].kept.update((n, t._a) for n, t in values.items())


def binary(op: Operator, a: Any, b: Any) -> Any:
    """An operator overload: NotImplemented for operands that are neither tensors nor numbers."""
    for x in (a, b):
        if not isinstance(x, (Tensor, int, float, complex, np.number, np.bool_, np.ndarray)):
            return NotImplemented
    if not isinstance(a, Tensor) and op.params[0].kind == "tensor":
        a = hooks.function("scalar_tensor")(_number(a), dtype=D.number_dtype(_number(a)), device=b.device)
    if isinstance(b, np.ndarray):
        b = hooks.function("from_numpy")(b) if b.ndim else b.item()
    elif isinstance(a, np.ndarray):
        a = hooks.function("from_numpy")(a) if a.ndim else a.item()
    rest = op.params[2:]
    return run(op, (_number(a), _number(b), *[p.default for p in rest]))


def _number(x: Any) -> Any:
    return x.item() if isinstance(x, (np.number, np.bool_)) else x


def bad_argument(op: Operator, p: Param, value: Any) -> TypeError:
    if value is REQUIRED:
        return TypeError(f"{op.name}() missing 1 required positional arguments: \"{p.name}\"")
    want = {"tensor": "Tensor", "mask": "Tensor", "optional": "Tensor", "operand": "Tensor or Number", "list": "tuple of Tensors",
            "number": "Number"}.get(p.kind, p.annotation)
    i = [q.name for q in op.params].index(p.name) + 1
    return TypeError(f"{op.name}(): argument '{p.name}' (position {i}) must be {want}, not {type(value).__name__}")


def arrays_of(op: Operator, values: tuple) -> tuple[list[Any], bool]:
    """The values with arrays in place of tensors, and whether all arrays are the CPU's. TypeError for what is no tensor."""
    out: list[Any] = []
    cpu = True
    for p, v in zip(op.params, values, strict=True):
        k = p.kind
        if k in ("tensor", "mask"):
            if not isinstance(v, Tensor):
                raise bad_argument(op, p, v)
            v = v._a
            cpu = cpu and v.__class__ is ndarray
        elif k in ("operand", "optional", "number"):
            if isinstance(v, Tensor):
                if k == "number":
                    if v.numel() != 1:
                        raise bad_argument(op, p, v)
                    v = v.item()
                else:
                    v = v._a
                    cpu = cpu and v.__class__ is ndarray
            elif isinstance(v, (np.number, np.bool_)):
                v = v.item()
            elif v is None:
                if k == "operand" and p.default is not None:
                    raise bad_argument(op, p, v)
            elif k == "optional" or not isinstance(v, (int, float, complex)):
                raise bad_argument(op, p, v)
        elif k == "list":
            if isinstance(v, Tensor) or not isinstance(v, (list, tuple)):
                raise bad_argument(op, p, v)
            for i, x in enumerate(v):
                if not isinstance(x, Tensor):
                    raise TypeError(f"expected Tensor as element {i} in argument '{p.name}' of {op.name}(), but got {type(x).__name__}")
            v = [x._a for x in v]
            cpu = cpu and all(x.__class__ is ndarray for x in v)
        elif p.annotation == "int" and v.__class__ is not int:
            v = as_int(op, p, v)
        out.append(v)
    return out, cpu


def as_int(op: Operator, p: Param, v: Any) -> int:
    """An argument that must be an int: NumPy's ints and 0-dim integer tensors are taken too."""
    if isinstance(v, Tensor) and v.numel() == 1 and v.dtype.category <= D.INTEGER:
        return int(v.item())
    if isinstance(v, (int, np.integer)) and not isinstance(v, bool):
        return int(v)
    raise bad_argument(op, p, v)


def _share_capture() -> None:
    from ..autograd import engine
    engine.capturing = capture


_share_capture()


def require_tensors(op: Operator, *values: Any) -> None:
    """TypeError if one of these values for a composite's first parameters is to be a tensor and is none."""
    for p, v in zip(op.params, values, strict=False):
        if p.kind == "tensor" and not isinstance(v, Tensor):
            raise bad_argument(op, p, v)


def require_same_device(op: Operator, arrays: list[Any]) -> None:
    kinds = {x.__class__ for y in arrays for x in (y if isinstance(y, list) else [y])
             if isinstance(x, (ndarray, MetaArray)) and x.ndim}
    if len(kinds) > 1:
        raise RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, meta and cpu! (in {op.name})")


def _scalar_name(d: D.dtype) -> str:
    return {"float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16", "int64": "Long", "int32": "Int", "int16": "Short",
            "int8": "Char", "uint8": "Byte", "bool": "Bool", "complex64": "ComplexFloat", "complex128": "ComplexDouble"}.get(d.name, d.name)


# --- pointwise ------------------------------------------------------------------------------------------------------
def compute_dtypes(op: Operator, arrays: list[Any]) -> tuple[D.dtype, D.dtype]:
    """(dtype that a pointwise record computes in, dtype of its result)."""
    operands = tuple(a for p, a in zip(op.params, arrays, strict=True) if p.kind in ("tensor", "operand") and a is not None)
    if not operands:
        d = D.default[0]
    else:
        d = result_of(operands)
    rule = op.result
    if rule == "same":
        return d, d
    if rule == "float":
        c = d if d.category >= D.FLOAT else D.default[0]
        return c, c
    if rule == "bool":
        return d, D.bool_
    if rule == "real":
        return d, d.to_real()
    if callable(rule):
        return rule(d, *[a for p, a in zip(op.params, arrays, strict=True) if p.kind == "plain"])
    return d, D.by_name(rule)


def broadcast(op: Operator, arrays: list[Any]) -> tuple[int, ...]:
    """The common shape. RuntimeError that names the sizes when there is none."""
    return common_shape(*[a.shape for a in arrays if isinstance(a, (ndarray, MetaArray))], name=op.name)


def common_shape(*shapes: Any, name: str = "") -> tuple[int, ...]:
    """The shape that `shapes` broadcast to. RuntimeError as PyTorch's when there is none (NumPy's is a ValueError)."""
    n = max(map(len, shapes), default=0)
    out = []
    for i in range(n):
        size = 1
        for s in shapes:
            j = i - n + len(s)
            if j >= 0 and s[j] != 1:
                if size != 1 and s[j] != size:
                    first = next(t[i - n + len(t)] for t in shapes if i - n + len(t) >= 0 and t[i - n + len(t)] != 1)
                    raise RuntimeError(f"The size of tensor a ({first}) must match the size of tensor b ({s[j]}) at non-singleton dimension {i} "
                                       f"({'in ' + name + ' ' if name else ''}of shapes {', '.join(str(list(t)) for t in shapes)})")
                size = s[j]
        out.append(size)
    return tuple(out)


def pointwise_arrays(op: Operator, arrays: list[Any], compute: D.dtype, result: D.dtype, out: ndarray | None = None) -> ndarray:
    """Evaluate a pointwise record on CPU arrays and numbers; a generated loop writes to `out` if there is one."""
    from ..backends.cpu.evaluate import numpy_function
    from .generate import trace, without_ones
    half = compute.name in HALF and not op.exact
    cnp = D.ALL[HALF[compute.name]].np if half else compute.np
    names, vals, static, absent, numbers = [], [], [], [], []
    shape: Any = None
    same = True
    for p, a in zip(op.params, arrays, strict=True):
        if p.kind == "plain":
            static.append(a)
            continue
        if a is None:
            absent.append(p.name)
            continue
        names.append(p.name)
        if a.__class__ is ndarray:
            if p.kind == "mask":
                if a.dtype.kind != "b":
                    a = a.astype(bool)
            elif a.dtype != cnp:
                if half and a.dtype != compute.np or a.dtype.itemsize > cnp.itemsize:
                    with np.errstate(all="ignore"):
                        a = a.astype(compute.np)       # also where float32 computes for half: PyTorch rounds the operands first
                if a.dtype != cnp:
                    a = a.astype(cnp)
            if shape is None:
                shape = a.shape
            elif shape != a.shape:
                same = False
        else:
            numbers.append(p.name)
            if p.kind == "number":
                require_fits(a, D.ALL[HALF[compute.name]] if half else compute)
        if a.__class__ is ndarray:
            pass
        elif isinstance(a, (int, float, complex)) and cnp.kind in "biu":
            a = np.asarray(int(a) & _mask(cnp) if cnp.kind != "b" and not isinstance(a, bool) else a)     # a float's fraction is cut off
            a = a.astype(cnp) if a.dtype != cnp else a
        elif cnp.kind not in "biufc" or isinstance(a, int) and abs(a) > 2**53:
            a = np.asarray(a).astype(cnp)
        vals.append(a)
    root = trace(op, tuple(static), tuple(absent))
    if root.op == "const":
        return np.full(broadcast(op, arrays), root.args[0], result.np)
    if cnp.kind == "c":
        require_meaning(op, root, compute)
        ones = tuple([p.name for p, a in zip(op.params, arrays, strict=True) if p.kind == "number" and a == 1])
        if ones:        # a complex product by 1 makes nan of inf
            root = without_ones(op, root, ones)
    want = shape if same and shape is not None else broadcast(op, arrays)
    n = 1
    for k in want:
        n *= k
    r = None
    if n >= loops.FEW and root.op != "arg" and n >= loops.least(root):
        r = loops.pointwise(root, names, vals, want, cnp, cnp if half else result.np, out)
    if r is None:
        f = numpy_function(names, [root], reuse=same and shape is not None and len(shape) > 0,
                           numbers=numbers)
        with np.errstate(all="ignore"):
            r = f(*vals, cnp.type)
    if r.__class__ is not ndarray:
        r = np.asarray(r)
    if root.op == "arg":
        r = r.copy()
    if r.dtype != result.np:
        with np.errstate(all="ignore"):
            r = r.astype(result.np)
    if r.shape != want:
        r = np.broadcast_to(r, want).copy()
    return r


def require_meaning(op: Operator, root: E.Expr, compute: D.dtype) -> None:
    """NotImplementedError for an expression on complex numbers that orders or rounds them."""
    real = [n.op for n in E.postorder(root) if n.op not in E.COMPLEX]
    if real:
        raise NotImplementedError(f"\"{op.name}\" not implemented for '{_scalar_name(compute)}': {real[0]} has no meaning for complex numbers")


def strides_like(shape: tuple[int, ...], itemsize: int, arrays: list[Any]) -> tuple[int, ...] | None:
    """The byte strides of a pointwise result: dense, its dimensions in the order that the operands' strides have. None: row-major."""
    operands = [a for a in arrays if isinstance(a, (ndarray, MetaArray)) and a.ndim]
    n = len(shape)
    steps = [(0,) * (n - a.ndim) + tuple(0 if k == 1 else s // a.dtype.itemsize for k, s in zip(a.shape, a.strides, strict=True)) for a in operands]
    order = list(range(n - 1, -1, -1))      # the fastest dimension first

    def after(i: int, j: int) -> int:
        for s in steps:
            if s[i] and s[j] and s[i] != s[j]:
                return 1 if s[i] > s[j] else -1
        return 0

    for i in range(1, n):
        at = i
        for k in range(i - 1, -1, -1):
            c = after(order[k], order[at])
            if c > 0:
                order[k], order[at] = order[at], order[k]
                at = k
            elif c < 0:
                break
    if order == list(range(n - 1, -1, -1)):
        return None
    out, step = [0] * n, itemsize
    for d in order:
        out[d] = step
        step *= max(shape[d], 1)
    return tuple(out)


def _mask(d: np.dtype) -> int:
    return (1 << (8 * d.itemsize)) - 1 if d.kind == "u" else -1


def form_of(op: Operator, values: tuple) -> Operator | None:
    """The operator that computes a pointwise record for operands of these dtypes, where another does."""
    return op.forms.get(compute_dtypes(op, arrays_of(op, values)[0])[0].category) if op.forms else None


def _run_pointwise(op: Operator, values: tuple) -> Tensor:
    arrays, cpu = arrays_of(op, values)
    if not op.numbers and not any(isinstance(v, Tensor) for v in values):
        raise TypeError(f"{op.name}() received an invalid combination of arguments - got ({', '.join(type(v).__name__ for v in values)}), but at least one "
                        "operand must be a Tensor")
    if op.check is not None:
        r = op.check(*arrays)
        if r is not None:
            arrays = list(r)
    compute, result = compute_dtypes(op, arrays)
    if op.forms and compute.category in op.forms:
        return run(op.forms[compute.category], values)
    if not cpu:
        require_same_device(op, arrays)
        if compute.is_complex:
            from .generate import trace
            plain = tuple(x for p, x in zip(op.params, arrays, strict=True) if p.kind == "plain")
            absent = tuple(p.name for p, x in zip(op.params, arrays, strict=True) if x is None and p.kind != "plain")
            require_meaning(op, trace(op, plain, absent), compute)
        shape = broadcast(op, arrays)
        a: Any = MetaArray(shape, result.np, strides_like(shape, result.np.itemsize, arrays))
    else:
        broadcast(op, arrays)
        a = pointwise_arrays(op, arrays, compute, result)
    t = wrap(a)
    if any(getattr(v, "_rg", False) for v in values):
        _record(op, t, values)
    return t


def _record(op: Operator, t: Any, values: tuple, kept: tuple = ()) -> None:
    from .paths import has_gradient
    if modes.grad and has_gradient(op):
        op.derived("record")(t, *values, *kept)


# --- reductions -----------------------------------------------------------------------------------------------------
def normalize_dims(dim: Any, ndim: int, name: str = "") -> tuple[int, ...]:
    """Reduced dimensions as sorted nonnegative ints; all of them for None or ()."""
    if dim is None:
        return tuple(range(ndim))
    if isinstance(dim, Tensor):
        dim = dim.item()
    if isinstance(dim, (bool, float)):
        raise TypeError(f"{name}(): argument 'dim' must be int or tuple of ints, not {type(dim).__name__}")
    dims = (dim,) if not isinstance(dim, (tuple, list)) else tuple(dim)
    if not dims:
        return tuple(range(ndim))
    out = []
    n = max(ndim, 1)
    for d in dims:
        if not isinstance(d, (int, np.integer)):
            raise TypeError(f"{name}(): argument 'dim' must be int or tuple of ints, not {type(d).__name__}")
        if not -n <= d < n:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {d})")
        d = int(d) % n
        if d in out:
            raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
        out.append(d)
    return tuple(sorted(out)) if ndim else ()


def one_dim(dim: Any, ndim: int, name: str = "") -> int:
    """One dimension as a nonnegative int (0 for a 0-dim tensor). TypeError for None or several."""
    if dim is None or isinstance(dim, (tuple, list)):
        raise TypeError(f"{name}(): argument 'dim' must be int, not {type(dim).__name__}")
    d = normalize_dims(dim, ndim, name)
    return d[0] if d else 0


def trace_fold(op: Operator, values: tuple) -> tuple[Any, list[str]]:
    """The Fold of a reduction's body and the names of its numbers."""
    args: dict[str, Any] = {}
    numbers = []
    for p, v in zip(op.params, values, strict=True):
        if p.kind == "tensor":
            args[p.name] = E.arg(p.name)
        elif p.kind == "number":
            args[p.name] = v.item() if isinstance(v, Tensor) else v
            numbers.append(p.name)
        else:
            args[p.name] = v
    return op.fn(**args), numbers


def fold_dtypes(op: Operator, a: Any, dtype: D.dtype | None) -> tuple[D.dtype, D.dtype]:
    """(dtype that elements are combined in, dtype of the result)."""
    d = D.of(a.dtype)
    if dtype is not None:
        if op.result == "floating" and dtype.category < D.FLOAT:
            raise RuntimeError(f"{op.name}(): could not infer output dtype. Optional dtype must be either a floating point or complex dtype. "
                               f"Got: {_scalar_name(dtype)}")
        return dtype, dtype
    rule = op.result
    if rule == "sum":
        c = D.int64 if d.category <= D.INTEGER else d
        return c, c
    if rule == "float":
        c = d if d.category >= D.FLOAT else D.default[0]
        return c, c
    if rule == "floating":
        if d.category < D.FLOAT:
            raise RuntimeError(f"{op.name}(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. "
                               f"Got: {_scalar_name(d)}")
        return d, d
    if rule == "real":
        c = d if d.category >= D.FLOAT else D.default[0]
        return c, c.to_real()
    if rule == "bool":
        return d, D.bool_ if d.name != "uint8" else d
    if rule == "same":
        return d, d
    return d, D.by_name(rule)


_REDUCE = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "or": np.logical_or, "and": np.logical_and}


def fold_arrays(op: Operator, fold: Any, a: ndarray, dims: tuple[int, ...], keepdim: bool, compute: D.dtype, result: D.dtype, every: bool = False) -> ndarray:
    """Evaluate a fold on a CPU array. `every`: no dimension was named."""
    from ..backends.cpu.evaluate import numpy_function
    half = compute.name in HALF
    cnp = D.ALL[HALF[compute.name]].np if half else compute.np
    n = 1
    for d in dims:
        n *= a.shape[d]
    if n == 0 and fold.empty is None:
        bad = [d for d in dims if a.shape[d] == 0]
        if every:
            raise RuntimeError(f"{op.name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument.")
        raise IndexError(f"{op.name}(): Expected reduction dim {bad[0] if bad else 0} to have non-zero size.")
    if fold.combine in ("max", "min") and cnp.kind == "c":
        raise NotImplementedError(f"\"{op.name}\" not implemented for '{_scalar_name(compute)}': complex numbers have no order")
    x = a
    if x.dtype != cnp and fold.combine not in ("or", "and"):
        x = x.astype(cnp)
    with np.errstate(all="ignore"):
        s: Any = None
        if fold.combine == "add" and fold.map.op == "arg" and x.size >= loops.BIG:
            s = loops.plain_sum(x, dims, keepdim)
        if s is None:
            if fold.map.op != "arg":
                x = numpy_function(["input"], [fold.map], reuse=x.ndim > 0)(x, cnp.type)
            s = np.asarray(_REDUCE[fold.combine].reduce(x, axis=dims, keepdims=keepdim))
        if s.dtype.kind in "iu" and cnp.kind in "iu" and s.dtype != cnp:
            s = s.astype(cnp)
        if fold.finish is not None:
            e = E.const(fold.finish(E.arg("s"), E.arg("n")))      # one function for all sizes
            s = np.asarray(numpy_function(["s", "n"], [e], numbers=["n"])(s, n, s.dtype.type))
        if s.dtype != result.np:
            s = s.astype(result.np)
    return s


def _run_reduction(op: Operator, values: tuple) -> Tensor:
    v = dict(zip([p.name for p in op.params], values, strict=True))
    t = v["input"]
    if not isinstance(t, Tensor):
        raise bad_argument(op, op.params[0], t)
    a = t._a
    dims = normalize_dims(v.get("dim"), a.ndim, op.name)
    keepdim = bool(v.get("keepdim", False))
    dt = v.get("dtype")
    if dt is not None and not isinstance(dt, D.dtype):
        raise TypeError(f"{op.name}(): argument 'dtype' must be torch.dtype, not {type(dt).__name__}")
    compute, result = fold_dtypes(op, a, dt)
    if op.check is not None:
        op.check(**{k: x for k, x in v.items()})
    if a.__class__ is MetaArray:
        shape = tuple((1 if keepdim else None) if i in dims else n for i, n in enumerate(a.shape))
        r = wrap(MetaArray(tuple(n for n in shape if n is not None), result.np))
    else:
        if op.array is not None:
            s = op.array(a, dims, keepdim, compute, result, *[x for k, x in v.items() if k not in ("input", "dim", "keepdim", "dtype")])
        else:
            s = fold_arrays(op, trace_fold(op, values)[0], a, dims, keepdim, compute, result, v.get("dim") in (None, ()))
        r = wrap(row_major(s))
    if t._rg:
        _record(op, r, values)
    return r


def expand_reduced(g: Tensor, shape: tuple[int, ...], dim: Any, keepdim: bool) -> Tensor:
    """A gradient of a reduction's result as a view of the operand's shape."""
    f = hooks.function
    if g._a.ndim == 0:
        return f("expand")(g, shape)
    dims = normalize_dims(dim, len(shape))
    if not keepdim and g._a.ndim != len(shape):
        g = f("reshape")(g, tuple(1 if i in dims else n for i, n in enumerate(shape)))
    return f("expand")(g, shape)


# --- views ----------------------------------------------------------------------------------------------------------
def _run_view(op: Operator, values: tuple) -> Any:
    t = values[0]
    if not isinstance(t, Tensor):
        raise bad_argument(op, op.params[0], t)
    a = t._a
    if op.array is not None and a.__class__ is ndarray:
        r = op.array(a, *values[1:])
    elif op.shape_rule is not None:       # a view that changes the dtype
        r = op.shape_rule(a, *values[1:])
    else:
        g = op.body(Geometry.of(a), *values[1:])
        r = tuple(restride(a, x) for x in g) if g.__class__ in (tuple, list) else restride(a, g)
    if r.__class__ is tuple:
        out = tuple(view_of(x, t) for x in r)
        for x in out:
            x._vg = -1 - x._v[1]
        if t._rg is True or t._rg is MAYBE and t.requires_grad:
            if modes.grad:
                op.derived("record")(out, *values)
            else:
                for x in out:
                    x._rg = False
        return out
    v = view_of(r, t)
    if t._rg is not False:
        if t._rg is True or t.requires_grad:
            v._rg = False
            if modes.grad:
                op.derived("record")(v, *values)
    return v


# --- structural, writes, creation, composite -------------------------------------------------------------------------
def _half_in(op: Operator, arrays: list[Any]) -> tuple[list[Any], np.dtype | None]:
    """Half precision operands as float32, for records that compute; and the dtype to come back to."""
    back = None
    out = []
    for a in arrays:
        if a.__class__ is ndarray and a.dtype.itemsize <= 2 and a.dtype.kind in "fV":
            back = a.dtype
            a = a.astype(F32)
        elif a.__class__ is list and a and a[0].__class__ is ndarray and a[0].dtype.itemsize <= 2 and a[0].dtype.kind in "fV":
            back = a[0].dtype
            a = [x.astype(F32) for x in a]
        out.append(a)
    return out, back


def fast_form(op: Operator, values: tuple) -> tuple[list[Any], dict[str, Any]]:
    """What the fast form of an operator gives: the dtypes of its results (None for one that is None), and by name the arrays that it hands
    to the gradient. Nothing is written."""
    arrays, cpu = arrays_of(op, values)
    if not cpu:
        return [], dict.fromkeys(op.keeps)
    if op.check is not None:
        arrays = list(op.check(*arrays) or arrays)
    arrays = [a.copy() if p.name in op.mutates and a is not None else a for p, a in zip(op.params, arrays, strict=True)]
    arrays, back = (arrays, None) if op.exact else _half_in(op, arrays)
    with np.errstate(all="ignore"):
        if op.keeps:
            r, *kept = op.array(*arrays, True)  # type: ignore[misc]
        else:
            r, kept = op.array(*arrays), []  # type: ignore[misc]
    dtypes = [None if x is None else D.of(back if back is not None and x.dtype == F32 else x.dtype) for x in (r if r.__class__ is tuple else (r,))]
    return dtypes, dict(zip(op.keeps, kept, strict=True))


def _run_structural(op: Operator, values: tuple) -> Any:
    arrays, cpu = arrays_of(op, values)
    if op.check is not None:
        r = op.check(*arrays)
        if r is not None:
            arrays = list(r)
    if not cpu:
        require_same_device(op, arrays)
        r = meta_result(op, arrays)
    else:
        back = None
        if not op.exact:
            arrays, back = _half_in(op, arrays)
        kept: tuple = ()
        with np.errstate(all="ignore"):
            if op.keeps:
                r, *kept = op.array(*arrays, modes.grad and any(rg(v) for v in values))  # type: ignore[misc, assignment]
            else:
                r = (op.array or op.body)(*arrays)
        for p, v in zip(op.params, values, strict=True):
            if p.name in op.mutates and v is not None:
                bump(v)
        if back is not None:
            r = tuple(x.astype(back) if x is not None and x.dtype == F32 else x for x in r) if r.__class__ is tuple else \
                r.astype(back) if r.dtype == F32 else r
    if r.__class__ is tuple or r.__class__ is list:
        t: Any = tuple(None if x is None else wrap(x if isinstance(x, (ndarray, MetaArray)) else np.asarray(x)) for x in r)
        if any(rg(v) for v in values):
            _record(op, t, values)
        return _named(op)(t) if op.returns else t
    t = wrap(r if isinstance(r, (ndarray, MetaArray)) else np.asarray(r))
    if any(rg(v) for v in values):
        _record(op, t, values, kept if cpu else ())
    return t


def rg(v: Any) -> bool:
    """Whether an argument may require grad."""
    if isinstance(v, Tensor):
        return v._rg is not False
    return v.__class__ in (list, tuple) and any(isinstance(x, Tensor) and x._rg is not False for x in v)


def meta_result(op: Operator, arrays: list[Any]) -> Any:
    """Meta arrays by the shape rule of a record."""
    if op.shape_rule is None:
        raise NotImplementedError(f"{op.name} has no shape rule for meta tensors")
    r = op.shape_rule(*arrays)
    first = next((x for y in arrays for x in (y if isinstance(y, list) else [y]) if isinstance(x, (MetaArray, ndarray))), None)

    def one(x: Any) -> Any:
        if x is None:
            return None
        if isinstance(x, MetaArray):
            return x
        if x and isinstance(x[-1], (D.dtype, np.dtype)):
            d = x[-1].np if isinstance(x[-1], D.dtype) else x[-1]
            return MetaArray(tuple(x[0]), d)
        return MetaArray(tuple(x), first.dtype)  # type: ignore[union-attr]

    return tuple(one(x) for x in r) if op.returns or op.multi else one(r)


class NamedResult(tuple):
    """Base of the classes of several results. As PyTorch's: made from one sequence, read by position or by name."""

    __slots__ = ()
    n_fields = n_sequence_fields = 0
    n_unnamed_fields = 0
    __match_args__: tuple[str, ...] = ()

    def __new__(cls, sequence: Any, dict: Any = None) -> Any:
        made = tuple.__new__(cls, sequence)
        if len(made) != cls.n_fields:
            raise TypeError(f"torch.return_types.{cls.__name__}() takes a {cls.n_fields}-sequence ({len(made)}-sequence given)")
        return made

    @classmethod
    def _make(cls, sequence: Any) -> Any:
        return tuple.__new__(cls, sequence)

    def __repr__(self) -> str:
        items = ",\n".join(f"{n}={v!r}" for n, v in zip(self.__match_args__, self, strict=True))
        return f"torch.return_types.{type(self).__name__}(\n{items})"

    def __reduce__(self) -> tuple:
        return type(self), (tuple(self), {})


_named_types: dict[Operator, Any] = {}


def named_type(op: Operator) -> type[NamedResult]:
    """The class of an operator's several results, `torch.return_types.<name>`."""
    name = op.result_name
    fields = tuple(op.returns)  # type: ignore[arg-type]
    found = NAMED_TYPES.get(name)
    if found is None or found.__match_args__ != fields:  # records of one name have one class
        members: dict[str, Any] = {n: property(itemgetter(i)) for i, n in enumerate(fields)}
        found = NAMED_TYPES[name] = type(name, (NamedResult,), {
            **members, "__slots__": (), "__match_args__": fields, "n_fields": len(fields), "n_sequence_fields": len(fields),
            "__module__": "rushlight.return_types"})
    return found


NAMED_TYPES: dict[str, type[NamedResult]] = {}


def _named(op: Operator) -> Any:
    """What makes an operator's several results of a sequence."""
    c = _named_types.get(op)
    if c is None:
        c = _named_types[op] = partial(tuple.__new__, named_type(op))
    return c


def _run_writes(op: Operator, values: tuple) -> Tensor:
    """The functional form of a record that writes: on a copy."""
    t = values[0]
    if not isinstance(t, Tensor):
        raise bad_argument(op, op.params[0], t)
    arrays, cpu = arrays_of(op, values)
    if op.check is not None:
        r = op.check(*arrays)
        if r is not None:
            arrays = list(r)
    if not cpu:
        require_same_device(op, arrays)
        new: Any = MetaArray(t._a.shape, t._a.dtype)
    else:
        new = np.array(t._a, order="C") if not t._a.flags.c_contiguous else t._a.copy()
        with np.errstate(all="ignore"):
            op.body(new, *arrays[1:])
    r = wrap(new)
    if any(rg(v) for v in values):
        _record(op, r, values)
    return r


def _run_creation(op: Operator, values: tuple) -> Tensor:
    from .creation import create
    return create(op, values)


def _run_composite(op: Operator, values: tuple) -> Any:
    # without formulas of its own, the body is what a gradient goes through
    if op.array is not None and (op.gradients or op.joint or not (modes.grad and any(rg(v) for v in values))):
        arrays, cpu = arrays_of(op, values)
        if cpu:
            return _run_structural(op, values)
    return op.body(*values)


_RUN = {"pointwise": _run_pointwise, "reduction": _run_reduction, "view": _run_view, "structural": _run_structural, "writes": _run_writes,
        "creation": _run_creation, "composite": _run_composite}
