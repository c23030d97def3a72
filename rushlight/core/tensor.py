"""The Tensor: a strided view on memory, with a version counter and a place on the tape.

Slots: `_a` the array (its class is the backend), `_rg` requires grad (True, False, or MAYBE for a view of a base that did not
require grad when the view was made), `_node` the tape node that made it (AccumulateGrad for a leaf that requires grad),
`_grad`, `_v` the version counter `[writes, histories, place of the last write]` shared by a base and its views (None: 0
writes, no views), `_base` the base of a view, `_vg` the number of histories when the view's node was made (-1 minus it: one
of several views made at once, or made by a custom function; it must not be written to with history), `_inf` (only there if the
tensor was made in inference mode, or is the same memory as one that was) whether writes to it are refused outside of the mode.

Operators are installed here by ops.declare; only what needs no operator is written below.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends.meta import MetaArray
from ..backends.sparse import SparseArray, SparseCompressed, SparseCOO
from . import dtype as dtypes
from .device import CPU, META, device
from .dtype import dtype
from .errors import place

__all__ = ["Tensor", "Size", "MAYBE", "inference", "wrap", "bump", "bump_all", "view_of", "version", "hooks"]

MAYBE = 2
_plain = object.__new__
_new = _plain       # what makes tensors on memory of their own; it marks them while a thread is in inference mode
ndarray = np.ndarray


class Hooks:
    """What layers above plug in: filled by autograd and ops when they are loaded."""

    regenerate: Callable[[Any], None]      # a view's node, after the history of its base changed
    accumulator: Callable[[Any], Any]      # the AccumulateGrad node of a leaf
    backward: Callable
    function: Callable[[str], Callable]    # an operator by name
    construct: Callable                    # Tensor(...) called as the old constructor


hooks = Hooks()


class Inference:
    """What inference mode means for tensors: those made in it are marked, and outside of it they cannot be written to or saved for
    backward. Nothing of this is paid for before a thread enters the mode."""

    used = False                                   # whether a thread ever was in inference mode
    inside: Callable[[], bool]                     # whether this thread is: filled by autograd.modes
    listeners: list[Callable[[Callable], None]] = []

    def listen(self, fn: Callable[[Callable], None]) -> None:
        """`fn` is told what makes tensors, whenever that changes."""
        self.listeners.append(fn)
        if self.used:
            fn(_new)

    def make_with(self, maker: Callable) -> None:
        """Tensors are made by `maker` from now on."""
        global _new
        self.used, _new = True, maker
        for fn in self.listeners:
            fn(maker)

    def check_write(self, t: Tensor) -> None:
        """RuntimeError for a tensor that was made in inference mode and is to be written to outside of it."""
        if self.used and getattr(t if t._base is None else t._base, "_inf", False) and not self.inside():
            raise RuntimeError("Inplace update to inference tensor outside InferenceMode is not allowed. You can make a clone to get a normal tensor "
                               "before doing inplace update.")

    def check_save(self, t: Tensor) -> None:
        """RuntimeError for a tensor that was made in inference mode and is to be saved for backward."""
        if self.used and t.is_inference():
            raise RuntimeError("Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in computation "
                               "tracked by autograd. To work around this, you can make a clone to get a normal tensor and use it in autograd, or use "
                               "`torch.no_grad()` instead of `torch.inference_mode()`.")


inference = Inference()


class Size(tuple):
    """The sizes of a tensor: a tuple that knows `numel()`."""

    __slots__ = ()

    def numel(self) -> int:
        n = 1
        for s in self:
            n *= s
        return n

    def __repr__(self) -> str:
        return f"torch.Size([{', '.join(map(repr, self))}])"

    def __add__(self, other: tuple) -> Size:  # type: ignore[override]
        return Size(tuple.__add__(self, tuple(other)))

    def __mul__(self, n: Any) -> Size:  # type: ignore[override]
        return Size(tuple.__mul__(self, n))

    __rmul__ = __mul__  # type: ignore[assignment]

    def __getitem__(self, i: Any) -> Any:
        r = tuple.__getitem__(self, i)
        return Size(r) if r.__class__ is tuple else r

    def __reduce__(self):
        return (Size, (tuple(self),))


def wrap(array: Any) -> Tensor:
    """A plain tensor on an array of a backend."""
    t = _new(Tensor)
    t._a = array
    t._rg = False
    t._node = t._grad = t._v = t._base = None
    return t


def view_of(array: Any, base: Tensor) -> Tensor:
    """A tensor on a view of the memory of `base`, sharing its version counter; the tape is the caller's affair."""
    t = _new(Tensor)
    t._a = array
    t._node = t._grad = None
    b = base._base
    t._base = base if b is None else b
    v = base._v
    if v is None:
        v = base._v = [0, 0, None]
    t._v = v
    t._vg = v[1]
    t._rg = MAYBE
    return t


