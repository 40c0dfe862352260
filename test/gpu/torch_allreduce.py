#!/usr/bin/env python3
"""All-reduce, and the collectives beside it, through PyTorch; every element of every result is compared exactly.

  torchrun --nproc_per_node 4 test/gpu/torch_allreduce.py [--sections eager,graphs,...]

Prints `N passed, N failed` on rank 0; exit status 0 if none failed.
"""
import sys

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

import torch_common
from torch_values import DTYPES, OPS, Expect, dtype_name, guarded, untouched, values

SIZES = (1, 2, 3, 7, 8, 17, 127, 1000, 1021, 4099, 16384, 65537, 262147, 1048579, 4194305)
FEW = (5, 1021, 65537, 524289)


def reducible(run, dtype, op):
    """Tries one element; False where PyTorch or NCCL refuses the pair (on every rank alike: arguments decide)."""
    try:
        dist.all_reduce(values(run, dtype, op, 1, 0, run.rank, run.size), op=op)
        run.synchronize()
        return True
    except (RuntimeError, ValueError, NotImplementedError, TypeError) as error:
        run.skip(f"{dtype_name(dtype)} {op}", error)
        return False


def eager(run):
    """Every datatype and operation at every size; sync and async, aligned and not, in turn."""
    for dtype in DTYPES:
        for name, op in OPS.items():
            if not reducible(run, dtype, op):
                continue
            for i, count in enumerate(SIZES):
                expect = Expect(run, dtype, op, count, seed=i)
                offset = (0, 1, 3, 8)[i % 4]
                buffer, x = guarded(run, expect.own, offset)
                work = dist.all_reduce(x, op=op, async_op=bool(i % 2))
                if i % 2:
                    work.wait()
                what = f"eager {dtype_name(dtype)} {name} count {count} offset {offset}"
                run.check_equal(x, expect.result, what)
                run.check(untouched(buffer, offset, count), what + ": wrote outside")


def bits(run):
    """Values that a scheme with reserved patterns would lose: -0.0, infinities, denormals; NaN stays NaN."""
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        x = torch.tensor([-0.0, 0.0, float("inf"), float("-inf"), torch.finfo(dtype).tiny / 2, torch.finfo(dtype).max],
                         dtype=dtype, device=run.device).repeat(1001)
        want = x.clone()
        for op in (ReduceOp.MAX, ReduceOp.MIN):
            got = x.clone()
            dist.all_reduce(got, op=op)
            run.check_equal(got.view(torch.uint8), want.view(torch.uint8), f"bits {dtype_name(dtype)} {op}")
        zeros = torch.full((4099,), -0.0, dtype=dtype, device=run.device)
        dist.all_reduce(zeros)
        run.check(bool(torch.signbit(zeros).all()), f"bits {dtype_name(dtype)}: the sum of -0.0 is not -0.0")
        nan = torch.full((4099,), float("nan"), dtype=dtype, device=run.device)
        dist.all_reduce(nan)
        run.check(bool(torch.isnan(nan).all()), f"bits {dtype_name(dtype)}: the sum of NaN is a number")


def same_bits(run):
    """Random data: every rank has the same bits, every time, and an element's do not depend on the message's size."""
    generator = torch.Generator().manual_seed(run.rank)
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        x = torch.randn(1 << 20, generator=generator).to(dtype).to(run.device)
        first = None
        for count in (1 << 20, 1 << 20, 100003):
            y = x[:count].clone()
            dist.all_reduce(y)
            first = y if first is None else first
            root = y.clone()
            dist.broadcast(root, 0)
            run.check_equal(y, root, f"same bits {dtype_name(dtype)} count {count}: differs from rank 0")
            if torch_common.beeline_serves():
                run.check_equal(y, first[:count], f"same bits {dtype_name(dtype)} count {count}: differs from the first run")


def check_all(run, tensors, wants, what):
    for i, (x, want) in enumerate(zip(tensors, wants)):
        run.check_equal(x, want, f"{what} tensor {i}")


def coalesced(run):
    for op in (ReduceOp.SUM, ReduceOp.MAX):
        for asynchronous in (False, True):
            expects = [Expect(run, torch.float32, op, n, seed=n) for n in (1, 33, 1021, 70001, 300007)]
            wants = [e.result for e in expects]
            tensors = [e.own.clone() for e in expects]
            with dist._coalescing_manager(async_ops=asynchronous) as cm:
                for x in tensors:
                    dist.all_reduce(x, op=op)
            if asynchronous:
                cm.wait()
            check_all(run, tensors, wants, f"coalescing manager async={asynchronous}")
            tensors = [e.own.clone() for e in expects]
            work = dist.all_reduce_coalesced(tensors, op=op, async_op=asynchronous)
            if asynchronous:
                work.wait()
            check_all(run, tensors, wants, f"all_reduce_coalesced async={asynchronous}")


