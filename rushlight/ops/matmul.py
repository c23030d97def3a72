"""Products of vectors, matrices and batches of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import dtype as D
from ..core.promotion import result_of
from ..core.tensor import Tensor as T
from ..core.tensor import hooks
from .declare import composite, structural

if TYPE_CHECKING:
    from ..core.tensor import Tensor

    Number = int | float | complex
    Tensors = list[Tensor]


def f(name: str) -> Any:
    return hooks.function(name)


class _Late:
    """backends.cpu.blas, imported at the first product."""

    def __getattr__(self, name: str) -> Any:
        from ..backends.cpu import blas as b

        for n in ("gemm", "bgemm", "gemv", "dot"):
            setattr(self, n, getattr(b, n))
        return getattr(b, name)


blas = _Late()


def _same_dtype(*arrays: Any) -> None:
    first = arrays[0]
    for a in arrays[1:]:
        if a.dtype != first.dtype:
            raise RuntimeError(
                f"expected m1 and m2 to have the same dtype, but got: {D.of(first.dtype).name} != {D.of(a.dtype).name}"
            )


def _conj(t: Any) -> Any:
    return t.conj() if t._a.dtype.kind == "c" else t


def _mm_check(input, mat2):
    if input.ndim != 2:
        raise RuntimeError(f"self must be a matrix (mm got shapes {list(input.shape)} and {list(mat2.shape)})")
    if mat2.ndim != 2:
        raise RuntimeError(f"mat2 must be a matrix (mm got shapes {list(input.shape)} and {list(mat2.shape)})")
    if input.shape[1] != mat2.shape[0]:
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({input.shape[0]}x{input.shape[1]} and "
            f"{mat2.shape[0]}x{mat2.shape[1]})"
        )
    if input.dtype != mat2.dtype:
        _same_dtype(input, mat2)


@structural(method=True, check=_mm_check, exact=True, old={"mat1": "input"})
def mm(input: Tensor, mat2: Tensor):
    """The product of two matrices."""
    return blas.gemm(input, mat2)


mm.shape(lambda input, mat2: (input.shape[0], mat2.shape[1]))
mm.gradient(input=lambda grad, mat2: mm(grad, _conj(mat2.t())), mat2=lambda grad, input: mm(_conj(input.t()), grad))


def _bmm_check(input, mat2):
    if input.ndim != 3:
        raise RuntimeError(f"batch1 must be a 3D tensor (bmm got shapes {list(input.shape)} and {list(mat2.shape)})")
    if mat2.ndim != 3:
        raise RuntimeError(f"batch2 must be a 3D tensor (bmm got shapes {list(input.shape)} and {list(mat2.shape)})")
    if input.shape[0] != mat2.shape[0] or input.shape[2] != mat2.shape[1]:
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{input.shape[0]}, {input.shape[2]}] but "
            "got: "
            f"[{mat2.shape[0]}, {mat2.shape[1]}]."
        )
    if input.dtype != mat2.dtype:
        _same_dtype(input, mat2)


@structural(method=True, check=_bmm_check, exact=True, old={"batch1": "input", "batch2": "mat2"})
def bmm(input: Tensor, mat2: Tensor):
    """The products of two batches of matrices, pair by pair."""
    return blas.bgemm(input, mat2)


bmm.shape(lambda input, mat2: (input.shape[0], input.shape[1], mat2.shape[2]))
bmm.gradient(
    input=lambda grad, mat2: bmm(grad, _conj(mat2.transpose(1, 2))),
    mat2=lambda grad, input: bmm(_conj(input.transpose(1, 2)), grad),
)


@structural(public=False, exact=True, name="bmm", node="BmmBackward0")
def _batched(input: Tensor, other: Tensor):
    """Batches of matrices with any leading dimensions of one shape, as they lie in memory."""
    return blas.bgemm(input, other)


_batched.shape(
    lambda input, other: (*np.broadcast_shapes(input.shape[:-2], other.shape[:-2]), input.shape[-2], other.shape[-1])
)


def _batched_gradient(g: Any, meta: Any) -> Any:
    from .generate import sum_to

    return sum_to(g, meta.shape)


_batched.gradient(
    input=lambda grad, other, input_meta: _batched_gradient(_batched(grad, _conj(other.transpose(-2, -1))), input_meta),
    other=lambda grad, input, other_meta: _batched_gradient(_batched(_conj(input.transpose(-2, -1)), grad), other_meta),
)


def _mv_check(input, vec):
    if input.ndim != 2 or vec.ndim != 1:
        raise RuntimeError(f"vector + matrix @ vector expected, got {input.ndim}, {vec.ndim}")
    if input.shape[1] != vec.shape[0]:
        raise RuntimeError(
            f"size mismatch, got input ({input.shape[0]}), mat ({input.shape[0]}x{input.shape[1]}), vec "
            f"({vec.shape[0]})"
        )
    if input.dtype != vec.dtype:
        _same_dtype(input, vec)


@structural(method=True, check=_mv_check, exact=True, old={"mat": "input"})
def mv(input: Tensor, vec: Tensor):
    """The product of a matrix and a vector."""
    return blas.gemv(input, vec)


mv.shape(lambda input, vec: (input.shape[0],))
mv.gradient(
    input=lambda grad, vec: grad.unsqueeze(1) * _conj(vec).unsqueeze(0),
    vec=lambda grad, input: mv(_conj(input.t()), grad),
)


def _dot_check(input, tensor):
    if input.ndim != 1 or tensor.ndim != 1:
        raise RuntimeError(f"1D tensors expected, but got {input.ndim}D and {tensor.ndim}D tensors")
    if input.dtype != tensor.dtype:
        raise RuntimeError(
            f"dot : expected both vectors to have same dtype, but found {D.of(input.dtype).name.capitalize()} and "
            f"{D.of(tensor.dtype).name.capitalize()}"
        )
    if input.shape != tensor.shape:
        raise RuntimeError(
            f"inconsistent tensor size, expected tensor [{input.size}] and src [{tensor.size}] to have the same number "
            "of elements, but got "
            f"{input.size} and {tensor.size} elements respectively"
        )


@structural(method=True, check=_dot_check, exact=True, old={"tensor1": "input", "tensor2": "tensor", "other": "tensor"})
def dot(input: Tensor, tensor: Tensor):
    """The sum of the products of the elements of two vectors."""
    return blas.dot(input, tensor)


dot.shape(lambda input, tensor: ())
dot.gradient(input=lambda grad, tensor: grad * _conj(tensor), tensor=lambda grad, input: grad * _conj(input))


@composite(method=True, out="same")
def vdot(input: Tensor, other: Tensor):
    """`dot` with the first vector conjugated."""
    return dot(_conj(input), other)


@composite(
    method=True,
    operator="matmul",
    aliases=("linalg_matmul",),
    ns=("torch", "linalg"),
    out="same",
    old={"tensor1": "input", "tensor2": "other"},
)
def matmul(input: Tensor, other: Tensor):
    """The matrix product: of vectors their `dot`, of matrices `mm`, of a matrix and a vector `mv`; leading dimensions
    are a batch and are broadcast."""
    a, b = input._a, other._a
    n, m = a.ndim, b.ndim
    if n == 2 and m == 2:
        return mm.function(input, other)
    if n == 0 or m == 0:
        raise RuntimeError(f"both arguments to matmul need to be at least 1D, but they are {n}D and {m}D")
    if n == 1 and m == 1:
        return dot(input, other)
    if n == 2 and m == 1:
        return mv(input, other)
    if n == 1 and m == 2:
        return mm(input.unsqueeze(0), other).squeeze(0)
    if a.dtype != b.dtype:
        _same_dtype(a, b)
    k, k2 = a.shape[-1], b.shape[-2] if m > 1 else b.shape[0]
    if k != k2:
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied: matmul got {list(a.shape)} and {list(b.shape)}, whose inner "
            f"sizes are {k} and {k2}"
            if min(n, m) <= 2
            else f"Expected size for first two dimensions of batch2 tensor to be: [{a.shape[0]}, {k}] but got: "
            f"[{b.shape[0]}, {k2}]."
        )
    if m == 1:
        return mm(input.reshape(math.prod(a.shape[:-1]), k), other.unsqueeze(1)).reshape(a.shape[:-1]) if n > 2 else mv(input, other)
    if m == 2:
        return mm(input.reshape(math.prod(a.shape[:-1]), k), other).reshape((*a.shape[:-1], b.shape[-1]))
    if n == 1:
        return matmul(input.unsqueeze(0), other).squeeze(-2)
    try:
        np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise RuntimeError(
            f"The batch dimensions {list(a.shape[:-2])} and {list(b.shape[:-2])} of matmul's operands (shapes "
            f"{list(a.shape)} and "
            f"{list(b.shape)}) cannot be broadcast: the size of tensor a must match the size of tensor b at each"
        ) from None
    return _batched(input, other)


# --- added to something -----------------------------------------------------------------------------------------------
ADD = {"method": True, "inplace": True, "exact": True}


def _no_bool_scale(*scales: Any) -> None:
    pass


def _added(name: str, product: Any, ranks: tuple[int, int], doc: str, names: tuple[str, str]) -> Any:
    """`beta * input + alpha * product(a, b)`; with beta 0 the input is not read."""
    ns: dict[str, Any] = {}
    a, b = names
    src = f"""
