"""Optimizers and learning-rate schedules.

Each optimizer is a class over one update rule (`update.py`: the arithmetic of one element, declared once). Groups,
state and checkpoints are PyTorch's. Knows tensors, expressions and NumPy; must not import nn, utils.data or the
compiler.
"""

from . import lr_scheduler
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

__all__ = ["ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "NAdam", "Optimizer", "RAdam", "RMSprop",
           "Rprop", "SGD", "SparseAdam", "lr_scheduler"]