def in_flight(run):
    """Many asynchronous calls before the first wait."""
    expects = [Expect(run, torch.bfloat16, ReduceOp.SUM, n, seed=n) for n in (3, 1000, 65537, 1048579) * 6]
    tensors = [e.own.clone() for e in expects]
    works = [dist.all_reduce(x, async_op=True) for x in tensors]
    for work in works:
        work.wait()
    check_all(run, tensors, [e.result for e in expects], "in flight")


def streams(run):
    """Calls from streams of the caller, in turn, without waiting in between; data ready only on that stream."""
    if not run.cuda:
        return run.skip("streams", "no CUDA")
    side = [torch.cuda.Stream() for _ in range(3)]
    outs = []  # holds the inputs too: the allocator must not give them to another stream meanwhile
    for i in range(30):
        expect = Expect(run, torch.float32, ReduceOp.SUM, FEW[i % 4], seed=i)
        side[i % 3].wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side[i % 3]):
            torch.cuda._sleep(20000 * (run.rank + i) % 100000)
            x = expect.own.clone()
            if i % 2:
                dist.all_reduce(x)
            else:
                dist.all_reduce(x, async_op=True).wait()
            outs.append((expect, x, x * 2))
    torch.cuda.synchronize()
    for i, (expect, x, twice) in enumerate(outs):
        run.check_equal(x, expect.result, f"streams call {i}")
        run.check_equal(twice, expect.result * 2, f"streams call {i}: what follows on the stream")
    return None


def groups(run):
    """Subsets in several orders, beside the whole; members only call."""
    subsets = [list(range(run.size)), list(range(0, run.size, 2)), list(range(1, run.size, 2)), [0, run.size - 1],
               list(range(run.size))]
    made = [(ranks, dist.new_group(ranks)) for ranks in subsets if len(ranks) > 0]
    for round_ in range(3):
        for ranks, group in made:
            if run.rank not in ranks:
                continue
            for count in FEW:
                expect = Expect(run, torch.float32, ReduceOp.SUM, count, seed=count + round_, ranks=ranks)
                x = expect.own.clone()
                dist.all_reduce(x, group=group)
                run.check_equal(x, expect.result, f"group {ranks} count {count}")
        whole = Expect(run, torch.int32, ReduceOp.SUM, 1021, seed=round_)
        x = whole.own.clone()
        dist.all_reduce(x)
        run.check_equal(x, whole.result, "the whole beside groups")
    run.meet()
    for ranks, group in made[:3]:
        if run.rank in ranks:
            dist.destroy_process_group(group)
    x = torch.ones(1021, device=run.device)
    dist.all_reduce(x)
    run.check_equal(x, torch.full_like(x, run.size), "the whole after groups have gone")


def others(run):
    """Broadcast, all-gather, reduce-scatter, reduce, all-to-all among all-reduces, which they must not disturb."""
    for i, count in enumerate((1, 1021, 65537)):
        own = values(run, torch.float32, ReduceOp.SUM, count, i, run.rank, run.size)
        everyone = [values(run, torch.float32, ReduceOp.SUM, count, i, rank, run.size) for rank in range(run.size)]
        total = torch.stack(everyone).sum(0)
        x = own.clone()
        dist.all_reduce(x)
        run.check_equal(x, total, f"others all_reduce {count}")
        x = own.clone()
        dist.broadcast(x, run.size - 1)
        run.check_equal(x, everyone[-1], f"broadcast {count}")
        gathered = torch.empty(run.size * count, device=run.device)
        dist.all_gather_into_tensor(gathered, own)
        run.check_equal(gathered, torch.cat(everyone), f"all_gather {count}")
        part = torch.empty(count, device=run.device)
        dist.reduce_scatter_tensor(part, torch.cat([v * (run.rank + 1) for v in everyone]))
        run.check_equal(part, everyone[run.rank] * (run.size * (run.size + 1) // 2), f"reduce_scatter {count}")
        x = own.clone()
        dist.reduce(x, 0)
        if run.rank == 0:
            run.check_equal(x, total, f"reduce {count}")
        swapped = torch.empty(run.size * count, device=run.device)
        dist.all_to_all_single(swapped, torch.cat([own + peer for peer in range(run.size)]))
        run.check_equal(swapped, torch.cat([v + run.rank for v in everyone]), f"all_to_all {count}")
        x = own.clone()
        dist.all_reduce(x)
        run.check_equal(x, total, f"others last all_reduce {count}")


def sections():
    from torch_compiled import compiled
    from torch_graphs import graphs, graphs_overlap
    return dict(eager=eager, bits=bits, same_bits=same_bits, coalesced=coalesced, in_flight=in_flight, streams=streams,
                groups=groups, others=others, graphs=graphs, graphs_overlap=graphs_overlap, compiled=compiled)


def checks(run, names=None):
    table = sections()
    for name in names or table:
        run.section(name, table[name])


def main():
    p = torch_common.parser(__doc__)
    p.add_argument("--sections", help="comma-separated; all if not given: " + ",".join(sections()))
    options = p.parse_args()
    run = torch_common.Run(options)
    checks(run, options.sections.split(",") if options.sections else None)
    run.leave(run.finish())


if __name__ == "__main__":
    sys.exit(main())
