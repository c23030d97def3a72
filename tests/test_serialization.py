"""Checkpoints: files of PyTorch, round trips, and what must be refused. The recorded files are made by
golden/make_checkpoints.py."""

import collections
import io
import json
import os
import pickle
import random
import stat
import struct
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest

import rushlight as torch
from rushlight import nn, serialization
from rushlight.core.storage import UntypedStorage

GOLDEN = Path(__file__).with_name("golden") / "checkpoints"
FACTS = json.loads((GOLDEN / "facts.json").read_text())
FORMATS = pytest.mark.parametrize("new", [True, False], ids=["zip", "stream"])
MODES = pytest.mark.parametrize("weights_only", [True, False], ids=["restricted", "trusted"])


def dumps(obj, **kwargs):
    buffer = io.BytesIO()
    torch.save(obj, buffer, **kwargs)
    return buffer.getvalue()


def loads(data, **kwargs):
    return torch.load(io.BytesIO(data), **kwargs)


def round_trip(obj, weights_only=True, **kwargs):
    return loads(dumps(obj, **kwargs), weights_only=weights_only)


def array(tensor):
    return tensor.detach()._a


def f32(*shape):
    return torch.from_numpy(np.arange(np.prod(shape), dtype=np.float32).reshape(shape))


# ---------------------------------------------------------------- files of PyTorch

@pytest.mark.parametrize("file", ["dtypes.pt", "dtypes_legacy.pt"])
@MODES
def test_every_dtype_of_a_pytorch_file(file, weights_only):
    loaded = torch.load(GOLDEN / file, weights_only=weights_only)
    assert len(loaded) == (19 if file == "dtypes.pt" else 12)
    for name, tensor in loaded.items():
        assert tensor.dtype is getattr(torch, name)
        expected = [False, True, True, True] if name == "bool" else [0, 1, 2, 3]
        assert array(tensor).astype(complex).tolist() == expected


@pytest.mark.parametrize("file", ["sharing.pt", "sharing_legacy.pt"])
@MODES
def test_views_of_a_pytorch_file_share_their_storage(file, weights_only):
    loaded = torch.load(GOLDEN / file, weights_only=weights_only)
    base = np.arange(12, dtype=np.float32).reshape(3, 4)
    expected = {
        "base": base,
        "t": base.T,
        "part": base[1:, ::2],
        "row": np.broadcast_to(base[2], (2, 4)),
        "none": base[3:],
        "number": base[1, 1],
    }
    for name, tensor in loaded.items():
        assert np.array_equal(array(tensor), expected[name])
    assert [t.stride() for t in loaded.values()] == [(4, 1), (1, 4), (4, 2), (0, 1), (4, 1), ()]
    assert len({id(t.untyped_storage()) for t in loaded.values()}) == 1
    loaded["part"]._a[0, 1] = 100
    assert loaded["t"]._a[2, 1] == 100


def test_what_else_a_pytorch_file_may_hold():
    loaded = torch.load(GOLDEN / "others.pt")
    for name, requires_grad in (("parameter", True), ("frozen", False)):
        assert type(loaded[name]) is nn.Parameter and loaded[name].requires_grad is requires_grad
    assert type(loaded["grad"]) is torch.Tensor and loaded["grad"].requires_grad
    assert loaded["attributes"].note == "kept"
    assert loaded["meta"].is_meta and loaded["meta"].shape == (2, 3)
    assert array(loaded["conj"]).tolist() == [1 - 2j] and array(loaded["neg"]).tolist() == [-2.0]
    assert type(loaded["size"]) is torch.Size and loaded["size"] == (1, 2)
    assert loaded["device"] == torch.device("cuda:1") and loaded["dtype"] is torch.float16
    assert loaded["layout"] is torch.strided
    assert loaded["list"] == [None, True, False, -1, 2**40, 10**30, 0.5, "é", b"\x00\xff", bytearray(b"ab"), 1 + 2j, (),
                              (1, (2, 3)), {1, 2}]
    assert bytes(loaded["storage"]) == np.arange(3, dtype=np.float32).tobytes()


def test_a_whole_model_of_pytorch():
    with pytest.raises(pickle.UnpicklingError, match="weights_only"):
        torch.load(GOLDEN / "model.pt")
    model = torch.load(GOLDEN / "model.pt", weights_only=False)
    assert type(model) is nn.Sequential and type(model.conv) is nn.Conv2d and not model.training
    assert model.bn.num_batches_tracked.item() == 1 and model.drop.p == 0.25
    output = model(torch.arange(16.0).reshape(1, 1, 4, 4))
    np.testing.assert_allclose(array(output), FACTS["model_output"], rtol=1e-5, atol=1e-6)
    assert model.state_dict().keys() == torch.load(GOLDEN / "state.pt").keys()


