"""Writes the files in tests/golden/checkpoints with the real PyTorch 2.13: python tests/golden/make_checkpoints.py

Values follow formulas, so that tests/test_serialization.py can compute what each file must hold.
"""
import json
import pickle
import re
from collections import OrderedDict
from pathlib import Path

import torch
from torch import nn

FOLDER = Path(__file__).with_name("checkpoints")

DTYPES = ("float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex64 complex128 "
          "uint16 uint32 uint64 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz").split()


def tensors(names):
    """For each dtype the values 0, 1, 2, 3."""
    return OrderedDict((name, torch.arange(4).to(getattr(torch, name))) for name in names)


def sharing():
    """Views of one storage of 12 floats, among them one with an offset and steps, and one expanded."""
    base = torch.arange(12.0).reshape(3, 4)
    return {
        "base": base,
        "t": base.t(),
        "part": base[1:, ::2],
        "row": base[2].expand(2, 4),
        "none": base[3:],
        "number": base[1, 1],
    }


def others():
    """What may stand beside tensors with weights_only=True."""
    tensor = torch.ones(2)
    tensor.note = "kept"
    return {
        "parameter": nn.Parameter(torch.ones(2)),
        "frozen": nn.Parameter(torch.ones(2), requires_grad=False),
        "grad": torch.ones(2, requires_grad=True),
        "attributes": tensor,
        "meta": torch.empty(2, 3, device="meta"),
        "conj": torch.tensor([1 + 2j]).conj(),
        "neg": torch.tensor([1 + 2j]).conj().imag,
        "size": torch.Size([1, 2]),
        "device": torch.device("cuda", 1),
        "dtype": torch.float16,
        "layout": torch.strided,
        "list": [
            None,
            True,
            False,
            -1,
            2**40,
            10**30,
            0.5,
            "é",
            b"\x00\xff",
            bytearray(b"ab"),
            1 + 2j,
            (),
            (1, (2, 3)),
            {1, 2},
        ],
        "storage": torch.arange(3.0).untyped_storage(),
    }


def model():
    torch.manual_seed(0)
    net = nn.Sequential(OrderedDict(conv=nn.Conv2d(1, 2, 3), bn=nn.BatchNorm2d(2), act=nn.ReLU(), flat=nn.Flatten(),
                                    drop=nn.Dropout(0.25), out=nn.Linear(8, 3)))
    net.train()
    net(torch.arange(32.0).reshape(2, 1, 4, 4))
    return net.eval()


def main():
    FOLDER.mkdir(exist_ok=True)
    torch.save(tensors(DTYPES), FOLDER / "dtypes.pt")
    torch.save(tensors(DTYPES[:12]), FOLDER / "dtypes_legacy.pt", _use_new_zipfile_serialization=False)
    torch.save(sharing(), FOLDER / "sharing.pt")
    torch.save(sharing(), FOLDER / "sharing_legacy.pt", _use_new_zipfile_serialization=False)
    torch.save(others(), FOLDER / "others.pt")
    net = model()
    torch.save(net, FOLDER / "model.pt")
    torch.save(net.state_dict(), FOLDER / "state.pt")
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    net(torch.arange(16.0).reshape(1, 1, 4, 4)).sum().backward()
    optimizer.step()
    torch.save({"optimizer": optimizer.state_dict(), "epoch": 3}, FOLDER / "training.pt")
    generator = torch.Generator()
    generator.manual_seed(7)
    torch.save(generator, FOLDER / "generator.pt")
    (FOLDER / "plain.pickle").write_bytes(
        pickle.dumps({"t": torch.arange(6.0).reshape(2, 3)}, 2)
    )  # pickle, not torch.save
    # As a GPU would write it; there is none here, so the location is put in by hand.
    torch.save({"w": torch.arange(3.0)}, FOLDER / "cuda.pt", _use_new_zipfile_serialization=False)
    data = (FOLDER / "cuda.pt").read_bytes()
    (FOLDER / "cuda.pt").write_bytes(data.replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0"))
    with torch.no_grad():
        output = net.load_state_dict(torch.load(FOLDER / "state.pt")) and net(torch.arange(16.0).reshape(1, 1, 4, 4))
    allowed = torch._weights_only_unpickler._get_allowed_globals()
    names = sorted(
        n for n in allowed if not re.search(r"(cuda|sparse)\.\w+(Tensor|Storage)$|\.(bits|u?int[1-7]$|float4)", n)
    )
    facts = {"torch": torch.__version__, "model_output": output.tolist(), "allowed_globals": names}
    (FOLDER / "facts.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
