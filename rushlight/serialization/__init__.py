"""`save` and `load`: checkpoints in PyTorch's formats, both ways with PyTorch.

The format is PyTorch's zip archive (`_zip`), or the stream of its releases up to 1.5 (`_legacy`). `load` by default
builds data and nothing else (`weights_only=True`, `_unpickler`); classes of one's own are allowed one by one with
:func:`add_safe_globals`, or all at once, for files from a source that one trusts, with `weights_only=False`.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

from rushlight import _missing

from ..core.storage import TypedStorage, UntypedStorage
from . import _legacy, _pickler, _rebuild, _unpickler, _zip
from ._legacy import storage_dtype
from ._rebuild import _get_layout, brief, brief_id  # noqa: F401 - files name torch.serialization._get_layout

__all__ = [
    "LoadEndianness",
    "SourceChangeWarning",
    "add_safe_globals",
    "clear_safe_globals",
    "default_restore_location",
    "get_crc32_options",
    "get_default_load_endianness",
    "get_default_mmap_options",
    "get_safe_globals",
    "get_unsafe_globals_in_checkpoint",
    "load",
    "location_tag",
    "register_package",
    "safe_globals",
    "save",
    "set_crc32_options",
    "set_default_load_endianness",
    "set_default_mmap_options",
    "skip_data",
]

DEFAULT_PROTOCOL = 2


class SourceChangeWarning(Warning):
    """The source of a class differs from the one that a checkpoint was written with."""


class LoadEndianness(Enum):
    """The byte order of a checkpoint that does not say it."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


_options: dict[str, Any] = {"endianness": None, "mmap": None, "crc32": True, "skip_data": False}


def get_default_load_endianness() -> LoadEndianness | None:
    """What :func:`set_default_load_endianness` has set; None: the machine's."""
    return _options["endianness"]


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """The byte order to assume of checkpoints that do not say theirs."""
    if endianness is not None and not isinstance(endianness, LoadEndianness):
        raise TypeError(f"Invalid argument type in function set_default_load_endianness: got {endianness!r}")
    _options["endianness"] = endianness


def get_crc32_options() -> bool:
    """Whether `save` computes checksums."""
    return _options["crc32"]


def set_crc32_options(compute_crc32: bool) -> None:
    """Whether `save` computes the checksums of records; without them `unzip` rejects the file, and `load` does not."""
    _options["crc32"] = bool(compute_crc32)


def get_default_mmap_options() -> int:
    """The flag with which `load(..., mmap=True)` maps a file: `mmap.MAP_PRIVATE` or `mmap.MAP_SHARED`."""
    import mmap
    return mmap.MAP_PRIVATE if _options["mmap"] is None else _options["mmap"]


class set_default_mmap_options:
    """Set the flag for `load(..., mmap=True)`, for good or as a context manager. ValueError for any but the two."""

    def __init__(self, flags: int) -> None:
        import mmap
        if flags not in (mmap.MAP_PRIVATE, mmap.MAP_SHARED):
            raise ValueError(f"Invalid argument in function set_default_mmap_options, expected mmap.MAP_PRIVATE or "
                             f"mmap.MAP_SHARED, but got {flags}")
        self._before = get_default_mmap_options()
        _options["mmap"] = flags

    def __enter__(self) -> None:
        return None

    def __exit__(self, *error: object) -> None:
        _options["mmap"] = self._before


class skip_data:
    """A context manager in which `save` leaves the storages' bytes out (zeros stand in their place)."""

    def __init__(self, materialize_fake_tensors: bool = False) -> None:
        self._before = False

    def __enter__(self) -> None:
        self._before, _options["skip_data"] = _options["skip_data"], True

    def __exit__(self, *error: object) -> None:
        _options["skip_data"] = self._before


# ---------------------------------------------------------------- allowed globals

def add_safe_globals(safe_globals: list[Any]) -> None:
    """Allow classes and functions in `load(..., weights_only=True)`: themselves, or pairs of one and its full name
    in files."""
    _unpickler.user_globals.update(_named(safe_globals))


def _named(items: list[Any]) -> dict[str, Any]:
    names: dict[str, Any] = {}
    for item in items:
        if isinstance(item, tuple):
            if len(item) != 2:
                raise ValueError(
                    "Expected tuple of length 2 (global, str of callable full path), but got tuple of "
                    f"length: {len(item)}"
                )
            if type(item[1]) is not str:
                raise TypeError(
                    f"Expected second item in tuple to be str of callable full path, but got: {type(item[1])}"
                )
            names[item[1]] = item[0]
        else:
            names[_unpickler.global_name(item)] = item
    return names


