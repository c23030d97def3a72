"""Record what real PyTorch's operators give for every sample: python tests/golden/make_operators.py (needs torch==2.13.0).

operators.npz holds `index`, JSON rows [operator, sample, result, dtype, shape], `data`, the bytes of the results in that order, and `names`, what
PyTorch has: an operator of another name is compared with nothing, one of these must be recorded.
The inputs are those of rushlight.ops.samples, whose stream is frozen; an operator whose samples change must be recorded again.
"""

from __future__ import annotations

import importlib
import json
import pathlib
import warnings

import numpy as np
import torch

from rushlight.ops import declare, load
from rushlight.ops.samples import Spec, build, samples_of


def tensor(spec: Spec) -> torch.Tensor:
    return torch.from_numpy(spec.array.copy())


def real(op: declare.Operator) -> object:
    """PyTorch's function, or its method; the form in place where there is no other."""
    space = torch
    for part in op.ns[0].split(".") if op.ns[0] not in ("torch", "Tensor") else ():
        space = getattr(space, part)
    if op.ns[0] != "Tensor" and hasattr(space, op.name):
        return getattr(space, op.name)
    if hasattr(torch.Tensor, op.name):
        return getattr(torch.Tensor, op.name)
    return lambda t, *args, **kw: getattr(t.clone(), op.name + "_")(*args, **kw)


def names() -> list[str]:
    """Everything that PyTorch can call an operator, as records are called: "add", "nn.functional.relu", "Tensor.expand"."""
    load()
    found = {n for n in dir(torch) if callable(getattr(torch, n))} | set(dir(torch.Tensor)) | {n.rstrip("_") for n in dir(torch.Tensor) if n[-1:] == "_"}
    found |= {"Tensor." + n for n in found}
    for ns in {op.ns[0] for op in declare.OPERATORS.values()} - {"torch", "Tensor", "ops.aten"}:
        space = importlib.import_module("torch." + ns)
        found |= {f"{ns}.{n}" for n in dir(space) if callable(getattr(space, n))}
    found |= {"ops.aten." + n.split("::")[1].split(".")[0] for n in torch._C._dispatch_get_all_op_names() if n.startswith("aten::")}
    return sorted(n for n in found if not n.rpartition(".")[2].startswith("__"))


def main() -> None:
    load()
    index, data, known = [], [], names()
    for q in sorted(set(declare.OPERATORS).intersection(known)):
        op = declare.OPERATORS[q]
        for i, (args, kw) in enumerate(samples_of(op)):
            out = real(op)(*build(args, tensor), **build(kw, tensor))
            for j, r in enumerate(out if isinstance(out, (tuple, list)) else (out,)):
                a = np.ascontiguousarray(torch.as_tensor(r).resolve_conj().resolve_neg().numpy())
                index.append([q, i, j, str(a.dtype), list(torch.as_tensor(r).shape)])
                data.append(a.tobytes())
    np.savez_compressed(pathlib.Path(__file__).with_name("operators.npz"), index=np.frombuffer(json.dumps(index).encode(), np.uint8),
                        data=np.frombuffer(b"".join(data), np.uint8), names=np.frombuffer(json.dumps(known).encode(), np.uint8))
    print(f"{len(index)} results of {len({row[0] for row in index})} operators")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
