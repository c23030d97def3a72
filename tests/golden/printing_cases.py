"""What tests/test_printing.py prints: arrays and options, shared with the script that records PyTorch's texts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

nan, inf = float("nan"), float("inf")


@dataclass(frozen=True)
class Case:
    """values: the elements, exact in a NumPy dtype; grad: "leaf", or "node" for the result of x + 0."""

    name: str
    values: Any
    dtype: str
    options: dict[str, Any] = field(default_factory=dict)
    grad: str = ""
    device: str = "cpu"
    subclass: str = ""
    parameter: bool = False
    default_dtype: str = "float32"

    @property
    def array(self) -> np.ndarray:
        holder = "float32" if self.dtype.startswith(("bfloat", "float8")) else self.dtype
        return np.asarray(self.values, dtype=holder)


def ramp(*shape: int, scale: float = 0.37, start: float = -1.0) -> np.ndarray:
    return (np.arange(int(np.prod(shape))) * scale + start).reshape(shape)


def cases() -> list[Case]:
    f, d, i, c = "float32", "float64", "int64", "complex64"
    return [
        # scalars and vectors of the default dtypes
        Case("scalar", 3.14159, f),
        Case("scalar_whole", 2.0, f),
        Case("scalar_nan", nan, f),
        Case("scalar_inf", -inf, f),
        Case("scalar_zero", 0.0, f),
        Case("scalar_negative_zero", -0.0, f),
        Case("scalar_large", 1e10, f),
        Case("scalar_small", 1e-10, f),
        Case("scalar_int", -7, i),
        Case("scalar_bool", True, "bool"),
        Case("scalar_complex", 1 - 2j, c),
        Case("scalar_complex_nan", complex(nan, 1.5), c),
        Case("vector", [1.5, -2.25, 3.0], f),
        Case("vector_whole", [1.0, -2.0, 30.0], f),
        Case("zeros", [0.0, 0.0], f),
        Case("negative_zeros", [-0.0, 1.5, 0.0], f),
        Case("negative_zeros_whole", [-0.0, 1.0, 0.0], f),
        Case("one_third", [1 / 3, 2 / 3], f),
        Case("int", [1, -20, 300], i),
        Case("bool", [True, False, True], "bool"),
        # numbers that are not finite
        Case("nan_whole", [nan, 1.0, 100.0], f),
        Case("nan_short", [nan, 1.0], f),
        Case("all_nan", [nan, nan], f),
        Case("inf_fraction", [inf, -inf, 0.5], f),
        Case("inf_science", [inf, -inf, 1e-8, 0.0, nan], f),
        Case("only_inf", [inf, -inf], f),
        Case("nan_and_zero", [nan, 0.0], f),
        # scientific notation or not
        Case("ratio_over_1000", [0.5, 501.0], f),
        Case("ratio_1000", [0.5, 500.0], f),
        Case("whole_ratio", [1.0, 1001.0], f),
        Case("above_1e8", [1e8, 1.1e8], f),
        Case("at_1e8", [1e8], f),
        Case("below_1e4", [9e-5, 2e-4], f),
        Case("at_1e4", [1e-4], d),
        Case("science_negative", [-1e-6, 1.0, -2e6], f),
        Case("denormal", [1e-45, 1e-40], f),
        Case("float64_max", [1.7e308, 1.0], d),
        Case("rounding", [0.12345, 0.12355, 0.99999], d),
        Case("rounding_up", [9.99999, 0.5], f),
        Case("sci_on", [1.5, 2.0], f, {"sci_mode": True}),
        Case("sci_on_whole", [1.0, 20.0], f, {"sci_mode": True}),
        Case("sci_off", [1e-8, 1e8], f, {"sci_mode": False}),
        Case("sci_off_whole", [1.0, 1e9], f, {"sci_mode": False}),
        Case("precision_0", [1.5, 2.25], f, {"precision": 0}),
        Case("precision_8", [1 / 3, 2.0], d, {"precision": 8}),
        Case("precision_2_sci", [1e-7, 1.0], f, {"precision": 2}),
        # every dtype's suffix
        *(
            Case(f"dtype_{t}", [1, 2, 100], t)
            for t in ("uint8", "int8", "int16", "int32", "uint16", "uint32", "uint64")
        ),
        *(Case(f"dtype_{t}", [1.5, -2.25, 0.0], t) for t in ("float16", "bfloat16", d)),
        *(Case(f"dtype_{t}", [1.5, -2.0, 0.0, 16.0], t) for t in ("float8_e4m3fn", "float8_e5m2")),
        Case("half_large", [65504.0, 1.0], "float16"),
        Case("bfloat16_large", [1e30, 1.0, nan], "bfloat16"),
        Case("uint64_max", [2**64 - 1, 0], "uint64"),
        Case("int64_min", [-(2**63), 2**63 - 1], i),
        Case("complex", [1 + 2j, -1.5 - 0.25j, 0j], c),
        Case("complex128", [1 + 2j, 3 - 4j], "complex128"),
        Case("complex_mixed", [complex(1e-6, 1), complex(100, -200)], c),
        Case("complex_inf", [complex(inf, nan), complex(0.0, -inf)], c),
        Case("complex_signed_zero", [complex(-0.0, -0.0), complex(1.0, 0.5)], c),
        Case("complex_matrix", ramp(3, 4) * (1 - 2j), c),
        Case("default_float64", [1.5, 2.0], d, default_dtype=d),
        Case("default_float64_f32", [1.5, 2.0], f, default_dtype=d),
        Case("default_float64_complex", [1 + 2j], "complex128", default_dtype=d),
        # shapes, line breaks, indentation
        Case("matrix", ramp(2, 3), f),
        Case("cube", ramp(2, 2, 3), f),
        Case("four_dims", ramp(2, 1, 2, 2), f),
        Case("column", ramp(4, 1), f),
        Case("ones_dims", ramp(1, 1, 1), f),
        Case("matrix_int", np.arange(-6, 6).reshape(3, 4) * 17, i),
        Case("matrix_bool", np.arange(6).reshape(2, 3) % 2 == 0, "bool"),
        Case("long_line", ramp(25), f),
        Case("long_rows", ramp(2, 17), f),
        Case("long_int", np.arange(40), i),
        Case("long_complex", ramp(9) + 1j, c),
        Case("narrow", ramp(10), f, {"linewidth": 30}),
        Case("very_narrow", ramp(3), f, {"linewidth": 5}),
        Case("wide", ramp(25), f, {"linewidth": 300}),
        Case("cube_narrow", ramp(2, 2, 9), f, {"linewidth": 40}),
        # nothing to print
        Case("empty", [], f),
        Case("empty_int", np.zeros(0), i),
        Case("empty_matrix", np.zeros((0, 3)), f),
        Case("empty_cube", np.zeros((2, 0, 4)), "int32"),
        Case("empty_grad", np.zeros((0, 2)), f, grad="leaf"),
        Case("empty_half", np.zeros(0), "float16"),
        Case("empty_complex", np.zeros(0), c),
        # summaries
        Case("summary_vector", ramp(1001), f),
        Case("no_summary_1000", np.arange(1000), i),
        Case("summary_matrix", ramp(100, 30), f),
        Case("summary_int_matrix", np.arange(2000).reshape(2, 1000), i),
        Case("summary_cube", ramp(10, 11, 12), d),
        Case("summary_narrow_dim", ramp(300, 4), f),
        Case("summary_six", ramp(6, 200), f),
        Case("summary_edge_decides", np.r_[np.ones(500), 1e9, np.ones(600)], f),
        Case("threshold", np.arange(10), i, {"threshold": 5}),
        Case("edgeitems_1", np.arange(2000).reshape(40, 50), i, {"edgeitems": 1}),
        Case("edgeitems_5", ramp(2000), f, {"edgeitems": 5}),
        Case("edgeitems_0", ramp(3, 4), f, {"edgeitems": 0}),
        Case("edgeitems_0_summary", ramp(50, 40), f, {"edgeitems": 0}),
        Case("edgeitems_0_vector", ramp(1500), d, {"edgeitems": 0}),
        Case("summary_complex", ramp(1200) * (1 + 0.5j), c),
        Case("summary_bool", np.arange(1200) % 3 == 0, "bool"),
        Case("summary_short_lines", ramp(2000), f, {"linewidth": 30}),
        Case("profile_short", ramp(50, 40), f, {"profile": "short"}),
        Case("profile_full", np.arange(1100), i, {"profile": "full"}),
        Case("profile_and_precision", ramp(50, 40), f, {"profile": "short", "precision": 6}),
        # suffixes
        Case("leaf", [1.0, 2.0], f, grad="leaf"),
        Case("node", [1.0, 2.5], f, grad="node"),
        Case("node_double", ramp(2, 2), d, grad="node"),
        Case("scalar_node", 0.6931, f, grad="node"),
        Case("suffix_wraps", ramp(8), d, grad="node"),
        Case("suffix_fits", ramp(5), f, grad="leaf"),
        Case("suffix_wraps_matrix", ramp(2, 7), "float16", grad="node"),
        Case("suffix_narrow", ramp(2), d, {"linewidth": 20}, grad="leaf"),
        Case("suffix_at_79", ramp(7), f, {"linewidth": 75}, grad="leaf"),
        Case("suffix_at_80", ramp(7), f, {"linewidth": 76}, grad="leaf"),
        Case("suffix_at_81", ramp(7), f, {"linewidth": 77}, grad="leaf"),
        Case("meta", np.zeros((2, 3)), f, device="meta"),
        Case("meta_int", np.zeros((4,)), i, device="meta"),
        Case("meta_scalar_grad", 0.0, f, device="meta", grad="leaf"),
        Case("meta_half", np.zeros((0,)), "float16", device="meta"),
        Case("subclass", ramp(2, 3), f, subclass="Image"),
        Case("subclass_wraps", ramp(12), d, subclass="AnnotatedTensor"),
        Case("parameter_subclass", ramp(2, 3), f, grad="leaf", subclass="Scale", parameter=True),
    ]