def test_the_state_of_an_optimizer_of_pytorch():
    loaded = torch.load(GOLDEN / "training.pt")
    assert loaded["epoch"] == 3
    model = torch.load(GOLDEN / "model.pt", weights_only=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.5)
    optimizer.load_state_dict(loaded["optimizer"])
    assert optimizer.param_groups[0]["lr"] == 0.01
    assert optimizer.state[model.conv.weight]["step"].item() == 1
    assert optimizer.state[model.conv.weight]["exp_avg"].shape == model.conv.weight.shape


def test_a_generator_of_pytorch_goes_on_where_it_was():
    generator = torch.load(GOLDEN / "generator.pt", weights_only=False)
    expected = torch.Generator().manual_seed(7)
    assert generator.initial_seed() == 7
    assert np.array_equal(array(generator.get_state()), array(expected.get_state()))
    again = round_trip(generator, weights_only=False)
    assert np.array_equal(array(again.get_state()), array(generator.get_state()))


def test_what_is_allowed_is_what_pytorch_allows():
    missing = {n for n in FACTS["allowed_globals"] if not serialization._unpickler.is_allowed(n)}
    # Old tensor types and quantized ones, which Rushlight does not have.
    assert all(
        n.endswith("Tensor") or "quint" in n or "QUInt" in n or "_affine" in n or "_symmetric" in n for n in missing
    ), missing
    ours = serialization._unpickler._allowed()
    assert {n for n in ours if not n.startswith("torch.")} <= set(FACTS["allowed_globals"])


# ---------------------------------------------------------------- round trips

@FORMATS
@MODES
def test_round_trip_keeps_tensors(new, weights_only):
    base = f32(3, 4)
    obj = collections.OrderedDict(
        base=base,
        t=base.t(),
        part=base[1:, ::2],
        empty=torch.empty(0, 3),
        number=torch.tensor(2.5),
        mask=torch.tensor([True, False]),
        half=torch.ones(2, dtype=torch.bfloat16),
        parameter=nn.Parameter(f32(2)),
        grad=f32(2).requires_grad_(),
    )
    loaded = round_trip(obj, weights_only, _use_new_zipfile_serialization=new)
    assert type(loaded) is collections.OrderedDict and list(loaded) == list(obj)
    for name, tensor in obj.items():
        got = loaded[name]
        assert type(got) is type(tensor) and got.dtype is tensor.dtype and got.requires_grad == tensor.requires_grad
        assert got.stride() == tensor.stride() and (name == "empty" or got.storage_offset() == tensor.storage_offset())
        assert np.array_equal(array(got), array(tensor)) and got.shape == tensor.shape
    assert loaded["t"].untyped_storage() is loaded["part"].untyped_storage()
    assert loaded["base"].untyped_storage() is not base.untyped_storage()
    assert array(loaded["base"]).flags.writeable


@FORMATS
@pytest.mark.parametrize("name", "float8_e4m3fn float8_e5m2 uint16 uint32 uint64 complex64 int8".split())
def test_round_trip_of_rare_dtypes(name, new):
    tensor = torch.from_numpy(np.arange(3)).to(getattr(torch, name))
    loaded = round_trip(tensor, _use_new_zipfile_serialization=new)
    assert loaded.dtype is tensor.dtype and array(loaded).tobytes() == array(tensor).tobytes()


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@MODES
def test_every_pickle_protocol(protocol, weights_only):
    obj = {
        "a": f32(2),
        "l": [b"bytes", bytearray(b"x"), {1, 2}, "é" * 300, 2**70, torch.float32, torch.Size([1])],
        "n": nn.Parameter(f32(1)),
    }
    loaded = round_trip(obj, weights_only, pickle_protocol=protocol)
    assert loaded["l"] == obj["l"] and array(loaded["a"]).tolist() == [0, 1]


def test_identity_and_cycles_survive():
    shared = [1]
    obj = {"a": shared, "b": shared}
    obj["self"] = obj
    loaded = round_trip(obj)
    assert loaded["a"] is loaded["b"] and loaded["self"] is loaded


def test_storages_and_typed_storages():
    typed = torch.from_numpy(np.arange(3.0)).untyped_storage()
    loaded = round_trip([typed, typed])
    assert loaded[0] is loaded[1] and bytes(loaded[0]) == np.arange(3.0).tobytes()


def test_a_whole_model_and_its_functions():
    layer = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.BatchNorm1d(3))
    data = dumps(layer)
    loaded = loads(data, weights_only=False)
    assert repr(loaded) == repr(layer)
    for a, b in zip(layer.state_dict().values(), loaded.state_dict().values(), strict=True):
        assert np.array_equal(array(a), array(b))
    names = serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(data))
    assert names == ["torch.nn.modules.activation.ReLU", "torch.nn.modules.batchnorm.BatchNorm1d",
                     "torch.nn.modules.container.Sequential", "torch.nn.modules.linear.Linear"]
    with serialization.safe_globals([nn.Sequential, nn.Linear, nn.ReLU, nn.BatchNorm1d]):
        assert repr(loads(data)) == repr(layer)
    with pytest.raises(pickle.UnpicklingError, match="torch.nn.modules"):
        loads(data)


