#!/usr/bin/env python3
"""Sends and receives through PyTorch: every element of every result is compared, and what jobs do with them is timed.

  torchrun --nproc_per_node 2 test/gpu/torch_messages.py [--json FILE] [--tag with]

Checked: batch_isend_irecv (rings, both ways, with all), send and recv, sends ahead of all receives, all_to_all_single with splits (also of nothing), gather, scatter;
eager and, of all_to_all_single, in a CUDA graph.  Timed, with CUDA: an expert-parallel exchange of 256 tokens of 4096 bf16 a rank with
uneven splits, there and back; even ones; an exchange with the neighbours; how long 8 KB take from the call at one end until the other end,
which has posted its receive, has it.
"""
import statistics
import sys
import time

import torch
import torch.distributed as dist

import torch_common

SIZES = (1, 3, 64, 1021, 4096, 65537, 262144, 1048579)
TOKENS, HIDDEN = 256, 4096
AHEAD, AHEAD_OF_MANY = 8, 16 << 10  # messages; their most bytes where there are more than 2 ranks, which NCCL has less room for
SAMPLES, CALLS, CAPTURED = 21, 10, 50  # captured: so many that it does not count when each rank's graph begins


def values(run, count, sender, receiver, salt=0):
    """What one rank sends another: whole numbers that tell both."""
    numbers = torch.arange(count, device=run.device, dtype=torch.float32)
    return (numbers * 3 + sender * 17 + receiver * 5 + salt) % 251


def exchange(run, peers, count, salt):
    """With each of these ranks, in one batch."""
    sent = [values(run, count + peer, run.rank, peer, salt) for peer in peers]
    got = [torch.full((count + run.rank,), -1.0, device=run.device) for _ in peers]
    ops = [op for peer, x, y in zip(peers, sent, got) for op in (dist.P2POp(dist.isend, x, peer), dist.P2POp(dist.irecv, y, peer))]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    for peer, y in zip(peers, got):
        run.check_equal(y, values(run, count + run.rank, peer, run.rank, salt), f"batch of {count} from {peer}")


def batches(run):
    others = [rank for rank in range(run.size) if rank != run.rank]
    for salt, count in enumerate(SIZES):
        exchange(run, others, count, salt)
        exchange(run, [(run.rank ^ 1) if run.rank ^ 1 < run.size else others[0]] if run.size % 2 == 0 else others, count, salt + 9)


def pairs(run):
    """One after the other, as pipeline stages do."""
    for salt, count in enumerate(SIZES):
        if run.rank > 0:
            got = torch.full((count,), -1.0, device=run.device)
            dist.recv(got, run.rank - 1)
            run.check_equal(got, values(run, count, run.rank - 1, run.rank, salt), f"recv of {count}")
        if run.rank + 1 < run.size:
            dist.send(values(run, count, run.rank, run.rank + 1, salt), run.rank + 1)


def unbatched(run):
    """All sends first, and only then receives, none in a batch: NCCL takes eight messages ahead of their receives."""
    peer = run.rank ^ 1
    sizes = [count for count in SIZES if run.size == 2 or 4 * count <= AHEAD_OF_MANY]
    for salt, count in enumerate(sizes if peer < run.size else ()):
        sent = [values(run, count, run.rank, peer, salt + k) for k in range(AHEAD)]
        got = [torch.full((count,), -1.0, device=run.device) for _ in sent]
        works = [dist.isend(x, peer) for x in sent] + [dist.irecv(y, peer) for y in got]
        for work in works:
            work.wait()
        for k, y in enumerate(got):
            run.check_equal(y, values(run, count, peer, run.rank, salt + k), f"message {k} of {count}, unbatched")


def splits_of(run, scale):
    """How many rows each rank sends each: uneven, and none now and then."""
    return [[(3 * sender + 5 * receiver + sender * receiver) % 7 * scale for receiver in range(run.size)] for sender in range(run.size)]


def all_to_all(run):
    for scale in (0, 1, 16, 333):
        splits = splits_of(run, scale)
        mine, theirs = splits[run.rank], [row[run.rank] for row in splits]
        sent = torch.cat([values(run, rows * 64, run.rank, peer) for peer, rows in enumerate(mine)]).view(-1, 64)
        want = torch.cat([values(run, rows * 64, peer, run.rank) for peer, rows in enumerate(theirs)]).view(-1, 64)
        got = torch.full_like(want, -1)
        dist.all_to_all_single(got, sent, theirs, mine)
        run.check_equal(got, want, f"all_to_all_single, splits of {scale}")
        if not run.cuda or not scale:
            continue
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            dist.all_to_all_single(got, sent, theirs, mine)
        for replay in range(3):
            got.fill_(-1)
            graph.replay()
            run.synchronize()
            run.check_equal(got, want, f"all_to_all_single, splits of {scale}, replay {replay}")


