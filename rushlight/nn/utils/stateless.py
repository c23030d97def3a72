"""Calling a module with other parameters and buffers than its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

from rushlight import _missing
from rushlight.core.tensor import Tensor

from ..modules._tables import ABSENT
from ..modules.module import Module, _own

__all__ = ["functional_call"]


def _members(module: Module) -> dict[str, tuple[Module, str, str]]:
    """Dotted name -> (owner, table, name in it) of every parameter and buffer, aliases included."""
    found = {}
    for path, owner in module.named_modules(remove_duplicate=False):
        for table in ("_parameters", "_buffers"):
            for name, value in getattr(owner, table).items():
                if value is not None:
                    found[f"{path}.{name}" if path else name] = (owner, table, name)
    return found


def _with_ties(given: dict[str, Any], members: dict[str, tuple[Module, str, str]]) -> dict[str, Any]:
    """`given`, with the same replacement under every other name of a tensor that has several."""
    names: dict[int, list[str]] = {}
    for key, (owner, table, name) in members.items():
        names.setdefault(id(getattr(owner, table)[name]), []).append(key)
    result = dict(given)
    for tied in names.values():
        mentioned = [k for k in tied if k in given]
        if len({id(given[k]) for k in mentioned}) > 1:
            raise ValueError(f"functional_call got multiple values for keys {sorted(mentioned)}, which are tied. "
                             "Consider using tie_weights=False")
        if mentioned:
            result.update((k, given[mentioned[0]]) for k in tied)
    return result


@contextmanager
def _replaced(module: Module, given: Mapping[str, Any], tie_weights: bool, strict: bool) -> Iterator[None]:
    members = _members(module)
    values = _with_ties(dict(given), members) if tie_weights else dict(given)
    if strict:
        problems = [f"{what} key(s): {', '.join(sorted(keys))}." for what, keys in
                    (("Unexpected", values.keys() - members.keys()), ("Missing",
                                                                      members.keys() - values.keys())) if keys]
        if problems:
            raise RuntimeError("Error(s) in loading state_dict for {}:\n\t{}".format(type(module).__name__,
                                                                                      "\n\t".join(problems)))
    undo: list[tuple[Any, str, Any]] = []
    try:
        for key, value in values.items():
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(f"{value} is not an instance of torch.Tensor")
            path, _, name = key.rpartition(".")
            owner, table, name = members.get(key) or (module.get_submodule(path), "", name)
            if table:
                entries = _own(owner, table)
                undo.append((entries, name, entries[name]))
                entries[name] = value
            else:
                if name not in owner.__dict__:
                    raise AttributeError(f"{owner._get_name()} has no attribute `{name}`")
                undo.append((owner.__dict__, name, owner.__dict__[name]))
                owner.__dict__[name] = value
        yield
    finally:
        for entries, name, value in reversed(undo):
            if entries.get(name, ABSENT) is not value:
                entries[name] = value


def functional_call(module: Module, parameters_and_buffers: Mapping[str, Any], args: Any = None,
                    kwargs: dict[str, Any] | None = None, *, tie_weights: bool = True, strict: bool = False) -> Any:
    """`module(*args, **kwargs)` with the parameters and buffers given under their names in place of its own.

    Aliases of a tied tensor follow unless `tie_weights` is False. With `strict` (RuntimeError) every name is needed.
    """
    if args is None:
        args = ()
    elif not isinstance(args, tuple):
        args = (args,)
    if isinstance(parameters_and_buffers, (tuple, list)):
        parameters_and_buffers = dict(chain.from_iterable(d.items() for d in parameters_and_buffers))
    with _replaced(module, parameters_and_buffers, tie_weights, strict):
        return module(*args, **(kwargs or {}))


_missing.hint(__name__)
