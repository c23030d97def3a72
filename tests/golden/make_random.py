"""Record what real PyTorch draws, for tests/test_random.py: python tests/golden/make_random.py (needs torch==2.13.0).

random.npz holds, for every case of `cases` (JSON), the numbers that consecutive calls of one method gave on arrays of
the listed layouts, all from one seed, and a digest of the generator's state afterwards. Half precision is
stored as bits. Recorded on x86-64 with AVX2 and FMA, on a processor where PyTorch does not draw Bernoulli
trials from MKL (AMD).
"""

from __future__ import annotations

import hashlib
import json
import pathlib

import numpy as np
import torch

FLOATS = ["float32", "float64", "float16", "bfloat16"]
INTEGERS = ["int64", "int32", "int16", "int8", "uint8"]
# shape of the memory, order of the axes, step along the first axis
SIZES = [[[n], [0], 1] for n in (0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 32)]
STRIDED = [[[5, 4], [1, 0], 1], [[21], [0], 2], [[2, 3, 4, 3], [0, 3, 1, 2], 1], [[4, 6], [1, 0], 2], [[3], [0], 1]]
LARGE = [[[100], [0], 1], [[1000], [0], 1], [[10000], [0], 1]]


def cases() -> list[dict]:
    every = []

    def add(dtype: str, method: str, *args, layouts=None) -> None:
        every.append({"dtype": dtype, "method": method, "args": args, "layouts": layouts or SIZES + STRIDED})

    for dtype in FLOATS:
        for low, high in ((0.0, 1.0), (-0.1, 0.3), (3.0, 10.0)):
            add(dtype, "uniform_", low, high)
        for mean, std in ((0.0, 1.0), (1.5, 0.02)):
            add(dtype, "normal_", mean, std)
        add(dtype, "exponential_", 0.3)
        add(dtype, "cauchy_", 1.5, 0.3)
        add(dtype, "log_normal_", 0.25, 0.5)
        add(dtype, "random_")
        add(dtype, "random_", 0, 200)
        add(dtype, "bernoulli_", 0.3)
    for dtype in INTEGERS:
        add(dtype, "random_")
        add(dtype, "random_", 2, 77)
        add(dtype, "geometric_", 0.3)
    add("bool", "random_")
    add("bool", "bernoulli_", 0.5)
    add("int64", "random_", 0, (1 << 28) - 1)
    add("int64", "random_", 0, 1 << 28)
    add("int64", "random_", -(1 << 62), 1 << 62)
    add("int64", "random_", -(1 << 63), None)
    add("int64", "random_", 5, None)
    add("int32", "random_", -(1 << 31), (1 << 31) - 1)
    add("float16", "random_", 0, 65504)
    add("float32", "random_", 7, None)
    for method, args in (("uniform_", (0.0, 1.0)), ("normal_", (0.0, 1.0)), ("bernoulli_", (0.8,))):
        add("float32", method, *args, layouts=LARGE)
    return every


def bits(t: torch.Tensor) -> np.ndarray:
    t = t.contiguous()
    return (t.view(torch.int16) if t.dtype in (torch.float16, torch.bfloat16) else t).numpy().reshape(-1)


def digest(a: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest()[:16]


def main() -> None:
    stored: dict[str, np.ndarray] = {}
    listed = cases()
    for number, case in enumerate(listed):
        torch.manual_seed(1000 + number)
        drawn = []
        for shape, axes, step in case["layouts"]:
            t = torch.zeros(shape, dtype=getattr(torch, case["dtype"])).permute(axes)[::step]
            getattr(t, case["method"])(*case["args"])
            drawn.append(bits(t))
        values = np.concatenate(drawn)
        case["state"] = digest(torch.get_rng_state().numpy())
        case["digest"] = digest(values)
        if case["layouts"] is not LARGE:
            stored[f"case{number}"] = values
    torch.manual_seed(77)
    for n in (0, 1, 2, 10, 33, 200):
        stored[f"randperm{n}"] = torch.randperm(n).numpy()
    p = torch.rand(6, 9)
    stored["p"] = p.numpy()
    stored["with"] = torch.multinomial(p, 20, True).numpy()
    stored["without"] = torch.multinomial(p, 4).numpy()
    stored["without1"] = torch.multinomial(p.double(), 1).numpy()
    stored["bernoulli_p"] = torch.bernoulli(p).numpy()
    stored["bernoulli_p64"] = torch.bernoulli(p.double()).numpy()
    rates = torch.tensor([0.0, 0.3, 1.0, 2.5, 9.9, 10.0, 40.0, 3000.0])
    stored["rates"] = rates.numpy()
    for k in range(4):
        stored[f"gamma{k}"] = torch._standard_gamma(rates + 0.1).numpy()
        stored[f"poisson{k}"] = torch.poisson(rates).numpy()
        stored[f"binomial{k}"] = torch.binomial(rates.floor(), p.reshape(-1)[: len(rates)]).numpy()
        stored[f"dirichlet{k}"] = torch._sample_dirichlet((rates + 0.1).reshape(2, 4)).numpy()
    x = torch.rand(5, 7).t()
    stored["dropout_in"] = x.numpy()
    stored["dropout_out"] = torch.nn.functional.dropout(x, 0.3).numpy()
    torch.manual_seed(-3)
    torch.randn(3)
    torch.rand(1)
    stored["state"] = torch.get_rng_state().numpy()
    stored["after_state"] = torch.randn(5, dtype=torch.float64).numpy()
    torch.manual_seed(9)
    stored["state_fresh"] = torch.get_rng_state().numpy()
    stored["cases"] = np.array(json.dumps(listed))
    np.savez_compressed(pathlib.Path(__file__).with_name("random.npz"), **stored)


if __name__ == "__main__":
    main()