def {name}(input, {a}, {b}, *, beta=1, alpha=1):
    return BODY(input, {a}, {b}, beta, alpha)
"""
    exec(src, {"BODY": lambda *v: _add_product(name, product, ranks, *v)}, ns)
    fn = ns[name]
    fn.__annotations__ = {"input": "Tensor", a: "Tensor", b: "Tensor", "beta": "Number", "alpha": "Number"}
    fn.__doc__ = doc
    old = {"mat": "input", "tensor": "input"} if name != "addmv" else {"tensor": "input", "vector": "vec"}
    # the factors may stand before their matrices: each of them in a function, beta first in a method
    functions = (f"beta, input, alpha, {a}, {b}", f"beta, input, {a}, {b}", f"input, alpha, {a}, {b}")
    methods = (f"input, beta, alpha, {a}, {b}", f"input, beta, {a}, {b}")
    return composite(fn, method=True, inplace=True, legacy=functions, legacy_method=methods, out="same", old=old)


def _add_product(
    name: str, product: Any, ranks: tuple[int, int], input: Any, a: Any, b: Any, beta: Any, alpha: Any
) -> Any:
    if (a.dim(), b.dim()) != ranks:
        what = {1: "a vector", 2: "a matrix", 3: "a 3D tensor"}
        raise RuntimeError(
            f"{name}: expected {what[ranks[0]]} and {what[ranks[1]]} as operands, got {a.dim()}D and {b.dim()}D "
            f"(shapes {list(a.shape)}, {list(b.shape)})"
        )
    d = input.dtype if name != "addr" else result_of((input._a, a._a, b._a))     # only vectors of several dtypes are promoted
    if name == "addr":
        input, a, b = (x if x.dtype is d else x.to(d) for x in (input, a, b))
    for x in (a, b):
        if x.dtype is not d:
            raise RuntimeError(
                f"self and mat2 must have the same dtype, but got {d.name} and {x.dtype.name} ({name})"
                if name != "addmm" or x is b
                else f"self and mat1 must have the same dtype, but got {d.name} and {x.dtype.name} ({name})"
            )
    for s, n in ((beta, "beta"), (alpha, "alpha")):
        if isinstance(s, float) and d.category < D.FLOAT and name == "addr":
            raise RuntimeError(f"For integral input tensors, argument {n} must not be a floating point number.")
    if d.category < D.FLOAT:  # the other products cut the numbers off
        beta, alpha = int(beta), int(alpha)
    if d.itemsize == 2 and d.category == D.FLOAT and name != "addr":  # rounded once, as PyTorch does
        f32 = D.float32
        return _add_product(name, product, ranks, input.to(f32), a.to(f32), b.to(f32), beta, alpha).to(d)
    p = product(a, b)
    try:
        fits = np.broadcast_shapes(input._a.shape, p._a.shape) == p._a.shape
    except ValueError:
        fits = False
    if not fits:
        raise RuntimeError(
            f"The expanded size of the tensor ({list(p.shape)}) must match the existing size ({list(input.shape)}): "
            f"{name} cannot add its input of shape "
            f"{list(input.shape)} to a product of shape {list(p.shape)}"
        )
    if alpha != 1:
        p = p * alpha
    r = p if beta == 0 else (input if beta == 1 else input * beta) + p
    return r if r.dtype is d else r.to(d)


def _sum_bmm(a: Any, b: Any) -> Any:
    return bmm(a, b).sum(0)


addmm = _added(
    "addmm", mm, (2, 2), "beta * input + alpha * (mat1 @ mat2).", ("mat1", "mat2")
)
addmv = _added(
    "addmv", mv, (2, 1), "beta * input + alpha * (mat @ vec).", ("mat", "vec")
)
baddbmm = _added(
    "baddbmm",
    bmm,
    (3, 3),
    "beta * input + alpha * (batch1 @ batch2), for each of the batch.",
    ("batch1", "batch2"),
)
addbmm = _added(
    "addbmm",
    _sum_bmm,
    (3, 3),
    "beta * input + alpha * the sum over the batch of batch1 @ batch2.",
    ("batch1", "batch2"),
)


def _outer(a: Any, b: Any) -> Any:
    return a.unsqueeze(1) * b.unsqueeze(0)


addr = _added(
    "addr",
    _outer,
    (1, 1),
    "beta * input + alpha * the outer product of vec1 and vec2.",
    ("vec1", "vec2"),
)


@composite(method=True, aliases=("ger",), out=True, old={"vec1": "input"})
def outer(input: Tensor, vec2: Tensor):
    """The n x m products of the elements of two vectors."""
    for k, t in ((1, input), (2, vec2)):
        if t.dim() != 1:
            raise RuntimeError(f"outer: Expected 1-D argument {'self' if k == 1 else 'vec2'}, but got {t.dim()}-D")
    return _outer(input, vec2)


@composite(method=True, out="same")
def inner(input: Tensor, other: Tensor):
    """Products summed over the last dimension of both."""
    if input.dim() == 0 or other.dim() == 0:
        return input * other
    if input.shape[-1] != other.shape[-1]:
        raise RuntimeError(
            f"inner() the last dimension must match on both input tensors but got shapes {list(input.shape)} and "
            f"{list(other.shape)}"
        )
    return tensordot(input, other, ([-1], [-1]))


@composite(out="same")
def tensordot(a: Tensor, b: Tensor, dims: Any = 2):
    """Products summed over pairs of dimensions: the last `dims` of a with the first of b, or two lists."""
    if isinstance(dims, T):
        dims = dims.tolist() if dims.dim() else dims.item()
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(a.dim(), b.dim()):
            raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
        da, db = list(range(a.dim() - dims, a.dim())), list(range(dims))
    else:
        da, db = ([x] if isinstance(x, int) else list(x) for x in dims)
    if len(da) != len(db):
        raise RuntimeError(f"both dimension lists should have same length, got {len(da)} and {len(db)}")
    da, db = [d % max(a.dim(), 1) for d in da], [d % max(b.dim(), 1) for d in db]
    for i, j in zip(da, db, strict=True):
        if a.shape[i] != b.shape[j] and 1 not in (a.shape[i], b.shape[j]):
            raise RuntimeError(
                f"contracted dimensions need to match, but first has size {a.shape[i]} in dim {i} and second has size "
                f"{b.shape[j]} in dim {j}"
            )
    for i, j in zip(da, db, strict=True):
        if a.shape[i] != b.shape[j]:
            a = a.sum(i, True) if b.shape[j] == 1 else a
            b = b.sum(j, True) if a.shape[i] == 1 else b
    fa, fb = [i for i in range(a.dim()) if i not in da], [i for i in range(b.dim()) if i not in db]
    k = 1
    for i in da:
        k *= a.shape[i]
    sa, sb = [a.shape[i] for i in fa], [b.shape[i] for i in fb]
    x = a.permute([*fa, *da]).reshape(int(np.prod(sa, dtype=int)), k)
    y = b.permute([*db, *fb]).reshape(k, int(np.prod(sb, dtype=int)))
    return mm(x, y).reshape([*sa, *sb])


@composite(method=True, out=True)
def kron(input: Tensor, other: Tensor):
    """The Kronecker product."""
    n = max(input.dim(), other.dim())
    a = input.reshape([1] * (n - input.dim()) + list(input.shape))
    b = other.reshape([1] * (n - other.dim()) + list(other.shape))
    x = a.reshape([k for s in a.shape for k in (s, 1)])
    y = b.reshape([k for s in b.shape for k in (1, s)])
    return (x * y).reshape([s * t for s, t in zip(a.shape, b.shape, strict=True)])


@composite()
def chain_matmul(matrices: Tensors):
    """The product of a chain of matrices, in the cheapest order."""
    return hooks.function("linalg.multi_dot")(list(matrices))


chain_matmul._derived["function"] = lambda *ms, out=None: chain_matmul.fn(
    list(ms[0]) if len(ms) == 1 and isinstance(ms[0], (list, tuple)) else list(ms)
)


@composite(ns=("nn.functional", "torch"))
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None):
    """x1 A x2 + b, for each of the matrices A in `weight` (out, in1, in2)."""
    if input1.shape[:-1] != input2.shape[:-1]:
        raise RuntimeError(
            f"bilinear(): input batch dimensions do not match: got {list(input1.shape[:-1])} and "
            f"{list(input2.shape[:-1])}"
        )
    if input1.shape[-1] != weight.shape[1]:
        raise RuntimeError(
            f"bilinear(): input1 size does not match weight size: got {input1.shape[-1]} but expected {weight.shape[1]}"
        )
    if input2.shape[-1] != weight.shape[2]:
        raise RuntimeError(
            f"bilinear(): input2 size does not match weight size: got {input2.shape[-1]} but expected {weight.shape[2]}"
        )
    a = input1.reshape(-1, input1.shape[-1])
    b = input2.reshape(-1, input2.shape[-1])
    y = f("einsum")("bi,oij,bj->bo", a, weight, b).reshape((*input1.shape[:-1], weight.shape[0]))
    return y if bias is None else y + bias


# --- Inputs for the generated tests (ops.samples) ---
mm.samples(lambda s: [s.call(s((2, 3)), s((3, 4))), s.call(s((2, 3), transposed=True), s((3, 2), transposed=True)), s.call(s((2, 0)), s((0, 3)))])
bmm.samples(lambda s: [s.call(s((2, 2, 3)), s((2, 3, 2))), s.call(s((0, 2, 3)), s((0, 3, 2)))])
mv.samples(lambda s: [s.call(s((2, 3)), s((3,)))])
dot.samples(lambda s: [s.call(s((3,)), s((3,))), s.call(s((0,)), s((0,)))])
matmul.samples(lambda s: [s.call(s((2, 3)), s((3, 2))), s.call(s((3,)), s((3,))), s.call(s((2, 3)), s((3,))), s.call(s((3,)), s((3, 2))),
                          s.call(s((2, 1, 2, 3)), s((2, 3, 2))), s.call(s((2, 2, 3)), s((3, 2)))])
addmm.samples(lambda s: [s.call(s((2, 4)), s((2, 3)), s((3, 4))), s.call(s((4,)), s((2, 3)), s((3, 4)), beta=0.5, alpha=2.0)])
baddbmm.samples(lambda s: [s.call(s((2, 2, 2)), s((2, 2, 3)), s((2, 3, 2))), s.call(s((1, 2)), s((2, 2, 3)), s((2, 3, 2)), beta=0.5, alpha=2.0)])
outer.samples(lambda s: [s.call(s((2,)), s((3,)))])
vdot.samples(lambda s: [s.call(s((4,)), s((4,))), s.call(s((2,), 'complex128'), s((2,), 'complex128'))])
inner.samples(lambda s: [s.call(s((2, 3)), s((4, 3)))])
tensordot.samples(lambda s: [s.call(s((2, 3, 4)), s((3, 4, 2)), 2), s.call(s((2, 3)), s((4, 2)), ((0,), (1,))), s.call(s((2,)), s((3,)), 0)])
kron.samples(lambda s: [s.call(s((2, 3)), s((2, 2))), s.call(s((2,)), s((2, 3)))])
chain_matmul.samples(lambda s: [s.call(s((2, 3)), s((3, 4)), s((4, 2)))])
bilinear.samples(lambda s: [s.call(s((4, 2)), s((4, 3)), s((2, 2, 3)), s((2,)))])
