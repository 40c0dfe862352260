#!/usr/bin/env python3
"""A collective beside a matrix product that takes about as long, or --times as long: an all-gather, as FSDP prefetches weights, a reduce-scatter, as of its
gradients, or an all-reduce, as of DistributedDataParallel's; how long both take; JSON records.

  torchrun --nproc_per_node 4 test/gpu/torch_overlap.py --route nccl --json FILE --tag nccl [--turns DIR --jobs 3]
                                                        [--collective all_reduce --megabytes 32,64] [--times 4]

What serves the collective is the environment's choice, which a process reads once: so each route is a job of its own, and the jobs take
turns on the same GPUs.  --route says what is expected.  A job measures, in turn and SAMPLES times a round: the product alone, the
collective alone, one after the other, and beside each other on two streams, where once the collective begins first and once the product
(the other comes a few microseconds later).  All is issued behind a kernel that waits and a small all-reduce that brings the ranks
together: the host's time is no part of it.  Times are from there to the end of both on the slowest rank, median over all samples.
After each round both are checked, with other data, into poisoned outputs where they are not in place; all-gathers and all-reduces are, as PyTorch's own.
"""
import statistics
import sys

import torch
import torch.distributed as dist

import torch_common
import torch_turns
from torch_values import bits

SIDE = 8192  # of the product: rows x SIDE times SIDE x SIDE, with as many rows as take about as long
FLOP_PER_US, BYTES_PER_US, LEAST_US = 650e6, 360e3, 2.05  # what H200 does; the same product in every job
SAMPLES = 20  # of each way, a round
SLEEP, GAP = 1_500_000, 10_000  # cycles: longer than the host takes to issue a sample; 5 us between the two beginnings
ALONE, BESIDE = ("product", "collective", "sequential"), ("collective first", "product first")


def rows_for(bytes_sent, times):
    """Rows of the product for a collective that sends each peer's share at once, so many times as long: whole tiles of 128."""
    us = (LEAST_US + bytes_sent / BYTES_PER_US) * times
    return max(1, round(us * FLOP_PER_US / (2 * SIDE * SIDE) / 128)) * 128


def event():
    return torch.cuda.Event(enable_timing=True)


class AllGather:
    def __init__(self, run, size):
        self.run, self.count = run, size // 2 // run.size
        self.buffer = torch.zeros(self.count * run.size, dtype=torch.bfloat16, device=run.device)
        self.input = self.buffer[run.rank * self.count:][:self.count]
        self.bytes_sent, self.routed = self.count * 2 * (run.size - 1), self.count

    def call(self):
        dist.all_gather_into_tensor(self.buffer, self.input)

    def fill(self, seed):
        self.buffer.view(torch.uint8).fill_(0x5a)
        self.input.copy_(bits(self.run, torch.bfloat16, self.count, seed, self.run.rank))

    def check(self, seed, what):
        for rank in range(self.run.size):
            want = bits(self.run, torch.bfloat16, self.count, seed, rank).view(torch.int16)
            self.run.check_equal(self.buffer[rank * self.count:][:self.count].view(torch.int16), want, f"{what}, part {rank}")


class AllReduce:
    def __init__(self, run, size):
        self.run, self.count = run, size // 2
        self.buffer = torch.zeros(self.count, dtype=torch.bfloat16, device=run.device)
        self.bytes_sent, self.routed = 2 * size * (run.size - 1) // run.size, self.count

    def call(self):
        dist.all_reduce(self.buffer)

    def values(self, seed, rank):
        """Whole numbers whose sums are exact in any order."""
        return (torch.arange(self.count, device=self.run.device) * (2 * rank + 1) + seed) % 15 - 7

    def fill(self, seed):
        self.buffer.copy_(self.values(seed, self.run.rank))

    def check(self, seed, what):
        self.run.check_equal(self.buffer, sum(self.values(seed, rank) for rank in range(self.run.size)).bfloat16(), what)
        self.buffer.zero_()  # what the samples add up stays finite


