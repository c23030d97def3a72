"""Record what real PyTorch's operators give for every sample: python tests/golden/make_operators.py (needs torch==2.13.0).

operators.npz holds `index`, JSON rows [operator, sample, result, dtype, shape], and `data`, the bytes of the results in that order.
The inputs are those of rushlight.ops.samples, whose stream is frozen; an operator whose samples change must be recorded again.
"""

from __future__ import annotations

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


def main() -> None:
    load()
    index, data = [], []
    for q in sorted(declare.OPERATORS):
        op = declare.OPERATORS[q]
        for i, (args, kw) in enumerate(samples_of(op)):
            out = real(op)(*build(args, tensor), **build(kw, tensor))
            for j, r in enumerate(out if isinstance(out, (tuple, list)) else (out,)):
                a = np.ascontiguousarray(torch.as_tensor(r).resolve_conj().resolve_neg().numpy())
                index.append([q, i, j, str(a.dtype), list(torch.as_tensor(r).shape)])
                data.append(a.tobytes())
    np.savez_compressed(pathlib.Path(__file__).with_name("operators.npz"), index=np.frombuffer(json.dumps(index).encode(), np.uint8),
                        data=np.frombuffer(b"".join(data), np.uint8))
    print(f"{len(index)} results of {len({row[0] for row in index})} operators")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
