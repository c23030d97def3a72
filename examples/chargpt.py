"""Train a small GPT on the characters of Python's own help texts, then let it write some.

    rushlight run examples/chargpt.py           # or: python examples/chargpt.py, on PyTorch

The text, about 460 kB of English on the Python language, comes with every Python: pydoc_data.topics.
"""
import argparse
import math
import time
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import LambdaLR


@dataclass
class Config:
    vocab_size: int
    block_size: int = 64
    n_layer: int = 4
    n_head: int = 4
    n_embd: int = 128
    dropout: float = 0.0


class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.n_head = config.n_head
        self.qkv = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.proj = nn.Linear(config.n_embd, config.n_embd)
        self.attn_dropout = nn.Dropout(config.dropout)
        size = config.block_size
        self.register_buffer("mask", torch.tril(torch.ones(size, size)).view(1, 1, size, size), persistent=False)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (
            z.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for z in self.qkv(x).split(C, dim=2)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(k.size(-1))
        scores = scores.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))
        y = self.attn_dropout(F.softmax(scores, dim=-1)) @ v
        return self.proj(y.transpose(1, 2).contiguous().view(B, T, C))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd)
        self.attn = CausalSelfAttention(config)
        self.ln_2 = nn.LayerNorm(config.n_embd)
        self.mlp = nn.Sequential(
            nn.Linear(config.n_embd, 4 * config.n_embd),
            nn.GELU(),
            nn.Linear(4 * config.n_embd, config.n_embd),
            nn.Dropout(config.dropout),
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """Token ids (B, T) -> logits (B, T, vocab_size)."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.block_size, config.n_embd)
        self.drop = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.n_layer)])
        self.ln_f = nn.LayerNorm(config.n_embd)
        self.head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.apply(self.init_weights)
        for name, p in self.named_parameters():
            if name.endswith(("proj.weight", "mlp.2.weight")):  # what is added to the residual stream starts small
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * config.n_layer))
        self.head.weight = self.wte.weight

    @staticmethod
    def init_weights(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, idx, targets=None):
        position = torch.arange(idx.size(1), device=idx.device)
        x = self.drop(self.wte(idx) + self.wpe(position))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.ln_f(x))
        if targets is None:
            return logits
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))

    @torch.no_grad()
    def generate(self, idx, max_new_tokens, temperature=1.0, top_k=None):
        """Append max_new_tokens sampled ids to idx (B, T)."""
        for _ in range(max_new_tokens):
            logits = self(idx[:, -self.config.block_size :])[:, -1, :] / temperature
            if top_k is not None:
                kth = torch.topk(logits, min(top_k, logits.size(-1))).values[:, [-1]]
                logits = logits.masked_fill(logits < kth, float("-inf"))
            idx = torch.cat((idx, torch.multinomial(F.softmax(logits, dim=-1), num_samples=1)), dim=1)
        return idx


def load_text(path=None):
    """Training and validation ids, and the characters that they stand for; Python's help texts if no file is given."""
    text = "\n".join(topics[name] for name in sorted(topics)) if path is None else path.read_text(encoding="utf-8")
    chars = sorted(set(text))
    code = {c: i for i, c in enumerate(chars)}
    data = torch.tensor([code[c] for c in text], dtype=torch.long)
    n = int(0.9 * len(data))
    return data[:n], data[n:], chars


def get_batch(data, batch_size, block_size):
    start = torch.randint(len(data) - block_size, (batch_size,)).tolist()
    x = torch.stack([data[i : i + block_size] for i in start])
    y = torch.stack([data[i + 1 : i + 1 + block_size] for i in start])
    return x, y


def make_optimizer(model, lr, weight_decay):
    """AdamW that decays matrices and leaves biases and norms alone."""
    params = list(model.parameters())
    groups = [
        {"params": [p for p in params if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.99))


def warmup_cosine(warmup, total, floor=0.1):
    """The factor of the learning rate at each step: up in a line, then down along a cosine to floor."""

    def factor(step):
        if step < warmup:
            return (step + 1) / warmup
        t = min(1.0, (step - warmup) / max(1, total - warmup))
        return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * t))

    return factor


@torch.no_grad()
def evaluate(model, data, batches, batch_size):
    """Mean loss over the first batches of data, cut in order."""
    model.eval()
    block = model.config.block_size
    losses = []
    for b in range(min(batches, (len(data) - 1) // (batch_size * block))):
        at = b * batch_size * block
        x = data[at : at + batch_size * block].view(batch_size, block)
        y = data[at + 1 : at + 1 + batch_size * block].view(batch_size, block)
        losses.append(model(x, y)[1].item())
    model.train()
    return sum(losses) / len(losses)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--text", type=Path, help="learn from this file instead")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compile", action="store_true", help="compile the whole training step")
    parser.add_argument("--print-losses", type=int, default=0, metavar="N", help="print the first N losses")
    parser.add_argument("--eval-every", type=int, default=250)
    parser.add_argument("--tokens", type=int, default=400, help="characters to write at the end")
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--top-k", type=int, default=40)
    parser.add_argument("--prompt", default="The ")
    parser.add_argument("--out", type=Path, help="folder for a checkpoint")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    train_data, val_data, chars = load_text(args.text)
    if unknown := set(args.prompt) - set(chars):
        parser.error(f"--prompt has characters that the text does not: {''.join(sorted(unknown))!r}")
    model = GPT(Config(vocab_size=len(chars), dropout=args.dropout))
    optimizer = make_optimizer(model, args.lr, weight_decay=0.1)
    scheduler = LambdaLR(optimizer, warmup_cosine(min(100, args.steps // 10 + 1), args.steps))
    print(f"{len(train_data) + len(val_data):,} characters, {len(chars)} different ones, "
          f"{sum(p.numel() for p in model.parameters()):,} parameters")

    def train_step(x, y):
        optimizer.zero_grad()
        _, loss = model(x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    if args.compile:
        train_step = torch.compile(train_step)

    start = time.perf_counter()
    for step in range(args.steps):
        x, y = get_batch(train_data, args.batch_size, model.config.block_size)
        loss = train_step(x, y).item()
        scheduler.step()
        if step < args.print_losses:
            print(f"loss {loss:.6f}")
        if (step + 1) % args.eval_every == 0 or step + 1 == args.steps:
            val = evaluate(model, val_data, batches=20, batch_size=args.batch_size)
            print(f"step {step + 1}: train {loss:.3f}, validation {val:.3f}, {time.perf_counter() - start:.1f} s")

    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
        torch.save({"model": model.state_dict(), "chars": chars}, args.out / "chargpt.pt")
        print(f"checkpoint: {args.out / 'chargpt.pt'}")

    if args.tokens:
        model.eval()
        prompt = torch.tensor([[chars.index(c) for c in args.prompt]], dtype=torch.long)
        ids = model.generate(prompt, args.tokens, args.temperature, args.top_k)[0].tolist()
        print("-" * 40)
        print("".join(chars[i] for i in ids))


if __name__ == "__main__":
    main()
