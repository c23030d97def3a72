"""Devices: where a tensor's memory is. Rushlight computes on `cpu`; `meta` holds shapes only; other names are known and refused."""

from __future__ import annotations

__all__ = ["device", "CPU", "META", "as_device", "default_device"]

KINDS = ("cpu", "cuda", "ipu", "xpu", "mkldnn", "opengl", "opencl", "ideep", "hip", "ve", "fpga", "maia", "xla", "lazy", "vulkan",
         "mps", "meta", "hpu", "mtia", "privateuseone")


class device:
    """`device("cpu")`, `device("cuda:1")`, `device("cuda", 1)`; attributes `type` and `index` (None if not given).
    RuntimeError for an unknown kind or a malformed index."""

    __slots__ = ("type", "index")
    type: str
    index: int | None

    def __new__(cls, type: str | device | int, index: int | None = None) -> device:
        if isinstance(type, device):
            return type
        if isinstance(type, int) and not isinstance(type, bool):
            type, index = "cuda", type  # type: ignore[assignment]
        if not isinstance(type, str):
            raise TypeError(f"device(): argument 'type' must be str, not {type.__class__.__name__}")
        kind, colon, number = type.partition(":")
        if colon:
            if index is not None:
                raise RuntimeError(f"type (string) must not include an index because index was passed explicitly: {type}")
            if not number.isdecimal() or (len(number) > 1 and number[0] == "0"):
                raise RuntimeError(f"Invalid device string: '{type}'")
            index = int(number)
        if kind not in KINDS:
            raise RuntimeError(f"Expected one of {', '.join(KINDS)} device type at start of device string: {kind}")
        assert index is None or isinstance(index, int)
        if index is not None and index < 0:
            raise RuntimeError(f"Device index must not be negative, got {index}")
        d = object.__new__(cls)
        d.type, d.index = kind, index
        return d

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and self.type == other.type and self.index == other.index

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __repr__(self) -> str:
        return f"device(type='{self.type}')" if self.index is None else f"device(type='{self.type}', index={self.index})"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __reduce__(self):
        return (device, (self.type,) if self.index is None else (self.type, self.index))

    def __enter__(self) -> device:
        _stack.append(default_device[0])
        default_device[0] = as_device(self)
        return self

    def __exit__(self, *exc: object) -> None:
        default_device[0] = _stack.pop()


CPU, META = device("cpu"), device("meta")
default_device: list[device] = [CPU]
_stack: list[device] = []


def as_device(d: device | str | int | None) -> device:
    """The device meant by a constructor's `device=`; the default one for None. Raises for those that are not here."""
    if d is None:
        return default_device[0]
    if d.__class__ is not device:
        d = device(d)  # type: ignore[arg-type]
    if d.type == "cpu":
        return CPU
    if d.type == "meta":
        return META
    if d.type == "cuda":
        raise RuntimeError(f"Rushlight has no CUDA backend yet (device '{d}' was asked for): torch.cuda.is_available() is False; use device 'cpu'")
    raise RuntimeError(f"Could not run on device '{d}': Rushlight has no {d.type} backend; use device 'cpu'")