def test_names_in_files_are_pytorchs():
    data = dumps({"p": nn.Parameter(f32(1)), "d": torch.device("cpu"), "t": torch.int64, "m": nn.Linear(1, 1)})
    names = serialization._unpickler.scan_globals(zipfile.ZipFile(io.BytesIO(data)).read("archive/data.pkl"))
    assert not [n for n in names if "rushlight" in n]
    assert {"torch._utils._rebuild_parameter", "torch.FloatStorage", "torch.device", "torch.int64"} <= names


class Point:
    def __init__(self, x=0):
        self.x = x

    def __eq__(self, other):
        return self.x == other.x

    __hash__ = None


class Tagged(torch.Tensor):
    pass


def test_own_classes_and_subclasses_of_tensor():
    tagged = f32(2).as_subclass(Tagged)
    tagged.tag = "t"
    obj = {"point": Point(3), "tagged": tagged}
    loaded = round_trip(obj, weights_only=False)
    assert loaded["point"] == Point(3) and type(loaded["tagged"]) is Tagged and loaded["tagged"].tag == "t"
    with pytest.raises(pickle.UnpicklingError, match=f"safe_globals.*{__name__}.Point"):
        round_trip(obj)
    with serialization.safe_globals([Point, Tagged]):
        assert serialization.get_safe_globals() == [Point, Tagged]
        loaded = round_trip(obj)
        assert loaded["point"] == Point(3) and loaded["tagged"].tag == "t"
    assert serialization.get_safe_globals() == []
    serialization.add_safe_globals([(Point, "old.place.Point")])
    try:
        data = dumps(Point(5), pickle_protocol=2)
        pickled = zipfile.ZipFile(io.BytesIO(data)).read("archive/data.pkl")
        moved = pickled.replace(f"c{__name__}\nPoint".encode(), b"cold.place\nPoint")
        assert moved != pickled
        assert loads(archive(moved)) == Point(5)
    finally:
        serialization.clear_safe_globals()


def test_numpy_needs_permission():
    obj = {"array": np.arange(3), "scalar": np.float64(2.5)}
    with pytest.raises(pickle.UnpicklingError, match="numpy.*multiarray"):
        round_trip(obj)
    import numpy._core.multiarray as multiarray

    allowed = [
        multiarray._reconstruct,
        multiarray.scalar,
        np.ndarray,
        np.dtype,
        type(np.dtype(np.int64)),
        type(np.dtype(np.float64)),
    ]
    with serialization.safe_globals(allowed):
        loaded = round_trip(obj)
    assert loaded["array"].tolist() == [0, 1, 2] and loaded["scalar"] == 2.5


def test_another_pickle_module():
    obj = {"a": f32(2), "d": torch.float16, "p": Point(1)}

    class Module:
        Pickler, Unpickler = pickle.Pickler, pickle.Unpickler
    data = dumps(obj, pickle_module=Module)
    for kwargs in ({"pickle_module": Module}, {"pickle_module": pickle}, {"weights_only": False}):
        loaded = loads(data, **kwargs)
        assert loaded["p"] == Point(1) and loaded["d"] is torch.float16 and array(loaded["a"]).tolist() == [0, 1]
    with pytest.raises(RuntimeError, match="pickle_module"):
        loads(data, weights_only=True, pickle_module=Module)


def test_several_objects_in_one_stream():
    buffer = io.BytesIO(b"head")
    buffer.seek(4)
    for i in range(3):
        torch.save({"i": i, "t": f32(i + 1)}, buffer, _use_new_zipfile_serialization=False)
    buffer.seek(4)
    for i in range(3):
        loaded = torch.load(buffer)
        assert loaded["i"] == i and loaded["t"].shape == (i + 1,)
    assert buffer.read() == b""


def test_one_memory_as_two_dtypes_is_refused():
    tensor = f32(2)
    with pytest.raises(RuntimeError, match="view the same data as different types"):
        dumps([tensor, tensor.untyped_storage()])


# ---------------------------------------------------------------- places

def test_map_location():
    data = dumps({"a": f32(3)})
    for place in ("meta", torch.device("meta"), {"cpu": "meta"}):
        loaded = loads(data, map_location=place)["a"]
        assert loaded.is_meta and loaded.shape == (3,) and loaded.dtype is torch.float32
    for place in (None, "cpu", torch.device("cpu"), {"cuda:0": "cpu"}, lambda s, tag: None):
        assert array(loads(data, map_location=place)["a"]).tolist() == [0, 1, 2]
    seen = []
    loaded = loads(
        data,
        map_location=lambda s, tag: seen.append((type(s), tag, s.nbytes())) or UntypedStorage(s.nbytes()).fill_(0),
    )
    assert seen == [(UntypedStorage, "cpu", 12)] and array(loaded["a"]).tolist() == [0, 0, 0]
    with pytest.raises(RuntimeError, match="tagged with nowhere"):
        loads(data, map_location="nowhere")
    with pytest.raises(TypeError, match="int"):
        loads(data, map_location=3)
    with pytest.raises(RuntimeError, match="cuda.is_available"):
        loads(data, map_location="cuda")


