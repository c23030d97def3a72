"""Collating: a list of samples becomes a batch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import numpy as np

import rushlight as torch

__all__ = ["collate", "default_collate", "default_collate_fn_map", "default_convert"]

_ERROR = "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"
default_collate_err_msg_format = _ERROR


def _is_text_or_object(dtype: np.dtype) -> bool:
    return dtype.kind in "SUO"


def _like_mapping(template: Any, items: dict) -> Any:
    """A mapping of the template's type with these items; a dict where that type can't be made so."""
    try:
        if isinstance(template, MutableMapping):
            clone = copy.copy(template)      # keeps a subclass's own attributes
            clone.update(items)
            return clone
        return type(template)(items)  # type: ignore[call-arg]
    except TypeError:
        return items


def _like_sequence(template: Any, items: list) -> Any:
    try:
        if isinstance(template, MutableSequence):
            clone = copy.copy(template)
            for i, item in enumerate(items):
                clone[i] = item
            return clone
        return type(template)(items)  # type: ignore[call-arg]
    except TypeError:
        return items


def default_convert(data: Any) -> Any:
    """NumPy arrays and scalars in `data`, however nested, as tensors; tuples become lists, the rest stays."""
    if isinstance(data, torch.Tensor):
        return data
    if isinstance(data, (np.ndarray, np.generic)):
        if isinstance(data, (np.str_, np.bytes_)) or isinstance(data, np.ndarray) and _is_text_or_object(data.dtype):
            return data
        return torch.as_tensor(data)
    if isinstance(data, Mapping):
        return _like_mapping(data, {k: default_convert(data[k]) for k in data})
    if isinstance(data, tuple):
        items = [default_convert(d) for d in data]
        return type(data)(*items) if hasattr(data, "_fields") else items
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return _like_sequence(data, [default_convert(d) for d in data])
    return data


def collate(batch: Any, *, collate_fn_map: dict[Any, Callable] | None = None) -> Any:
    """One batch of the samples in `batch`, whose structure is that of its first.

    `collate_fn_map` says what to do with elements: type (or tuple of types) -> fn(batch, collate_fn_map=...). An exact
    type is looked up first, then the types in order by isinstance. Mappings, namedtuples and sequences are taken apart;
    tuples come back as lists.
    """
    first = batch[0]
    kind = type(first)
    if collate_fn_map is not None:
        fn = collate_fn_map.get(kind)
        if fn is None:
            fn = next((f for t, f in collate_fn_map.items() if isinstance(first, t)), None)
        if fn is not None:
            return fn(batch, collate_fn_map=collate_fn_map)
    if isinstance(first, Mapping):
        return _like_mapping(first, {k: collate([d[k] for d in batch], collate_fn_map=collate_fn_map) for k in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return kind(*(collate(column, collate_fn_map=collate_fn_map) for column in zip(*batch, strict=False)))
    if isinstance(first, Sequence):
        size = len(first)
        if any(len(sample) != size for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = [collate(column, collate_fn_map=collate_fn_map) for column in zip(*batch, strict=False)]
        return columns if isinstance(first, tuple) else _like_sequence(first, columns)
    raise TypeError(_ERROR.format(kind))


def collate_tensor_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """The tensors stacked along a new first dimension."""
    layout = batch[0].layout
    if layout is not torch.strided:
        raise RuntimeError(f"Batches of {'nested' if 'jagged' in str(layout) else 'sparse'} tensors are not currently "
                           "supported by the default collate_fn; please provide a custom collate_fn to handle them "
                           "appropriately.")
    return torch.stack(list(batch), 0)


def collate_numpy_array_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """Arrays as tensors, stacked."""
    if _is_text_or_object(batch[0].dtype):
        raise TypeError(_ERROR.format(batch[0].dtype))
    return collate([torch.as_tensor(b) for b in batch], collate_fn_map=collate_fn_map)


def collate_numpy_scalar_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return torch.as_tensor(batch)


def collate_float_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return torch.tensor(batch, dtype=torch.float64)


def collate_int_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return torch.tensor(batch)


def collate_str_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return batch


default_collate_fn_map: dict[Any, Callable] = {
    torch.Tensor: collate_tensor_fn,
    np.ndarray: collate_numpy_array_fn,
    (np.bool_, np.number, np.object_): collate_numpy_scalar_fn,
    float: collate_float_fn,
    int: collate_int_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
}
_as_delivered = dict(default_collate_fn_map)


def default_collate(batch: Any) -> Any:
    """Tensors and arrays are stacked, numbers become a tensor (floats in float64), text stays a list; tuples, lists,
    namedtuples and mappings of them are collated field by field. Raises TypeError for anything else."""
    return collate(batch, collate_fn_map=default_collate_fn_map)


def is_default(collate_fn: Any) -> bool:
    """Whether that is `default_collate`, with nothing changed in its table."""
    return collate_fn is default_collate and default_collate_fn_map == _as_delivered
