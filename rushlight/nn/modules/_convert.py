"""Module's methods that move and cast its parameters and buffers."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import rushlight
from rushlight.core.tensor import Tensor

from ..parameter import Parameter, is_lazy

__all__: list[str] = []


def future_flag(getter: str) -> bool:
    """A switch of `torch.__future__`; off where that module was never imported."""
    module = sys.modules.get("rushlight.__future__")
    return module is not None and getattr(module, getter)()


def _same_storage_kind(a: Tensor, b: Tensor) -> bool:
    """Whether `a.data = b` is possible: the parameter object can stay and take the converted data."""
    return type(a.data) is type(b.data) and (a.device.type == "meta") == (b.device.type == "meta")


def _parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """(device, dtype, non_blocking, memory_format) of `to(device, dtype)`, `to(dtype)` or `to(tensor)`."""
    device, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
    non_blocking, memory_format = kwargs.pop("non_blocking", False), kwargs.pop("memory_format", None)
    other, _copy = kwargs.pop("tensor", kwargs.pop("other", None)), kwargs.pop("copy", False)
    rest = list(args)
    if rest and isinstance(rest[0], Tensor):
        other = rest.pop(0)
    elif rest and isinstance(rest[0], rushlight.dtype):
        dtype = rest.pop(0)
    elif rest and (rest[0] is None or isinstance(rest[0], (str, int, rushlight.device)) and rest[0] is not True
                   and rest[0] is not False):
        device = rest.pop(0)
        if rest and (rest[0] is None or isinstance(rest[0], rushlight.dtype)):
            dtype = rest.pop(0)
    if rest and isinstance(rest[0], bool):
        non_blocking = rest.pop(0)
        if rest and isinstance(rest[0], bool):
            _copy = rest.pop(0)
    if rest or kwargs or dtype is not None and not isinstance(dtype, rushlight.dtype):
        given = ", ".join([*(type(a).__name__ for a in args), *(f"{k}={type(v).__name__}" for k, v in kwargs.items())])
        raise TypeError(f"to() received an invalid combination of arguments - got ({given}), but expected one of: "
                        "(device, dtype, non_blocking, *, memory_format), (dtype, non_blocking, *, memory_format), "
                        "(tensor, non_blocking, *, memory_format)")
    if other is not None:
        device, dtype = other.device, other.dtype
    return rushlight.device(device) if device is not None else None, dtype, non_blocking, memory_format


class ConvertMethods:
    """The part of Module that converts what it holds."""

    def _apply(self, fn: Callable[[Any], Any], recurse: bool = True) -> Any:
        """Replaces every parameter's data, its gradient and every buffer by `fn` of it.

        Parameters stay the same objects wherever the result can live in them.
        """
        if recurse:
            for module in self.children():  # type: ignore[attr-defined]
                module._apply(fn)
        swap = future_flag("get_swap_module_params_on_conversion")
        overwrite = future_flag("get_overwrite_module_params_on_conversion")
        parameters, buffers = self.__dict__["_parameters"], self.__dict__["_buffers"]
        for name, parameter in list(parameters.items()):
            if parameter is None:
                continue
            with rushlight.no_grad():
                applied = fn(parameter)
            grad = parameter.grad
            if swap:
                self._swap_parameter(name, parameter, applied, grad, fn)
                continue
            if _same_storage_kind(parameter, applied) and not overwrite:
                parameter.data = applied
                result = parameter
            else:
                result = applied if is_lazy(applied) else Parameter(applied, parameter.requires_grad)
                parameters[name] = result
            if grad is None:
                continue
            with rushlight.no_grad():
                applied = fn(grad)
            if result is parameter and _same_storage_kind(grad, applied) and not overwrite:
                grad.data = applied
            else:
                result.grad = applied.requires_grad_(grad.requires_grad)
        for name, buffer in list(buffers.items()):
            if buffer is not None:
                converted = fn(buffer)
                if converted is not buffer:
                    buffers[name] = converted
        return self

    def _swap_parameter(self, name: str, parameter: Any, applied: Any, grad: Any, fn: Callable[[Any], Any]) -> None:
        try:
            parameter.grad = None
            rushlight.utils.swap_tensors(parameter, Parameter(applied, requires_grad=parameter.requires_grad))
        except Exception as error:
            parameter.grad = grad
            raise RuntimeError(f"_apply(): Couldn't swap {type(self).__name__}.{name}") from error
        if grad is None:
            return
        with rushlight.no_grad():
            applied = fn(grad)
        try:
            rushlight.utils.swap_tensors(grad, applied.requires_grad_(grad.requires_grad))
        except Exception as error:
            raise RuntimeError(f"_apply(): Couldn't swap {type(self).__name__}.{name}.grad") from error
        parameter.grad = grad

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Moves and/or casts parameters and buffers: `to(device, dtype, non_blocking)`, `to(dtype)`, `to(tensor)`,
        `to(memory_format=...)`. Only floating point and complex ones are cast."""
        device, dtype, non_blocking, memory_format = _parse_to(*args, **kwargs)
        if dtype is not None:
            if not (dtype.is_floating_point or dtype.is_complex):
                raise TypeError("nn.Module.to only accepts floating point or complex dtypes, but got desired "
                                f"dtype={dtype}")
            if dtype.is_complex:
                warnings.warn("Complex modules are a new feature under active development whose design may change, "
                              "and some modules might not work as expected when using complex tensors as parameters "
                              "or buffers. Please file an issue at "
                              "https://github.com/pytorch/pytorch/issues/new?template=bug-report.yml if a complex "
                              "module does not work as expected.", stacklevel=2)

        def convert(t: Any) -> Any:
            target = dtype if t.is_floating_point() or t.is_complex() else None
            try:
                if memory_format is not None and t.dim() in (4, 5):
                    return t.to(device, target, non_blocking, memory_format=memory_format)
                return t.to(device, target, non_blocking)
            except NotImplementedError as error:
                if str(error) != "Cannot copy out of meta tensor; no data!":
                    raise
                raise NotImplementedError(f"{error} Please use torch.nn.Module.to_empty() instead of "
                                          "torch.nn.Module.to() "
                                          "when moving module from meta to a different device.") from None

        return self._apply(convert)

    def to_empty(self, *, device: Any, recurse: bool = True) -> Any:
        """Moves to `device` without copying: the contents are uninitialised."""
        return self._apply(lambda t: rushlight.empty_like(t, device=device), recurse=recurse)

    def cuda(self, device: Any = None) -> Any:
        """Moves everything to a CUDA device."""
        return self._apply(lambda t: t.cuda(device))

    def ipu(self, device: Any = None) -> Any:
        """Moves everything to an IPU."""
        return self._apply(lambda t: t.ipu(device))

    def xpu(self, device: Any = None) -> Any:
        """Moves everything to an XPU."""
        return self._apply(lambda t: t.xpu(device))

    def mtia(self, device: Any = None) -> Any:
        """Moves everything to an MTIA device."""
        return self._apply(lambda t: t.mtia(device))

    def cpu(self) -> Any:
        """Moves everything to the CPU."""
        return self._apply(lambda t: t.cpu())

    def type(self, dst_type: Any) -> Any:
        """Casts everything, integers too, to `dst_type`."""
        return self._apply(lambda t: t.type(dst_type))

    def float(self) -> Any:
        """Casts floating point parameters and buffers to float32."""
        return self._apply(lambda t: t.float() if t.is_floating_point() else t)

    def double(self) -> Any:
        """Casts floating point parameters and buffers to float64."""
        return self._apply(lambda t: t.double() if t.is_floating_point() else t)

    def half(self) -> Any:
        """Casts floating point parameters and buffers to float16."""
        return self._apply(lambda t: t.half() if t.is_floating_point() else t)

    def bfloat16(self) -> Any:
        """Casts floating point parameters and buffers to bfloat16."""
        return self._apply(lambda t: t.bfloat16() if t.is_floating_point() else t)

    def share_memory(self) -> Any:
        """Moves parameters and buffers to memory shared with other processes."""
        return self._apply(lambda t: t.share_memory_())
