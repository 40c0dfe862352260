#!/usr/bin/env python3
"""Trains a small transformer with DistributedDataParallel, seeded, and writes the losses as a JSON record.

  torchrun --nproc_per_node 4 test/gpu/torch_ddp.py --json with.jsonl --tag with
  torchrun ... --json without.jsonl --tag without
  test/gpu/compare_truth.py without.jsonl with.jsonl

Both runs compute the same but for the rounding of all-reduced gradients.  Each also trains with gradients added in fp64 and rounded once, which is what its
losses are compared with, and with one rounding more (torch_exact.py), which tells how far from that a rounding leads.
"""
import os
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic matrix products; read when CUDA starts

import torch
import torch.nn.functional as F

import torch_common
from torch_exact import Exact, Rough

ROUGH = 2  # trainings with one rounding more
STEPS, WIDTH, HEADS, LAYERS, WORDS, LENGTH, BATCH = 30, 128, 4, 2, 64, 32, 8


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (t.view(batch, length, HEADS, -1).transpose(1, 2) for t in self.qkv(self.before(x)).chunk(3, -1))
        weights = (q @ k.transpose(-1, -2) * (WIDTH // HEADS) ** -0.5).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(F.gelu(self.up(self.after(x))))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = torch.nn.Embedding(WORDS, WIDTH), torch.nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
        self.blocks, self.head = torch.nn.Sequential(*(Block() for _ in range(LAYERS))), torch.nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        return self.head(self.blocks(self.words(tokens) + self.places))


def averaged_by(reduce):
    """What DistributedDataParallel calls for a bucket of gradients."""
    def hook(_, bucket):
        reduce(bucket.buffer())
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future
    return hook


def train(run, dtype, reduce=None):
    torch.manual_seed(1)
    model = Model().to(run.device, dtype)
    # Small buckets: several all-reduces a step, in flight while the backward pass goes on.
    ddp = torch.nn.parallel.DistributedDataParallel(model, device_ids=[run.device.index] if run.cuda else None,
                                                    bucket_cap_mb=0.5)
    if reduce:
        ddp.register_comm_hook(None, averaged_by(reduce))
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(100 + run.rank)
    losses = []
    for _ in range(STEPS):
        start = torch.randint(WORDS, (BATCH, 1), generator=generator)
        tokens = ((start + 3 * torch.arange(LENGTH + 1)) % WORDS).to(run.device)
        loss = F.cross_entropy(ddp(tokens[:, :-1]).float().flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    norm = torch.stack([p.detach().double().norm() for p in ddp.parameters()]).norm()
    return torch.stack(losses).tolist(), float(norm)


def ddp(run, dtypes=(torch.float32, torch.bfloat16)):
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        for dtype in dtypes:
            losses, norm = train(run, dtype)
            ranks = run.everyone([losses, norm])
            exact = run.everyone(train(run, dtype, Exact(run.size))[0])
            rough = [run.everyone(train(run, dtype, Rough(run.device, run.size, seed))[0]) for seed in range(ROUGH)]
            run.check(losses[-1] < 0.9 * losses[0], f"ddp {dtype}: the loss went from {losses[0]:.4f} to {losses[-1]:.4f}")
            run.check(len({r[1] for r in ranks}) == 1, f"ddp {dtype}: ranks ended with different weights")
            run.record(kind="losses", dtype=str(dtype).removeprefix("torch."), steps=STEPS, losses=[r[0] for r in ranks], exact=exact, rough=rough,
                       norm=norm, beeline=torch_common.beeline_serves(), alloc=os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""))
    finally:
        torch.use_deterministic_algorithms(before)


def main():
    run = torch_common.Run(torch_common.parser(__doc__).parse_args())
    run.section("ddp", ddp)
    run.leave(run.finish())


if __name__ == "__main__":
    sys.exit(main())