def bump(t: Tensor) -> None:
    """Count a write to the memory of `t`, and remember which line of the user's code it was."""
    v = t._v
    if v is None:
        t._v = [1, 0, place()]
    else:
        v[0] += 1
        v[2] = place()


def bump_all(tensors: Iterable[Tensor]) -> None:
    """`bump` for several tensors, the user's line looked up once."""
    where = place()
    for t in tensors:
        v = t._v
        if v is None:
            t._v = [1, 0, where]
        else:
            v[0] += 1
            v[2] = where


def version(t: Tensor) -> int:
    v = t._v
    return 0 if v is None else v[0]


class Tensor:
    """An n-dimensional array of one dtype on one device. `Tensor(data)`, `Tensor(*sizes)`: the old constructor, in the default
    dtype; new code says `rushlight.tensor(data)`."""

    __slots__ = ("_a", "_rg", "_node", "_grad", "_v", "_base", "_vg", "_inf", "__dict__", "__weakref__")
    _a: Any
    _rg: Any
    _node: Any
    _grad: Any
    _v: Any
    _base: Any
    _inf: bool
    __array_priority__ = 1000

    if TYPE_CHECKING:
        # the operators' methods, installed by ops.declare
        def __getattr__(self, name: str) -> Any: ...
        def __getitem__(self, index: Any) -> Any: ...
        def __setitem__(self, index: Any, value: Any) -> None: ...
        def __add__(self, other: Any) -> Any: ...
        def __radd__(self, other: Any) -> Any: ...
        def __sub__(self, other: Any) -> Any: ...
        def __rsub__(self, other: Any) -> Any: ...
        def __mul__(self, other: Any) -> Any: ...
        def __rmul__(self, other: Any) -> Any: ...
        def __truediv__(self, other: Any) -> Any: ...
        def __rtruediv__(self, other: Any) -> Any: ...
        def __floordiv__(self, other: Any) -> Any: ...
        def __mod__(self, other: Any) -> Any: ...
        def __pow__(self, other: Any) -> Any: ...
        def __rpow__(self, other: Any) -> Any: ...
        def __matmul__(self, other: Any) -> Any: ...
        def __neg__(self) -> Any: ...
        def __abs__(self) -> Any: ...
        def __invert__(self) -> Any: ...
        def __and__(self, other: Any) -> Any: ...
        def __or__(self, other: Any) -> Any: ...
        def __xor__(self, other: Any) -> Any: ...
        def __lt__(self, other: Any) -> Any: ...
        def __le__(self, other: Any) -> Any: ...
        def __gt__(self, other: Any) -> Any: ...
        def __ge__(self, other: Any) -> Any: ...
    __hash__ = object.__hash__

    def __new__(cls, *args: Any, **kw: Any) -> Any:
        return hooks.construct(cls, *args, **kw)

    @classmethod
    def _wrap(cls, array: Any, requires_grad: bool = False) -> Any:
        t: Any = _new(cls)
        t._a = array
        t._rg = False
        t._node = t._grad = t._v = t._base = None
        if requires_grad:
            t.requires_grad_()
        return t

    @staticmethod
    def _make_subclass(cls: type, data: Tensor, require_grad: bool = False) -> Any:
        t: Any = _plain(cls)
        t._a, t._v = data._a, data._v
        t._rg = False
        t._node = t._grad = t._base = None
        if inference.used and data.is_inference():
            t._inf = True
        if require_grad:
            t.requires_grad_()
        return t

    def as_subclass(self, cls: type) -> Any:
        t: Any = _plain(cls)
        for s in ("_a", "_rg", "_node", "_grad", "_v", "_base"):
            setattr(t, s, getattr(self, s))
        if self._base is not None:
            t._vg = self._vg
        elif inference.used and self.is_inference():
            t._inf = True
        return t

    # --- shape and type ---------------------------------------------------------------------------------------------
    @property
    def shape(self) -> Size:
        return Size(self._a.shape)

    def size(self, dim: int | None = None) -> Any:
        """The sizes, or the size of one dimension. IndexError for a dimension out of range."""
        if dim is None:
            return Size(self._a.shape)
        return self._a.shape[self._dim(dim)]

    def stride(self, dim: int | None = None) -> Any:
        """The strides in elements, or that of one dimension."""
        a = self._a
        n = a.dtype.itemsize
        if a.__class__ is ndarray and a.size == 0:
            from ..backends.meta import contiguous_strides
            s = tuple(x // n for x in contiguous_strides(a.shape, n)) if a.flags.c_contiguous else tuple(x // n for x in a.strides)
        else:
            s = tuple([x // n for x in a.strides])
        if 0 in s:      # NumPy's new dimensions have no stride; PyTorch's have that of a dimension around the next one
            d, t = a.shape, list(s)
            for i in reversed(range(len(t))):
                if not t[i] and d[i] == 1:
                    t[i] = d[i + 1] * t[i + 1] if i + 1 < len(t) else 1
            s = tuple(t)
        return s if dim is None else s[self._dim(dim)]

    def _dim(self, dim: int) -> int:
        n = self._a.ndim
        if not -max(n, 1) <= dim < max(n, 1):
            raise IndexError(f"Dimension out of range (expected to be in range of [{-max(n, 1)}, {max(n, 1) - 1}], but got {dim})")
        if n == 0:
            raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
        return dim % n

    def dim(self) -> int:
        """The number of dimensions."""
        return self._a.ndim

    ndimension = dim

    @property
    def ndim(self) -> int:
        return self._a.ndim

    def numel(self) -> int:
        """The number of elements."""
        return self._a.size

    nelement = numel

    def element_size(self) -> int:
        """Bytes of one element."""
        return self._a.dtype.itemsize

    @property
    def itemsize(self) -> int:
        return self._a.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self._a.size * self._a.dtype.itemsize

    @property
    def dtype(self) -> dtype:
        d = dtypes._BY_NP.get(self._a.dtype)
        return dtypes.of(self._a.dtype) if d is None else d

    @property
    def device(self) -> device:
        return META if self._a.__class__ is MetaArray else CPU

    def get_device(self) -> int:
        return -1

    @property
    def layout(self) -> Any:
        from . import layout
        return getattr(layout, getattr(self._a, "layout", "strided"))

    is_cuda = is_quantized = is_mkldnn = is_xla = is_xpu = is_mps = is_vulkan = is_nested = False
    is_mtia = is_maia = is_ipu = is_ort = False
    names = property(lambda self: (None,) * self._a.ndim)
    has_names = lambda self: False  # noqa: E731

    @property
    def is_sparse(self) -> bool:
        """Whether the layout is torch.sparse_coo."""
        return self._a.__class__ is SparseCOO

    @property
    def is_sparse_csr(self) -> bool:
        """Whether the layout is torch.sparse_csr."""
        return isinstance(self._a, SparseArray) and self._a.layout == "sparse_csr"

    @property
    def is_cpu(self) -> bool:
        return self._a.__class__ is not MetaArray

    @property
    def is_meta(self) -> bool:
        return self._a.__class__ is MetaArray

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point

    def is_complex(self) -> bool:
        return self.dtype.is_complex

    def is_signed(self) -> bool:
        return self.dtype.is_signed

    def is_set_to(self, tensor: Tensor) -> bool:
        """Whether both are the same view of the same memory."""
        if not isinstance(tensor, Tensor):
            raise TypeError(f"is_set_to(): argument 'tensor' (position 1) must be Tensor, not {type(tensor).__name__}")
        return (self.data_ptr() == tensor.data_ptr() and self.dtype is tensor.dtype and self.shape == tensor.shape
                and self.stride() == tensor.stride() and self.is_cpu and tensor.is_cpu)

    def is_nonzero(self) -> bool:
        """Whether the only element is not zero. RuntimeError if there are several, or none."""
        from .names import is_nonzero
        return is_nonzero(self)

    def is_same_size(self, other: Tensor) -> bool:
        """Whether both have the same sizes."""
        return self._a.shape == other._a.shape

    def is_conj(self) -> bool:
        return False

    def is_neg(self) -> bool:
        return False

    def is_inference(self) -> bool:
        """Whether the tensor, or the base that it is a view of, was made in inference mode."""
        return inference.used and hasattr(self if self._base is None else self._base, "_inf")

    def is_pinned(self, device: Any = None) -> bool:
        return False

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether the elements lie in row-major order (or in that of `memory_format`) without gaps."""
        a = self._a
        if memory_format is not None and memory_format.name not in ("contiguous_format", "preserve_format"):
            from .layout import strides_for
            want = strides_for(a.shape, a.itemsize, memory_format)
            return want is not None and all(n <= 1 or s == w for n, s, w in zip(a.shape, a.strides, want, strict=True))
        if a.__class__ is ndarray:
            return a.flags.c_contiguous
        if isinstance(a, SparseArray):
            return False
        from ..backends.meta import contiguous_strides
        return a.size == 0 or all(n <= 1 or s == w for n, s, w in
                                  zip(a.shape, a.strides, contiguous_strides(a.shape, a.itemsize), strict=True))

    # --- the tape ---------------------------------------------------------------------------------------------------
    @property
    def requires_grad(self) -> bool:
        rg = self._rg
        if rg is True or rg is False:
            return rg
        if self._v[1] != self._vg and self._v[1]:
            hooks.regenerate(self)
        return self._rg is True

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise RuntimeError(f"requires_grad must be a bool, got {type(value).__name__}")
        if value and not self.is_leaf:
            raise RuntimeError("you can only change requires_grad flags of leaf variables.")
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Set the flag in place. RuntimeError for integers, and for switching it off on a non-leaf."""
        if not isinstance(requires_grad, (bool, int)):
            raise TypeError(f"requires_grad_(): argument 'requires_grad' must be bool, not {type(requires_grad).__name__}")
        now = self.requires_grad
        if requires_grad:
            if now:
                return self
            if self.dtype.category < dtypes.FLOAT:
                raise RuntimeError("only Tensors of floating point and complex dtype can require gradients, "
                                   f"this one is of dtype {self.dtype!r}")
            if inference.used and self.is_inference() and not inference.inside():
                raise RuntimeError("Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.")
            self._node = hooks.accumulator(self)
            self._rg = True
            if self._base is not None:
                self._vg = self._v[1]
        elif now:
            if not self.is_leaf:
                raise RuntimeError("you can only change requires_grad flags of leaf variables. If you want to use a computed variable "
                                   "in a subgraph that doesn't require differentiation use var_no_grad = var.detach().")
            self._rg, self._node = False, None
        return self

    @property
    def is_leaf(self) -> bool:
        return not self.requires_grad or self._node.is_accumulator

    @property
    def grad_fn(self) -> Any:
        """The node of the tape that made this tensor, None for a leaf."""
        if not self.requires_grad:
            return None
        if self._base is not None and self._v[1] != self._vg and self._v[1]:
            hooks.regenerate(self)
        n = self._node
        return None if n.is_accumulator else n.public

    creator = grad_fn

    @property
    def volatile(self) -> bool:
        """Always False, with a warning: the flag of 0.3 has no meaning any more."""
        import warnings
        warnings.warn("volatile was removed (Variable.volatile is always False)", UserWarning, stacklevel=2)
        return False

    @property
    def output_nr(self) -> int:
        return getattr(self._node, "index", 0) if self._node is not None else 0

    @property
    def grad(self) -> Tensor | None:
        """The gradient accumulated by `backward()`."""
        g = self._grad
        if g is None and self._node is not None and not self._node.is_accumulator and not getattr(self._node, "retains", False):
            import warnings
            warnings.warn("The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't be "
                          "populated during autograd.backward(). If you indeed want the .grad field to be populated for a non-leaf "
                          "Tensor, use .retain_grad() on the non-leaf Tensor.", stacklevel=2)
        return g

    @grad.setter
    def grad(self, g: Tensor | None) -> None:
        if g is not None:
            if not isinstance(g, Tensor):
                raise TypeError(f"assigned grad expected to be a Tensor or None but got grad of type {type(g).__name__}")
            if g is self:
                raise RuntimeError("can't assign Variable as its own grad")
            if g._a.dtype != self._a.dtype:
                raise RuntimeError(f"assigned grad has data of a different type: expected {self.dtype!r}, got {g.dtype!r}")
            if (g._a.__class__ is MetaArray) is not (self._a.__class__ is MetaArray):
                raise RuntimeError(f"assigned grad has data located on a different device: expected {self.device}, got {g.device}")
            if g._a.shape != self._a.shape:
                raise RuntimeError(f"assigned grad has data of a different size: expected {list(self._a.shape)}, got {list(g._a.shape)}")
        self._grad = g

    @grad.deleter
    def grad(self) -> None:
        self._grad = None

    def backward(self, gradient: Tensor | None = None, retain_graph: bool | None = None, create_graph: bool = False,
                 inputs: Any = None) -> None:
        """Adds to the `.grad` of each leaf that this tensor depends on its derivative, weighted by `gradient` (of this tensor's
        shape; may be left out for a scalar). The graph is freed unless `retain_graph`; `create_graph` records the pass itself."""
        hooks.backward(self, gradient, retain_graph, create_graph, inputs)

    @property
    def _version(self) -> int:
        if inference.used and getattr(self if self._base is None else self._base, "_inf", False):
            raise RuntimeError("Inference tensors do not track version counter.")
        v = self._v
        return 0 if v is None else v[0]

    def _is_view(self) -> bool:
        return self._base is not None

    def detach(self) -> Tensor:
        """A tensor on the same memory that has no history. Writes through it are seen by the version check."""
        t = _plain(Tensor)
        t._a = self._a
        t._rg = False
        t._node = t._grad = t._base = None
        v = self._v
        if v is None:
            v = self._v = [0, 0, None]
        t._v = v
        if inference.used and self.is_inference():
            t._inf = inference.inside()
            if not t._inf:                  # as PyTorch has it: what was detached outside of the mode counts its writes again
                t._v = None
        return t

    def detach_(self) -> Tensor:
        """Drop the history in place. RuntimeError for a view."""
        if self._base is not None and self.requires_grad:
            raise RuntimeError("Can't detach views in-place. Use detach() instead. If you are using DistributedDataParallel (DDP) for training, "
                               "and gradient_as_bucket_view is set as True, gradients are views of DDP buckets, and hence detach_() cannot be "
                               "called on these gradients. To fix this error, please refer to the Optimizer.zero_grad() function in "
                               "torch/optim/optimizer.py as a reference.")
        self._rg, self._node = False, None
        return self

    @property
    def data(self) -> Tensor:
        """The same memory without history, with a version counter of its own."""
        t = self.detach()
        t._v = None
        return t

    @data.setter
    def data(self, new: Tensor) -> None:
        if not isinstance(new, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(new).__name__}")
        if new._a.dtype != self._a.dtype and self.requires_grad and new.dtype.category < dtypes.FLOAT:
            raise RuntimeError("data set to a tensor that requires gradients must be floating point or complex dtype")
        self._a = new._a

    # --- memory -----------------------------------------------------------------------------------------------------
    def untyped_storage(self) -> Any:
        """The bytes that this tensor is a view of. NotImplementedError for a sparse tensor, which is not on one piece of memory."""
        if isinstance(self._a, SparseArray):
            raise NotImplementedError("Cannot access storage of a sparse tensor: its indices and values have one each")
        from .storage import storage_of
        return storage_of(self._a)

    def storage(self) -> Any:
        """The storage with this tensor's element type."""
        from .storage import TypedStorage
        return TypedStorage(wrap_storage=self.untyped_storage(), dtype=self.dtype, _internal=True)

    _typed_storage = storage

    def storage_offset(self) -> int:
        """Elements between the start of the storage and the first element."""
        a = self._a
        if a.__class__ is MetaArray:
            return a.offset // a.itemsize
        if a.base is None:
            return 0
        from .storage import storage_offset_of
        return storage_offset_of(a)

    def data_ptr_raw(self) -> int:
        return self._a.__array_interface__["data"][0]

    def data_ptr(self) -> int:
        """The address of the first element; 0 if there is none."""
        a = self._a
        if isinstance(a, SparseArray):
            raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")
        return 0 if a.__class__ is MetaArray or a.size == 0 else self.data_ptr_raw()

    def is_shared(self) -> bool:
        return self.untyped_storage().is_shared()

    def share_memory_(self) -> Tensor:
        """Move the storage to shared memory, in place."""
        self.untyped_storage().share_memory_()
        return self

    def module_load(self, other: Tensor, assign: bool = False) -> Tensor:
        """What a module's `load_state_dict` puts in this tensor's place when contents are exchanged; subclasses may override it."""
        if assign:
            return other.detach()
        return self.detach().clone().copy_(other.detach())  # type: ignore[attr-defined]

    # --- to Python and NumPy ----------------------------------------------------------------------------------------
    def item(self) -> Any:
        """The only element as a Python number. RuntimeError if there are several."""
        a = self._a
        if a.__class__ is not ndarray:
            if a.__class__ is MetaArray:
                raise RuntimeError("Tensor.item() cannot be called on meta tensors")
            a = a.dense() if a.size == 1 else a
        if a.size != 1:
            raise RuntimeError(f"a Tensor with {a.size} elements cannot be converted to Scalar")
        x = a.item()
        return x if a.dtype.kind not in "VW" else float(x) if a.dtype.kind == "V" else complex(x)

    def tolist(self) -> Any:
        """Nested lists of Python numbers; a number for a 0-dim tensor."""
        a = self._a
        if a.__class__ is not ndarray:
            if a.__class__ is MetaArray:
                raise NotImplementedError("Cannot copy out of meta tensor; no data!")
            a = a.dense()
        return (a if a.dtype.kind in "biufc" else a.astype(np.float32 if a.dtype.kind == "V" else np.complex64)).tolist()

    def numpy(self, *, force: bool = False) -> np.ndarray:
        """An ndarray on the same memory. RuntimeError if the tensor requires grad (unless `force`)."""
        if not force and self.requires_grad:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
        a = self._a
        if a.__class__ is not ndarray:
            raise TypeError("can't convert meta device type tensor to numpy: it has no memory" if a.__class__ is MetaArray else
                            f"can't convert {self.layout!r} layout tensor to numpy. Use Tensor.to_dense() first.")
        if a.dtype.kind not in "biufc":
            raise TypeError(f"Got unsupported ScalarType {self.dtype.name}: NumPy has no such type; use .float().numpy()")
        return a

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        a = self.numpy()
        if dtype is not None and a.dtype != dtype:
            if copy is False:
                raise ValueError(f"unable to avoid a copy: a {a.dtype} tensor was asked for as {dtype}")
            return a.astype(dtype)
        return a.copy() if copy else a

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Tensor:
        """What NumPy's functions make of a tensor is a tensor: `np.sin(x)`."""
        return hooks.function("from_numpy")(np.asarray(array))

    def __bool__(self) -> bool:
        a = self._a
        if a.size != 1:
            if a.size == 0:
                raise RuntimeError("Boolean value of Tensor with no values is ambiguous")
            raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
        return bool(self.item())

    def _only(self) -> Any:
        """`item()` for Python's conversions, which raise ValueError where there is not one element."""
        if self._a.size != 1:
            raise ValueError(f"only one element tensors can be converted to Python scalars, this one has {self._a.size}")
        return self.item()

    def __float__(self) -> float:
        x = self._only()
        if isinstance(x, complex) and x.imag != 0:
            raise RuntimeError("value cannot be converted to type double without overflow")
        return float(x.real if isinstance(x, complex) else x)

    def __int__(self) -> int:
        x = self._only()
        if isinstance(x, complex):
            if x.imag != 0:
                raise RuntimeError("value cannot be converted to type int64_t without overflow")
            x = x.real
        return int(x)

    def __complex__(self) -> complex:
        return complex(self._only())

    def __index__(self) -> int:
        if self.dtype.category > dtypes.INTEGER or self._a.size != 1:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(self.item())

    def __len__(self) -> int:
        if self._a.ndim == 0:
            raise TypeError("len() of a 0-d tensor")
        return self._a.shape[0]

    def __iter__(self) -> Any:
        if self._a.ndim == 0:
            raise TypeError("iteration over a 0-d tensor")
        return iter(hooks.function("unbind")(self, 0))

    def __reversed__(self) -> Tensor:
        return self if self._a.ndim == 0 else hooks.function("flip")(self, (0,))

    def __contains__(self, element: Any) -> bool:
        if isinstance(element, (Tensor, int, float, complex, bool)):
            return bool(hooks.function("any")(hooks.function("eq")(self, element)).item())
        raise RuntimeError(f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}.")

    def __repr__(self, *, tensor_contents: str | None = None) -> str:
        from .printing import sparse_str, tensor_str
        grad_fn, cls = self.grad_fn, type(self)
        if isinstance(self._a, SparseArray):
            return sparse_str(self._a, self.dtype.name, self.requires_grad, None if grad_fn is None else grad_fn.name())
        # Looked up, not imported: as long as nobody has loaded nn, there are no parameters.
        parameter: Any = getattr(sys.modules.get("rushlight.nn.parameter"), "Parameter", None)
        return tensor_str(self._a, requires_grad=self.requires_grad,
                          grad_fn_name=None if grad_fn is None else grad_fn.name(),
                          dtype_name=self.dtype.name, device=str(self.device),
                          class_name="tensor" if cls is Tensor or cls is parameter else cls.__name__,
                          parameter=parameter is not None and isinstance(self, parameter),
                          contents=tensor_contents)

    def __format__(self, spec: str) -> str:
        if self._a.ndim == 0 and self.is_cpu and self.__class__ is Tensor:
            return format(self.item(), spec)
        return object.__format__(self, spec)

    def __dir__(self) -> list[str]:
        return sorted(set(dir(self.__class__)) | set(self.__dict__))

    def __deepcopy__(self, memo: dict) -> Tensor:
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.  "
                               "If you were attempting to deepcopy a module, this may be because of a torch.nn.utils.weight_norm usage, "
                               "see https://github.com/pytorch/pytorch/pull/103001")
        from .storage import copy_with_storage
        t = _new(self.__class__)
        a = self._a
        t._a = a if a.__class__ is MetaArray else a.map(lambda x: copy_with_storage(x, memo)) if isinstance(a, SparseArray) else copy_with_storage(a, memo)
        t._rg = False
        t._node = t._v = t._base = None
        t._grad = None if self._grad is None else self._grad.__deepcopy__(memo)
        if self.requires_grad:
            t.requires_grad_()
        memo[id(self)] = t
        from copy import deepcopy
        if self.__dict__:
            t.__dict__.update(deepcopy(self.__dict__, memo))
        return t

    def __reduce_ex__(self, protocol: Any) -> Any:
        if not self.is_leaf:
            raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) can be pickled: use .detach() first")
        a = self._a
        if a.__class__ is MetaArray:
            return _rebuild_meta, (self.__class__, a.shape, self.dtype, a.strides, self.requires_grad)
        if isinstance(a, SparseArray):
            parts = (a.indices, a.coalesced) if isinstance(a, SparseCOO) else (a.layout, a.ends, a.plain)  # type: ignore[attr-defined]
            return _rebuild_sparse, (self.__class__, parts, wrap(a.values), a.shape, self.requires_grad)
        raw = a if a.dtype.kind in "biufc" else a.view(f"u{a.dtype.itemsize}")
        return _rebuild, (self.__class__, raw, self.dtype, self.requires_grad, self.__dict__ or None)


def _rebuild(cls: type, array: np.ndarray, dt: dtype, requires_grad: bool, attributes: dict | None) -> Any:
    t = cls._wrap(array if array.dtype == dt.np else array.view(dt.np))  # type: ignore[attr-defined]
    if attributes:
        t.__dict__.update(attributes)
    return t.requires_grad_() if requires_grad else t


def _rebuild_sparse(cls: type, parts: tuple, values: Tensor, shape: tuple, requires_grad: bool) -> Any:
    a: Any = SparseCOO(parts[0], values._a, shape, parts[1]) if len(parts) == 2 else SparseCompressed(parts[0], parts[1], parts[2], values._a, shape)
    t = cls._wrap(a)  # type: ignore[attr-defined]
    return t.requires_grad_() if requires_grad else t


def _rebuild_meta(cls: type, shape: tuple, dt: dtype, strides: tuple, requires_grad: bool) -> Any:
    t = cls._wrap(MetaArray(shape, dt.np, strides))  # type: ignore[attr-defined]
    return t.requires_grad_() if requires_grad else t