class ReduceScatter(AllReduce):
    def __init__(self, run, size):
        super().__init__(run, size)
        self.part = slice(run.rank * (self.count // run.size), (run.rank + 1) * (self.count // run.size))
        self.count = self.count // run.size * run.size
        self.buffer = self.buffer[:self.count]
        self.output = torch.zeros(self.count // run.size, dtype=torch.bfloat16, device=run.device)
        self.bytes_sent //= 2
        self.routed = self.count // run.size

    def call(self):
        dist.reduce_scatter_tensor(self.output, self.buffer)

    def fill(self, seed):
        super().fill(seed)
        self.output.fill_(float("nan"))

    def check(self, seed, what):
        self.run.check_equal(self.output, sum(self.values(seed, rank) for rank in range(self.run.size)).bfloat16()[self.part], what)


COLLECTIVES = {"all_gather": AllGather, "all_reduce": AllReduce, "reduce_scatter": ReduceScatter}


class Pair:
    """A collective of one size and its product."""

    def __init__(self, run, options, size, streams):
        self.run, self.size, self.collective = run, size, COLLECTIVES[options.collective](run, size)
        self.rows = rows_for(self.collective.bytes_sent, options.times)
        self.small = torch.zeros(64, dtype=torch.bfloat16, device=run.device)
        generator = torch.Generator(device=run.device).manual_seed(1 + run.rank)
        self.a, self.b = (torch.randn(n, SIDE, dtype=torch.bfloat16, device=run.device, generator=generator) for n in (self.rows, SIDE))
        self.c = torch.zeros(self.rows, SIDE, dtype=torch.bfloat16, device=run.device)
        self.busy, self.calling = streams
        self.seed = 0
        self.product()
        self.want = self.c.clone()
        for way in (*ALONE, *BESIDE):
            self.sample(way)

    def product(self):
        torch.matmul(self.a, self.b, out=self.c)

    def issue(self, stream, start, gap, *works):
        """The works on a stream, from the start on or a little later; events before the first and after the last."""
        first, last = event(), event()
        with torch.cuda.stream(stream):
            stream.wait_event(start)
            if gap:
                torch.cuda._sleep(GAP)
            first.record()
            for work in works:
                work()
            last.record()
        torch.cuda.current_stream().wait_event(last)
        return first, last

    def sample(self, way):
        """Microseconds on this rank from the start to the end of both; and of the product and the collective, where they are alone on
        their streams."""
        start, end = event(), event()
        torch.cuda._sleep(SLEEP)
        dist.all_reduce(self.small)
        start.record()
        product = collective = None
        if way == "sequential":
            self.issue(self.busy, start, False, self.product, self.collective.call)
        elif way in ("product", "product first"):
            product = self.issue(self.busy, start, False, self.product)
        if way in ("collective", *BESIDE):
            collective = self.issue(self.calling, start, way == "product first", self.collective.call)
        if way == "collective first":
            product = self.issue(self.busy, start, True, self.product)
        end.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(end) * 1e3, *(pair[0].elapsed_time(pair[1]) * 1e3 if pair else 0.0 for pair in (product, collective))]

    def round(self):
        """Of each way SAMPLES times what `sample` gives, of the slowest rank."""
        mine = [[self.sample(way) for way in (*ALONE, *BESIDE)] for _ in range(SAMPLES)]
        ranks = self.run.everyone(mine)
        return {way: [[max(rank[i][k][part] for rank in ranks) for part in range(3)] for i in range(SAMPLES)]
                for k, way in enumerate((*ALONE, *BESIDE))}

    def check(self):
        for way in BESIDE:
            self.seed += 1
            self.collective.fill(self.seed)
            self.c.fill_(float("nan"))
            self.sample(way)
            self.collective.check(self.seed, f"overlap, {way}, {self.size} bytes")
            worst, most = float((self.c - self.want).abs().max()), float(self.want.abs().max())
            self.run.check(worst <= 0.01 * most, f"overlap, {way}, {self.size} bytes: the product differs by {worst} of {most}")


def report(run, pair, found, options):
    samples = {way: [sample for round_ in found for sample in round_[way]] for way in (*ALONE, *BESIDE)}

    def median(way, part):
        return round(statistics.median(sample[part] for sample in samples[way]), 2)
    beside = {way: dict(both_us=median(way, 0), both_us_all=[round(s[0], 1) for s in samples[way]], product_us=median(way, 1),
                        collective_us=median(way, 2)) for way in BESIDE}
    row = dict(kind="overlap", collective=options.collective, bytes=pair.size, route=options.route, rows=pair.rows, side=SIDE, samples=len(samples["product"]),
               product_us=median("product", 1), collective_us=median("collective", 2), sequential_us=median("sequential", 0),
               sequential_us_all=[round(s[0], 1) for s in samples["sequential"]], beside=beside)
    run.record(**row)
    if run.rank == 0:
        print(f"{options.route:>12} {pair.size >> 20:>4} MB: product {row['product_us']:8.1f} us, {options.collective} {row['collective_us']:8.1f}, one after the "
              f"other {row['sequential_us']:8.1f}; " +
              "; ".join(f"{way}: both {b['both_us']:8.1f}, product {b['product_us']:8.1f}" for way, b in beside.items()), flush=True)


def overlap(run, options, turns):
    with turns.turn(run):
        streams = torch.cuda.Stream(), torch.cuda.Stream()  # the same for all: streams share few queues of the hardware
        pairs = [Pair(run, options, int(size) << 20, streams) for size in options.megabytes.split(",")]
        for pair in pairs:
            route = torch_common.route_of(run, options.collective, pair.collective.routed, torch.bfloat16) or "nccl"
            run.check(route == options.route, f"overlap: {route} serves {pair.size} bytes, not {options.route}")
    turns.arrive("start")
    found = {pair: [] for pair in pairs}
    for _ in torch_turns.rounds(run, options):
        for pair in pairs:
            with turns.turn(run):
                found[pair].append(pair.round())
                pair.check()
    for pair in pairs:
        report(run, pair, found[pair], options)


def main():
    p = torch_common.parser(__doc__)
    torch_turns.add_arguments(p, 8)
    p.add_argument("--route", default="nccl", help="what is to serve the collective (default: %(default)s)")
    p.add_argument("--collective", choices=COLLECTIVES, default="all_gather", help="default: %(default)s")
    p.add_argument("--megabytes", default="64,256", metavar="SIZES", help="of the whole message (default: %(default)s)")
    p.add_argument("--times", type=float, default=1, help="how many times as long the product is (default: %(default)s)")
    p.add_argument("--jobs", type=int, default=2, help="that take turns (default: %(default)s)")
    options = p.parse_args()
    torch_common.job("overlap", overlap, options, options.jobs, cuda_only=True)


if __name__ == "__main__":
    sys.exit(main())
