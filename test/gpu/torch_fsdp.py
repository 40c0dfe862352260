#!/usr/bin/env python3
"""Training steps of a transformer of 1.06 B parameters with FSDP2 (`fully_shard`): milliseconds a step; JSON records.

  torchrun --nproc_per_node 4 test/gpu/torch_fsdp.py --json FILE --tag with [--turns DIR] [--reduce float32]

Blocks as Llama has them (RMSNorm, rotary positions, attention, SwiGLU), random weights from a fixed seed, random tokens.  Each
block and the root are gathered by themselves, in bf16, in the forward pass and again in the backward one, and their gradients
reduce-scattered in bf16 or fp32: of a block 103 MB in all go out in each.  The timed steps are AdamW's.

The first COMPARED steps, of SGD and deterministic on each rank, are judged by what they ought to be.  What differs is how gradients are rounded
where they are summed: Beeline adds in rank order in fp32 and rounds once, NCCL rounds at every hop of its ring.  So each job does them three
times: with the library's sums, with sums in fp64 rounded once, and with such that are rounded once more (torch_exact.py).  Of two jobs that take
turns the first loss, before any gradient, must be equal to the bit on every rank, and so must all that is exact.  The parameters at the end (every
STRIDE-th) may be FACTOR times as far from the exact ones with Beeline as without, and as with one rounding more; losses no farther than LOSSES.
"""
import os
import statistics
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic matrix products; read when CUDA starts

import torch
import torch.nn.functional as F
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultReduceScatter
from torch.nn.attention import SDPBackend, sdpa_kernel

import torch_common
import torch_turns
from torch_exact import Exact, Rough

SHAPE = dict(hidden=2048, heads=16, intermediate=5632, layers=18, words=32000, length=2048)
TINY = dict(hidden=64, heads=4, intermediate=160, layers=2, words=128, length=32)
BATCHES = {100: (4, 8), 0: (2, 4)}  # sequences a rank, with so many GB and more: the GPU has more to do than the host
COMPARED, SGD_RATE, STRIDE = 8, 0.02, 1021
LOSSES, FACTOR = 2e-3, 1.5
WARM, TIMED = 2, 6  # steps a round


