"""Train a small convolutional network on real handwritten digits, check it, save it and draw what it got wrong.

    rushlight run examples/digits.py            # or: python examples/digits.py, on PyTorch

The data are the 1797 images of 8 x 8 pixels in data/digits.npz (UCI, CC BY 4.0; see data/README.md).
"""
import argparse
import math
import sys
import time
from itertools import islice
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, TensorDataset, random_split

DATA = Path(__file__).resolve().parent / "data" / "digits.npz"


class DigitNet(nn.Module):
    """Two convolutions, then two linear layers: (N, 1, 8, 8) -> (N, 10)."""

    def __init__(self, width=32, dropout=0.25):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, padding=1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.AvgPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(2 * width * 4 * 4, 128),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(128, 10),
        )

    def forward(self, x):
        return self.classifier(self.features(x))


def load_digits():
    with np.load(DATA) as archive:
        images = torch.from_numpy(archive["images"]).float().unsqueeze(1) / 16
        labels = torch.from_numpy(archive["labels"]).long()
    return TensorDataset(images, labels)


def progress(iterable, total):
    """Iterate with a progress bar: tqdm where it is installed, a plain one otherwise."""
    try:
        from tqdm import tqdm
    except ImportError:
        return plain_bar(iterable, total)
    return tqdm(iterable, total=total, unit="step")


def plain_bar(iterable, total, width=40):
    drawn = -1
    for i, item in enumerate(iterable, 1):
        yield item
        done = width * i // total
        if done != drawn:
            drawn = done
            print(f"\r[{'#' * done:{width}}] {i}/{total}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def batches(loader, epochs):
    for _ in range(epochs):
        yield from loader


def warmup_cosine(warmup, total):
    """The factor of the learning rate at each step: up in a line, then down to nothing along a cosine."""
    return lambda step: min(1, (step + 1) / warmup) * (1 + math.cos(math.pi * min(1, step / total))) / 2


def evaluate(model, loader):
    """Accuracy, and the wrongly read images with what was read and what was right."""
    model.eval()
    correct, wrong = 0, []
    with torch.no_grad():
        for x, y in loader:
            guess = model(x).argmax(dim=1)
            correct += (guess == y).sum().item()
            miss = guess != y
            wrong += zip(x[miss], guess[miss].tolist(), y[miss].tolist())
    model.train()
    return correct / len(loader.dataset), wrong


def draw(path, losses, wrong, accuracy):
    """The loss curve above, the misclassified digits below."""
    try:
        import matplotlib
    except ImportError:
        print("no picture: matplotlib is not installed (pip install matplotlib)")
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    columns = 8
    shown = wrong[: 2 * columns]
    figure = plt.figure(figsize=(8, 6), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=[3, 2])
    axis = top.subplots()
    axis.plot(losses, linewidth=0.8)
    axis.set(xlabel="step", ylabel="cross entropy", yscale="log", title=f"test accuracy {accuracy:.2%}")
    more = f" (the first {len(shown)} shown)" if len(shown) < len(wrong) else ""
    bottom.suptitle(f"misclassified: {len(wrong)}{more}")
    for i, axis in enumerate(bottom.subplots(2, columns).flat):
        axis.axis("off")
        if i < len(shown):
            image, guess, truth = shown[i]
            axis.imshow(image[0].numpy(), cmap="gray_r")
            axis.set_title(f"{guess}, is {truth}", fontsize=8)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    print(f"picture: {path}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--steps", type=int, help="stop after this many steps")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compile", action="store_true", help="compile the whole training step")
    parser.add_argument("--print-losses", type=int, default=0, metavar="N", help="print the first N losses")
    parser.add_argument("--out", type=Path, default=Path("build/digits"), help="folder for checkpoint and picture")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    data = load_digits()
    train_set, test_set = random_split(data, [len(data) - 360, 360], generator=torch.Generator().manual_seed(args.seed))
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, drop_last=True)
    test_loader = DataLoader(test_set, batch_size=360)

    total = args.epochs * len(train_loader)
    if args.steps is not None:
        total = min(total, args.steps)
    model = DigitNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-2)
    scheduler = LambdaLR(optimizer, warmup_cosine(warmup=40, total=args.epochs * len(train_loader)))

    def train_step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    if args.compile:
        train_step = torch.compile(train_step)

    print(f"{len(train_set)} images to train on, {len(test_set)} to test, "
          f"{sum(p.numel() for p in model.parameters()):,} parameters")
    losses = []
    start = time.perf_counter()
    for step, (x, y) in enumerate(progress(islice(batches(train_loader, args.epochs), total), total)):
        losses.append(train_step(x, y).item())
        scheduler.step()
        if step < args.print_losses:
            print(f"loss {losses[-1]:.6f}")
    seconds = time.perf_counter() - start

    accuracy, wrong = evaluate(model, test_loader)
    print(f"{total} steps in {seconds:.1f} s, test accuracy {accuracy:.2%} ({len(wrong)} of {len(test_set)} wrong)")

    args.out.mkdir(parents=True, exist_ok=True)
    checkpoint = args.out / "digits.pt"
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "accuracy": accuracy}, checkpoint)
    saved = torch.load(checkpoint)
    reloaded = DigitNet()
    reloaded.load_state_dict(saved["model"])
    again, _ = evaluate(reloaded, test_loader)
    if again != saved["accuracy"]:
        raise SystemExit(f"the reloaded checkpoint has accuracy {again:.2%} instead of {saved['accuracy']:.2%}")
    print(f"checkpoint: {checkpoint}, reloaded with the same accuracy")
    draw(args.out / "digits.png", losses, wrong, accuracy)


if __name__ == "__main__":
    main()
