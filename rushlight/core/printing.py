"""How tensors are printed: PyTorch's text, character by character, from plain arrays.

This module knows arrays and nothing of Tensor: `tensor_str` gets the array and what the suffixes say. `format_array`
and `with_suffixes` are the two halves, for layouts that put several arrays into one text.

The rules, all PyTorch's: one number format for the whole tensor, chosen from its finite non-zero elements; integers in
floating dtypes print as `1.`; scientific notation when the magnitudes span more than 1000, exceed 1e8 or fall below
1e-4; above `threshold` elements only `edgeitems` at both ends of every dimension are looked at and shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rushlight.core import dtype as dtypes

__all__ = ["set_printoptions", "get_printoptions", "printoptions", "tensor_str", "format_array", "with_suffixes"]


@dataclass
class PrintOptions:
    """What `set_printoptions` sets; see there."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


PRINT_OPTS = PrintOptions()
_PROFILES = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": float("inf"), "edgeitems": 3, "linewidth": 80},
}


def set_printoptions(precision: int | None = None, threshold: float | None = None, edgeitems: int | None = None,
                     linewidth: int | None = None, profile: str | None = None, sci_mode: bool | None = None) -> None:
    """Set how tensors are printed; what is not given stays, but for `sci_mode`, which goes back to None.

    precision: digits after the point (4); threshold: number of elements above which a tensor is summarised (1000);
    edgeitems: elements shown at both ends of each dimension of a summary (3); linewidth: characters to a line (80);
    profile: "default", "short" or "full", values for all of these that the other arguments override;
    sci_mode: scientific notation always (True), never (False) or by the numbers (None).
    """
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    values = _PROFILES.get(profile, {}) if profile is not None else {}
    for name, value in {**values, **{k: v for k, v in given.items() if v is not None}}.items():  # type: ignore[dict-item]
        setattr(PRINT_OPTS, name, value)
    PRINT_OPTS.sci_mode = sci_mode


def get_printoptions() -> dict[str, Any]:
    """The current options as a dict that `set_printoptions` takes as keyword arguments."""
    return asdict(PRINT_OPTS)


@contextmanager
def printoptions(**kwargs: Any) -> Iterator[None]:
    """Context manager: `set_printoptions(**kwargs)` inside, the old options after."""
    before = get_printoptions()
    set_printoptions(**kwargs)
    try:
        yield
    finally:
        set_printoptions(**before)


# --- elements ---------------------------------------------------------------------------------------------------------
def _integers(values: np.ndarray) -> tuple[list[str], int]:
    """The texts of integers or booleans, and the width of the widest."""
    texts = [str(v) for v in values.tolist()]
    return texts, max(map(len, texts), default=1)


def _is_scientific(magnitudes: np.ndarray) -> bool:
    low, high = float(magnitudes.min()), float(magnitudes.max())
    return high / low > 1000.0 or high > 1.0e8 or low < 1.0e-4


def _reals(values: np.ndarray) -> tuple[list[str], int]:
    """The texts of floating point numbers, and the width that the finite non-zero ones need."""
    with np.errstate(all="ignore"):
        values = values.astype(np.float64)
        chosen = np.isfinite(values) & (values != 0)
    deciding = values[chosen]
    point = ""
    if deciding.size == 0:
        form, point = ".0f", "."
    elif _is_scientific(np.abs(deciding)) if PRINT_OPTS.sci_mode is None else PRINT_OPTS.sci_mode:
        form = f".{PRINT_OPTS.precision}e"
    elif (deciding == np.ceil(deciding)).all():
        form, point = ".0f", "."
    else:
        form = f".{PRINT_OPTS.precision}f"
    texts = [format(v, form) for v in values.tolist()]
    if point:
        texts = [t + point if finite else t for t, finite in zip(texts, np.isfinite(values).tolist())]
    # Zeros, nan and inf are not counted: where they need more room than the others they break the alignment.
    return texts, max((len(t) for t, c in zip(texts, chosen.tolist()) if c), default=1)


def _complexes(values: np.ndarray) -> tuple[list[str], int]:
    """The texts of complex numbers, real and imaginary parts each in their own format, and their common width."""
    real, real_width = _reals(values.real)
    imag, imag_width = _reals(values.imag)
    texts = []
    for r, i in zip(real, imag):
        sign = "" if i[0] == "-" else "+"
        texts.append(r.rjust(real_width) + sign + (i.rjust(imag_width) + "j").lstrip())
    return texts, real_width + imag_width + 1


def _cells(values: np.ndarray) -> tuple[np.ndarray, int]:
    """An array of texts of the shape of `values`, and the width that line breaking reckons with."""
    flat = values.reshape(-1)
    if flat.dtype.kind == "W":      # complex32
        flat = flat.astype(np.complex64)
    if flat.dtype.kind == "c":
        texts, width = _complexes(flat)
    else:
        texts, width = _integers(flat) if flat.dtype.kind in "biu" else _reals(flat)
        texts = [t.rjust(width) for t in texts]
    cells = np.empty(len(texts), dtype=object)
    cells[:] = texts
    return cells.reshape(values.shape), width


