"""``rushlight doctor``: what this installation consists of, what it runs on, what is missing and what that costs.

:func:`examine` gives the facts as plain dicts, lists, strings and numbers (printed by ``--json``), :func:`describe`
the text.
"""
from __future__ import annotations

import os
import platform
import sys
from typing import Any

__all__ = ["describe", "examine"]

# name of the distribution, module to import, needed at all, what its absence costs
_PACKAGES = (
    ("numpy", "numpy", True, "nothing works without it"),
    ("scipy", "scipy", False, "no special functions beyond NumPy's, no LAPACK routines beyond numpy.linalg"),
    ("ml_dtypes", "ml_dtypes", False, "no bfloat16 and no float8 tensors"),
    ("llvmlite", "llvmlite.binding", False,
     "no generated code: fused operators and compiled steps fall back to NumPy, several times slower"),
    ("matplotlib", "matplotlib", False, "the examples draw no pictures"),
    ("tqdm", "tqdm", False, "the examples draw a plainer progress bar of their own"),
)

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RUSHLIGHT_NUM_THREADS")
_BLAS_VARIABLES = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
_FLAGS = (
    "sse4_2",
    "avx",
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "avx512_bf16",
    "avx512_vnni",
    "amx_tile",
    "amx_bf16",
    "asimd",
    "asimdhp",
    "bf16",
    "sve",
    "sve2",
)

# Times a float32 product in a fresh interpreter, since OpenBLAS reads its variables only when it is loaded.
_GEMM = """
import time, numpy as np
n = 768
a = np.ones((n, n), np.float32); b = np.ones((n, n), np.float32); c = np.empty((n, n), np.float32)
np.matmul(a, b, out=c)
best = 1e9
for _ in range(7):
    t = time.perf_counter(); np.matmul(a, b, out=c); best = min(best, time.perf_counter() - t)
print(2 * n ** 3 / best / 1e9)
"""


def examine() -> dict[str, Any]:
    """All facts. ``facts["ok"]`` says whether what is needed works; ``facts["problems"]`` lists what is missing or
    slows it down."""
    problems: list[str] = []
    packages = [_package(*p, problems) for p in _PACKAGES]
    facts: dict[str, Any] = {
        "ok": all(p["works"] for p in packages if p["needed"]),
        "rushlight": _rushlight(),
        "python": {
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "executable": sys.executable,
        },
        "platform": platform.platform(),
        "packages": packages,
        "cpu": _cpu(),
        "memory": _memory(),
        "threads": _threads(problems),
        "blas": _blas(problems) if _has(packages, "numpy") else None,
        "code_cache": _code_cache(problems),
        "gpu": "none used: the CUDA backend comes in a later release",
        "problems": problems,
    }
    return facts


def _has(packages: list[dict[str, Any]], name: str) -> bool:
    """Whether the package `name` was found working."""
    return any(p["name"] == name and p["works"] for p in packages)


def _rushlight() -> dict[str, Any]:
    from rushlight import alias, version
    return {
        "version": version.rushlight,
        "torch_version": version.__version__,
        "alias_installed": alias.installed(),
        "path": os.path.dirname(os.path.abspath(__file__)),
    }


def _package(name: str, module: str, needed: bool, cost: str, problems: list[str]) -> dict[str, Any]:
    import importlib
    from importlib.metadata import PackageNotFoundError, version

    result: dict[str, Any] = {
        "name": name,
        "version": None,
        "needed": needed,
        "works": False,
        "cost": None,
        "error": None,
    }
    try:
        result["version"] = version(name)
    except PackageNotFoundError:
        pass
    try:
        importlib.import_module(module)
        result["works"] = True
    except Exception as error:  # a broken native library may raise anything
        result["cost"], result["error"] = cost, f"{type(error).__name__}: {error}"
        state = (
            "is not installed"
            if result["version"] is None and isinstance(error, ModuleNotFoundError)
            else f"does not load ({error})"
        )
        problems.append(f"{name} {state}: {cost}")
    return result


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return ""


def _cpu() -> dict[str, Any]:
    fields: dict[str, str] = {}
    for line in _read("/proc/cpuinfo").splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip(), value.strip())
    have = set((fields.get("flags") or fields.get("Features") or "").split())
    llvm = None
    try:
        import llvmlite.binding as llvm_binding
        llvm = llvm_binding.get_host_cpu_name()
    except Exception:  # reported as a package already
        pass
    return {
        "model": fields.get("model name") or platform.processor() or platform.machine(),
        "machine": platform.machine(),
        "features": [f for f in _FLAGS if f in have],
        "llvm_name": llvm,
        "logical": os.cpu_count(),
    }


