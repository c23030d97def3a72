"""Record what real PyTorch's layers are: python tests/golden/make_nn.py (needs torch==2.13.0).

nn.json holds for every case of nn_cases.LAYERS its repr, its state after construction from seed 0 (shape, dtype and the
first values of every entry), and the outputs of a forward with fixed parameters in training and in evaluation mode;
for every case of nn_cases.INIT the values drawn.
"""

from __future__ import annotations

import json
import pathlib
import warnings

import torch
from nn_cases import INIT, LAYERS, make_input, parameters_of
from torch import nn


def numbers(tensor: torch.Tensor, limit: int | None = None) -> list:
    return tensor.detach().flatten()[:limit].tolist()


def record_layer(expression: str, inputs: list) -> dict:
    torch.manual_seed(0)
    module = eval(expression, vars(nn))
    state = {k: [list(v.shape), str(v.dtype), numbers(v, 12)] for k, v in module.state_dict().items()}
    entry = {"repr": repr(module), "state": state}
    if inputs:
        with torch.no_grad():
            for parameter, values in parameters_of(module):
                parameter.copy_(torch.from_numpy(values))
        for mode in ("train", "eval"):
            getattr(module, mode)()
            torch.manual_seed(1)
            out = module(*[torch.from_numpy(make_input(s)) for s in inputs])
            entry[mode] = [list(out.shape), str(out.dtype), numbers(out)]
        entry["buffers"] = {k: numbers(b) for k, b in module.named_buffers()}
    return entry


def record_init(expression: str, shape: tuple[int, ...]) -> list:
    torch.manual_seed(0)
    tensor = torch.empty(shape)
    eval(expression, vars(nn.init), {"t": tensor})
    return numbers(tensor)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    golden = {"layers": {e: record_layer(e, i) for e, i in LAYERS},
              "init": [[e, list(s), record_init(e, s)] for e, s in INIT]}
    path = pathlib.Path(__file__).with_name("nn.json")
    path.write_text(json.dumps(golden, indent=None, separators=(",", ":")).replace('"layers"', '\n"layers"')
                    .replace('},"', '},\n"').replace('],[', '],\n[') + "\n")
