"""Functional collectives in torch.compile'd functions."""
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch.distributed import ReduceOp

from torch_values import values


def compiled(run):
    group = dist.group.WORLD

    def step(x):
        y = funcol.all_reduce(x * 2, "sum", group)
        return y + 1

    def two(x):
        a = funcol.all_reduce(x, "sum", group)
        b = funcol.all_reduce(x * 3, "max", group)
        return a * b

    for backend in ("aot_eager", "inductor"):
        torch._dynamo.reset()
        fast, fast_two = torch.compile(step, backend=backend, fullgraph=True), torch.compile(two, backend=backend, fullgraph=True)
        for count in (1021, 1021, 65537):
            everyone = [values(run, torch.float32, ReduceOp.SUM, count, count, rank, run.size) for rank in range(run.size)]
            total = torch.stack(everyone)
            run.check_equal(fast(everyone[run.rank]), total.sum(0) * 2 + 1, f"compiled {backend} count {count}")
            run.check_equal(fast_two(everyone[run.rank]), total.sum(0) * (total * 3).amax(0), f"compiled two {backend} count {count}")
        run.meet()
    if run.cuda:
        reduced_overhead(run, step)


def reduced_overhead(run, step):
    """mode=reduce-overhead: inductor's own CUDA graphs around the collective."""
    torch._dynamo.reset()
    fast = torch.compile(step, mode="reduce-overhead", fullgraph=True)
    for seed in range(8):
        everyone = [values(run, torch.float32, ReduceOp.SUM, 40001, seed, rank, run.size) for rank in range(run.size)]
        torch.compiler.cudagraph_mark_step_begin()
        run.check_equal(fast(everyone[run.rank]).clone(), torch.stack(everyone).sum(0) * 2 + 1, f"compiled reduce-overhead call {seed}")
    torch._dynamo.reset()  # drops the graphs: a process group with live graphs does not end