# --- arrangement ------------------------------------------------------------------------------------------------------
def _rows(cells: np.ndarray, cut: tuple[bool, ...], width: int, indent: int) -> str:
    """Brackets, commas and line breaks around `cells`; where a dimension was cut, dots stand in its middle."""
    if cells.ndim == 0:
        return str(cells.item())
    innermost = cells.ndim == 1
    items = cells.tolist() if innermost else [_rows(c, cut[1:], width, indent + 1) for c in cells]
    if cut[0]:
        items.insert(PRINT_OPTS.edgeitems, " ..." if innermost else "...")
    margin = " " * (indent + 1)
    if not innermost:
        return "[" + ("," + "\n" * (cells.ndim - 1) + margin).join(items) + "]"
    per_line = max(1, (PRINT_OPTS.linewidth - indent) // (width + 2))
    lines = [", ".join(items[k:k + per_line]) for k in range(0, len(items), per_line)]
    return "[" + (",\n" + margin).join(lines) + "]"


def format_array(array: np.ndarray, indent: int = 0) -> str:
    """The numbers of `array` in brackets; lines after the first are indented by `indent` and their depth.

    0-dim arrays give the bare number, arrays without elements `[]`.
    """
    if array.size == 0:
        return "[]"
    cut: tuple[bool, ...] = (False,) * array.ndim
    if array.size > PRINT_OPTS.threshold:
        edge = PRINT_OPTS.edgeitems
        if edge == 0 and array.ndim:
            return "[...]"
        cut = tuple(n > 2 * edge for n in array.shape)
        for axis, is_cut in enumerate(cut):
            if is_cut:
                n = array.shape[axis]
                array = array.take([*range(edge), *range(n - edge, n)], axis=axis)
    cells, width = _cells(array)
    return _rows(cells, cut, width, indent)


def with_suffixes(text: str, suffixes: list[str], indent: int, *, force_newline: bool = False) -> str:
    """`text`, then the suffixes separated by commas, then the closing parenthesis.

    A suffix that would pass the line's end starts a new line at `indent`; with `force_newline` the first always does.
    """
    column = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if force_newline or column + len(suffix) + 2 > PRINT_OPTS.linewidth:
            text += ",\n" + " " * indent + suffix
            column = indent + len(suffix)
            force_newline = False
        else:
            text += ", " + suffix
            column += len(suffix) + 2
    return text + ")"


def sparse_str(a: Any, dtype_name: str, requires_grad: bool = False, grad_fn_name: str | None = None) -> str:
    """The repr of a sparse tensor: its indices and values, each as the tensor that it is, then sizes, count and layout."""
    coo = a.layout == "sparse_coo"
    if coo:
        parts = [("indices", a.indices)]
    else:
        parts = [("crow_indices", a.ends), ("col_indices", a.plain)] if a.layout in ("sparse_csr", "sparse_bsr") else [("ccol_indices", a.ends), ("row_indices", a.plain)]
    lines = []
    for name, x in (*parts, ("values", a.values)):
        suffixes = [] if x.size else [f"size={tuple(x.shape)}"]
        lines.append(with_suffixes(f"{name}=tensor({format_array(x, len('tensor(' + name + '=tensor('))}", suffixes, 7))
    text = "tensor(" + (",\n" + " " * 7).join(lines)
    suffixes = [f"size={tuple(a.shape)}", f"nnz={a.nnz}"]
    if dtype_name not in (dtypes.get_default_dtype().name, "int64", "bool", "complex128" if dtypes.get_default_dtype().name == "float64" else "complex64"):
        suffixes.append(f"dtype=torch.{dtype_name}")
    suffixes.append(f"layout=torch.{a.layout}")
    if grad_fn_name is not None:
        suffixes.append(f"grad_fn=<{grad_fn_name}>")
    elif requires_grad:
        suffixes.append("requires_grad=True")
    return with_suffixes(text, suffixes, 7, force_newline=coo)


def tensor_str(array: Any, *, dtype_name: str | None = None, requires_grad: bool = False,
               grad_fn_name: str | None = None, device: str = "cpu", class_name: str = "tensor",
               parameter: bool = False, contents: str | None = None, tangent: str | None = None) -> str:
    """The repr of a tensor.

    array: its elements (`numpy.ndarray`), or anything with a shape and a dtype if the device is "meta"
    dtype_name: "float32", ...; taken from the array if not given. Printed unless it is what `torch.tensor` would choose
    grad_fn_name: "AddBackward0"; printed instead of `requires_grad=True`
    device: "cpu" is not printed
    class_name: "tensor" for tensors and parameters themselves, the name of the class for subclasses
    parameter: wraps the text of a subclass that is a parameter in "Parameter(...)"; plain ones put the line
        "Parameter containing:" before it, which is their own `__repr__`
    contents: stands for the numbers if given
    tangent: the text of the forward-mode tangent
    """
    prefix = class_name + "("
    name = dtype_name if dtype_name is not None else array.dtype.name
    default = dtypes.get_default_dtype().name
    suffixes = [f"device='{device}'"] if device != "cpu" else []
    size = f"size={tuple(array.shape)}"
    told = name == default
    if device == "meta":
        suffixes.append(size)
        body = "..."
    elif array.size == 0:
        if array.ndim != 1:
            suffixes.append(size)
        body = "[]"
    else:
        if PRINT_OPTS.edgeitems == 0:
            suffixes.append(size)
        told = told or name in ("int64", "bool", "complex128" if default == "float64" else "complex64")
        body = format_array(array, len(prefix)) if contents is None else contents
    if not told:
        suffixes.append(f"dtype=torch.{name}")
    if grad_fn_name is not None:
        suffixes.append(f"grad_fn=<{grad_fn_name}>")
    elif requires_grad:
        suffixes.append("requires_grad=True")
    if tangent is not None:
        suffixes.append(f"tangent={tangent}")
    text = with_suffixes(prefix + (body if contents is None else contents), suffixes, len(prefix))
    return f"Parameter({text})" if parameter and class_name != "tensor" else text