def get_safe_globals() -> list[Any]:
    """What has been allowed by :func:`add_safe_globals`."""
    return list(_unpickler.user_globals.values())


def clear_safe_globals() -> None:
    """Allow no more than what is allowed by default."""
    _unpickler.user_globals.clear()


class safe_globals:
    """A context manager that allows more classes and functions: see :func:`add_safe_globals`."""

    def __init__(self, safe_globals: list[Any]) -> None:
        self._names = _named(safe_globals)
        self._before: dict[str, Any] = {}

    def __enter__(self) -> None:
        self._before = dict(_unpickler.user_globals)
        _unpickler.user_globals.update(self._names)

    def __exit__(self, *error: object) -> None:
        _unpickler.user_globals.clear()
        _unpickler.user_globals.update(self._before)


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """The full names of what `load(f, weights_only=True)` would refuse. ValueError if `f` is no zip checkpoint of
    PyTorch."""
    with _opened(f) as file:
        start = file.tell()
        head = file.read(4)
        file.seek(start)
        if not _zip.is_archive(head):
            raise ValueError("Expected input to be a checkpoint returned by torch.save: it is not a zip archive")
        data = _zip.ArchiveReader(file).read("data.pkl")
        file.seek(start)
    return sorted(name for name in _unpickler.scan_globals(data) if not _unpickler.is_allowed(name))


# ---------------------------------------------------------------- locations

_registry: list[tuple[int, Callable[[Any], str | None], Callable[[Any, str], Any]]] = []


def register_package(
    priority: int, tagger: Callable[[Any], str | None], deserializer: Callable[[Any, str], Any]
) -> None:
    """Teach `save` and `load` a device: `tagger(storage)` gives the tag to write, `deserializer(storage, tag)` the
    storage for a tag; both None for what they do not know. Lower priorities are asked first."""
    _registry.append((priority, tagger, deserializer))
    _registry.sort(key=lambda entry: entry[0])


def location_tag(storage: Any) -> str:
    """The tag that says in a file where a storage was. RuntimeError for a device that nobody knows."""
    for _, tagger, _ in _registry:
        tag = tagger(storage)
        if tag:
            return tag
    raise RuntimeError(
        f"don't know how to determine data location of {type(storage).__module__}.{type(storage).__name__}"
    )


def default_restore_location(storage: Any, location: str) -> Any:
    """The storage for the tag `location`. RuntimeError for a device that is not here."""
    for _, _, deserializer in _registry:
        result = deserializer(storage, location)
        if result is not None:
            return result
    raise RuntimeError(
        f"don't know how to restore data location of torch.storage.UntypedStorage (tagged with {location})"
    )


def _cuda_restore(storage: Any, location: str) -> Any:
    if location.startswith("cuda"):
        raise RuntimeError(
            "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If you are "
            "running on a CPU-only machine, please use torch.load with map_location=torch.device('cpu') to map your "
            f"storages to the CPU. (The storage is tagged with {location!r}.)"
        )
    return None


register_package(10, lambda s: "cpu" if s.device.type == "cpu" else None, lambda s, tag: s if tag == "cpu" else None)
register_package(20, lambda s: None, _cuda_restore)
register_package(22, lambda s: "meta" if s.device.type == "meta" else None,
                 lambda s, tag: UntypedStorage(s.nbytes(), device="meta") if tag == "meta" else None)


def _restore_function(map_location: Any) -> Callable[[UntypedStorage, str], UntypedStorage]:
    if map_location is None:
        return default_restore_location
    if isinstance(map_location, dict):
        return lambda s, tag: default_restore_location(s, map_location.get(tag, tag))
    from ..core.device import device
    if isinstance(map_location, (str, device)):
        target = str(map_location)
        return lambda s, tag: default_restore_location(s, target)
    if not callable(map_location):
        raise TypeError(
            f"map_location must be a device, a str, a dict or a function, got {type(map_location).__name__}"
        )

    def restore(s: UntypedStorage, tag: str) -> UntypedStorage:
        result = map_location(s, tag)
        if result is None:
            return default_restore_location(s, tag)
        if not isinstance(result, (UntypedStorage, TypedStorage)):
            raise TypeError(f"map_location must return a storage or None, got {type(result).__name__}")
        return result.untyped()
    return restore


