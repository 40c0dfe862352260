#!/usr/bin/env python3
"""Ranks of one job that do not all have the same preload: the job must end well, whoever serves it.

  torchrun --nproc_per_node 4 test/gpu/torch_preloads.py --plan b-bo --library LIBRARY [--other COPY]

A letter a rank: b Beeline, o another build of it, - nothing.  A rank starts itself again with its preload.
"""
import os
import sys

STARTED = "TORCH_PRELOADS_STARTED"
SIZES = (1 << 10, 64 << 10, 1 << 20, 32 << 20)


def start_again(options):
    """With the rank's own LD_PRELOAD, before anything has loaded NCCL."""
    library = {"b": options.library, "o": options.other, "-": ""}[options.plan[int(os.environ["RANK"])]]
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "LD_PRELOAD": library, STARTED: "1"})


def collectives(run, torch, dist, group, size, what):
    """Whole numbers, which every order of additions gets right."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    count = size // 4 // ranks * ranks
    values = torch.arange(count, device=run.device, dtype=torch.float32) % 251
    got = values + rank
    dist.all_reduce(got, group=group)
    run.check_equal(got, ranks * values + ranks * (ranks - 1) / 2, f"all_reduce of {size} B, {what}")
    mine, gathered = values[:count // ranks] + rank, torch.empty_like(values)
    dist.all_gather_into_tensor(gathered, mine, group=group)
    run.check_equal(gathered, torch.cat([values[:count // ranks] + r for r in range(ranks)]), f"all_gather of {size} B, {what}")
    part = torch.empty_like(mine)
    dist.reduce_scatter_tensor(part, values + rank, group=group)
    run.check_equal(part, ranks * values[rank * count // ranks:][:count // ranks] + ranks * (ranks - 1) / 2, f"reduce_scatter of {size} B, {what}")


def job(run, torch, dist):
    again = dist.new_group(range(run.size))
    pairs = [dist.new_group([first, first + 1]) for first in range(0, run.size - 1, 2)]
    mine = pairs[run.rank // 2] if run.rank // 2 < len(pairs) else None
    for size in SIZES:
        collectives(run, torch, dist, None, size, "of all")
        collectives(run, torch, dist, again, size, "of a second group of all")
        if mine:
            collectives(run, torch, dist, mine, size, "of a pair")


def main():
    import argparse
    p = argparse.ArgumentParser(add_help=False)
    p.add_argument("--plan", required=True)
    p.add_argument("--library", required=True)
    p.add_argument("--other", default="")
    options, rest = p.parse_known_args()
    if STARTED not in os.environ:
        start_again(options)
    import torch
    import torch.distributed as dist

    import torch_common
    run = torch_common.Run(torch_common.parser(__doc__).parse_args(rest))
    run.section(options.plan, lambda _: job(run, torch, dist))
    run.leave(run.finish())


if __name__ == "__main__":
    sys.exit(main())
