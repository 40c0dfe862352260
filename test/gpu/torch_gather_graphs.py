"""All-gather and reduce-scatter in CUDA graphs: replayed many times, mixed with eager calls, in place and not, on other streams."""
import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

from torch_values import bits, values

REPLAYS = 30
COUNTS = (1, 7, 1021, 40001, 262147, 1048579)  # of one rank's part


class Captured:
    """All-gathers and reduce-scatters of several counts in one graph, which copies their inputs from sources first, so that a replay
    does not feed on the last one's results."""

    def __init__(self, run, counts, dtype, asynchronous, in_place):
        self.run, self.counts, self.dtype = run, counts, dtype
        self.parts, self.wholes, self.gathered, self.scattered = [], [], [], []
        for count in counts:
            self.parts.append(torch.zeros(count, dtype=dtype, device=run.device))
            self.wholes.append(torch.zeros(count * run.size, dtype=dtype, device=run.device))
            self.gathered.append(torch.zeros(count * run.size, dtype=dtype, device=run.device))
            self.scattered.append(torch.zeros(count * run.size if in_place else count, dtype=dtype, device=run.device))
        self.asynchronous, self.in_place = asynchronous, in_place
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self.body()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.body()

    def own(self, x, count):
        return x[self.run.rank * count:][:count]

    def body(self):
        works = []
        for i, count in enumerate(self.counts):
            part, whole, gathered, scattered = self.parts[i], self.wholes[i], self.gathered[i], self.scattered[i]
            if self.in_place:
                self.own(gathered, count).copy_(part)
                scattered.copy_(whole)
                part, whole, scattered = self.own(gathered, count), scattered, self.own(scattered, count)
            works.append(dist.all_gather_into_tensor(gathered, part, async_op=self.asynchronous))
            works.append(dist.reduce_scatter_tensor(scattered, whole, op=ReduceOp.SUM, async_op=self.asynchronous))
        for work in works if self.asynchronous else []:
            work.wait()

    def load(self, seed):
        for i, count in enumerate(self.counts):
            self.parts[i].copy_(bits(self.run, self.dtype, count, seed, self.run.rank))
            self.wholes[i].copy_(values(self.run, self.dtype, ReduceOp.SUM, count * self.run.size, seed, self.run.rank, self.run.size))
            for output in (self.gathered[i], self.scattered[i]):
                output.view(torch.uint8).fill_(0x5a)

    def verify(self, seed, what):
        run = self.run
        for i, count in enumerate(self.counts):
            want = torch.cat([bits(run, self.dtype, count, seed, rank).view(torch.uint8) for rank in range(run.size)])
            run.check_equal(self.gathered[i].view(torch.uint8), want, f"{what} all_gather count {count} replay {seed}")
            parts = [self.own(values(run, self.dtype, ReduceOp.SUM, count * run.size, seed, rank, run.size), count) for rank in range(run.size)]
            got = self.own(self.scattered[i], count) if self.in_place else self.scattered[i]
            run.check_equal(got, torch.stack(parts).double().sum(0).to(self.dtype), f"{what} reduce_scatter count {count} replay {seed}")


def replayed(run):
    for dtype, asynchronous, in_place in ((torch.bfloat16, False, True), (torch.float32, True, False), (torch.bfloat16, True, True),
                                          (torch.float32, False, False)):
        captured = Captured(run, COUNTS, dtype, asynchronous, in_place)
        for seed in range(REPLAYS // 2):
            captured.load(seed)
            captured.graph.replay()
            captured.verify(seed, f"graph {dtype} async={asynchronous} in place {in_place}")


def mixed(run):
    """Two graphs in turn with eager calls between them, and nothing that waits."""
    small, large = Captured(run, (3, 1021) * 4, torch.float32, False, True), Captured(run, (65537, 524289), torch.bfloat16, False, True)
    pending = []
    for seed in range(REPLAYS):
        small.load(seed)
        small.graph.replay()
        count = (5, 65537, 300007)[seed % 3]
        output = torch.full((count * run.size,), 90, dtype=torch.int32, device=run.device)
        dist.all_gather_into_tensor(output, values(run, torch.int32, ReduceOp.SUM, count, seed, run.rank, run.size))
        pending.append((seed, count, output))
        large.load(seed)
        large.graph.replay()
        if seed % 5 == 0:
            small.verify(seed, "mixed small")
            large.verify(seed, "mixed large")
    for seed, count, output in pending:
        want = torch.cat([values(run, torch.int32, ReduceOp.SUM, count, seed, rank, run.size) for rank in range(run.size)])
        run.check_equal(output, want, f"eager all_gather between graphs, count {count} call {seed}")


def beside(run):
    """A graph replayed on one stream while eager scatters go out on another, in the same host order on every rank and with no wait
    in between."""
    captured, other, pending = Captured(run, (1021, 262147), torch.bfloat16, False, True), torch.cuda.Stream(), []
    for seed in range(REPLAYS):
        captured.load(seed)
        captured.graph.replay()
        count = (5, 65537)[seed % 2]
        with torch.cuda.stream(other):
            whole = values(run, torch.float32, ReduceOp.SUM, count * run.size, seed, run.rank, run.size)
            output = torch.full((count,), 90.0, device=run.device)
            dist.reduce_scatter_tensor(output, whole)
            pending.append((seed, count, whole, output))
        if seed % 10 == 9:
            captured.verify(seed, "replay beside eager")
    torch.cuda.synchronize()
    for seed, count, _, output in pending:
        want = sum(values(run, torch.float32, ReduceOp.SUM, count * run.size, seed, rank, run.size) for rank in range(run.size))
        run.check_equal(output, want[run.rank * count:][:count], f"eager reduce_scatter beside a replay, count {count} call {seed}")


def gather_graphs(run):
    if not run.cuda:
        return run.skip("graphs", "no CUDA")
    for part in (replayed, mixed, beside):
        part(run)
        run.meet()
    return None