def test_a_file_of_a_gpu():
    with pytest.raises(RuntimeError, match="cuda:0.*|map_location"):
        torch.load(GOLDEN / "cuda.pt")
    for place in ("cpu", {"cuda:0": "cpu"}, lambda s, tag: s):
        assert array(torch.load(GOLDEN / "cuda.pt", map_location=place)["w"]).tolist() == [0, 1, 2]


def test_a_registered_device():
    before = list(serialization._registry)
    serialization.register_package(
        5, lambda s: "moon" if s.device.type == "cpu" else None, lambda s, tag: s if tag == "moon" else None
    )
    try:
        data = dumps(f32(2))
        assert array(loads(data)).tolist() == [0, 1]
    finally:
        serialization._registry[:] = before
    with pytest.raises(RuntimeError, match="moon"):
        loads(data)
    assert array(loads(data, map_location="cpu")).tolist() == [0, 1]


def test_mmap(tmp_path):
    torch.save({"a": f32(1000), "e": torch.empty(0)}, tmp_path / "m.pt")
    loaded = torch.load(tmp_path / "m.pt", mmap=True)
    array(loaded["a"])[0] = 7
    assert torch.load(str(tmp_path / "m.pt"), mmap=True)["a"].tolist() == list(range(1000))
    with serialization.set_default_mmap_options(__import__("mmap").MAP_SHARED):
        array(torch.load(tmp_path / "m.pt", mmap=True)["a"])[0] = 9
    assert torch.load(tmp_path / "m.pt")["a"][0].item() == 9
    with pytest.raises(ValueError, match="file path"):
        torch.load(io.BytesIO(dumps(1)), mmap=True)
    torch.save(1, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(RuntimeError, match="mmap can only be used"):
        torch.load(tmp_path / "old.pt", mmap=True)


# ---------------------------------------------------------------- files on disk

def test_paths_and_wrong_files(tmp_path):
    torch.save([1], str(tmp_path / "a.pt"))
    assert torch.load(tmp_path / "a.pt") == [1]
    assert zipfile.ZipFile(tmp_path / "a.pt").namelist()[0] == "a/data.pkl"
    with pytest.raises(FileNotFoundError):
        torch.load(tmp_path / "none.pt")
    with pytest.raises(RuntimeError, match="Parent directory .*none does not exist"):
        torch.save(1, tmp_path / "none" / "a.pt")
    with pytest.raises(AttributeError, match="path, or a file-like object"):
        torch.save(1, 3)
    with pytest.raises(AttributeError, match="seekable"):
        torch.load(3)
    with pytest.raises(TypeError, match="binary"):
        torch.load(io.StringIO("text"))
    with pytest.raises(ValueError, match="protocol"):
        torch.save(1, io.BytesIO(), pickle_protocol=1)
    with open(os.devnull, "wb") as f:
        torch.save(f32(2), f)
    torch.save(f32(2), os.devnull)
    assert not os.path.isfile(os.devnull)


def test_a_failure_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "good.pt"
    torch.save("old", path)
    os.chmod(path, 0o640)
    with pytest.raises((AttributeError, pickle.PicklingError)):
        torch.save({"a": f32(2), "bad": lambda: 0}, path)
    assert torch.load(path) == "old"

    def full(self, name, data):
        raise OSError("disk full")
    with monkeypatch.context() as m:
        m.setattr(serialization._zip.ArchiveWriter, "record", full)
        with pytest.raises(OSError, match="disk full"):
            torch.save("new", path)
    assert torch.load(path) == "old" and [p.name for p in tmp_path.iterdir()] == ["good.pt"]
    torch.save("new", path)
    assert torch.load(path) == "new" and stat.S_IMODE(path.stat().st_mode) == 0o640
    link = tmp_path / "link.pt"
    link.symlink_to(path)
    torch.save("linked", link)
    assert link.is_symlink() and torch.load(path) == "linked"


def test_archive_is_sound_and_aligned():
    data = dumps({"a": f32(5), "b": torch.ones(3, dtype=torch.uint8), "c": torch.empty(0)})
    assert data == dumps(
        {"a": f32(5), "b": torch.ones(3, dtype=torch.uint8), "c": torch.empty(0)}
    )  # same content, same bytes
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        assert z.testzip() is None
        names = z.namelist()
        for info in z.infolist():
            name_length, extra_length = struct.unpack_from("<HH", data, info.header_offset + 26)
            assert (info.header_offset + 30 + name_length + extra_length) % 64 == 0
            assert info.compress_type == 0
        assert z.read("archive/byteorder") == b"little" and z.read("archive/version") == b"3\n"
    assert names[0] == "archive/data.pkl" and names[-1] == "archive/.data/serialization_id"
    serialization.set_crc32_options(False)
    try:
        assert serialization.get_crc32_options() is False
        assert array(round_trip(f32(3))).tolist() == [0, 1, 2]
    finally:
        serialization.set_crc32_options(True)


def test_large_archives_use_the_64_bit_form():
    class Sink:
        """Counts, and keeps the tail: the directory of an archive of 5 GiB."""

        def __init__(self):
            self.size, self.tail = 0, b""

        def write(self, data):
            self.size += len(data)
            self.tail = (self.tail + bytes(data[-4096:]))[-4096:]
    sink = Sink()
    writer = serialization._zip.ArchiveWriter(sink, "big", checksums=False)
    block = np.zeros(1, np.uint8)
    for i in range(2):
        writer.record(f"data/{i}", np.lib.stride_tricks.as_strided(block, (0,), (1,)))
    writer._position += 5 << 30  # as if that much had been written
    writer.record("data/2", b"abc")
    writer.close()
    assert struct.pack("<I", 0x06064B50) in sink.tail and struct.pack("<I", 0x07064B50) in sink.tail
    where = sink.tail.index(b"big/data/2", sink.tail.index(b"PK\x01\x02")) - 46
    offset, name, extra = (
        struct.unpack_from(f, sink.tail, where + o)[0] for f, o in (("<I", 42), ("<H", 28), ("<H", 30))
    )
    tag, length, place = struct.unpack_from("<HHQ", sink.tail, where + 46 + name)
    assert (offset, extra, tag, length) == (0xFFFFFFFF, 12, 1, 8) and place > 5 << 30


def test_skip_data_writes_no_values():
    with serialization.skip_data():
        data = dumps(f32(3) + 1)
    assert array(loads(data)).tolist() == [0, 0, 0]
    assert array(round_trip(f32(3) + 1)).tolist() == [1, 2, 3]


# ---------------------------------------------------------------- what must be refused

def records(data=None):
    with zipfile.ZipFile(io.BytesIO(dumps({"a": f32(6)}) if data is None else data)) as z:
        return {n: z.read(n) for n in z.namelist()}


def rezip(items, compression=zipfile.ZIP_STORED):
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w", compression) as z:
        warnings.simplefilter("ignore", UserWarning)  # of names that occur twice
        for name, value in items:
            z.writestr(name, value)
    return buffer.getvalue()


def archive(pickled, **changed):
    """A valid archive with another pickle, or other records."""
    items = records()
    items["archive/data.pkl"] = pickled if pickled is not None else items["archive/data.pkl"]
    items.update({f"archive/{n.replace('__', '/')}": v for n, v in changed.items()})
    return rezip((n, v) for n, v in items.items() if v is not None)


PICKLE = records()["archive/data.pkl"]


def edited(old, new):
    assert PICKLE.count(old) == 1
    return archive(PICKLE.replace(old, new))


STORAGE = b"X\x03\x00\x00\x00cpu"
NUMEL = b"K\x06tQ"
PLACE = b"QK\x00K\x06\x85"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (edited(PLACE, b"QK\x01K\x06\x85"), "out of bounds"),
        (edited(PLACE, b"QK\x00K\x07\x85"), "out of bounds"),
        (edited(PLACE, b"QJ\xff\xff\xff\xffK\x06\x85"), "invalid storage offset -1"),
        (edited(PLACE, b"QK\x00J\xff\xff\xff\xff\x85"), "negative"),
        (edited(b"K\x01\x85", b"K\x02\x85"), "out of bounds"),
        (edited(b"K\x01\x85", b"J\xff\xff\xff\xff\x85"), "strides"),
        (edited(PLACE, b"QK\x00\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00\x85"), "out of bounds"),
        (edited(PLACE, b"QK\x00(K\x02K\x03t"), "length of strides"),
        (edited(NUMEL, b"K\x60tQ"), "does not match expected size"),
        (edited(NUMEL, b"K\x05tQ"), "does not match expected size"),
        (edited(NUMEL, b"J\xff\xff\xff\xfftQ"), "invalid storage reference"),
        (edited(NUMEL, b"\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x10tQ"), "does not match expected size"),
        (edited(b"X\x01\x00\x00\x000", b"X\x01\x00\x00\x009"), "data/9"),
        (edited(b"X\x01\x00\x00\x000", b"X\x0b\x00\x00\x00../data.pkl"), "not found"),
        (edited(STORAGE, b"X\x03\x00\x00\x00moo"), "tagged with moo"),
        (archive(None, data__0=b"short"), "record size .5 bytes."),
        (archive(None, data__0=None), "data/0: file not found"),
        (rezip((n, v) for n, v in records().items() if not n.endswith("data.pkl")), "data.pkl: file not found"),
        (archive(None, version=None), "hasRecord"),
        (archive(None, version=b"x"), "parse the version"),
        (archive(None, version=b"99"), "version 99"),
        (archive(None, **{"constants.pkl": b"x"}), "TorchScript"),
        (rezip([("a/b", b"x")]), "hasRecord"),
        (rezip([("b", b"x")]), "not in a subdirectory"),
        (rezip([*records().items(), ("archive/data/0", bytes(24))]), "two records"),
        (rezip(records().items(), zipfile.ZIP_BZIP2), "method 12"),
        (
            rezip(
                [(n, bytes(65 << 20) if n.endswith("pkl") else v) for n, v in records().items()], zipfile.ZIP_DEFLATED
            ),
            "claim to hold",
        ),
        (dumps([f32(5)])[:-30], "central directory"),
        (dumps([f32(5)])[:300], "central directory"),
        (dumps([f32(5)], _use_new_zipfile_serialization=False)[:-3], "expected 3 more bytes"),
        (pickle.dumps({"a": 1}, 2), "Invalid magic number"),
        (pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(5, 2), "Invalid protocol version: 5"),
        (bytes(257) + b"ustar" + bytes(600), "tar format"),
    ],
)
def test_damaged_and_foreign_files_are_runtime_errors(data, text):
    with pytest.raises(RuntimeError, match=text):
        loads(data)


