"""The adaptive softmax."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight.core.tensor import Tensor

from .. import functional as F
from .container import ModuleList, Sequential
from .linear import Linear
from .module import Module

__all__ = ["AdaptiveLogSoftmaxWithLoss"]

_ASMoutput = namedtuple("_ASMoutput", ["output", "loss"])


class AdaptiveLogSoftmaxWithLoss(Module):
    """The log softmax over many classes, the frequent ones first (Grave et al., 2016).

    The head scores the classes below `cutoffs[0]` and one entry for each later cluster; the classes of cluster i
    (`cutoffs[i]` to `cutoffs[i + 1]`, the last one up to `n_classes`) are scored by a tail whose inner size is
    `in_features // div_value ** (i + 1)`, evaluated only for the rows whose target lies there.

    Input (N, in_features) or (in_features,), target (N,) or (): the result is (output, loss), the target's log
    probabilities and minus their mean. ValueError for cutoffs that are not increasing numbers in 1 to n_classes - 1.
    """

    in_features: int
    n_classes: int
    cutoffs: list[int]
    div_value: float
    head_bias: bool
    head: Linear
    tail: ModuleList

    def __init__(self, in_features: int, n_classes: int, cutoffs: Sequence[int], div_value: float = 4.0,
                 head_bias: bool = False, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        if cutoffs != sorted(set(cutoffs)) or cutoffs[0] <= 0 or cutoffs[-1] > n_classes - 1 \
                or any(int(c) != c for c in cutoffs):
            raise ValueError("cutoffs should be a sequence of unique, positive integers sorted in an increasing "
                             "order, where each value is between 1 and n_classes-1")
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        options: dict[str, Any] = {"bias": False, "device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, device=device, dtype=dtype)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            inner = int(in_features // div_value ** (i + 1))
            self.tail.append(Sequential(Linear(in_features, inner, **options),
                                        Linear(inner, self.cutoffs[i + 1] - self.cutoffs[i], **options)))

    def reset_parameters(self) -> None:
        """New initial values of head and tails."""
        self.head.reset_parameters()
        for tail in self.tail:
            pair: Any = tail
            for layer in pair:
                layer.reset_parameters()

    def _check(self, input: Tensor, target: Tensor) -> None:
        dims = target.dim()
        if dims > 1:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        if dims == 1 and input.shape[:1] != target.shape:
            raise RuntimeError("Input and target should have the same size in the batch dimension.")
        if input.dim() != dims + 1:
            raise RuntimeError(f"{dims}D target tensor expects {dims + 1}D input tensors, but found inputs with size "
                               f"{input.size()}")

    def forward(self, input: Tensor, target: Tensor) -> _ASMoutput:
        self._check(input, target)
        single = target.dim() == 0
        rows, classes = (input.unsqueeze(0), target.unsqueeze(0)) if single else (input, target)
        in_head, output, used = classes.clone(), None, 0
        low = 0
        for i, high in enumerate(self.cutoffs):
            members = (classes >= low) & (classes < high)
            if i == 0:
                used += int(members.sum())
            else:
                at = members.nonzero().squeeze(1)
                if at.numel():
                    used += at.numel()
                    tail: Any = self.tail[i - 1]
                    scores = F.log_softmax(tail(rows.index_select(0, at)), dim=1)
                    own = scores.gather(1, (classes.index_select(0, at) - low).unsqueeze(1)).squeeze(1)
                    in_head = in_head.index_fill(0, at, self.cutoffs[0] + i - 1)
                    if output is None:
                        output = rows.new_zeros(len(classes))
                    output = output.index_copy(0, at, own.to(output.dtype))
            low = high
        if used != len(classes):
            raise RuntimeError(f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                               f"[{classes.min().item()}, {classes.max().item()}] were found. ")
        head = F.log_softmax(self.head(rows), dim=1).gather(1, in_head.unsqueeze(1)).squeeze(1)
        result = head if output is None else output + head
        loss = (-result).mean()
        return _ASMoutput(result.squeeze(0) if single else result, loss)

    def _full_log_prob(self, input: Tensor, head: Tensor) -> Tensor:
        scores = F.log_softmax(head, dim=1)
        parts = [scores[:, :self.shortlist_size]]
        for i, tail in enumerate(self.tail):
            at = self.shortlist_size + i
            parts.append(F.log_softmax(tail(input), dim=1) + scores[:, at:at + 1])
        return rushlight.cat(parts, 1)

    def log_prob(self, input: Tensor) -> Tensor:
        """(N, n_classes): the log probabilities of all classes for input (N, in_features)."""
        return self._full_log_prob(input, self.head(input))

    def predict(self, input: Tensor) -> Tensor:
        """(N,): the class of highest probability. Tails are evaluated only for rows whose head chooses a cluster."""
        head = self.head(input)
        best = head.argmax(1)
        at = (best >= self.shortlist_size).nonzero().squeeze(1)
        if at.numel():
            chosen = self._full_log_prob(input.index_select(0, at), head.index_select(0, at)).argmax(1)
            best = best.index_copy(0, at, chosen)
        return best
