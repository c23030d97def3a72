"""Optimizers and learning-rate schedules.

Each optimizer is a class over one update rule (`update.py`: the arithmetic of one element, declared once). Groups,
state and checkpoints are PyTorch's. Knows tensors, expressions and the compiler's ready-made kernels; must not import
utils.data, nor (apart from swa_utils) nn.
"""

from typing import Any

from rushlight import _missing

from . import lr_scheduler
from ._adafactor import Adafactor
from ._muon import Muon
from .adadelta import Adadelta
from .adagrad import Adagrad
from .adam import Adam
from .adamax import Adamax
from .adamw import AdamW
from .asgd import ASGD
from .lbfgs import LBFGS
from .nadam import NAdam
from .optimizer import Optimizer
from .radam import RAdam
from .rmsprop import RMSprop
from .rprop import Rprop
from .sgd import SGD
from .sparse_adam import SparseAdam

__all__ = ["ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "Muon", "NAdam", "Optimizer",
           "RAdam", "RMSprop", "Rprop", "SGD", "SparseAdam", "lr_scheduler", "swa_utils"]


def __getattr__(name: str) -> Any:
    if name == "swa_utils":      # the one part that needs nn
        from importlib import import_module
        return import_module(f"{__name__}.swa_utils")
    raise _missing.missing(__name__, name)