def test_a_stored_record_that_is_compressed_is_read_if_its_size_is_honest():
    assert loads(rezip(records().items(), zipfile.ZIP_DEFLATED))["a"].tolist() == [0, 1, 2, 3, 4, 5]


def test_byte_order_is_obeyed():
    items = records()
    items["archive/byteorder"] = b"big"
    items["archive/data/0"] = np.arange(6, dtype=">f4").tobytes()
    assert loads(rezip(items.items()))["a"].tolist() == [0, 1, 2, 3, 4, 5]
    del items["archive/byteorder"]
    serialization.set_default_load_endianness(serialization.LoadEndianness.BIG)
    try:
        assert loads(rezip(items.items()))["a"].tolist() == [0, 1, 2, 3, 4, 5]
    finally:
        serialization.set_default_load_endianness(None)
    with pytest.raises(ValueError, match="Unknown endianness type: middle"):
        loads(archive(None, byteorder=b"middle"))
    old = dumps(f32(3) + 1j, _use_new_zipfile_serialization=False)
    marker = b"little_endian" + b"q\x02"
    assert old.count(marker + b"\x88") == 1
    swapped = loads(old.replace(marker + b"\x88", marker + b"\x89"))
    assert array(swapped).tolist() == (np.arange(3) + 1j).astype(np.complex64).byteswap().tolist()


