#!/usr/bin/env python3
"""How exact sums of bf16 and fp16 are: all_reduce and reduce_scatter, sums and averages, of random values, against fp64.

  torchrun --nproc_per_node 4 test/gpu/torch_truth.py --json FILE --tag with

An error is counted in units of the last place of the exact result, where that is not 0.  Two jobs, with Beeline and without, have the same
values; compare_truth.py judges one by the other.  Here a result is wrong if it is further from the exact one than its roundings can bring it: one
after each addition, in any order, or, where Beeline serves the call, additions in fp32 and one rounding.
"""
import sys

import torch
import torch.distributed as dist

import torch_common
from torch_values import dtype_name
from torch_exact import DIGITS, rounded, total, ulp

DTYPES = (torch.bfloat16, torch.float16)
BYTES = (4096, 1 << 20, 16 << 20)
OPS = dict(sum=dist.ReduceOp.SUM, avg=dist.ReduceOp.AVG)
CASES = ("normal", "cancel")


def inputs(run, case, dtype, count):
    """What each rank puts in: the same on every rank, in every job and on every device."""
    generator = torch.Generator().manual_seed(count + DTYPES.index(dtype))
    found = [torch.randn(count, generator=generator).to(dtype) for _ in range(run.size)]
    if case == "cancel":  # the last rank takes away what the others have, to about a hundredth
        rest = torch.randn(count, generator=generator).double() / 128
        found[-1] = (rest - total(found[:-1])).to(dtype)
    return [x.to(run.device) for x in found]


def all_reduce(run, own, op):
    out = own.clone()
    dist.all_reduce(out, op=op)
    return out


def reduce_scatter(run, own, op):
    out = torch.empty(own.numel() // run.size, dtype=own.dtype, device=own.device)
    dist.reduce_scatter_tensor(out, own, op=op)
    return out


COLLECTIVES = dict(all_reduce=all_reduce, reduce_scatter=reduce_scatter)


def reduced(run, name, own, redop):
    """Gloo has no averages: there they are sums, divided, so that the program can be tried."""
    if redop == "avg" and not run.cuda:
        return COLLECTIVES[name](run, own, OPS["sum"]) / run.size
    return COLLECTIVES[name](run, own, OPS[redop])


def judge(run, name, dtype, redop, case, count, tensors):
    exact, size = total(tensors), sum(x.double().abs() for x in tensors)
    if redop == "avg":
        exact, size = exact / run.size, size / run.size
    got = reduced(run, name, tensors[run.rank], redop)
    if name == "reduce_scatter":
        part = slice(run.rank * got.numel(), (run.rank + 1) * got.numel())
        exact, size = exact[part], size[part]
    error, right = (got.double() - exact).abs(), got == rounded(exact, dtype)
    route = torch_common.route_of(run, name, got.numel(), dtype) if run.cuda else None
    if route in (None, "nccl"):  # n - 1 additions and a division, each of at most the sum of all amounts
        allowed = run.size * (2.0 ** -DIGITS[dtype] * size * 1.01 + ulp(torch.zeros_like(exact), dtype))
    else:
        wide = 2 * run.size * 2.0 ** -DIGITS[torch.float32] * size
        allowed = wide + ulp(exact.abs() + wide, dtype) / 2
    units = (error / ulp(exact, dtype))[exact != 0]
    what = f"{name} {redop} {dtype_name(dtype)} {case} of {count}"
    run.check(bool((error <= allowed).all()), f"{what}: off by {float((error - allowed).max()):.3g} more than roundings by {route} can bring about")
    ranks = run.everyone([float(units.max()), float(units.mean()), float(right.double().mean())])
    run.record(kind="truth", collective=name, redop=redop, datatype=dtype_name(dtype), case=case, bytes=count * dtype.itemsize, count=count,
               max_ulp=max(r[0] for r in ranks), mean_ulp=sum(r[1] for r in ranks) / len(ranks), right=sum(r[2] for r in ranks) / len(ranks),
               route=route, beeline=torch_common.beeline_serves())



def truth(run, sizes):
    for size in sizes:
        for dtype in DTYPES:
            count = size // dtype.itemsize // run.size * run.size
            for case in CASES:
                tensors = inputs(run, case, dtype, count)
                for name in COLLECTIVES:
                    for redop in OPS:
                        judge(run, name, dtype, redop, case, count, tensors)


def main():
    p = torch_common.parser(__doc__)
    p.add_argument("--bytes", type=lambda text: [int(n) for n in text.split(",")], default=list(BYTES), help="of the message (default: 4K, 1M, 16M)")
    options = p.parse_args()
    run = torch_common.Run(options)
    run.section("truth", lambda _: truth(run, options.bytes))
    run.leave(run.finish())


if __name__ == "__main__":
    sys.exit(main())
