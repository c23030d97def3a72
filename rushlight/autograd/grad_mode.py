"""The modes under the module name that PyTorch gives them."""

from rushlight import _missing

from .modes import enable_grad, inference_mode, no_grad, set_grad_enabled

__all__ = ["no_grad", "enable_grad", "set_grad_enabled", "inference_mode"]


_missing.hint(__name__)