def linear(wide, narrow):
    return torch.nn.Linear(wide, narrow, bias=False)


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Block(torch.nn.Module):
    def __init__(self, shape):
        super().__init__()
        width, inner = shape["hidden"], shape["intermediate"]
        self.heads = shape["heads"]
        self.before, self.after = torch.nn.RMSNorm(width, eps=1e-5), torch.nn.RMSNorm(width, eps=1e-5)
        self.q, self.k, self.v, self.o = (linear(width, width) for _ in range(4))
        self.gate, self.up, self.down = linear(width, inner), linear(width, inner), linear(inner, width)

    def forward(self, x, cos, sin):
        y = self.before(x)
        q, k, v = (part(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        y = self.after(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(torch.nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.words = torch.nn.Embedding(shape["words"], shape["hidden"])
        self.blocks = torch.nn.ModuleList(Block(shape) for _ in range(shape["layers"]))
        self.norm, self.head = torch.nn.RMSNorm(shape["hidden"], eps=1e-5), linear(shape["hidden"], shape["words"])
        self.angles = None

    def forward(self, tokens):
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x, *self.angles)
        return self.head(self.norm(x))


def angles(run, shape):
    width = shape["hidden"] // shape["heads"]
    rates = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float32, device=run.device) / width)
    turned = torch.arange(shape["length"], dtype=torch.float32, device=run.device)[:, None] * rates
    return turned.cos().bfloat16(), turned.sin().bfloat16()


class Averaged(DefaultReduceScatter):
    """A reduce-scatter in the place of the library's: each rank gets its part of all ranks, and adds them up by `sums`."""

    def __init__(self, sums):
        super().__init__()
        self.sums = sums

    def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
        parts = torch.empty_like(input_tensor)
        dist.all_to_all_single(parts, input_tensor, group=group)
        output_tensor.copy_(self.sums.of(parts.view(group.size(), -1)))


class Trainer:
    def __init__(self, run, shape, reduce_dtype, batches):
        self.run, self.shape, self.reduce_dtype = run, shape, reduce_dtype
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=reduce_dtype)
        with torch.device("meta"):
            self.model = Model(shape)
        self.parameters = sum(p.numel() for p in self.model.parameters())
        self.block = sum(p.numel() for p in self.model.blocks[0].parameters())
        for block in self.model.blocks:
            fully_shard(block, mp_policy=policy)
        fully_shard(self.model, mp_policy=policy)
        self.model.to_empty(device=run.device)
        self.model.angles = angles(run, shape)
        self.fill()
        generator = torch.Generator().manual_seed(100 + run.rank)
        self.tokens = torch.randint(shape["words"], (max(batches), shape["length"] + 1), generator=generator).to(run.device)
        self.optimizer = None

    @torch.no_grad()
    def shards(self):
        return [p.to_local() for p in self.model.parameters()]

    @torch.no_grad()
    def fill(self):
        """Random weights: the same in every job, since shards are."""
        generator = torch.Generator(device=self.run.device).manual_seed(1000 + self.run.rank)
        for shard in self.shards():
            if shard.dim() == 1:
                shard.fill_(1)
            else:
                shard.normal_(0, 0.02, generator=generator)

    def step(self, batch):
        tokens = self.tokens[:batch]
        logits = self.model(tokens[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    @torch.no_grad()
    def sample(self):
        return torch.cat([shard.flatten()[::STRIDE] for shard in self.shards()]).cpu()

    @torch.no_grad()
    def checksum(self):
        """Of this rank's shards, to the bit."""
        return str(sum(int(shard.view(torch.int32).sum(dtype=torch.int64)) for shard in self.shards()))

    def compared(self, batch, scatter=None):
        """The steps that both jobs do alike: losses of this rank, where parameters began and where they ended."""
        self.fill()
        for module in self.model.modules():
            if isinstance(module, FSDPModule):
                module.set_custom_reduce_scatter(scatter or DefaultReduceScatter())
        before = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(True, warn_only=True)
        start = self.sample()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=SGD_RATE)
        try:
            with sdpa_kernel(SDPBackend.MATH):  # the backward pass of the others adds up in any order
                losses = torch.stack([self.step(batch) for _ in range(COMPARED)]).tolist()
        finally:
            torch.use_deterministic_algorithms(before)
        return dict(losses=losses, start=start, end=self.sample(), checksum=self.checksum())

    def judged(self, batch):
        """By exact sums, by sums with one rounding more, and by the library, which stays."""
        size = self.run.size
        return dict(exact=self.compared(batch, Averaged(Exact(size))), rough=self.compared(batch, Averaged(Rough(self.run.device, size))),
                    **self.compared(batch), beeline=torch_common.beeline_serves("REDUCESCATTER"))

    def timed(self, batch):
        """Milliseconds of each step on the slowest rank, by the device's clock and, of all on average, by the host's."""
        for _ in range(WARM):
            self.step(batch)
        self.run.meet()
        self.step(batch)  # not counted: brings the ranks together
        begin = time.perf_counter()
        if self.run.cuda:
            events = [torch.cuda.Event(enable_timing=True) for _ in range(TIMED + 1)]
            events[0].record()
        marks = [begin]
        for i in range(TIMED):
            self.step(batch)
            marks.append(time.perf_counter())
            if self.run.cuda:
                events[i + 1].record()
        self.run.synchronize()
        wall = (time.perf_counter() - begin) / TIMED * 1e3
        steps = [one.elapsed_time(other) for one, other in zip(events, events[1:])] if self.run.cuda else \
                [(other - one) * 1e3 for one, other in zip(marks, marks[1:])]
        ranks = self.run.everyone([steps, wall])
        return [max(rank[0][i] for rank in ranks) for i in range(TIMED)], max(rank[1] for rank in ranks)


def routes(run, trainer):
    """What serves a block's gather and scatter."""
    count = -(-trainer.block // run.size)
    return [torch_common.route_of(run, name, count, dtype) if run.cuda else None
            for name, dtype in (("all_gather", torch.bfloat16), ("reduce_scatter", trainer.reduce_dtype))]


def report(run, trainer, batch, found):
    steps, walls = [step for round_ in found for step in round_[0]], [round_[1] for round_ in found]
    step, tokens = statistics.median(steps), batch * trainer.shape["length"] * run.size
    way = routes(run, trainer)
    run.record(kind="fsdp", batch=batch, length=trainer.shape["length"], parameters=trainer.parameters, layers=trainer.shape["layers"],
               block_bytes=2 * trainer.block, reduce=str(trainer.reduce_dtype).removeprefix("torch."), rounds=len(found), steps=len(steps),
               step_ms=round(step, 3), wall_ms=round(statistics.median(walls), 3), step_ms_all=[round(s, 3) for s in steps],
               tokens_s=round(tokens / step * 1e3), routes=way, peak_bytes=torch.cuda.max_memory_allocated() if run.cuda else 0,
               beeline=torch_common.beeline_serves("ALLGATHER"))
    if run.rank == 0:
        print(f"batch {batch}: {step:8.2f} ms a step, median of {len(steps)} ({min(steps):.2f}-{max(steps):.2f}), by the host's clock "
              f"{statistics.median(walls):8.2f}; gathers by {way[0]}, scatters by {way[1]}", flush=True)


def compare(run, turns, reduce_dtype):
    """Rank 0 of the job that came first: what all ranks of both jobs left in their folder."""
    ours, theirs = ([torch.load(turns.path(f"{tag}-{rank}")) for rank in range(run.size)] for tag in turns.arrived("results"))
    mine, base = (ours, theirs) if ours[0]["beeline"] else (theirs, ours)
    exact, rough = ([of_rank[which] for of_rank in mine] for which in ("exact", "rough"))
    worst = max(abs(a - b) / abs(b) for one, other in zip(mine, exact) for a, b in zip(one["losses"], other["losses"]))
    first = all(one["losses"][0] == other["losses"][0] for one, other in zip(ours, theirs))
    same_start = all(torch.equal(one["start"], other["start"]) for one, other in zip(ours, theirs))
    same_bits = all(one["checksum"] == other["checksum"] for one, other in zip(ours, theirs))
    same_exact = all(one["exact"]["checksum"] == other["exact"]["checksum"] for one, other in zip(ours, theirs))

    def distance(this, where):
        return float(torch.cat([a[where].double() - b["end"].double() for a, b in zip(this, exact)]).norm())

    way = distance(exact, "start")
    error, without, once = (distance(this, "end") / way if way else 0 for this in (mine, base, rough))
    additions = run.size - 1 if reduce_dtype == torch.float32 else 1  # fp32 is added in fp32: each addition rounds
    run.record(kind="fsdp-compare", reduce=str(reduce_dtype).removeprefix("torch."), steps=COMPARED, first_equal=first, same_bits=same_bits,
               same_exact=same_exact, loss_error=worst, losses_tolerance=LOSSES, error=error, error_without=without, rough=once, factor=FACTOR,
               first_loss=ours[0]["losses"][0], last_loss=ours[0]["losses"][-1])
    print(f"{COMPARED} steps of both jobs: first losses {'equal' if first else 'DIFFER'}, losses within {worst:.2e} of the exact ones, of {LOSSES:.0e}; "
          f"parameters from the exact ones, over their way: with Beeline {error:.3e}, without {without:.3e}, with one rounding more {once:.3e}; to the bit "
          f"{'equal' if same_bits else 'other'}", flush=True)
    run.check(same_start, "fsdp: the jobs began with other weights")
    run.check(first, "fsdp: the first losses differ: gathered weights are wrong")
    run.check(same_exact, "fsdp: the jobs' steps with exact sums differ: something else than sums is wrong")
    run.check(worst <= LOSSES, f"fsdp: losses are {worst:.2e} of themselves from the exact ones, over {LOSSES:.0e}")
    run.check(way > 0 and error <= FACTOR * without, f"fsdp: parameters are {error:.3e} of their way off, over {FACTOR} times {without:.3e} without Beeline")
    run.check(error <= FACTOR * additions * once, f"fsdp: parameters are {error:.3e} of their way off, over {FACTOR} times {once:.3e} of one rounding more, "
              f"{additions} times")


def batches_for(run):
    room = torch.cuda.get_device_properties(run.device).total_memory if run.cuda else 0
    return list(next(batches for least, batches in BATCHES.items() if room >= least * 10**9))


def fsdp(run, options, turns):
    options.batches = options.batches or batches_for(run)
    with turns.turn(run):
        trainer = Trainer(run, TINY if options.tiny else SHAPE, getattr(torch, options.reduce), options.batches)
        found = trainer.judged(options.batches[0])
        first, *_, last = (statistics.mean(step) for step in zip(*run.everyone(found["losses"])))
        run.check(last < first, f"fsdp: the loss went from {first:.4f} to {last:.4f}")
        if options.turns:
            torch.save(found, os.path.join(options.turns, f"{options.tag}-{run.rank}"))
        trainer.optimizer = torch.optim.AdamW(trainer.model.parameters(), lr=1e-5, fused=run.cuda)
        for batch in options.batches:
            trainer.step(batch)
    turns.arrive("start")
    samples = {batch: [] for batch in options.batches}
    for _ in torch_turns.rounds(run, options):
        for batch in options.batches:
            with turns.turn(run):
                samples[batch].append(trainer.timed(batch))
    for batch in options.batches:
        report(run, trainer, batch, samples[batch])
    if turns.leads:
        both = turns.arrive("results")
        run.check(both, "fsdp: the other job's results did not come")
        if both and turns.arrived("results")[0] == options.tag:
            compare(run, turns, trainer.reduce_dtype)


def main():
    p = torch_common.parser(__doc__)
    torch_turns.add_arguments(p, 12)
    p.add_argument("--reduce", choices=("bfloat16", "float32"), default="bfloat16", help="gradients are reduced in it (default: %(default)s)")
    p.add_argument("--batches", type=lambda text: [int(n) for n in text.split(",")], help="sequences a rank (default: 4,8, with less than 100 GB 2,4)")
    p.add_argument("--tiny", action="store_true", help="a small shape, to try the program")
    torch_common.job("fsdp", fsdp, p.parse_args())


if __name__ == "__main__":
    sys.exit(main())
