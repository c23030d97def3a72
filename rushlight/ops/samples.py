"""Inputs for the tests that are generated from the records (tests/test_operators.py).

A record's samples are calls: `op.samples(lambda s: [s.call(s((3, 4)), dim=0), ...])`, where `s` is a `Samples` and every `Spec` in
a call stands for a tensor. Pointwise records and reductions have samples without saying so. The values come from a frozen stream,
so that results recorded from PyTorch stay theirs; nothing here needs a framework.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .declare import REQUIRED, Operator

__all__ = ["Call", "Samples", "Spec", "build", "samples_of", "specs"]

Call = tuple[tuple[Any, ...], dict[str, Any]]


class Spec:
    """A tensor to be: its values, whether it requires grad, and whether it is to be a transposed view."""

    __slots__ = ("array", "requires_grad", "transposed")

    def __init__(self, array: np.ndarray, requires_grad: bool = False, transposed: bool = False) -> None:
        self.array, self.requires_grad, self.transposed = array, requires_grad, transposed

    def __repr__(self) -> str:
        return f"Spec({list(self.array.shape)}, {self.array.dtype}{', requires_grad' if self.requires_grad else ''})"


class Samples:
    """Makes the tensors of an operator's samples; the same ones for the same operator, always."""

    def __init__(self, name: str) -> None:
        # RandomState's stream never changes, unlike default_rng's
        self.stream = np.random.RandomState(zlib.crc32(name.encode()))

    def __call__(self, shape: tuple[int, ...] = (3, 4), dtype: str = "float64", low: float = -3.0, high: float = 3.0,
                 requires_grad: bool = True, transposed: bool = False) -> Spec:
        """Numbers between `low` and `high`, none near a whole number, where many functions have kinks."""
        x = self.stream.uniform(low, high, shape)
        near = np.abs(x - np.rint(x)) < 0.02
        x = np.where(near, np.where(x + 0.05 > high, x - 0.05, x + 0.05), x)
        if dtype.startswith("complex"):
            x = x + 1j * self.stream.uniform(low, high, shape)
        return Spec(np.asarray(x, dtype), requires_grad, transposed)

    def ints(self, shape: tuple[int, ...], high: int, low: int = 0, dtype: str = "int64") -> Spec:
        """Whole numbers from `low` up to, not including, `high`."""
        return Spec(np.asarray(self.stream.randint(low, high, shape), dtype))

    def bools(self, shape: tuple[int, ...]) -> Spec:
        return Spec(np.asarray(self.stream.randint(0, 2, shape), "bool"))

    def array(self, values: Any, dtype: str = "int64", requires_grad: bool = False) -> Spec:
        """These values."""
        return Spec(np.asarray(values, dtype), requires_grad)

    def permutation(self, n: int) -> Spec:
        """0 to n - 1 in some order: indices that hit no place twice."""
        return Spec(np.asarray(self.stream.permutation(n), "int64"))

    @staticmethod
    def call(*args: Any, **kwargs: Any) -> Call:
        return args, kwargs


def samples_of(op: Operator) -> list[Call]:
    """The calls that an operator is tested with: its own, or those of its kind. Empty where it has neither."""
    s = Samples(op.qualified)
    if op.sample_inputs is not None:
        return list(op.sample_inputs(s))
    if op.kind == "pointwise":
        return _pointwise(op, s)
    return _reduction(op, s) if op.kind == "reduction" else []


def _pointwise(op: Operator, s: Samples) -> list[Call]:
    """Operands of one shape, broadcast, without dimensions, without elements and not contiguous."""
    tensors = [p for p in op.params if p.kind in ("tensor", "operand", "mask")]
    if any(p.kind == "number" and p.default is REQUIRED or p.kind == "plain" and p.default is REQUIRED for p in op.params):
        return []
    low, high = op.domain
    integral = _integral(op)

    def one(kind: str, shape: tuple[int, ...], transposed: bool = False) -> Spec:
        if kind == "mask":
            return s.bools(shape)
        if integral:
            return s.ints(shape, int(high) + 1, int(low))
        return s(shape, low=low, high=high, requires_grad=op.can_differentiate, transposed=transposed)

    def calls() -> Iterable[Call]:
        for shape in ((3, 4), (), (0, 3)):
            yield tuple(one(p.kind, shape) for p in tensors), {}
        yield tuple(one(p.kind, (2, 3), True) for p in tensors), {}
        if len(tensors) > 1:
            yield tuple(one(p.kind, ((3, 1), (4,), (2, 1, 1))[i % 3]) for i, p in enumerate(tensors)), {}
    return list(calls())


def _integral(op: Operator) -> bool:
    """Whether the record refuses floats."""
    if op.check is None:
        return False
    n = sum(p.kind in ("tensor", "operand", "mask") for p in op.params)
    try:
        op.check(*[np.ones(1)] * n, *[p.default for p in op.params if p.kind in ("number", "plain")])
    except RuntimeError:
        return True
    return False


def _reduction(op: Operator, s: Samples) -> list[Call]:
    def x(shape: tuple[int, ...] = (2, 3, 2)) -> Spec:
        return s(shape, requires_grad=op.can_differentiate)

    calls: list[Call] = [((x(),), {}), ((x(), 0), {}), ((x(), -1), {}), ((x(), (0, 2)), {}), ((x(()),), {}),
                         ((s((3, 2), requires_grad=op.can_differentiate, transposed=True), 1), {}), ((x((0, 3)), 1), {})]
    if any(p.name == "keepdim" for p in op.params):
        calls += [((x(), 1), {"keepdim": True}), ((x(),), {"dim": (0, -1), "keepdim": True})]
    return calls


def build(value: Any, make: Callable[[Spec], Any]) -> Any:
    """A call, or a part of one, with `make(spec)` in place of every Spec."""
    if isinstance(value, Spec):
        return make(value)
    if isinstance(value, (tuple, list)):
        return type(value)(build(v, make) for v in value)
    return {k: build(v, make) for k, v in value.items()} if isinstance(value, dict) else value


def specs(value: Any) -> list[Spec]:
    """The Specs of a call, in order."""
    found: list[Spec] = []
    build(value, lambda spec: found.append(spec))
    return found
