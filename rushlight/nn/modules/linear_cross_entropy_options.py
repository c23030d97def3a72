"""Options of the linear cross entropy."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from rushlight.core.dtype import dtype

__all__ = ["LinearCrossEntropyOptions"]

_METHOD = re.compile(r"auto|aspect_ratio(:0*[1-9]\d*)?")
_DTYPES = ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True)
class LinearCrossEntropyOptions:
    """How PyTorch trades memory for time and accuracy in `linear_cross_entropy`. Checked and kept; they do not change
    what is computed here. ValueError for a size that is not positive and for unknown methods and policies."""

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: Literal["accurate", "balanced", "compact", "auto"] = "auto"
    acc_dtype: dtype | None = None

    def __post_init__(self) -> None:
        if self.batch_chunk_size is not None and self.batch_chunk_size <= 0:
            raise ValueError(f"batch_chunk_size must be positive int or None, got {self.batch_chunk_size}")
        if self.chunking_method is not None and not _METHOD.fullmatch(self.chunking_method):
            raise ValueError(f"invalid chunking_method: {self.chunking_method!r}")
        if self.acc_policy not in ("accurate", "balanced", "compact", "auto"):
            raise ValueError(f"invalid acc_policy: {self.acc_policy!r}")
        if self.acc_dtype is not None and (not isinstance(self.acc_dtype, dtype) or self.acc_dtype.name not in _DTYPES):
            raise ValueError("acc_dtype must be one of {None, torch.float16, torch.bfloat16, torch.float32, "
                             f"torch.float64}}, got {self.acc_dtype!r}. Pass acc_dtype=None to let the op pick "
                             "automatically.")
