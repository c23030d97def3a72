"""`torch.backends.opt_einsum`: the package of that name is not used; `torch.einsum` goes from left to right."""

from rushlight import _missing

from ._settings import is_available

__all__ = ["get_opt_einsum", "is_available"]

enabled = False
strategy = None


def get_opt_einsum() -> None:
    """None: it is not used."""


_missing.hint(__name__)
