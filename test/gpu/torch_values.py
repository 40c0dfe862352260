"""Inputs for which the result of a reduction is known exactly in every datatype, and buffers with guards."""
import torch
from torch.distributed import ReduceOp

OPS = dict(sum=ReduceOp.SUM, prod=ReduceOp.PRODUCT, min=ReduceOp.MIN, max=ReduceOp.MAX, avg=ReduceOp.AVG)
FP8 = [getattr(torch, name) for name in ("float8_e4m3fn", "float8_e5m2") if hasattr(torch, name)]
DTYPES = [torch.bfloat16, torch.float32, torch.float16, torch.int32, torch.int64, torch.uint8, torch.int8, torch.float64, *FP8]
GUARD = 64  # elements before and after


def dtype_name(dtype):
    return str(dtype).removeprefix("torch.")


def values(run, dtype, op, count, seed, rank, members):
    """Small whole numbers that differ from element to element and from rank to rank.

    Sums, products and averages of up to 16 ranks are exact in bf16: products have one factor that is not +-1; averages
    are whole, since NCCL may divide each summand.  In fp8, which has 3 bits or 4 in all, values are 0 and +-1.  Booleans sum up
    to whether any is set, as PyTorch has it.
    """
    i = torch.arange(count, dtype=torch.int64, device=run.device)
    if dtype == torch.bool:
        return (i * 7 + rank * 13 + seed) % 3 == 0
    if op == ReduceOp.PRODUCT:
        v = torch.where((i + seed) % 16 == rank, 2, 1)
        if dtype != torch.uint8:
            v = torch.where((i * 7 + rank) % 5 == 0, -v, v)
    elif dtype in FP8:
        v = (i * 5 + rank * 3 + seed) % 3 - 1
    else:
        v = (i * 7 + rank * 13 + seed) % 11
        if dtype != torch.uint8:
            v = v - 5
    if op == ReduceOp.AVG and dtype not in FP8:
        v = v.clamp(-1, 2) * members  # their sum fits a byte for up to 7 ranks
    return v.to(torch.float32).to(dtype) if dtype in FP8 else v.to(dtype)


class Expect:
    """One call: this rank's input and the result; `ranks` are the group's members."""

    def __init__(self, run, dtype, op, count, seed=0, ranks=None):
        ranks = list(range(run.size)) if ranks is None else ranks
        wide = torch.float64 if dtype.is_floating_point else torch.int64
        inputs = [values(run, dtype, op, count, seed, rank, len(ranks)) for rank in ranks]
        self.own = inputs[ranks.index(run.rank)]
        total = inputs[0].to(torch.float32).to(wide) if dtype in FP8 else inputs[0].to(wide)
        for v in inputs[1:]:
            v = v.to(torch.float32).to(wide) if dtype in FP8 else v.to(wide)
            if op == ReduceOp.PRODUCT:
                total = total * v
            elif op == ReduceOp.MIN:
                total = torch.minimum(total, v)
            elif op == ReduceOp.MAX:
                total = torch.maximum(total, v)
            else:
                total = total + v
        if op == ReduceOp.AVG:
            total = total / len(ranks) if dtype.is_floating_point else total // len(ranks)
        self.result = total.to(torch.float32).to(dtype) if dtype in FP8 else total.to(dtype)


def room(run, dtype, count, offset):
    """A buffer full of 0x5a, and in it `count` elements that begin `offset` elements past an aligned place."""
    size = torch.empty((), dtype=dtype).element_size()
    raw = torch.full(((count + 2 * GUARD + offset) * size,), 0x5a, dtype=torch.uint8, device=run.device)
    buffer = raw.view(dtype)
    return buffer, buffer[GUARD + offset:GUARD + offset + count]


def guarded(run, own, offset):
    """A buffer full of 0x5a, and in it a copy of `own` that begins `offset` elements past an aligned place."""
    buffer, x = room(run, own.dtype, own.numel(), offset)
    x.copy_(own)
    return buffer, x


def untouched(buffer, offset, count):
    """Whether all that lies around the elements is as it was."""
    before, after = buffer[:offset + GUARD], buffer[offset + GUARD + count:]
    return bool((before.view(torch.uint8) == 0x5a).all()) and bool((after.view(torch.uint8) == 0x5a).all())


def bits(run, dtype, count, seed, rank):
    """Elements of any bits: NaNs of all kinds are among them.  Only booleans are 0 and 1."""
    size = torch.empty((), dtype=dtype).element_size()
    i = torch.arange(count * size, dtype=torch.int64, device=run.device)
    byte = (i * 2654435761 + rank * 40503 * 65537 + seed * 7919 * 257) >> 11
    return (byte & (1 if dtype == torch.bool else 255)).to(torch.uint8).view(dtype)
