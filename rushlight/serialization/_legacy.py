"""The stream format of PyTorch 0.1 to 1.5: pickles one after another, then the storages.

    pickle of the magic number, of the protocol version (1001), of a dict about the machine
    pickle of the object
    pickle of the list of storage keys
    for each key: the number of elements (8 bytes), the elements
"""

from __future__ import annotations

import pickle
import struct
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.dtype import dtype
from ..core.storage import TypedStorage, UntypedStorage, class_dtype
from . import _pickler
from ._rebuild import brief, brief_id
from ._unpickler import Reader, RestrictedUnpickler, TrustedUnpickler, other_unpickler

__all__ = ["load", "save"]

MAGIC = 0x1950A86A20F9469CFC6C
PROTOCOL = 1001


def save(obj: Any, write: Callable[[Any], Any] | None, protocol: int, pickle_module: Any,
         location_tag: Callable[[Any], str]) -> Callable[[Any], None]:
    """Pickle `obj`; returns the function that then writes everything to a file."""
    table = _pickler.StorageTable(location_tag, lambda n, s: str(s._address() if s.nbytes() else n + 1), legacy=True)
    head = [MAGIC, PROTOCOL, {"protocol_version": PROTOCOL, "little_endian": sys.byteorder == "little",
                              "type_sizes": {"short": 2, "int": 4, "long": 4}}]
    body = _pickler.dumps(obj, protocol, table, pickle_module)

    def write_to(file: Any) -> None:
        for part in head:
            file.write(pickle.dumps(part, protocol))
        file.write(body)
        keys = sorted(table.storages)
        file.write(pickle.dumps(keys, protocol))
        for key in keys:
            storage = table.storages[key]
            file.write(struct.pack("<q", storage.nbytes() // table.element_sizes[key]))
            file.write(storage._values().data)

    return write_to


class _Loader:
    def __init__(self, reader: Reader, restore: Callable[[UntypedStorage, str], UntypedStorage], restricted: bool,
                 pickle_module: Any, pickle_args: dict[str, Any]) -> None:
        self._reader, self._restore, self._restricted = reader, restore, restricted
        self._module, self._args = pickle_module, pickle_args
        self._known: dict[str, tuple[UntypedStorage, Any]] = {}  # the restored storage, its dtype
        self._views: dict[Any, UntypedStorage] = {}
        self._promised = 0

    def pickle(self) -> Any:
        """The next pickle of the stream."""
        if self._restricted:
            return RestrictedUnpickler(self._reader, self.storage, self._args.get("encoding", "utf-8")).load()
        if self._module is None or self._module is pickle:
            return TrustedUnpickler(self._reader, self.storage, **self._args).load()
        return other_unpickler(self._module, self._reader, self.storage, **self._args).load()

    def storage(self, pid: Any) -> Any:
        if isinstance(pid, tuple) and pid and pid[0] == "module" and not self._restricted:
            return pid[1]  # a class, with its source at the time
        if not isinstance(pid, tuple) or len(pid) not in (5, 6) or pid[0] != "storage":
            raise RuntimeError(
                f"Unknown saved id in a stream of the old format: {brief_id(pid)}"
            )
        kind, key, location, numel = pid[1:5]
        view = pid[5] if len(pid) == 6 else None
        d = storage_dtype(kind)
        if type(key) is not str or type(location) is not str or type(numel) is not int or numel < 0:
            raise RuntimeError(f"invalid storage reference: {', '.join(map(brief, pid[1:5]))}")
        if key not in self._known:
            nbytes = numel * d.itemsize
            self._promised += nbytes
            if self._promised > self._reader.left:
                raise RuntimeError(f"unexpected EOF: storages of {self._promised} bytes are announced, but only "
                                   f"{self._reader.left} are left. The file might be corrupted.")
            self._known[key] = (self._restore(UntypedStorage(nbytes), location), d)
        whole = self._known[key][0]
        if whole.nbytes() != numel * d.itemsize:
            raise RuntimeError(
                f"storage {key[:40]} is announced with {whole.nbytes()} and with {numel * d.itemsize} bytes"
            )
        if view is not None:
            whole = self._view(whole, view, d.itemsize)
        return TypedStorage(wrap_storage=whole, dtype=d, _internal=True)

    def _view(self, whole: UntypedStorage, view: Any, itemsize: int) -> UntypedStorage:
        if (
            not isinstance(view, tuple)
            or len(view) != 3
            or type(view[0]) is not str
            or any(type(n) is not int or n < 0 for n in view[1:])
        ):
            raise RuntimeError(f"invalid view of a storage: {brief(view)}")
        key, offset, size = view
        end = (offset + size) * itemsize
        if end > whole.nbytes():
            raise RuntimeError(f"a view of a storage of {whole.nbytes()} bytes reaches to byte {end}")
        if key not in self._views:
            self._views[key] = whole if whole.device.type == "meta" else whole[offset * itemsize:end]
        return self._views[key]

    def data(self, keys: Any, swap: bool) -> None:
        """Read the storages' bytes."""
        if not isinstance(keys, list) or any(type(k) is not str for k in keys) or len(set(keys)) != len(keys):
            raise RuntimeError("invalid list of storages; corrupt file?")
        if set(keys) != set(self._known):
            raise RuntimeError("the list of storages does not match those that the object uses; corrupt file?")
        for key in keys:
            storage, d = self._known[key]
            nbytes = storage.nbytes()
            head = self._reader.read(8)
            numel = struct.unpack("<q", head)[0] if len(head) == 8 else -1
            if numel != nbytes // d.itemsize:
                raise RuntimeError(
                    f"storage has wrong byte size: expected {nbytes} got {numel * d.itemsize}"
                    if numel >= 0
                    else "unexpected EOF where a storage was expected. The file might be corrupted."
                )
            data = self._reader.data[self._reader.position:self._reader.position + nbytes]
            self._reader.position += len(data)
            if len(data) != nbytes:
                raise RuntimeError(
                    f"unexpected EOF, expected {nbytes - len(data)} more bytes. The file might be corrupted."
                )
            if nbytes and storage.device.type == "cpu":
                storage._values()[:] = np.frombuffer(data, np.uint8)
                if swap:
                    storage.byteswap(d)


def storage_dtype(kind: Any) -> Any:
    """The dtype of a storage type named in a file. RuntimeError for anything that is no storage type."""
    try:
        return class_dtype(kind if isinstance(kind, (str, type, dtype)) else "")
    except ValueError:
        raise RuntimeError(f"expected a storage type, got {brief(kind)}") from None


def load(reader: Reader, restore: Callable[[UntypedStorage, str], UntypedStorage], restricted: bool, pickle_module: Any,
         pickle_args: dict[str, Any]) -> Any:
    """The object of the stream that `reader` stands at the beginning of; afterwards it stands at the stream's end."""
    loader = _Loader(reader, restore, restricted, pickle_module, pickle_args)
    if bytes(reader.data[reader.position + 257:reader.position + 262]) == b"ustar":
        raise RuntimeError("the file is in the tar format of PyTorch before 0.1.10, which Rushlight does not read: "
                           "save it again with a release of PyTorch that does")
    try:
        magic = loader.pickle()
    except pickle.UnpicklingError as error:
        raise pickle.UnpicklingError(
            f"the file is neither a zip archive nor a stream of pickles as torch.save writes them ({error})"
        ) from error
    if magic != MAGIC:
        raise RuntimeError("Invalid magic number; corrupt file?")
    version = loader.pickle()
    if version != PROTOCOL:
        raise RuntimeError(f"Invalid protocol version: {brief(version)}")
    system = loader.pickle()
    little = system.get("little_endian", True) if isinstance(system, dict) else True
    result = loader.pickle()
    loader.data(loader.pickle(), swap=bool(little) != (sys.byteorder == "little"))
    return result