# ---------------------------------------------------------------- files

def _is_path(f: Any) -> bool:
    return isinstance(f, (str, os.PathLike))


@contextmanager
def _opened(f: Any) -> Iterator[Any]:
    """A file to read: opened if `f` is a path, `f` itself if it can be read and sought."""
    if _is_path(f):
        with open(f, "rb") as file:
            yield file
        return
    for method in ("seek", "tell", "read"):
        if not hasattr(f, method):
            raise AttributeError(
                f"{type(f).__name__!r} object has no attribute {method!r}. You can only torch.load from a file that "
                "is seekable. Please pre-load the data into a buffer like io.BytesIO and try to load from it instead."
            )
    yield f


@contextmanager
def _replacing(path: str) -> Iterator[Any]:
    """A file beside `path` that takes its place when everything has been written, and disappears if something fails."""
    target = os.path.realpath(path)
    if os.path.exists(target) and not os.path.isfile(target):  # a device, a pipe: there is no place to take
        with open(path, "wb") as file:
            yield file
        return
    temporary = f"{target}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
    try:
        file = open(temporary, "xb")
    except PermissionError:  # the folder may be closed to us and the file not
        with open(path, "wb") as file:
            yield file
        return
    try:
        with file:
            yield file
        if os.path.exists(target):
            os.chmod(temporary, os.stat(target).st_mode & 0o7777)
        os.replace(temporary, target)
    except BaseException:
        try:
            os.unlink(temporary)
        except OSError:
            pass
        raise


def save(obj: Any, f: Any, pickle_module: Any = pickle, pickle_protocol: int = DEFAULT_PROTOCOL,
         _use_new_zipfile_serialization: bool = True, _disable_byteorder_record: bool = False) -> None:
    """Write `obj` to `f`, a path or an open binary file, for :func:`load` here and in PyTorch.

    Tensors keep their dtype, strides and `requires_grad`; those that share a storage share it after loading, and a
    storage is written whole. Everything else is pickled. If pickling or writing fails, a file that was at the path
    stays as it was.

    Args:
        pickle_module: whose Pickler writes what is not a tensor (dill, cloudpickle).
        pickle_protocol: 2 to 5; PyTorch's `weights_only=True` reads 2.
        _use_new_zipfile_serialization: False writes the stream format of PyTorch 0.1 to 1.5.

    Raises:
        AttributeError: `f` is neither a path nor has a `write`.
        RuntimeError: the parent folder does not exist; one memory is saved as two dtypes.
    """
    if not isinstance(pickle_protocol, int) or not 0 <= pickle_protocol <= pickle.HIGHEST_PROTOCOL:
        raise ValueError(f"pickle_protocol must be an int from 2 to {pickle.HIGHEST_PROTOCOL}, got {pickle_protocol!r}")
    if pickle_protocol < 2:
        raise ValueError(f"pickle_protocol must be at least 2, got {pickle_protocol}")
    if _is_path(f):
        f = os.fspath(f)
        parent = os.path.dirname(f) or os.curdir
        if not os.path.isdir(parent):
            raise RuntimeError(f"Parent directory {parent} does not exist.")
    elif not hasattr(f, "write"):
        raise AttributeError("expected 'f' to be string, path, or a file-like object with a 'write' attribute, "
                             f"got {type(f).__name__}")
    # Pickle first: if that fails, nothing has been written.
    if _use_new_zipfile_serialization:
        write = _archive(obj, pickle_protocol, pickle_module, _zip.archive_name(f), not _disable_byteorder_record)
    else:
        write = _legacy.save(obj, None, pickle_protocol, pickle_module, location_tag)
    if _is_path(f):
        with _replacing(f) as file:
            write(file)
    else:
        write(f)
        if hasattr(f, "flush"):
            f.flush()


def _archive(obj: Any, protocol: int, pickle_module: Any, name: str, byteorder: bool) -> Callable[[Any], None]:
    table = _pickler.StorageTable(location_tag, lambda n, s: str(n), legacy=False)
    body = _pickler.dumps(obj, protocol, table, pickle_module)
    skip = _options["skip_data"]

    def write_to(file: Any) -> None:
        writer = _zip.ArchiveWriter(file, name, _options["crc32"])
        writer.record("data.pkl", body)
        writer.record(".format_version", b"1")
        writer.record(".storage_alignment", str(_zip.ALIGNMENT).encode())
        if byteorder:
            writer.record("byteorder", sys.byteorder.encode())
        for key, storage in table.storages.items():
            if storage.device.type == "cpu":
                writer.record(f"data/{key}", bytes(storage.nbytes()) if skip else storage._values())
        writer.record("version", b"3\n")
        writer.close()

    return write_to