def test_overlapping_records_are_refused():
    data = bytearray(dumps({"a": f32(64), "b": f32(64)}))
    directory = data.index(b"PK\x01\x02")
    first, second = (data.index(n, directory) - 46 for n in (b"archive/data/0", b"archive/data/1"))
    for entry in (first, second):  # both claim nearly the whole file
        struct.pack_into("<II", data, entry + 20, len(data) - 200, len(data) - 200)
    with pytest.raises(RuntimeError, match="overlap"):
        loads(bytes(data))


def test_empty_file():
    with pytest.raises(EOFError):
        loads(b"")


PWNED = []


class Evil:
    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


def glob(name):
    return b"c" + name.encode().replace(b" ", b"\n") + b"\n"


def text(s):
    return b"X" + struct.pack("<I", len(s)) + s.encode()


def nested(n):
    """A pickle of n bytes or so, whose value is a tuple of 2**n leaves."""
    return b")" + b"".join(b"q%c0h%ch%c\x86" % (i % 256, i % 256, i % 256) for i in range(n))


HOSTILE = {
    "system": glob("os system") + text("echo") + b"\x85R",
    "posix": glob("posix system") + text("echo") + b"\x85R",
    "eval": glob("__builtin__ eval") + text("PWNED.append(1)") + b"\x85R",
    "getattr": glob("__builtin__ getattr") + glob("torch Tensor") + text("__init__") + b"\x86R",
    "import": glob("importlib import_module") + text("os") + b"\x85R",
    "dotted": glob("torch Size.__init__.__globals__"),
    "own module": glob("rushlight.serialization._unpickler user_globals"),
    "own function": glob("rushlight.serialization load"),
    "nested load": glob("torch.storage _load_from_bytes") + b"U\x01x\x85R",
    "stack global": text("os") + text("system") + b"\x93" + text("echo") + b"\x85R",
    "through from_type": glob("torch._tensor _rebuild_from_type_v2")
    + b"("
    + glob("torch device")
    + glob("torch Tensor")
    + b"K\x01\x85NtR",
    "huge bytearray": glob("__builtin__ bytearray") + b"J\xff\xff\xff\x7f\x85R",
    "huge bytearray through from_type": glob("torch._tensor _rebuild_from_type_v2")
    + b"("
    + glob("__builtin__ bytearray")
    + glob("torch Tensor")
    + b"J\xff\xff\xff\x7f\x85NtR",
    "huge tensor": glob("torch Tensor") + b"J\xff\xff\xff\x7f\x85R",
    "huge storage": glob("torch FloatStorage") + b"J\xff\xff\xff\x7f\x85R",
    "huge text": b"X\xff\xff\xff\xffabc",
    "huge bytes": b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7fabc",
    "codec": glob("_codecs encode") + text("abc") + text("zip") + b"\x86R",
    "exponential key": b"}" + nested(100) + b"K\x01s",
    "exponential set": glob("__builtin__ set") + b"]" + nested(100) + b"a\x85R",
    "exponential set items": b"\x8f(" + nested(100) + b"\x90",
    "exponential id": nested(100) + b"Q",
    "exponential function": nested(100) + b")R",
    "exponential class": nested(100) + b")\x81",
    "exponential pair": glob("collections OrderedDict") + b"](" + nested(100) + b"K\x01ta\x85R",
    "deep key": b"})" + b"\x85" * 100_000 + b"K\x01s",
    "build dict": b"}}" + text("a") + b"K\x01sb",
    "build list": b"]}" + text("a") + b"K\x01sb",
    "build function": glob("torch._utils _rebuild_tensor_v2") + b"}" + text("__code__") + b"K\x01sb",
    "build OrderedDict": glob("collections OrderedDict") + b")R}K\x01K\x01sb",
    "build dtype": glob("torch float32") + b"}" + text("name") + text("x") + b"sb",
    "append to a dict": b"}K\x01a",
    "extend a tuple": b")(K\x01e",
    "items of a list": b"]K\x00K\x01s",
    "items of a device": glob("torch device") + text("cpu") + b"\x85RK\x00K\x01s",
    "odd items": b"}(K\x01u",
    "unhashable key": b"}]K\x01s",
    "new dict": glob("__builtin__ dict") + b")\x81",
    "new tensor": glob("torch Tensor") + b")\x81",
    "module id": b"(" + text("module") + glob("torch Tensor") + text("a") + text("b") + b"tQ",
    "number id": b"K\x05Q",
    "mark": b"(",
    "mark in memo": b"(q\x00",
    "no mark": b"t",
    "memo": b"h\x07",
    "empty stack": b"0",
    "two objects": b"NN",
    "bad utf-8": b"X\x01\x00\x00\x00\xff",
    "unknown opcode": b"\xfe",
    "old opcode": b"I5\n",
    "extension": b"\x82\x01",
    "protocol": b"\x80\x09N",
    "size of texts": glob("torch Size") + text("a") + b"\x85\x85R",
    "tensor of nothing": glob("torch._utils _rebuild_tensor_v2") + b"(K\x01K\x02K\x03tR",
    "parameter of nothing": glob("torch._utils _rebuild_parameter") + b"(K\x01K\x02K\x03tR",
}


