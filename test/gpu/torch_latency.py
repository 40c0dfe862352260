#!/usr/bin/env python3
"""Time of dist.all_reduce, bf16 sum, in CUDA graphs and eager, size by size; JSON records.

  torchrun --nproc_per_node 4 test/gpu/torch_latency.py --json FILE --tag with

In a graph: CALLS calls a graph; a replay is timed that follows another one directly, so that ranks start it together.
Eager: calls in a row; host_us is the time that the caller spends in a call while the device is busy with those before.
Times are of the slowest rank, median over the samples.
"""
import statistics
import sys
import time

import torch
import torch.distributed as dist

import torch_common

CALLS, SAMPLES = 20, 9
SIZES = (256, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20)


def timed(first, second):
    """Runs `first` untimed, then `second` timed directly behind it: (device seconds, host seconds)."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    first()
    start.record()
    begin = time.perf_counter()
    second()
    host = time.perf_counter() - begin
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1e-3, host


def graph_of(x):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            dist.all_reduce(x)
    return graph


def measure(run, size, mode):
    x = torch.zeros(size // 2, dtype=torch.bfloat16, device=run.device)

    def calls(n):
        for _ in range(n):
            dist.all_reduce(x)

    for _ in range(3):
        calls(1)
    torch.cuda.synchronize()
    graph = graph_of(x) if mode == "graph" else None
    n = CALLS if mode == "graph" or size > 1 << 20 else 5 * CALLS
    samples = []
    for sample in range(SAMPLES + 2):
        if graph:
            device, host = timed(graph.replay, graph.replay)
        else:
            device, host = timed(lambda: calls(5), lambda: calls(n))
        if sample >= 2:
            samples.append((device / n * 1e6, host / n * 1e6))
    ranks = run.everyone(samples)
    run.check(bool((x == 0).all()), f"latency {mode} {size}: zeros became something else")
    slowest = [max(rank[i][0] for rank in ranks) for i in range(SAMPLES)]
    host = [max(rank[i][1] for rank in ranks) for i in range(SAMPLES)]
    row = dict(kind="latency", mode=mode, bytes=size, datatype="bfloat16", redop="sum", us=round(statistics.median(slowest), 3),
               us_max=round(max(slowest), 3), beeline=torch_common.beeline_serves())
    if not graph:
        row["host_us"] = round(statistics.median(host), 3)
    run.record(**row)
    if run.rank == 0:
        print(f"{mode:>6} {size:>10} B {row['us']:>10.2f} us" + (f"   host {row['host_us']:.2f} us" if not graph else ""), flush=True)


def latency(run, sizes=SIZES):
    if not run.cuda:
        return run.skip("latency", "no CUDA")
    for mode in ("graph", "eager"):
        for size in sizes:
            measure(run, size, mode)
    return None


def main():
    run = torch_common.Run(torch_common.parser(__doc__).parse_args())
    run.section("latency", latency)
    run.leave(run.finish())


if __name__ == "__main__":
    sys.exit(main())
