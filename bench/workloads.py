"""What is measured: one workload in one fresh process, on whatever library answers to `import torch`.

    python bench/workloads.py NAME [--compile] [--threads 2] [--seconds 0.5]      one line of JSON
    python bench/workloads.py --list                                             the names and kinds

Kinds: "step" is a whole training step (compiled as a whole with --compile), "infer" a forward pass of batch 1, "op" one
operator. Every workload is made after `torch.manual_seed(0)`; the value of a step after five calls is reported, so that
two libraries can be held against each other before their speeds are.
"""
import argparse
import gc
import json
import os
import resource
import sys
import time
from pathlib import Path

SLOWING = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
if found := [v for v in SLOWING if v in os.environ]:
    sys.exit(f"{', '.join(found)} set: OpenBLAS would not run as it does for users; unset it, or use bench/run.py")

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
import torch  # noqa: E402
import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402

WORKLOADS = {}


def workload(kind):
    def register(make):
        WORKLOADS[make.__name__] = (kind, make)
        return make

    return register


def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def classify(model, optimizer, x, y):
    """The training step that most programs have."""

    def step():
        optimizer.zero_grad()
        out = model(x)
        loss = F.cross_entropy(out.flatten(0, -2), y.flatten())
        loss.backward()
        optimizer.step()
        return loss

    return step


# --- training steps ---------------------------------------------------------------------------------------------------
@workload("step")
def mlp_tiny():
    """A policy-network size: nothing but overhead."""
    model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return classify(model, optimizer, torch.randn(32, 4), torch.randint(0, 2, (32,)))


@workload("step")
def mlp_mnist():
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return classify(model, optimizer, torch.rand(64, 1, 28, 28), torch.randint(0, 10, (64,)))


@workload("step")
def lenet_mnist():
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 12 * 12, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return classify(model, optimizer, torch.rand(64, 1, 28, 28), torch.randint(0, 10, (64,)))


@workload("step")
def digits_cnn():
    from digits import DigitNet

    model = DigitNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    return classify(model, optimizer, torch.rand(64, 1, 8, 8), torch.randint(0, 10, (64,)))


@workload("step")
def gpt_char():
    from chargpt import GPT, Config

    model = GPT(Config(vocab_size=65))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return classify(model, optimizer, torch.randint(0, 65, (12, 64)), torch.randint(0, 65, (12, 64)))


# --- inference --------------------------------------------------------------------------------------------------------
@workload("infer")
def infer_mlp():
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)).eval()
    x = torch.randn(1, 32)

    @torch.no_grad()
    def step():
        return model(x)

    return step


# --- operators --------------------------------------------------------------------------------------------------------
def operator(name, make):
    WORKLOADS[name] = ("op", make)


def unary(f, *shape):
    def make():
        x = torch.randn(*shape)
        return lambda: f(x)

    return make


def binary(f, *shape, grad=False):
    def make():
        a, b = torch.randn(*shape, requires_grad=grad), torch.randn(*shape)
        return lambda: f(a, b)

    return make


def linear():
    layer, x = nn.Linear(32, 32), torch.randn(32, 32)
    return lambda: layer(x)


def conv3x3():
    x, w = torch.randn(16, 64, 28, 28), torch.randn(64, 64, 3, 3)
    return lambda: F.conv2d(x, w, padding=1)


operator("add_1k", binary(lambda a, b: a + b, 32, 32))
operator("addgrad_1k", binary(lambda a, b: a + b, 32, 32, grad=True))
operator("linear", linear)
operator("view", unary(lambda x: x.view(-1), 32, 32))
operator("add_4m", binary(lambda a, b: a + b, 2048, 2048))
operator("gelu_256k", unary(F.gelu, 512, 512))
operator("softmax_256k", unary(lambda x: F.softmax(x, dim=-1), 512, 512))
operator("layer_norm_256k", unary(lambda x: F.layer_norm(x, (512,)), 512, 512))
operator("sum_256k", unary(lambda x: x.sum(), 512, 512))
operator("matmul_512", binary(lambda a, b: a @ b, 512, 512))
operator("conv3x3", conv3x3)


# --- measuring --------------------------------------------------------------------------------------------------------
def measure(step, seconds, block=2e-3):
    """Seconds per call: lower quartile, median and minimum over blocks of calls that take about `block` seconds each.

    The lower quartile is the figure to compare: other programs on the machine make calls slower, never faster.
    """
    for _ in range(3):
        step()
    gc.collect()
    gc.disable()
    calls, spent = 0, 0.0
    start = time.perf_counter()
    while spent < block:
        step()
        calls += 1
        spent = time.perf_counter() - start
    times = []
    until = time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < until:
        start = time.perf_counter()
        for _ in range(calls):
            step()
        times.append((time.perf_counter() - start) / calls)
    gc.enable()
    times.sort()
    return times[len(times) // 4], times[len(times) // 2], times[0]


def run(name, compile, threads, seconds):
    torch.set_num_threads(threads)
    kind, make = WORKLOADS[name]
    base = peak_mb()
    torch.manual_seed(0)
    step = make()
    if compile:
        step = torch.compile(step)
    start = time.perf_counter()
    result = step()
    first = time.perf_counter() - start
    value = None
    if kind == "step":
        for _ in range(4):
            result = step()
        value = float(result.detach())
    quartile, median, least = measure(step, seconds)
    return {
        "name": name, "kind": kind, "version": torch.__version__, "us": quartile * 1e6, "median_us": median * 1e6,
        "min_us": least * 1e6, "first_s": first, "peak_mb": peak_mb() - base, "value": value,
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("name", nargs="?", choices=list(WORKLOADS))
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.5)
    args = parser.parse_args()
    if args.list or args.name is None:
        print(json.dumps({name: kind for name, (kind, _) in WORKLOADS.items()}))
    else:
        print(json.dumps(run(args.name, args.compile, args.threads, args.seconds)))


if __name__ == "__main__":
    main()