def _cgroup_quota() -> float | None:
    """CPUs that the control group allows (the tightest on the way up), or None without a limit."""
    limits = []
    for directory in _cgroup_directories(""):
        quota, _, period = _read(directory + "/cpu.max").strip().partition(" ")
        if quota.isdigit() and period.isdigit() and int(period):
            limits.append(int(quota) / int(period))
    for directory in _cgroup_directories("cpu"):
        v1, period = _read(directory + "/cpu.cfs_quota_us").strip(), _read(directory + "/cpu.cfs_period_us").strip()
        if v1.isdigit() and period.isdigit() and int(period):  # -1 means no limit
            limits.append(int(v1) / int(period))
    return min(limits) if limits else None


def _cgroup_directories(controller: str) -> list[str]:
    """The folders of this process's control group and of those above it, for cgroup v2 ("") or a v1 controller."""
    for line in _read("/proc/self/cgroup").splitlines():
        _, names, path = (line.split(":", 2) + ["", ""])[:3]
        if controller in names.split(","):
            root = "/sys/fs/cgroup" + (f"/{controller}" if controller else "")
            parts = [p for p in path.split("/") if p]
            return ["/".join([root, *parts[:n]]) for n in range(len(parts), -1, -1)]
    return []


def _memory() -> dict[str, Any]:
    total = None
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            total = int(line.split()[1]) * 1024
    limits = []
    for directory in _cgroup_directories(""):
        text = _read(directory + "/memory.max").strip()
        if text.isdigit():
            limits.append(int(text))
    for directory in _cgroup_directories("memory"):
        text = _read(directory + "/memory.limit_in_bytes").strip()
        if text.isdigit() and int(text) < 1 << 60:
            limits.append(int(text))
    return {"total_bytes": total, "limit_bytes": min(limits) if limits else None}


def _threads(problems: list[str]) -> dict[str, Any]:
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quota = _cgroup_quota()
    used = None
    try:
        from rushlight.backends.cpu import threads
        used = threads.num_threads()
    except Exception as error:
        problems.append(
            f"the thread pool does not start ({type(error).__name__}: {error}): operators run on one thread"
        )
    if used is not None and quota is not None and used > max(1, round(quota)):
        problems.append(
            f"{used} threads, but the control group allows {quota:g} CPUs: "
            f"set_num_threads({max(1, int(quota))}) avoids stalls"
        )
    return {"used": used, "affinity": affinity, "cgroup_cpus": quota,
            "environment": {v: os.environ[v] for v in _THREAD_VARIABLES if v in os.environ}}


def _openblas() -> dict[str, str | None]:
    """Configuration and kernel set of the OpenBLAS that NumPy has loaded, from its own C functions."""
    import ctypes
    import glob

    import numpy
    home = os.path.dirname(os.path.abspath(numpy.__file__))
    patterns = (
        os.path.join(os.path.dirname(home), "numpy.libs", "*openblas*"),
        os.path.join(home, ".dylibs", "*openblas*"),
    )
    candidates: list[str | None] = [f for p in patterns for f in sorted(glob.glob(p))]
    candidates += [None]  # a BLAS of the system is visible in the process itself
    result: dict[str, str | None] = {"library": None, "configuration": None, "core": None}
    for path in candidates:
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        for prefix, suffix in (("scipy_", "64_"), ("scipy_", ""), ("", "64_"), ("", "")):
            try:
                config = getattr(library, f"{prefix}openblas_get_config{suffix}")
                core = getattr(library, f"{prefix}openblas_get_corename{suffix}")
            except AttributeError:
                continue
            config.restype = core.restype = ctypes.c_char_p
            config.argtypes = core.argtypes = []
            return {"library": path, "configuration": config().decode(), "core": core().decode()}
    return result


def _gemm_rate(environment: dict[str, str]) -> float | None:
    import subprocess
    try:
        done = subprocess.run(
            [sys.executable, "-c", _GEMM], env=environment, capture_output=True, text=True, timeout=60
        )
        return round(float(done.stdout.split()[-1]), 1)
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return None


