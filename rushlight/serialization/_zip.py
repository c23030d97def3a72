"""PyTorch's archive: a zip file of records, stored uncompressed, with the data of each aligned to 64 bytes.

    <name>/data.pkl              the pickle
    <name>/.format_version       "1"
    <name>/.storage_alignment    "64"
    <name>/byteorder             "little" or "big"
    <name>/data/0, 1, ...        the bytes of each storage
    <name>/version               "3\\n"
    <name>/.data/serialization_id

The reader believes nothing: records must lie inside the file and not in each other, names must be unique, and what a
compressed record (which PyTorch never writes) says of its size is limited.
"""

from __future__ import annotations

import io
import os
import struct
import zlib
from typing import Any

__all__ = ["ArchiveReader", "ArchiveWriter", "is_archive"]

ALIGNMENT = 64
_LOCAL, _CENTRAL, _END = 0x04034B50, 0x02014B50, 0x06054B50
_END64, _LOCATOR64 = 0x06064B50, 0x07064B50
_MAX32, _MAX16 = 0xFFFFFFFF, 0xFFFF
_MAX_VERSION = 10
_MAX_INFLATED = 64 << 20   # a compressed record may always be this large,
_MAX_RATIO = 100           # and larger if it does not grow by more than this


def is_archive(head: bytes) -> bool:
    """Whether a file that begins with `head` (4 bytes) is an archive rather than the older stream format."""
    return head[:4] == b"PK\x03\x04"


def corrupt(what: str) -> RuntimeError:
    """The error for a damaged archive."""
    return RuntimeError(
        f"PytorchStreamReader failed {what}. There is a high likelihood that the checkpoint file is corrupted: it "
        "was not saved completely, was transferred incorrectly, or was modified after saving."
    )


# ---------------------------------------------------------------- writing

class ArchiveWriter:
    """Writes records to `file` (which needs `write` only); `close` adds the directory."""

    def __init__(self, file: Any, name: str, checksums: bool = True) -> None:
        self._file, self._name, self._checksums = file, name, checksums
        self._position = 0
        self._entries: list[tuple[bytes, int, int, int]] = []  # name, CRC, size, where
        self._digest = 0

    def _write(self, data: Any) -> None:
        self._file.write(data)
        self._position += len(data)

    def record(self, name: str, data: Any) -> None:
        """Add a record with the bytes `data` (anything with the buffer protocol)."""
        view = memoryview(data).cast("B")
        size, where = len(view), self._position
        crc = zlib.crc32(view) if self._checksums else 0
        path = f"{self._name}/{name}".encode()
        self._digest = zlib.crc32(path, zlib.crc32(struct.pack("<IQ", crc, size), self._digest))
        extra = b""
        if size >= _MAX32:
            extra = struct.pack("<HHQQ", 1, 16, size, size)
        pad = -(where + 30 + len(path) + len(extra) + 4) % ALIGNMENT
        extra += struct.pack("<2sH", b"FB", pad) + b"Z" * pad
        short = min(size, _MAX32)
        self._write(
            struct.pack(
                "<IHHHHHIIIHH",
                _LOCAL,
                45 if size >= _MAX32 else 20,
                0x0800,
                0,
                0,
                0x21,
                crc,
                short,
                short,
                len(path),
                len(extra),
            )
            + path
            + extra
        )
        for start in range(0, size, 1 << 26):  # some file-like objects copy what they are given
            self._write(view[start:start + (1 << 26)])
        self._entries.append((path, crc, size, where))

    def close(self) -> None:
        """Write the identification and the directory."""
        self.record(".data/serialization_id", f"{self._digest:020d}{len(self._entries):020d}".encode())
        start = self._position
        for path, crc, size, where in self._entries:
            extra = b""
            if size >= _MAX32:
                extra += struct.pack("<QQ", size, size)
            if where >= _MAX32:
                extra += struct.pack("<Q", where)
            if extra:
                extra = struct.pack("<HH", 1, len(extra)) + extra
            version = 45 if extra else 20
            self._write(
                struct.pack(
                    "<IHHHHHHIIIHHHHHII",
                    _CENTRAL,
                    version,
                    version,
                    0x0800,
                    0,
                    0,
                    0x21,
                    crc,
                    min(size, _MAX32),
                    min(size, _MAX32),
                    len(path),
                    len(extra),
                    0,
                    0,
                    0,
                    0,
                    min(where, _MAX32),
                )
                + path
                + extra
            )
        end, n = self._position, len(self._entries)
        if n > _MAX16 or end >= _MAX32:
            self._write(struct.pack("<IQHHIIQQQQ", _END64, 44, 45, 45, 0, 0, n, n, end - start, start))
            self._write(struct.pack("<IIQI", _LOCATOR64, 0, end, 1))
        self._write(struct.pack("<IHHHHIIH", _END, 0, 0, min(n, _MAX16), min(n, _MAX16), min(end - start, _MAX32),
                                min(start, _MAX32), 0))


