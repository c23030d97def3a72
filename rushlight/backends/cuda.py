"""`torch.backends.cuda`: settings of a backend that is not there; they have no effect."""

from rushlight import _missing


class _Matmul:
    allow_tf32 = False


matmul = _Matmul()


def is_built() -> bool:
    return False


_missing.hint(__name__)
