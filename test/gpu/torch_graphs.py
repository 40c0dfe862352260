"""All-reduce in CUDA graphs: replayed many times, mixed with eager calls, on other streams, in several groups."""
import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

from torch_values import values

REPLAYS = 50


class Captured:
    """Several all-reduces in one graph: source -> copy -> all-reduce in place, so a replay does not feed on the last."""

    def __init__(self, run, counts, dtype=torch.float32, asynchronous=False, group=None, members=None):
        self.run, self.counts, self.dtype = run, counts, dtype
        self.members = list(range(run.size)) if members is None else members
        self.sources = [torch.zeros(count, dtype=dtype, device=run.device) for count in counts]
        self.outputs = [torch.zeros_like(source) for source in self.sources]

        def body():
            works = []
            for source, output in zip(self.sources, self.outputs):
                output.copy_(source)
                works.append(dist.all_reduce(output, group=group, async_op=asynchronous))
            for work in works if asynchronous else []:
                work.wait()

        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                body()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            body()

    def load(self, seed):
        for source, count in zip(self.sources, self.counts):
            source.copy_(self.value(count, seed, self.run.rank))

    def value(self, count, seed, rank):
        return values(self.run, self.dtype, ReduceOp.SUM, count, seed, rank, len(self.members))

    def verify(self, seed, what):
        for output, count in zip(self.outputs, self.counts):
            want = sum(self.value(count, seed, rank).to(torch.float32) for rank in self.members).to(self.dtype)
            self.run.check_equal(output, want, f"{what} count {count} replay {seed}")


def eager_call(run, count, seed, what):
    own, want = (values(run, torch.float32, ReduceOp.SUM, count, seed, run.rank, run.size),
                 sum(values(run, torch.float32, ReduceOp.SUM, count, seed, rank, run.size) for rank in range(run.size)))
    dist.all_reduce(own)
    return own, want, f"{what} count {count} call {seed}"


def replayed(run):
    for dtype in (torch.float32, torch.bfloat16):
        for asynchronous in (False, True):
            captured = Captured(run, (1, 7, 1021, 40001, 262147, 2097155), dtype, asynchronous)
            for seed in range(REPLAYS):
                captured.load(seed)
                captured.graph.replay()
                captured.verify(seed, f"graph {dtype} async={asynchronous}")


def back_to_back(run):
    """Replays with nothing in between; then two graphs in turn with eager calls between them."""
    small, large = Captured(run, (3, 1021) * 5), Captured(run, (65537, 1048579))
    small.load(1)
    for _ in range(REPLAYS):
        small.graph.replay()
    small.verify(1, "back to back")
    pending = []
    for seed in range(REPLAYS):
        small.load(seed)
        small.graph.replay()
        pending.append(eager_call(run, (5, 65537, 300007)[seed % 3], seed, "eager between graphs"))
        large.load(seed)
        large.graph.replay()
        if seed % 5 == 0:
            small.verify(seed, "mixed small")
            large.verify(seed, "mixed large")
    for got, want, what in pending:
        run.check_equal(got, want, what)


def recaptured(run):
    """Graphs that come and go: the memory of a freed graph is used by the next."""
    for seed in range(4):
        captured = Captured(run, (1021 + seed, 40001 * (seed + 1)))
        captured.load(seed)
        captured.graph.replay()
        captured.verify(seed, "recaptured")
        run.synchronize()
        del captured


def of_groups(run):
    """A graph of a subgroup's calls beside one of the whole's."""
    members = list(range(0, run.size, 2)) if run.size > 2 else [0, 1]
    group = dist.new_group(members)
    whole = Captured(run, (1021, 65537))
    part = Captured(run, (7, 40001), group=group, members=members) if run.rank in members else None
    for seed in range(10):
        whole.load(seed)
        whole.graph.replay()
        if part:
            part.load(seed)
            part.graph.replay()
            part.verify(seed, "graph of a group")
        whole.verify(seed, "graph of the whole")


def graphs(run):
    if not run.cuda:
        return run.skip("graphs", "no CUDA")
    for part in (replayed, back_to_back, recaptured, of_groups):
        part(run)
        run.meet()
    return None


def graphs_overlap(run):
    """A graph replayed on one stream while eager calls of the same communicator go out on another, in the same host
    order on every rank and with no wait in between: the order of issue must hold on the device."""
    if not run.cuda:
        return run.skip("graphs_overlap", "no CUDA")
    captured = Captured(run, (1021, 262147))
    other, pending = torch.cuda.Stream(), []
    for seed in range(REPLAYS):
        captured.load(seed)
        captured.graph.replay()
        # The eager call's input is made on its own stream; nothing orders the two streams but the communicator.
        with torch.cuda.stream(other):
            pending.append(eager_call(run, (5, 65537)[seed % 2], seed, "eager beside a replay"))
        if seed % 10 == 9:
            captured.verify(seed, "replay beside eager")
    torch.cuda.synchronize()
    for got, want, what in pending:
        run.check_equal(got, want, what)
    return None
