#!/usr/bin/env python3
"""All-gather and reduce-scatter through PyTorch, and what moves data beside them; every element of every result is compared exactly.

  torchrun --nproc_per_node 4 test/gpu/torch_gather.py [--sections gather,scatter,...]

Outputs are poisoned before each call and lie between guards.  Results are computed locally, from what each rank is known to
send.  Prints `N passed, N failed` on rank 0; exit status 0 if none failed.
"""
import sys

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

import torch_common
from torch_gather_graphs import gather_graphs
from torch_values import DTYPES, FP8, OPS, Expect, bits, dtype_name, guarded, room, untouched, values

COUNTS = (1, 2, 3, 7, 17, 127, 1021, 4099, 65537, 262147, 1048579)  # of one rank's part
FEW = (5, 1021, 65537, 524289)
MANY = (1, 33, 1021, 70001, 300007, *range(1, 120, 2), *range(2048, 40000, 4099))
OFFSETS = (0, 1, 3, 8)
MOST_BYTES = 32 << 20  # of a whole message, of the sweeps over types


def accepted(run, call, what):
    """Tries a call; False where PyTorch or NCCL refuses it (on every rank alike: arguments decide)."""
    try:
        call()
        run.synchronize()
        return True
    except (RuntimeError, ValueError, NotImplementedError, TypeError) as error:
        run.skip(what, error)
        return False


def finish(work, asynchronous):
    if asynchronous:
        work.wait()


class Gather:
    """One all-gather: this rank's part, a poisoned output between guards, and what every rank sends."""

    def __init__(self, run, dtype, count, seed, offset=0, in_place=False, ranks=None, out_offset=None):
        ranks = list(range(run.size)) if ranks is None else ranks
        self.run, self.count, self.total = run, count, count * len(ranks)
        self.offset = offset if out_offset is None else out_offset
        parts = [bits(run, dtype, count, seed, rank).view(torch.uint8) for rank in ranks]
        own = parts[ranks.index(run.rank)].view(dtype)
        self.want = torch.cat(parts)
        self.buffer, self.output = room(run, dtype, self.total, self.offset)
        if in_place:
            self.input = self.output[ranks.index(run.rank) * count:][:count]
            self.input.copy_(own)
        else:
            self.input = guarded(run, own, offset)[1]
        self.own = own

    def go(self, asynchronous=False, group=None):
        return dist.all_gather_into_tensor(self.output, self.input, group=group, async_op=asynchronous)

    def check(self, what):
        self.run.check_equal(self.output.view(torch.uint8), self.want, what)
        self.run.check_equal(self.input.view(torch.uint8), self.own.view(torch.uint8), what + ": the input")
        self.run.check(untouched(self.buffer, self.offset, self.total), what + ": wrote outside")


class Scatter:
    """One reduce-scatter: the whole input, and a poisoned output between guards; in place the output is this rank's part of the input."""

    def __init__(self, run, dtype, op, count, seed, offset=0, in_place=False, ranks=None):
        ranks = list(range(run.size)) if ranks is None else ranks
        place = ranks.index(run.rank)
        self.run, self.op, self.offset, self.in_place = run, op, offset, in_place
        expect = Expect(run, dtype, op, count * len(ranks), seed, ranks)
        self.own, self.want = expect.own, expect.result[place * count:][:count]
        if in_place:
            self.count = count * len(ranks)
            self.buffer, self.input = guarded(run, expect.own, offset)
            self.output = self.input[place * count:][:count]
        else:
            self.count = count
            self.input = guarded(run, expect.own, offset)[1]
            self.buffer, self.output = room(run, dtype, count, offset)

    def go(self, asynchronous=False, group=None):
        return dist.reduce_scatter_tensor(self.output, self.input, op=self.op, group=group, async_op=asynchronous)

    def check(self, what):
        self.run.check_equal(self.output, self.want, what)
        self.run.check(untouched(self.buffer, self.offset, self.count), what + ": wrote outside")
        if not self.in_place:
            self.run.check_equal(self.input, self.own, what + ": the input")


def small_enough(run, dtype, count):
    return count * run.size * torch.empty((), dtype=dtype).element_size() <= MOST_BYTES


