#!/usr/bin/env python3
"""All-reduces back to back on one stream while a large matrix product keeps the GPU busy on another; JSON records.

  torchrun --nproc_per_node 4 test/gpu/torch_load.py --json FILE --tag with [--turns DIR]

Per size: a call's time on idle GPUs and while the product runs, from calls that begin and end within it; and the product's
time alone and while calls go on from its start past its end.  Calls are replayed from a graph: the host's time is no part of it.
Times are of the slowest rank, median over the rounds.  Outputs are checked under load, of both.
"""
import math
import statistics
import sys

import torch
import torch.distributed as dist

import torch_common
import torch_turns

SIDE, PRODUCTS = 8192, 32  # of the matrices; 32 products are some 45 ms on H200
SIZES = (64 << 10, 256 << 10, 1 << 20, 4 << 20)
CALLS = 20  # a graph
WITHIN, PAST = 0.6, 1.2  # of the product's time: how long the calls go on
MOST = 2000  # replays


def captured(body):
    """The graph of what body does on the current stream; body has run before."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        body()
    return graph


class Calls:
    """Graphs of one size: a call that brings the ranks together, CALLS that are timed, and CALLS whose results are checked."""

    def __init__(self, run, size):
        self.run, self.size, count = run, size, size // 2
        self.zeros = torch.zeros(count, dtype=torch.bfloat16, device=run.device)
        index = torch.arange(count, device=run.device)
        of_rank = [((index * 7 + rank * 3) % 16).to(torch.bfloat16) for rank in range(run.size)]  # sums are exact
        self.source, self.want = of_rank[run.rank], sum(of_rank)
        self.outputs = [torch.zeros_like(self.source) for _ in range(CALLS)]
        self.many_calls(3)
        torch.cuda.synchronize()
        self.first, self.many = captured(lambda: self.many_calls(1)), captured(lambda: self.many_calls(CALLS))
        self.checked = captured(self.checked_calls)

    def many_calls(self, number):
        for _ in range(number):
            dist.all_reduce(self.zeros)

    def checked_calls(self):
        for output in self.outputs:
            output.copy_(self.source)
            dist.all_reduce(output)

    def check(self, what):
        self.run.check(not bool(self.zeros.any()), f"{what}: zeros became something else")
        for output in self.outputs:
            self.run.check_equal(output, self.want, f"{what}, {self.size} bytes")
            output.zero_()


class Bench:
    def __init__(self, run, sizes=SIZES, side=SIDE, products=PRODUCTS):
        self.run, self.products = run, products
        generator = torch.Generator(device=run.device).manual_seed(1 + run.rank)
        self.a, self.b = (torch.randn(side, side, dtype=torch.bfloat16, device=run.device, generator=generator) for _ in range(2))
        self.c = torch.zeros_like(self.a)
        self.product()
        self.want = self.c.clone()
        self.busy, self.calling = torch.cuda.Stream(), torch.cuda.Stream()
        torch.cuda.synchronize()
        self.calls = [Calls(run, size) for size in sizes]

    def product(self):
        torch.matmul(self.a, self.b, out=self.c)

    def check_product(self, what):
        worst, most = float((self.c - self.want).abs().max()), float(self.want.abs().max())
        self.run.check(worst <= 0.01 * most, f"{what}: the product differs by {worst} of {most}")
        self.c.zero_()

    def measure(self, calls=None, replays=0, loaded=True, checked=False):
        """Seconds of the product and of a call on each rank, and whether the calls ended before the product: the slowest rank's."""
        start, end, first, last = (torch.cuda.Event(enable_timing=True) for _ in range(4))
        self.run.meet()
        if loaded:
            with torch.cuda.stream(self.busy):
                start.record()
                for _ in range(self.products):
                    self.product()
                end.record()
        if calls:
            with torch.cuda.stream(self.calling):
                if loaded:
                    self.calling.wait_event(start)
                calls.first.replay()
                first.record()
                for _ in range(replays):
                    (calls.checked if checked else calls.many).replay()
                last.record()
        torch.cuda.synchronize()
        product = start.elapsed_time(end) * 1e-3 if loaded else 0.0
        call = first.elapsed_time(last) * 1e-3 / (replays * CALLS) if calls else 0.0
        within = bool(calls and loaded and start.elapsed_time(last) < start.elapsed_time(end))
        ranks = self.run.everyone([product, call, within])
        return max(r[0] for r in ranks), max(r[1] for r in ranks), all(r[2] for r in ranks)

    def round(self, calls):
        """One sample of a size."""
        alone = self.measure()[0]
        idle = self.measure(calls, 3, loaded=False)[1]
        guess = self.measure(calls, 1)[1]
        within = max(1, min(MOST, int(WITHIN * alone / (CALLS * guess))))
        _, loaded, inside = self.measure(calls, within)
        past = max(1, min(MOST, math.ceil(PAST * alone / (CALLS * loaded))))
        slowed, _, ended_before = self.measure(calls, past)
        return dict(product_alone=alone, product_loaded=slowed, idle=idle, loaded=loaded, replays=past, inside=inside,
                    covered=not ended_before)

    def check(self):
        for calls in self.calls:
            self.measure(calls, 2, checked=True)
            calls.check("under load")
            self.check_product("under load")


def report(run, size, samples):
    def median(name, unit):
        return round(statistics.median(s[name] for s in samples) * unit, 3)
    row = dict(kind="load", bytes=size, datatype="bfloat16", redop="sum", rounds=len(samples), side=SIDE, products=PRODUCTS,
               beeline=torch_common.beeline_serves(),
               idle_us=median("idle", 1e6), loaded_us=median("loaded", 1e6), product_alone_ms=median("product_alone", 1e3),
               product_loaded_ms=median("product_loaded", 1e3), calls=int(statistics.median(s["replays"] for s in samples)) * CALLS,
               inside=all(s["inside"] for s in samples), covered=all(s["covered"] for s in samples),
               loaded_us_all=[round(s["loaded"] * 1e6, 2) for s in samples])
    run.record(**row)
    if run.rank == 0:
        print(f"{size:>9} B: idle {row['idle_us']:9.2f} us, beside the product {row['loaded_us']:9.2f} us; "
              f"product {row['product_alone_ms']:.2f} -> {row['product_loaded_ms']:.2f} ms", flush=True)


def load(run, options, turns):
    with turns.turn(run):
        bench = Bench(run)
    turns.arrive("start")
    samples = {calls.size: [] for calls in bench.calls}
    for _ in torch_turns.rounds(run, options):
        for calls in bench.calls:
            with turns.turn(run):
                samples[calls.size].append(bench.round(calls))
    for size, found in samples.items():
        report(run, size, found)
    with turns.turn(run):
        bench.check()


def main():
    p = torch_common.parser(__doc__)
    torch_turns.add_arguments(p, 10)
    torch_common.job("load", load, p.parse_args(), cuda_only=True)


if __name__ == "__main__":
    sys.exit(main())
