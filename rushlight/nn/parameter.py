"""Parameter and Buffer: tensors that a Module registers when they are assigned to it."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import rushlight
from rushlight import _missing
from rushlight.core.tensor import Tensor

__all__ = ["Parameter", "UninitializedParameter", "is_lazy", "Buffer", "UninitializedBuffer",
           "UninitializedTensorMixin"]


class _ParameterMeta(type(Tensor)):  # type: ignore[misc]
    """Lets `isinstance(t, Parameter)` hold for tensors of other classes that carry `_is_param`."""

    def __instancecheck__(self, instance: Any) -> bool:
        if type.__instancecheck__(self, instance):
            return True
        return self is Parameter and isinstance(instance, Tensor) and getattr(instance, "_is_param", False)


class Parameter(Tensor, metaclass=_ParameterMeta):
    """A tensor that is a parameter of the Module it is assigned to.

    Shares the data of `data` (an empty tensor when None); `requires_grad` defaults to True. Results of operations on
    parameters are plain tensors.
    """

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Any:
        if data is None:
            data = rushlight.empty(0)
        if type(data) is Tensor or type(data) is Parameter:
            return Tensor._make_subclass(cls, data, requires_grad)
        t: Any = data.detach().requires_grad_(requires_grad)
        if type(t) is not type(data):
            raise RuntimeError(
                f"Creating a Parameter from an instance of type {type(data).__name__} requires that detach() returns "
                f"an instance of the same type, but return type {type(t).__name__} was found instead. To use the type "
                "as a Parameter, please correct the detach() semantics defined by its __torch_dispatch__() "
                "implementation.")
        t._is_param = True  # type: ignore[union-attr]
        return t

    def __deepcopy__(self, memo: dict) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        copied = type(self)(self.data.clone(memory_format=rushlight.preserve_format), self.requires_grad)
        memo[id(self)] = copied
        return copied

    def __repr__(self, **kwargs: Any) -> str:  # type: ignore[override]
        return "Parameter containing:\n" + super().__repr__(**kwargs)

    def __reduce_ex__(self, protocol: Any) -> tuple:
        from rushlight.serialization import _rebuild

        state = _rebuild.attributes_of(self)
        # Hooks are not saved with a parameter: the empty table keeps PyTorch's pickle layout.
        if state is None:
            return _rebuild._rebuild_parameter, (self.data, self.requires_grad, OrderedDict())
        return _rebuild._rebuild_parameter_with_state, (self.data, self.requires_grad, OrderedDict(), state)


def _conversion(name: str) -> Any:
    def convert(self: Any, *args: Any, **kwargs: Any) -> Any:
        data = self.data
        converted = getattr(data, name)(*args, **kwargs)
        return self if converted is data else self._like(converted.device, converted.dtype)

    convert.__name__ = name
    convert.__doc__ = f"`Tensor.{name}` of what has no shape yet: another of its kind, with the new dtype or device."
    return convert


class UninitializedTensorMixin:
    """What lazy parameters and buffers share: they have a dtype and a device but no shape until `materialize`."""

    cls_to_become: type
    requires_grad: bool
    # by no method of the tensor's own: those are refused
    data: Any = property(lambda self: Tensor._make_subclass(Tensor, self), Tensor.data.fset)  # type: ignore[attr-defined]

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Turns this object into an ordinary parameter or buffer of that shape (contents uninitialised)."""
        data = self.data
        self.data = rushlight.empty(shape, device=device if device is not None else data.device,
                                    dtype=dtype if dtype is not None else data.dtype)
        self.__class__ = self.cls_to_become

    @property
    def shape(self) -> Any:
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually happens in "
            "`load_state_dict` when trying to load an uninitialized parameter into an initialized one. Call "
            "`forward` to initialize the parameters before accessing their attributes.")

    to, cpu, cuda, half, bfloat16, float, double, type = map(
        _conversion, ("to", "cpu", "cuda", "half", "bfloat16", "float", "double", "type"))

    def _like(self, device: Any, dtype: Any) -> Any:
        cls: Any = self.__class__
        return cls(self.requires_grad, device, dtype)

    def share_memory_(self) -> Any:
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize the parameters "
            "before calling `module.share_memory()`.")

    def __repr__(self, **kwargs: Any) -> str:
        return f"<{self.__class__.__name__}>"

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return self.__class__, (self.requires_grad,)

    def __deepcopy__(self, memo: dict) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        copied = memo[id(self)] = self._like(self.data.device, self.data.dtype)
        return copied


# What a tensor without a shape still does; every other method of Tensor is refused below.
_KEPT = frozenset({
    "__hash__", "__new__", "__repr__", "__format__", "__dir__", "__deepcopy__", "__reduce_ex__", "as_subclass", "copy_", "get_device",
    "is_complex", "is_floating_point", "is_inference", "register_hook", "requires_grad_", "size"})


def _refusal(name: str) -> Any:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise ValueError(
            f"Attempted to use an uninitialized parameter in Tensor.{name}. This error happens when you are using a `LazyModule` or "
            f"explicitly manipulating `torch.nn.parameter.{self.__class__.__name__}` objects. When using LazyModules Call `forward` with "
            "a dummy batch to initialize the parameters before calling torch functions")

    refuse.__name__ = name
    return refuse


for _name, _member in vars(Tensor).items():
    if callable(_member) and not (_name in _KEPT or _name in vars(UninitializedTensorMixin) or _name[0] == "_" != _name[1]):
        setattr(UninitializedTensorMixin, _name, _refusal(_name))


def is_lazy(param: Any) -> bool:
    """Whether `param` is a lazy parameter or buffer that has no shape yet."""
    return isinstance(param, UninitializedTensorMixin)


class UninitializedParameter(UninitializedTensorMixin, Parameter):  # type: ignore[misc]
    """A parameter whose shape becomes known at the first forward."""

    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        return Tensor._make_subclass(cls, rushlight.empty(0, device=device, dtype=dtype), requires_grad)


class _BufferMeta(type(Tensor)):  # type: ignore[misc]
    def __instancecheck__(self, instance: Any) -> bool:
        if type.__instancecheck__(self, instance):
            return True
        return self is Buffer and isinstance(instance, Tensor) and getattr(instance, "_is_buffer", False)


class Buffer(Tensor, metaclass=_BufferMeta):
    """A tensor that assigning to a Module registers as a buffer (in the state_dict only if `persistent`).

    The result is a plain tensor marked as a buffer that shares the data of `data`.
    """

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Any:
        if data is None:
            data = rushlight.empty(0)
        t: Any = data.detach().requires_grad_(data.requires_grad)
        t.persistent = persistent
        t._is_buffer = True
        return t


class UninitializedBuffer(UninitializedTensorMixin, Tensor):  # type: ignore[misc]
    """A buffer whose shape becomes known at the first forward."""

    cls_to_become = Tensor

    def __new__(cls, requires_grad: bool = False, device: Any = None, dtype: Any = None,
                persistent: bool = True) -> Any:
        result = Tensor._make_subclass(cls, rushlight.empty(0, device=device, dtype=dtype), requires_grad)
        result.persistent = persistent
        result._is_buffer = True
        return result

    def _like(self, device: Any, dtype: Any) -> Any:
        return self.__class__(self.requires_grad, device, dtype, self.persistent)


_missing.hint(__name__)
