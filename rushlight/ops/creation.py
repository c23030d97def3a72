"""What all constructors share: `dtype=`, `layout=`, `device=`, `requires_grad=`, `pin_memory=`, `out=`.

A creation record's body makes the array from its own parameters and `dtype` (never None: the record's `result` rule, a
function
of the values, gives it when the caller did not). For the meta device only the `shape` rule runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..backends.meta import MetaArray
from ..core import dtype as D
from ..core.device import as_device
from ..core.tensor import Tensor, wrap
from .declare import Operator

__all__ = ["create", "check_dtype", "check_layout"]


def check_dtype(op_name: str, dtype: Any) -> None:
    if dtype is not None and not isinstance(dtype, D.dtype):
        raise TypeError(f"{op_name}(): argument 'dtype' must be torch.dtype, not {type(dtype).__name__}")


def check_layout(op_name: str, layout: Any) -> bool:
    """Whether a sparse layout is asked for; RuntimeError where the operator makes no sparse tensors."""
    if layout is None or getattr(layout, "name", "") == "strided":
        return False
    if type(layout).__name__ != "layout":
        raise TypeError(f"{op_name}(): argument 'layout' must be torch.layout, not {type(layout).__name__}")
    if op_name not in ("zeros", "empty", "zeros_like", "empty_like", "new_zeros", "new_empty"):
        raise RuntimeError(f"{op_name}(...) is not implemented for sparse layout: got layout={layout}")
    return True


def create(op: Operator, values: tuple) -> Tensor:
    v = dict(zip([p.name for p in op.params], values, strict=True))
    dtype, device = v.get("dtype"), v.get("device")
    requires_grad = v.get("requires_grad", False)
    check_dtype(op.name, dtype)
    sparse = check_layout(op.name, v.get("layout"))
    if not isinstance(requires_grad, bool):
        raise TypeError(f"{op.name}(): argument 'requires_grad' must be bool, not {type(requires_grad).__name__}")
    if v.get("pin_memory"):
        raise RuntimeError("Cannot access accelerator device when none is available: pin_memory=True needs one")
    like = v.get("input")
    if like is not None and not isinstance(like, Tensor):
        from .execute import bad_argument

        raise bad_argument(op, op.params[0], like)
    if device is None and like is not None:
        meta = like._a.__class__ is MetaArray
    else:
        meta = as_device(device).type == "meta"
    own = {
        k: (x.item() if isinstance(x, Tensor) and k != "input" and x.dim() == 0 else x)
        for k, x in v.items()
        if k not in ("dtype", "layout", "device", "requires_grad", "pin_memory")
    }
    for p in op.params:
        if p.kind == "number" and isinstance(own[p.name], Tensor):
            raise RuntimeError(
                f"{op.name} only supports 0-dimensional start and end tensors, but got {p.name} with "
                f"{own[p.name].dim()} dimension(s)"
            )
        if p.annotation in ("Number", "Number | None") and not isinstance(own[p.name], (int, float, complex, np.number, np.bool_)) \
                and not (own[p.name] is None and p.default is None):
            from .execute import bad_argument

            raise bad_argument(op, p, own[p.name])
        if p.annotation == "int" and own[p.name].__class__ is not int:
            from .execute import as_int

            own[p.name] = as_int(op, p, own[p.name])
    if "size" in own:
        if op.params[0].kind == "sizes":
            from .calls import sizes

            own["size"] = sizes(own["size"], op.name)
        for s in own["size"]:
            if s < 0:
                raise RuntimeError(f"Trying to create tensor with negative dimension {s}: {list(own['size'])}")
    if sparse and meta:
        raise NotImplementedError(f"{op.name}(): sparse tensors on the meta device are not supported")
    if dtype is None:
        dtype = like.dtype if like is not None else op.result(**own) if callable(op.result) else D.default[0]
    if requires_grad and dtype.category < D.FLOAT:
        raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
    if like is not None:
        own["input"] = like._a
    if meta:
        if like is not None:
            from .create import meta_like

            a: Any = meta_like(like._a, dtype, own.get("memory_format"))
        else:
            a = MetaArray(tuple(op.shape_rule(**own)) if op.shape_rule else tuple(own["size"]), dtype.np)
    elif sparse:
        from .sparse import empty_of
        a = empty_of(tuple(like.shape if like is not None and "size" not in own else own["size"]), v["layout"].name, dtype.np)
    else:
        with np.errstate(all="ignore"):
            a = op.fn(
                **own,
                **{
                    k: dtype if k == "dtype" else None
                    for k in ("dtype", "layout", "device", "pin_memory", "requires_grad")
                    if k in v
                },
            )
    t = wrap(a)
    if requires_grad:
        t.requires_grad_()
    return t