def _blas(problems: list[str]) -> dict[str, Any]:
    import numpy
    build: dict[str, Any] = {}
    try:
        build = dict(numpy.show_config(mode="dicts")["Build Dependencies"]["blas"])  # type: ignore
    except Exception:  # the form of this report is not promised
        pass
    facts: dict[str, Any] = {"name": build.get("name"), "version": build.get("version"), **_openblas()}
    facts["environment"] = {v: os.environ[v] for v in _BLAS_VARIABLES if v in os.environ}
    facts["sgemm_gflops"] = _gemm_rate(dict(os.environ))
    facts["sgemm_gflops_without_variables"] = None
    if facts["core"] is None:
        problems.append(
            "NumPy's BLAS is not OpenBLAS, or gives no access to it: products go through "
            "numpy.matmul, on BLAS's own threads"
        )
    if facts["environment"]:
        free = facts["sgemm_gflops_without_variables"] = _gemm_rate(
            {k: v for k, v in os.environ.items() if k not in _BLAS_VARIABLES}
        )
        here = facts["sgemm_gflops"]
        names = ", ".join(f"{k}={v}" for k, v in facts["environment"].items())
        if here and free:
            effect = f"float32 products run at {here:g} GFLOP/s, without them at {free:g}"
            if free > 1.1 * here:
                problems.append(f"{names} slows OpenBLAS down: {effect}; unset it")
            else:
                facts["note"] = f"{names}: {effect}"
        else:
            problems.append(
                f"{names} is set, which fixes OpenBLAS's kernels instead of letting it choose those of this CPU"
            )
    return facts


def _code_cache(problems: list[str]) -> dict[str, Any]:
    try:
        from rushlight.compiler import cache
        info = cache.info()
    except Exception as error:
        problems.append(f"the cache of compiled code does not work ({type(error).__name__}: {error})")
        return {"directory": None}
    if info.directory is None:
        problems.append(
            "compiled code is not kept on disk (RUSHLIGHT_CACHE is off or its folder is unsafe): "
            "every process compiles anew"
        )
    return {"directory": info.directory, "files": info.files, "bytes": info.bytes, "limit_bytes": info.limit}


def _gib(n: float | None) -> str:
    return "unknown" if n is None else f"{n / 2**30:.1f} GiB"


def describe(facts: dict[str, Any]) -> str:
    """The report of :func:`examine` as text."""
    own, python, cpu, threads, blas = (facts[k] for k in ("rushlight", "python", "cpu", "threads", "blas"))
    quota = threads["cgroup_cpus"]
    lines = [
        f"rushlight  {own['version']} (torch.__version__ {own['torch_version']}), {own['path']}",
        f"python     {python['version']} ({python['implementation']}), {python['executable']}",
        f"platform   {facts['platform']}",
        f"cpu        {cpu['model']}; {' '.join(cpu['features']) or 'features unknown'}; "
        f"LLVM calls it {cpu['llvm_name'] or 'unknown'}",
        f"threads    {threads['used']} used; {threads['affinity']} CPUs by affinity, "
        + ("no control group limit" if quota is None else f"{quota:g} by control group")
        + "".join(f"; {k}={v}" for k, v in threads["environment"].items()),
        f"memory     {_gib(facts['memory']['total_bytes'])}"
        + ("" if facts["memory"]["limit_bytes"] is None else f", limited to {_gib(facts['memory']['limit_bytes'])}"),
    ]
    if blas is not None:
        lines.append(f"blas       {blas['name']} {blas['version']}, kernels {blas['core'] or 'unknown'}"
                     + ("" if blas["sgemm_gflops"] is None else f", float32 product {blas['sgemm_gflops']:g} GFLOP/s")
                     + "".join(f"; {k}={v}" for k, v in blas["environment"].items()))
    cache = facts["code_cache"]
    if cache["directory"]:
        lines.append(f"cache      {cache['directory']}: {cache['files']} files, {cache['bytes'] / 2**20:.1f} MiB")
    lines.append(f"gpu        {facts['gpu']}")
    lines += [
        f"{p['name']:10s} {p['version'] or 'unknown version' if p['works'] else 'MISSING: ' + p['cost']}"
        for p in facts["packages"]
    ]
    lines.append("")
    lines += ["no problems found"] if not facts["problems"] else [f"! {p}" for p in facts["problems"]]
    return "\n".join(lines)