def rooted(run):
    for root in range(run.size):
        for count in SIZES:
            mine = values(run, count, run.rank, root)
            got = [torch.full((count,), -1.0, device=run.device) for _ in range(run.size)] if run.rank == root else None
            dist.gather(mine, got, dst=root)
            for rank in range(run.size if run.rank == root else 0):
                run.check_equal(got[rank], values(run, count, rank, root), f"gather of {count} from {rank}")
            part = torch.full((count,), -1.0, device=run.device)
            dist.scatter(part, [values(run, count, root, rank) for rank in range(run.size)] if run.rank == root else None, src=root)
            run.check_equal(part, values(run, count, root, run.rank), f"scatter of {count}")


# --- times ---

def median_of_slowest(run, call, calls=CALLS):
    """Microseconds a call, eager, calls back to back; the median over the samples of the slowest rank."""
    samples = []
    for sample in range(SAMPLES + 3):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        run.meet()
        start.record()
        for _ in range(calls):
            call()
        end.record()
        torch.cuda.synchronize()
        if sample >= 3:
            samples.append(start.elapsed_time(end) * 1e3 / calls)
    return max(run.everyone(statistics.median(samples)))


def graph_of(call, calls):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    return graph


def say(run, what, us, mode):
    if run.rank == 0:
        print(f"{what:<44} {mode:<6} {us:9.2f} us", flush=True)
    run.record(kind="time", what=what, mode=mode, us=us)


def step(run, what, call):
    for _ in range(3):
        call()
    say(run, what, median_of_slowest(run, call), "eager")
    graph = graph_of(call, CAPTURED)
    say(run, what, median_of_slowest(run, graph.replay, 1) / CAPTURED, "graph")


def experts(run, splits, what):
    mine, theirs = splits[run.rank], [row[run.rank] for row in splits]
    x = torch.randn(sum(mine), HIDDEN, device=run.device).bfloat16()
    there = torch.empty(sum(theirs), HIDDEN, device=run.device, dtype=torch.bfloat16)
    back = torch.empty_like(x)

    def call():
        dist.all_to_all_single(there, x, theirs, mine)
        dist.all_to_all_single(back, there, mine, theirs)

    step(run, f"experts, there and back, {what}", call)
    run.check(bool(torch.equal(back, x)), f"experts, {what}: what comes back is what was sent")


def uneven_tokens(run):
    """Rank r's tokens go to the ranks as 1:2:3:... beginning with itself."""
    total = run.size * (run.size + 1) // 2
    rows = [[TOKENS * ((receiver - sender) % run.size + 1) // total for receiver in range(run.size)] for sender in range(run.size)]
    for row in rows:
        row[0] += TOKENS - sum(row)
    return rows


def neighbours(run, count):
    right, left = (run.rank + 1) % run.size, (run.rank - 1) % run.size
    x = torch.zeros(count, device=run.device, dtype=torch.bfloat16)
    y = torch.empty_like(x)

    def call():
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, right), dist.P2POp(dist.irecv, y, left)]):
            work.wait()

    step(run, f"neighbours, {2 * count} B", call)


def one_way(run, count):
    """There and back, each end receiving before the other sends: half of it is one way, from the call to its arrival at a host that waits."""
    x = torch.zeros(count, device=run.device, dtype=torch.bfloat16)
    samples = []
    for sample in range(220):
        if sample == 20:
            run.meet()
        begin = time.perf_counter()
        if run.rank == 0:
            dist.send(x, 1)
            dist.recv(x, 1)
            torch.cuda.synchronize()
        elif run.rank == 1:
            dist.recv(x, 0)
            dist.send(x, 0)
        samples.append((time.perf_counter() - begin) * 1e6 / 2)
    torch.cuda.synchronize()
    us = run.everyone(statistics.median(samples[20:]))[0]
    say(run, f"one way, {2 * count} B, half of there and back", us, "eager")


def times(run):
    if not run.cuda:
        return run.skip("times", "no CUDA")
    experts(run, uneven_tokens(run), "uneven")
    experts(run, [[TOKENS // run.size] * run.size] * run.size, "even")
    for count in (4, 2048, 32768, 524288):
        neighbours(run, count)
    return one_way(run, 4096)


def main():
    options = torch_common.parser(__doc__).parse_args()
    run = torch_common.Run(options)
    for name, function in dict(batches=batches, pairs=pairs, unbatched=unbatched, all_to_all=all_to_all, rooted=rooted, times=times).items():
        run.section(name, function)
    run.leave(run.finish())


if __name__ == "__main__":
    sys.exit(main())
