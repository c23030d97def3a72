"""What tests and make_optim.py run alike on Rushlight and on PyTorch: optimizers, schedules, orders of samples.

Every function takes the library and returns plain lists of numbers. Gradients come from a fixed formula in NumPy, so
that nothing but the optimizer is compared.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

STEPS = 5
SHAPES = [(3, 2), (4,)]

OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.05}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}),
    ("Adam", {"lr": 0.05}),
    ("Adam", {"lr": 0.05, "betas": (0.3, 0.8), "eps": 1e-3, "weight_decay": 0.1, "amsgrad": True, "maximize": True}),
    ("AdamW", {"lr": 0.05, "weight_decay": 0.3}),
    ("AdamW", {"lr": 0.05, "amsgrad": True}),
    ("RMSprop", {"lr": 0.02}),
    ("RMSprop", {"lr": 0.02, "alpha": 0.4, "momentum": 0.5, "centered": True, "weight_decay": 0.1}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.2, "weight_decay": 0.1, "initial_accumulator_value": 0.3}),
    ("Adadelta", {"lr": 2.0, "weight_decay": 0.1}),
    ("Adamax", {"lr": 0.05, "weight_decay": 0.1}),
    ("NAdam", {"lr": 0.05}),
    ("NAdam", {"lr": 0.05, "momentum_decay": 0.1, "weight_decay": 0.2, "decoupled_weight_decay": True}),
    ("RAdam", {"lr": 0.05, "betas": (0.9, 0.6)}),
    ("RAdam", {"lr": 0.05, "weight_decay": 0.2, "decoupled_weight_decay": True}),
    ("ASGD", {"lr": 0.1, "t0": 2, "lambd": 0.01, "weight_decay": 0.1}),
    ("Rprop", {"lr": 0.05}),
    ("Adafactor", {"lr": 0.05, "weight_decay": 0.1}),
    ("LBFGS", {"lr": 0.5, "max_iter": 4}),
    ("LBFGS", {"max_iter": 4, "line_search_fn": "strong_wolfe"}),
]

SCHEDULES: list[tuple[str, dict[str, Any]]] = [
    ("StepLR", {"step_size": 3, "gamma": 0.5}),
    ("MultiStepLR", {"milestones": [2, 4, 4, 9], "gamma": 0.3}),
    ("ConstantLR", {"factor": 0.5, "total_iters": 4}),
    ("LinearLR", {"start_factor": 0.25, "end_factor": 0.75, "total_iters": 8}),
    ("ExponentialLR", {"gamma": 0.9}),
    ("PolynomialLR", {"total_iters": 7, "power": 2.0}),
    ("CosineAnnealingLR", {"T_max": 5, "eta_min": 0.01}),
    ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2, "eta_min": 0.001}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 3, "step_size_down": 4, "mode": "triangular2"}),
    ("CyclicLR", {"base_lr": [0.01, 0.02], "max_lr": 0.1, "step_size_up": 4, "mode": "exp_range", "gamma": 0.97}),
    ("OneCycleLR", {"max_lr": [0.1, 0.2], "total_steps": 14}),
    ("OneCycleLR", {"max_lr": 0.1, "epochs": 2, "steps_per_epoch": 7, "anneal_strategy": "linear",
                    "three_phase": True}),
]


def parameters(lib: Any, dtype: str) -> list[Any]:
    rng = np.random.default_rng(3)
    return [lib.nn.Parameter(lib.from_numpy(rng.uniform(-1, 1, size=s).astype(dtype))) for s in SHAPES]


def set_gradients(lib: Any, params: list[Any], step: int) -> None:
    """The gradient of an ill-scaled function with some wiggle, which moves a little with the step."""
    for i, p in enumerate(params):
        x = p.detach().numpy().astype(np.float64)
        w = 1.0 + np.arange(x.size).reshape(x.shape) % 5
        g = w * x + 0.3 * np.sin(3 * x + i) + 0.05 * np.cos(step)
        p.grad = lib.from_numpy(g.astype(p.detach().numpy().dtype))


def loss(params: list[Any]) -> float:
    total = 0.0
    for i, p in enumerate(params):
        x = p.detach().numpy().astype(np.float64)
        w = 1.0 + np.arange(x.size).reshape(x.shape) % 5
        total += float((0.5 * w * x * x - 0.1 * np.cos(3 * x + i)).sum())
    return total


def optimize(lib: Any, name: str, options: dict[str, Any], dtype: str, steps: int = STEPS) -> tuple[Any, list[Any]]:
    """(optimizer, parameters) after `steps` steps; the second parameter misses its gradient in step 1."""
    params = parameters(lib, dtype)
    optimizer = getattr(lib.optim, name)(params, **options)
    for step in range(steps):
        def closure(step: int = step) -> Any:
            set_gradients(lib, params, step)
            if step == 1 and name != "LBFGS":
                params[1].grad = None
            return lib.tensor(loss(params), dtype=lib.float64)
        if name == "LBFGS":
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
    return optimizer, params


def track(lib: Any, name: str, options: dict[str, Any], steps: int = 12) -> list[list[float]]:
    """Rates and momenta of two groups, at the start and after each step."""
    params = parameters(lib, "float64")
    optimizer = lib.optim.SGD([{"params": params[:1], "lr": 0.05}, {"params": params[1:]}], lr=0.5, momentum=0.9)
    scheduler = getattr(lib.optim.lr_scheduler, name)(optimizer, **options)

    def now() -> list[float]:
        return [float(g[k]) for g in optimizer.param_groups for k in ("lr", "momentum")] + scheduler.get_last_lr()
    rows = [now()]
    for step in range(steps):
        set_gradients(lib, params, step)
        optimizer.step()
        scheduler.step()
        rows.append(now())
    return rows


def _loader(lib: Any, **options: Any) -> list[Any]:
    data = lib.utils.data
    loader = data.DataLoader(data.TensorDataset(lib.arange(23)), **options)
    return [batch[0].tolist() for _ in range(2) for batch in loader]


def orders() -> dict[str, Callable[[Any], Any]]:
    """Name -> function of the library that gives an order of samples; each is called after manual_seed(7)."""
    def sample(cls: str, *args: Any, **kw: Any) -> Callable[[Any], Any]:
        return lambda lib: list(getattr(lib.utils.data, cls)(*args, **kw))

    def generator(lib: Any) -> Any:
        g = lib.Generator()
        g.manual_seed(11)
        return g
    return {
        "shuffle": lambda lib: _loader(lib, batch_size=5, shuffle=True),
        "shuffle, generator": lambda lib: _loader(lib, batch_size=4, shuffle=True, generator=generator(lib)),
        "drop_last": lambda lib: _loader(lib, batch_size=4, shuffle=True, drop_last=True),
        "no batches": lambda lib: _loader(lib, batch_size=None, shuffle=True),
        "sequential, then global stream": lambda lib: [_loader(lib, batch_size=9), lib.randperm(9).tolist()],
        "RandomSampler": sample("RandomSampler", range(19)),
        "RandomSampler, 50 of 19": sample("RandomSampler", range(19), num_samples=50),
        "RandomSampler, replacement": sample("RandomSampler", range(19), replacement=True, num_samples=70),
        "SubsetRandomSampler": sample("SubsetRandomSampler", [3, 1, 4, 15, 9, 2, 6]),
        "WeightedRandomSampler": sample("WeightedRandomSampler", [0.1, 3.0, 0.0, 2.0], 12),
        "WeightedRandomSampler, no replacement": sample("WeightedRandomSampler", [0.1, 3.0, 1.0, 2.0], 4,
                                                        replacement=False),
        "DistributedSampler": sample("DistributedSampler", range(19), num_replicas=4, rank=2, seed=3),
        "random_split": lambda lib: [s.indices for s in lib.utils.data.random_split(range(17), [0.5, 0.3, 0.2])],
        "random_split, generator": lambda lib: [
            s.indices for s in lib.utils.data.random_split(range(17), [3, 14], generator=generator(lib))],
    }


def order(lib: Any, fn: Callable[[Any], Any]) -> Any:
    """The order, and one more draw: how far the global stream has been moved belongs to the contract."""
    lib.manual_seed(7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [fn(lib), int(lib.randint(1 << 40, ()).item())]


def key(name: str, options: dict[str, Any], *more: str) -> str:
    return " ".join([name, *(f"{k}={v}" for k, v in options.items()), *more])
