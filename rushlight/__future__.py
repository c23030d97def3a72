"""`torch.__future__`: switches for how a Module's conversions (`to`, `double`, `load_state_dict`) treat its parameters."""

from __future__ import annotations

_overwrite = False
_swap = False


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Whether conversions put new parameters into the module instead of changing `param.data` in place."""
    global _overwrite
    _overwrite = value


def get_overwrite_module_params_on_conversion() -> bool:
    """Whether conversions put new parameters into the module; False by default."""
    return _overwrite


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Whether conversions and `load_state_dict` exchange the contents of the parameters by `utils.swap_tensors`."""
    global _swap
    _swap = value


def get_swap_module_params_on_conversion() -> bool:
    """Whether conversions exchange the contents of the parameters; False by default."""
    return _swap