@pytest.mark.parametrize("name", HOSTILE)
@FORMATS
def test_hostile_pickles_are_refused(name, new):
    body = b"\x80\x02" + HOSTILE[name] + b"."
    if new:
        data = archive(body)
    else:
        data = (
            b"".join(pickle.dumps(x, 2) for x in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}))
            + body
            + pickle.dumps([], 2)
        )
    with pytest.raises((pickle.UnpicklingError, RuntimeError)) as caught:
        loads(data)
    assert len(str(caught.value)) < 3000
    if caught.type is pickle.UnpicklingError:
        assert "weights_only" in str(caught.value)
    assert PWNED == []


def test_pickles_without_an_end_are_refused():
    for end in range(len(PICKLE)):
        with pytest.raises((pickle.UnpicklingError, RuntimeError, EOFError)):
            loads(archive(PICKLE[:end]))


def test_code_runs_only_where_it_is_trusted():
    data = dumps(Evil(PWNED.append, 1))
    with pytest.raises(pickle.UnpicklingError):
        loads(data)
    assert PWNED == []
    data = dumps(Evil(os.getpid))
    with pytest.raises(pickle.UnpicklingError, match="blocked"):
        loads(data)
    assert loads(data, weights_only=False) == os.getpid()
    assert serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(data)) == [f"{os.getpid.__module__}.getpid"]


def test_environment_decides(monkeypatch):
    data = dumps(Point(2))
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    assert loads(data) == Point(2)
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(RuntimeError, match="Only one of"):
        loads(data)
    monkeypatch.delenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")
    with pytest.raises(pickle.UnpicklingError):
        loads(data, weights_only=False)