# ---------------------------------------------------------------- reading

class ArchiveReader:
    """The records of an archive in the seekable `file`; with `mapped` (an mmap of the whole of it) data is not
    copied."""

    def __init__(self, file: Any, mapped: Any = None) -> None:
        self._file, self._mapped = file, mapped
        self._size = file.seek(0, io.SEEK_END)
        self._directory = self._read_directory()
        version = self._version()
        if not 1 <= version <= _MAX_VERSION:
            raise RuntimeError(
                f"Attempted to read a PyTorch file with version {version}, but the supported versions for reading "
                f"are 1 to {_MAX_VERSION}. The file was written by a newer release, or is damaged."
            )

    def _read_directory(self) -> dict[str, Any]:
        import zipfile
        try:
            archive = zipfile.ZipFile(self._file)
            infos = archive.infolist()
        except (zipfile.BadZipFile, struct.error, ValueError, OverflowError, EOFError, NotImplementedError, OSError,
                IndexError, MemoryError) as error:
            raise corrupt(f"reading zip archive: failed finding central directory ({error})") from None
        if not infos:
            raise corrupt("reading zip archive: it has no records")
        prefix, slash, _ = infos[0].filename.partition("/")
        if not slash:
            raise corrupt(f"reading zip archive: file in archive is not in a subdirectory: {infos[0].filename[:80]!r}")
        directory: dict[str, Any] = {}
        total = 0
        for info in infos:
            if info.filename in directory:
                raise corrupt(f"reading zip archive: it has two records {info.filename[:80]!r}")
            directory[info.filename] = info
            total += info.compress_size
        if total > self._size:
            raise corrupt("reading zip archive: its records overlap, or reach beyond its end")
        self._prefix = prefix + "/"
        return directory

    def _version(self) -> int:
        name = next((n for n in ("version", ".data/version") if self.has(n)), None)
        if name is None:
            raise RuntimeError(
                'Expected hasRecord("version") to be true, but got false: the file is a zip archive, but not one '
                "that torch.save wrote"
            )
        text = self.read(name, limit=64)
        try:
            return int(text)
        except ValueError:
            raise RuntimeError(f"Couldn't parse the version {text[:20]!r} as Long Long.") from None

    def has(self, name: str) -> bool:
        """Whether there is a record `name`."""
        return self._prefix + name in self._directory

    def _find(self, name: str) -> tuple[Any, int]:
        """The directory's entry of a record, and where its data begins."""
        info = self._directory.get(self._prefix + name)
        if info is None:
            raise corrupt(f"locating file {name[:80]}: file not found")
        if info.flag_bits & 1:
            raise corrupt(f"reading file {name[:80]}: it is encrypted")
        if info.header_offset < 0:
            raise corrupt(f"reading file {name[:80]}: its header is before the beginning")
        self._file.seek(info.header_offset)
        head = self._file.read(30)
        if len(head) != 30:
            raise corrupt(f"reading file {name[:80]}: its header is beyond the end")
        fields = struct.unpack("<IHHHHHIIIHH", head)
        if fields[0] != _LOCAL:
            raise corrupt(f"reading file {name[:80]}: it has no header where the directory says")
        path = self._file.read(fields[9])
        if path != info.orig_filename.encode("utf-8", "surrogateescape") and path != info.orig_filename.encode(
            "cp437", "replace"
        ):
            raise corrupt(f"reading file {name[:80]}: its header has another name")
        start = info.header_offset + 30 + fields[9] + fields[10]
        if fields[3] != info.compress_type or start + info.compress_size > self._size:
            raise corrupt(
                f"reading file {name[:80]}: its header contradicts the directory, or its data are beyond the end"
            )
        if info.compress_type == 0 and info.file_size != info.compress_size:
            raise corrupt(f"reading file {name[:80]}: it is stored, but has two sizes")
        return info, start

    def size(self, name: str) -> int:
        """The number of bytes of a record."""
        return self._find(name)[0].file_size

    def read(self, name: str, limit: int | None = None) -> bytes:
        """The bytes of a record; RuntimeError if it is absent, damaged, or longer than `limit`."""
        info, start = self._find(name)
        if limit is not None and info.file_size > limit:
            raise corrupt(f"reading file {name[:80]}: it has {info.file_size} bytes, at most {limit} were expected")
        if info.compress_type != 0:
            return self._inflate(info, start, name)
        self._file.seek(start)
        data = self._file.read(info.file_size)
        if len(data) != info.file_size:
            raise corrupt(f"reading file {name[:80]}: unexpected end")
        return data

    def read_array(self, name: str, nbytes: int) -> Any:
        """A record of `nbytes` bytes as a new flat array of bytes, or as one on the mapped file."""
        import numpy as np

        from ..backends.cpu.allocator import empty
        info, start = self._find(name)
        if info.file_size != nbytes:
            raise RuntimeError(
                f"record size ({info.file_size} bytes) does not match expected size ({nbytes} bytes) for {name[:80]}"
            )
        if info.compress_type != 0:
            return np.frombuffer(bytearray(self._inflate(info, start, name)), np.uint8)
        if self._mapped is not None and nbytes:
            return np.frombuffer(self._mapped, np.uint8, nbytes, start)
        memory = empty((nbytes,), np.dtype(np.uint8))
        self._file.seek(start)
        view, done = memoryview(memory.data), 0
        while done < nbytes:
            if hasattr(self._file, "readinto"):
                n = self._file.readinto(view[done:])
            else:
                part = self._file.read(min(nbytes - done, 1 << 24))
                n = len(part)
                view[done:done + n] = part
            if not n:
                raise corrupt(f"reading file {name[:80]}: unexpected end")
            done += n
        return memory

    def _inflate(self, info: Any, start: int, name: str) -> bytes:
        if info.compress_type != 8:
            raise corrupt(f"reading file {name[:80]}: it is compressed by method {info.compress_type}")
        if info.file_size > max(_MAX_INFLATED, info.compress_size * _MAX_RATIO):
            raise corrupt(
                f"reading file {name[:80]}: {info.compress_size} compressed bytes claim to hold {info.file_size}"
            )
        self._file.seek(start)
        inflater = zlib.decompressobj(-15)
        try:
            data = inflater.decompress(self._file.read(info.compress_size), info.file_size + 1)
        except zlib.error as error:
            raise corrupt(f"reading file {name[:80]}: {error}") from None
        if len(data) != info.file_size:
            raise corrupt(
                f"reading file {name[:80]}: it does not have the {info.file_size} bytes that the directory says"
            )
        return data


def archive_name(path: Any) -> str:
    """The folder's name inside an archive that is saved to `path`: the file's name without its suffix."""
    try:
        name = os.path.splitext(os.path.basename(os.fspath(path)))[0]
    except TypeError:
        return "archive"
    return name if isinstance(name, str) and name and name.isascii() and name.isprintable() else "archive"