def _weights_only(weights_only: bool | None, pickle_module: Any) -> bool:
    truths = ("1", "y", "yes", "true")
    force = os.environ.get("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "0").lower() in truths
    never = os.environ.get("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "0").lower() in truths
    if force and never:
        raise RuntimeError(
            "Only one of `TORCH_FORCE_WEIGHTS_ONLY_LOAD` or `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD` should be set, "
            "but both were set."
        )
    if force:
        restricted = True
    elif weights_only is None:
        restricted = pickle_module is None and not never
    else:
        restricted = bool(weights_only)
    if restricted and pickle_module is not None:
        raise RuntimeError("Can not safely load weights when explicit pickle_module is specified")
    return restricted


_TRUST = (
    "In PyTorch 2.6, the default of the `weights_only` argument of `torch.load` became `True`. Re-running `torch.load` "
    "with `weights_only` set to `False` will likely succeed, but it can result in arbitrary code execution. Do it only "
    "if you got the file from a trusted source."
)


def _explained(error: pickle.UnpicklingError) -> pickle.UnpicklingError:
    text = str(error)
    if text.startswith("Unsupported global"):
        lines = (
            "Weights only load failed. This file can still be loaded, to do so you have two options, do those steps "
            f"only if you trust the source of the checkpoint.\n\t(1) {_TRUST}\n\t(2) Alternatively, to load with "
            "`weights_only=True` please check the recommended steps in the following error message.\n\t"
            f"WeightsUnpickler error: {text}"
        )
    else:
        lines = f"Weights only load failed. {_TRUST}\nWeightsUnpickler error: {text}"
    return pickle.UnpicklingError(lines)


def load(f: Any, map_location: Any = None, pickle_module: Any = None, *, weights_only: bool | None = None,
         mmap: bool | None = None, **pickle_load_args: Any) -> Any:
    """Read what :func:`save`, here or in PyTorch, wrote to `f`: a path, or an open binary file that can seek.

    Args:
        map_location: where storages go: a device or its name for all, a dict from names to names, or a function
            `(storage, name) -> storage or None`. By default they go back to where they were. On "meta" there is no
            memory, and sparse tensors are tensors without a pattern there, as after `.to("meta")`.
        pickle_module: whose Unpickler reads (with `weights_only=False`).
        weights_only: build only tensors, numbers, text, containers and what :func:`add_safe_globals` allows; the
            default unless `pickle_module` is given. With False the file can run any code.
        mmap: map the file at the path `f` instead of reading it; data are read when used, and writes stay in memory.
        pickle_load_args: `encoding` and the like, for files of Python 2.

    Raises:
        pickle.UnpicklingError: the file needs more than `weights_only=True` allows, or its pickle is damaged.
        RuntimeError: the archive is damaged or foreign, a tensor lies outside its storage, or a device is not here.
        EOFError: the file is empty.
    """
    restricted = _weights_only(weights_only, pickle_module)
    restore = _restore_function(map_location)
    if mmap is None:
        mmap = False
    unknown = [name for name in pickle_load_args if name not in ("encoding", "errors", "fix_imports", "buffers")]
    if restricted and unknown:  # otherwise the Unpickler says so
        raise TypeError(f"load() got an unexpected keyword argument {unknown[0]!r}")
    pickle_load_args.setdefault("encoding", "utf-8")
    if mmap and not _is_path(f):
        raise ValueError("f must be a file path in order to use the mmap argument")
    try:
        with _opened(f) as file:
            start = file.tell()
            head = file.read(4)
            if not isinstance(head, (bytes, bytearray, memoryview)):
                raise TypeError(f"torch.load needs a file opened in binary mode: its read() gave {type(head).__name__}")
            if not head:
                raise EOFError("Ran out of input: the file is empty")
            file.seek(start)
            if _zip.is_archive(bytes(head)):
                meta = not callable(map_location) and str(map_location) == "meta"
                result = _load_archive(file, restore, restricted, pickle_module, pickle_load_args, mmap, meta)
                _check_sparse()
                return result
            if mmap:
                raise RuntimeError(
                    "mmap can only be used with files saved with `torch.save(..., _use_new_zipfile_serialization="
                    "True)`, please torch.save your checkpoint with this option in order to use mmap."
                )
            return _load_stream(file, start, restore, restricted, pickle_module, pickle_load_args)
    except pickle.UnpicklingError as error:
        if restricted:
            raise _explained(error) from error.__cause__
        raise


def _check_sparse() -> None:
    if _rebuild._unchecked.tensors:
        _rebuild.check_sparse()


def _load_stream(
    file: Any, start: int, restore: Callable, restricted: bool, pickle_module: Any, pickle_args: dict[str, Any]
) -> Any:
    reader = _unpickler.Reader(file.read())
    result = _legacy.load(reader, restore, restricted, pickle_module, pickle_args)
    file.seek(start + reader.position)  # several objects may follow each other in one file
    _check_sparse()
    return result


def _load_archive(
    file: Any,
    restore: Callable,
    restricted: bool,
    pickle_module: Any,
    pickle_args: dict[str, Any],
    mapped: bool,
    meta: bool,
) -> Any:
    memory = _map(file) if mapped else None
    archive = _zip.ArchiveReader(file, memory)
    if archive.has("constants.pkl"):
        if restricted:
            raise RuntimeError(
                "Cannot use ``weights_only=True`` with TorchScript archives passed to ``torch.load``. " + _TRUST
            )
        raise RuntimeError("the file is a TorchScript archive (torch.jit.save), which Rushlight does not read")
    swap = _is_swapped(archive)
    known: dict[str, UntypedStorage] = {}

    def persistent_load(pid: Any) -> Any:
        if not isinstance(pid, tuple) or len(pid) < 5 or pid[0] not in ("storage", b"storage"):
            raise RuntimeError(
                f"Unknown typename for persistent_load, expected 'storage' but got {brief_id(pid)}"
            )
        kind, key, location, numel = pid[1:5]
        key = key.decode("ascii", "replace") if type(key) is bytes else key
        location = location.decode("ascii", "replace") if type(location) is bytes else location
        d = storage_dtype(kind)
        if type(key) is not str or type(location) is not str or type(numel) is not int or numel < 0:
            raise RuntimeError(f"invalid storage reference: {', '.join(map(brief, pid[1:5]))}")
        nbytes = numel * d.itemsize
        if key not in known:
            if meta:
                read = UntypedStorage(archive.size(f"data/{key}"), device="meta")
                if read.nbytes() != nbytes:
                    raise RuntimeError(
                        f"record size ({read.nbytes()} bytes) does not match expected size ({nbytes} bytes)"
                    )
            else:
                values = archive.read_array(f"data/{key}", nbytes)
                read = UntypedStorage._wrap(values, values)
                if swap:
                    read.byteswap(d)
                if d.name == "bool" and nbytes and values.max() > 1:
                    values[:] = values != 0  # any other byte would be neither true nor false to NumPy
            known[key] = restore(read, location)
        storage = known[key]
        if storage.nbytes() != nbytes:
            raise RuntimeError(f"storage {key[:40]} has {storage.nbytes()} bytes, but {nbytes} are referred to")
        if getattr(kind, "__name__", None) == "UntypedStorage":
            return storage
        return TypedStorage(wrap_storage=storage, dtype=d, _internal=True)

    data = archive.read("data.pkl")
    if restricted:
        return _unpickler.RestrictedUnpickler(_unpickler.Reader(data), persistent_load, pickle_args["encoding"]).load()
    if pickle_module is None or pickle_module is pickle:
        return _unpickler.TrustedUnpickler(io.BytesIO(data), persistent_load, **pickle_args).load()
    return _unpickler.other_unpickler(pickle_module, io.BytesIO(data), persistent_load, **pickle_args).load()


def _is_swapped(archive: _zip.ArchiveReader) -> bool:
    if archive.has("byteorder"):
        order = archive.read("byteorder", limit=16)
        if order not in (b"little", b"big"):
            raise ValueError("Unknown endianness type: " + order.decode("ascii", "replace"))
        return order.decode() != sys.byteorder
    default = get_default_load_endianness()
    return default not in (None, LoadEndianness.NATIVE) and default.name.lower() != sys.byteorder


def _map(file: Any) -> Any:
    import mmap
    shared = get_default_mmap_options() == mmap.MAP_SHARED
    if shared:
        with open(file.name, "r+b") as writable:
            return mmap.mmap(writable.fileno(), 0, access=mmap.ACCESS_WRITE)
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)


_missing.hint(__name__)