def gather(run):
    """Every datatype at every size, any bits; in place and not, sync and async, aligned and not, in turn."""
    for dtype in (*DTYPES, torch.bool, torch.complex64):
        name = dtype_name(dtype)
        if not accepted(run, lambda kind=dtype: Gather(run, kind, 1, 0).go(), f"all_gather {name}"):
            continue
        for i, count in enumerate(count for count in COUNTS if small_enough(run, dtype, count)):
            for in_place in (False, True):
                offset, other = OFFSETS[i % 4], OFFSETS[i // 4 % 4]
                call = Gather(run, dtype, count, i, offset, in_place, out_offset=other)
                finish(call.go(bool(i % 2)), i % 2)
                call.check(f"all_gather {name} count {count} offsets {offset} {other} {'in place' if in_place else ''}")


def scatter(run):
    """Every datatype and operation at every size; as above."""
    for dtype in (*DTYPES, torch.bool):
        for name, op in OPS.items():
            what = f"reduce_scatter {dtype_name(dtype)} {name}"
            if dtype in FP8 and name == "avg" and run.size & (run.size - 1):
                run.skip(what, "NCCL may round at every step")
                continue
            if not accepted(run, lambda kind=dtype, o=op: Scatter(run, kind, o, 1, 0).go(), what):
                continue
            for i, count in enumerate(count for count in COUNTS if small_enough(run, dtype, count)):
                offset = OFFSETS[i % 4]
                call = Scatter(run, dtype, op, count, i, offset, in_place=bool(i // 4 % 2) != (name in ("min", "max")))
                finish(call.go(bool(i % 2)), i % 2)
                call.check(f"{what} count {count} offset {offset} {'in place' if call.in_place else ''}")


def large(run):
    """Messages of 64 and 256 MB in all, in which pieces follow one another."""
    for size in (64 << 20, 256 << 20):
        count = size // 2 // run.size
        for in_place in (False, True):
            call = Gather(run, torch.bfloat16, count + 3 * in_place, 1, in_place=in_place)
            call.go()
            call.check(f"all_gather {size} bytes in place {in_place}")
            del call
            call = Scatter(run, torch.bfloat16, ReduceOp.AVG, count + 3 * in_place, 2, in_place=in_place)
            call.go()
            call.check(f"reduce_scatter {size} bytes in place {in_place}")
            del call


def same_bits(run):
    """Random data: the same bits every time, and those of all-reduce, where Beeline serves both."""
    generator = torch.Generator().manual_seed(run.rank)
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        for count in (1021, 16384):
            x = torch.randn(count * run.size, generator=generator).to(dtype).to(run.device)
            routes = [torch_common.route_of(run, name, n, dtype) for name, n in (("reduce_scatter", count), ("all_reduce", count * run.size))]
            outputs = [torch.empty(count, dtype=dtype, device=run.device) for _ in range(3)]
            for output in outputs:
                dist.reduce_scatter_tensor(output, x)
            for output in outputs[1:]:
                run.check_equal(output, outputs[0], f"same bits {dtype_name(dtype)} count {count}: differs from the first run")
            if None in routes or "nccl" in routes:
                continue
            whole = x.clone()
            dist.all_reduce(whole)
            run.check_equal(outputs[0], whole[run.rank * count:][:count], f"same bits {dtype_name(dtype)} count {count}: not all-reduce's")


def lists(run):
    """all_gather and reduce_scatter of lists, with parts of one size and of different ones."""
    for dtype in (torch.bfloat16, torch.float32, torch.int64, torch.uint8):
        for i, count in enumerate(FEW):
            for uneven in (False, True):
                counts = [count + rank * uneven for rank in range(run.size)]
                what = f"{dtype_name(dtype)} counts from {count}{', uneven' if uneven else ''}"
                wants = [values(run, dtype, ReduceOp.SUM, n, i, rank, run.size) for rank, n in enumerate(counts)]
                outs = [room(run, dtype, n, OFFSETS[i]) for n in counts]
                finish(dist.all_gather([x for _, x in outs], wants[run.rank].clone(), async_op=bool(i % 2)), i % 2)
                for rank, ((buffer, x), want) in enumerate(zip(outs, wants)):
                    run.check_equal(x, want, f"all_gather of a list {what} part {rank}")
                    run.check(untouched(buffer, OFFSETS[i], counts[rank]), f"all_gather of a list {what}: wrote outside")
                expects = [Expect(run, dtype, ReduceOp.SUM, n, seed=rank) for rank, n in enumerate(counts)]
                buffer, x = room(run, dtype, counts[run.rank], OFFSETS[i])
                finish(dist.reduce_scatter(x, [guarded(run, e.own, OFFSETS[i])[1] for e in expects], async_op=bool(i % 2)), i % 2)
                run.check_equal(x, expects[run.rank].result, f"reduce_scatter of a list {what}")
                run.check(untouched(buffer, OFFSETS[i], counts[run.rank]), f"reduce_scatter of a list {what}: wrote outside")


def coalesced(run):
    """Groups of many calls of different sizes, in place and not: what FSDP and optimizers issue."""
    for asynchronous in (False, True):
        gathers = [Gather(run, torch.bfloat16, n, n, OFFSETS[i % 4], bool(i % 3)) for i, n in enumerate(MANY)]
        with dist._coalescing_manager(async_ops=asynchronous) as manager:
            for call in gathers:
                call.go()
        finish(manager, asynchronous)
        for call in gathers:
            call.check(f"coalesced all_gather async={asynchronous} count {call.count}")
        for op in (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.MAX):
            scatters = [Scatter(run, torch.float32, op, n, n, OFFSETS[i % 4], bool(i % 3)) for i, n in enumerate(MANY)]
            with dist._coalescing_manager(async_ops=asynchronous) as manager:
                for call in scatters:
                    call.go()
            finish(manager, asynchronous)
            for call in scatters:
                call.check(f"coalesced reduce_scatter {op} async={asynchronous} count {call.count}")


def in_flight(run):
    """Many asynchronous calls of both kinds, and all-reduces among them, before the first wait."""
    calls, sums, works = [], [], []
    for i in range(24):
        count = (3, 1000, 65537, 524289)[i % 4]
        calls += [Gather(run, torch.bfloat16, count, i, in_place=bool(i % 2)), Scatter(run, torch.bfloat16, ReduceOp.AVG, count, i)]
        expect = Expect(run, torch.float32, ReduceOp.SUM, count, seed=i)
        sums.append((expect, expect.own.clone()))
    for i in range(24):
        works += [calls[2 * i].go(True), dist.all_reduce(sums[i][1], async_op=True), calls[2 * i + 1].go(True)]
    for work in works:
        work.wait()
    for i, call in enumerate(calls):
        call.check(f"in flight call {i}")
    for i, (expect, x) in enumerate(sums):
        run.check_equal(x, expect.result, f"in flight all_reduce {i}")


def streams(run):
    """As FSDP has it: gathers on one stream, scatters on another, in one communicator, with no wait between the two; a part is ready
    only on its own stream, at another time on every rank."""
    if not run.cuda:
        return run.skip("streams", "no CUDA")
    side, calls = [torch.cuda.Stream() for _ in range(2)], []
    for i in range(30):
        count = FEW[i % 4]
        pair = [Gather(run, torch.float32, count, i, in_place=bool(i % 3)), Scatter(run, torch.float32, ReduceOp.SUM, count, i, in_place=bool(i % 2))]
        for stream, call in zip(side, pair):
            call.input.fill_(0)
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                torch.cuda._sleep(20000 * (run.rank + i) % 100000)
                call.input.copy_(call.own)
                finish(call.go(bool(i % 2)), i % 2)
                call.after = call.output.clone()
            calls.append(call)
    torch.cuda.synchronize()
    for i, call in enumerate(calls):
        call.check(f"streams call {i}")
        run.check_equal(call.after.view(torch.uint8), call.output.view(torch.uint8), f"streams call {i}: what follows on the stream")
    return None


def groups(run):
    """Subsets in several orders, beside the whole; two groups of the same ranks in turn, on two streams."""
    subsets = [list(range(run.size)), list(range(0, run.size, 2)), [0, run.size - 1], list(range(run.size))]
    made = [(ranks, dist.new_group(ranks)) for ranks in subsets]
    for round_ in range(3):
        for ranks, group in made:
            if run.rank not in ranks:
                continue
            for count in FEW:
                for call in (Gather(run, torch.bfloat16, count, round_, in_place=bool(round_ % 2), ranks=ranks),
                             Scatter(run, torch.float32, ReduceOp.SUM, count, round_, ranks=ranks)):
                    call.go(group=group)
                    call.check(f"{type(call).__name__} of group {ranks} count {count}")
    run.meet()
    if run.cuda:
        two_streams(run, [made[0][1], made[-1][1]])


def two_streams(run, pair):
    side, calls = [torch.cuda.Stream() for _ in pair], []
    for i in range(20):
        for k, (stream, group) in enumerate(zip(side, pair)):
            kind = (i + k) % 2
            call = Scatter(run, torch.bfloat16, ReduceOp.SUM, FEW[i % 4], i) if kind else Gather(run, torch.bfloat16, FEW[i % 4], i)
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                call.go(group=group)
            calls.append(call)
    torch.cuda.synchronize()
    for i, call in enumerate(calls):
        call.check(f"two groups on two streams, call {i}")


def others(run):
    """All-to-all, broadcast, reduce, gather and scatter, among gathers and scatters, which they must not disturb."""
    for i, count in enumerate((1, 1021, 65537, 1048579)):
        for dtype in (torch.float32, torch.bfloat16):
            what = f"{dtype_name(dtype)} count {count}"
            everyone = [values(run, dtype, ReduceOp.SUM, count, i, rank, run.size) for rank in range(run.size)]
            own, root = everyone[run.rank], i % run.size
            first, last = Gather(run, dtype, count, i), Scatter(run, dtype, ReduceOp.SUM, count, i)
            first.go()
            all_to_all(run, everyone, what)
            x = room(run, dtype, count, OFFSETS[i])[1]
            if run.rank == root:
                x.copy_(own)
            dist.broadcast(x, root)
            run.check_equal(x, everyone[root], f"broadcast {what}")
            x = guarded(run, own, OFFSETS[i])[1]
            dist.reduce(x, root)
            if run.rank == root:
                run.check_equal(x, torch.stack(everyone).double().sum(0).to(dtype), f"reduce {what}")
            outs = [torch.full_like(own, 90) for _ in everyone] if run.rank == root else None
            dist.gather(own, outs, root)
            for rank, out in enumerate(outs or []):
                run.check_equal(out, everyone[rank], f"gather {what} part {rank}")
            x = torch.full_like(own, 90)
            dist.scatter(x, everyone if run.rank == root else None, root)
            run.check_equal(x, own, f"scatter {what}")
            last.go()
            first.check(f"all_gather before the others, {what}")
            last.check(f"reduce_scatter after the others, {what}")


def all_to_all(run, everyone, what):
    """Of equal parts, and of parts whose size is (sender + receiver + 1) times a tenth of the count."""
    own, count = everyone[run.rank], everyone[0].numel()
    swapped = torch.full((run.size * count,), 90, dtype=own.dtype, device=run.device)
    dist.all_to_all_single(swapped, torch.cat([own + peer for peer in range(run.size)]))
    run.check_equal(swapped, torch.cat([v + run.rank for v in everyone]), f"all_to_all {what}")
    if count < 10:
        return
    sizes = [(run.rank + peer + 1) * (count // 10) for peer in range(run.size)]
    longest = (2 * run.size) * (count // 10)
    texts = [v.repeat(longest // count + 1) for v in everyone]
    swapped = torch.full((sum(sizes),), 90, dtype=own.dtype, device=run.device)
    dist.all_to_all_single(swapped, torch.cat([texts[run.rank][:n] for n in sizes]), sizes, sizes)
    run.check_equal(swapped, torch.cat([texts[peer][:n] for peer, n in enumerate(sizes)]), f"all_to_all of uneven parts {what}")


SECTIONS = dict(gather=gather, scatter=scatter, large=large, same_bits=same_bits, lists=lists, coalesced=coalesced, in_flight=in_flight,
                streams=streams, groups=groups, others=others, graphs=gather_graphs)


def main():
    p = torch_common.parser(__doc__)
    p.add_argument("--sections", default=",".join(SECTIONS), help="default: %(default)s")
    options = p.parse_args()
    names = options.sections.split(",")
    for name in names:
        if name not in SECTIONS:
            p.error(f"--sections {name}: one of {', '.join(SECTIONS)}")
    run = torch_common.Run(options)
    if run.rank == 0:
        routes = [torch_common.route_of(run, name, 65536, torch.bfloat16) for name in ("all_gather", "reduce_scatter")]
        print(f"# {run.size} ranks; 128 KB a rank go through {routes[0]} and {routes[1]}", flush=True)
    for name in names:
        run.section(name, SECTIONS[name])
    run.leave(run.finish())


if __name__ == "__main__":
    sys.exit(main())