def mutations(data, rng):
    """`data` with some bytes changed, removed, inserted or repeated; where it is an archive mostly inside its
    pickle."""
    items = None
    if data[:2] == b"PK" and rng.random() < 0.6:
        items = records(data)
        name = next(n for n in items if n.endswith(".pkl"))
        data = items[name]
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 4, 8])):
        i, kind = rng.randrange(len(data)), rng.randrange(6)
        if kind == 0:
            data[i] = rng.randrange(256)
        elif kind == 1:
            data[i] ^= 1 << rng.randrange(8)
        elif kind == 2:
            del data[i:i + rng.choice([1, 2, 8, 100])]
        elif kind == 3:
            data[i:i] = rng.randbytes(rng.choice([1, 4, 16]))
        elif kind == 4:
            j = rng.randrange(len(data))
            data[i:i + 8] = data[j:j + 8]
        else:
            data[i:i + 4] = rng.choice([b"\xff\xff\xff\xff", bytes(4), b"\xff\xff\xff\x7f"])
        data = data or bytearray(b"\0")
    if items is None:
        return bytes(data)
    items[name] = bytes(data)
    return rezip(items.items())


def test_mutated_files_load_or_are_refused_cleanly():
    rng = random.Random(20)
    originals = [p.read_bytes() for p in sorted(GOLDEN.glob("*.pt")) if p.stat().st_size < 6600]
    originals += [dumps({"a": f32(4), "l": [1, (2, {3})]}, pickle_protocol=4)]
    outcomes = collections.Counter()
    for _ in range(1500):
        data = mutations(rng.choice(originals), rng)
        try:
            loads(data)
            outcomes["loaded"] += 1
        except (pickle.UnpicklingError, RuntimeError) as error:
            outcomes[type(error).__name__] += 1
        except ValueError as error:
            assert "endianness" in str(error)
    assert min(outcomes["loaded"], outcomes["RuntimeError"], outcomes["UnpicklingError"]) > 20, outcomes


# ---------------------------------------------------------------- beside the real PyTorch

@FORMATS
@MODES
def test_pytorch_reads_what_is_written_here(torch_oracle, new, weights_only):
    base = f32(3, 4)
    obj = {
        "base": base,
        "t": base.t(),
        "p": nn.Parameter(f32(2)),
        "b": torch.ones(2, dtype=torch.bfloat16),
        "d": torch.device("cuda:1"),
        "s": torch.Size([1]),
        "dt": torch.int8,
        "l": torch.strided,
        "meta": torch.empty(2, device="meta"),
        "o": [1, "é", b"x", {2}],
    }
    if new:
        obj["f8"] = f32(2).to(torch.float8_e5m2)
    loaded = torch_oracle.load(io.BytesIO(dumps(obj, _use_new_zipfile_serialization=new)), weights_only=weights_only)
    assert loaded["t"].tolist() == array(base).T.tolist() and loaded["t"].data_ptr() == loaded["base"].data_ptr()
    assert type(loaded["p"]) is torch_oracle.nn.Parameter and loaded["p"].requires_grad
    assert loaded["b"].dtype is torch_oracle.bfloat16 and loaded["dt"] is torch_oracle.int8 and loaded["s"] == (1,)
    assert loaded["meta"].is_meta and str(loaded["d"]) == "cuda:1" and loaded["o"] == obj["o"]
    if new:
        assert loaded["f8"].dtype is torch_oracle.float8_e5m2 and loaded["f8"].float().tolist() == [0, 1]
    again = io.BytesIO()
    torch_oracle.save(loaded, again, _use_new_zipfile_serialization=new)
    back = loads(again.getvalue(), weights_only=weights_only)
    assert np.array_equal(array(back["t"]), array(base).T) and back["o"] == obj["o"] and back["dt"] is torch.int8


def test_pytorch_reads_models_written_here(torch_oracle):
    model = torch.load(GOLDEN / "model.pt", weights_only=False)
    theirs = torch_oracle.load(io.BytesIO(dumps(model)), weights_only=False)
    assert type(theirs).__module__ == "torch.nn.modules.container"
    output = theirs(torch_oracle.arange(16.0).reshape(1, 1, 4, 4))
    np.testing.assert_allclose(output.detach().numpy(), FACTS["model_output"], rtol=1e-5, atol=1e-6)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.5)
    loaded = torch_oracle.load(io.BytesIO(dumps(optimizer.state_dict())))
    assert loaded["param_groups"][0]["lr"] == 0.5
    generator = torch.Generator().manual_seed(3)
    theirs = torch_oracle.load(io.BytesIO(dumps(generator)), weights_only=False)
    assert (
        torch_oracle.rand(4, generator=theirs).tolist()
        == torch_oracle.rand(4, generator=torch_oracle.Generator().manual_seed(3)).tolist()
    )
