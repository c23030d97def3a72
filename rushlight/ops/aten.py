"""`torch.ops.aten`: operators under the names that PyTorch's dispatcher has for them.

`aten.NAME` is the operator of that name, callable as it is or by an overload: `aten.add.Tensor(a, b)`, `aten.relu.default(x)`,
`aten.relu_(x)`, `aten.linalg_inv(x)`. One record serves all overloads of a name, so that any of PyTorch's overload names is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__: list[str] = []

# the words that names of overloads are made of: what is an operand, what else is given
_WORDS = frozenset((
    "Device Dict IntList L Other OutScalar OutTensor Q Scalar ScalarOpt ScalarOther ScalarSelf Self Sequence Storage Tensor TensorList "
    "U X a all alpha any array atol beta bin bins bool ccol center col comp complex correction crow ct decimals default device dim dims "
    "dtype dx eigvals enum float format from generator grad hacked idx indexing indices input int intlist ints inverse layout left list "
    "low m max memory min mode n no offset or ord other out output p padding periodic plain prim rcond reduce right row rtol scalar "
    "scalararray scalarint scalarrayarray scalarrayint sections self size sizes source sparse src stable start stats step storage str "
    "sublist t tensor tensorarray tensorarrayint to tol twin two unary using value values vec x ").split())
# C++ namespaces that PyTorch writes into the name
_PREFIXES = {"linalg_": "linalg", "special_": "special", "fft_": "fft"}


class OpOverload:
    """One overload of an operator; calling it calls the operator."""

    __slots__ = ("overloadpacket", "_overloadname")

    def __init__(self, packet: OpOverloadPacket, name: str) -> None:
        self.overloadpacket, self._overloadname = packet, name

    def __call__(self, *args: Any, **kw: Any) -> Any:
        return self.overloadpacket.function(*args, **kw)

    def __repr__(self) -> str:
        return f"<OpOverload(op='aten.{self.overloadpacket.__name__}', overload='{self._overloadname}')>"

    def __str__(self) -> str:
        return f"aten.{self.overloadpacket.__name__}.{self._overloadname}"

    __name__ = property(lambda self: f"{self.overloadpacket.__name__}.{self._overloadname}")  # type: ignore[assignment]


class OpOverloadPacket:
    """An operator by its dispatcher's name: callable, with its overloads as attributes."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.__name__, self.function, self.__doc__ = name, function, function.__doc__

    def __call__(self, *args: Any, **kw: Any) -> Any:
        return self.function(*args, **kw)

    def __getattr__(self, overload: str) -> OpOverload:
        if not all(word in _WORDS for word in overload.strip("_").split("_")):
            raise AttributeError(f"The underlying op of 'aten.{self.__name__}' has no overload name '{overload}'")
        value = self.__dict__[overload] = OpOverload(self, overload)
        return value

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='aten.{self.__name__}')>"

    def __str__(self) -> str:
        return f"aten.{self.__name__}"

    @property
    def _qualified_op_name(self) -> str:
        return f"aten::{self.__name__}"


def _find(name: str) -> Callable[..., Any]:
    from .declare import NAMESPACES
    spaces = [("ops.aten", name), ("torch", name), ("nn.functional", name), ("Tensor", name)]
    spaces += [(space, name[len(prefix):]) for prefix, space in _PREFIXES.items() if name.startswith(prefix)]
    for space, short in spaces:
        op = NAMESPACES.get(space, {}).get(short)
        if op is not None:
            return op.function
    for space, short in spaces:
        op = NAMESPACES.get(space, {}).get(short[:-1]) if short.endswith("_") else None
        if op is not None and op.inplace:
            return op.inplace_function
    raise AttributeError(f"'_OpNamespace' 'aten' object has no attribute '{name}': if PyTorch has it, Rushlight does not have it yet")


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    from . import load
    load()
    value = globals()[name] = OpOverloadPacket(name, _find(name))
    return value
