"""Sums over ranks in fp64, rounded once: what every library's are judged by.

The tensors of all ranks are brought together by an all-gather, which copies; so the reference is the same to the bit whatever library did
that.  A sum with one rounding more is what the bound comes from: a library that adds in a wider type and rounds once cannot be
further from the reference than one whose result was rounded once more.
"""
import torch
import torch.distributed as dist

DIGITS = {torch.float16: 11, torch.bfloat16: 8, torch.float32: 24}  # of the significand
LEAST = {torch.float16: -24, torch.bfloat16: -133, torch.float32: -149}  # exponent of the smallest subnormal number


def ulp(x, dtype):
    """The distance of the dtype's neighbouring numbers around x, which is fp64."""
    exponent = torch.where(x == 0, LEAST[dtype], torch.frexp(x)[1] - DIGITS[dtype]).clamp(min=LEAST[dtype])
    return ((exponent.long() + 1023) << 52).view(torch.float64)  # two to it, to the bit


def rounded(x, dtype):
    """x, fp64, rounded once, to nearest even; a conversion may go through fp32 and round twice."""
    step = ulp(x, dtype)
    return ((x / step).round() * step).to(dtype)


def of_all(tensor):
    """The tensors of all ranks, by rank."""
    out = torch.empty((dist.get_world_size(), *tensor.shape), dtype=tensor.dtype, device=tensor.device)
    dist.all_gather_into_tensor(out.view(-1), tensor.contiguous().view(-1))
    return out


def total(tensors):
    """Their sum in fp64, one after another."""
    out = tensors[0].double()
    for tensor in tensors[1:]:
        out += tensor
    return out


class Exact:
    """Sums, or averages, that are exact but for one rounding; called in the place of dist.all_reduce."""

    def __init__(self, divide=1):
        self.divide = divide

    def wide(self, tensors):
        return total(tensors) / self.divide

    def of(self, tensors):
        return rounded(self.wide(tensors), tensors.dtype)

    def __call__(self, tensor):
        tensor.copy_(self.of(of_all(tensor)))


class Rough(Exact):
    """The same with one rounding more: an error of up to half a unit in the last place, drawn alike on all ranks, then rounded."""

    def __init__(self, device, divide=1, seed=0):
        super().__init__(divide)
        self.generator = torch.Generator(device=device).manual_seed(seed)

    def wide(self, tensors):
        exact = super().wide(tensors)
        drawn = torch.rand(exact.shape, generator=self.generator, dtype=torch.float64, device=exact.device) - 0.5
        return exact + drawn * ulp(exact, tensors.dtype)


def rms(x):
    return float(x.double().square().mean().sqrt())
