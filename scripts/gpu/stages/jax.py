"""The stage of JAX's collectives; not on an emulated box."""
from beeline.tuning.process import Step

from ..box import FEW_WORDS

PROGRAM = "test/gpu/jax_collectives.py"
GOOD = r"\d+ passed, 0 failed"
SERVED = rf"(?s){GOOD}.*_ll128 \d+ calls"  # statistics come last
WAYS = {"threads": (), "graphs": ("--command-buffers",), "processes": ("--processes",)}


def step(box, name, preload, *arguments):
    return Step(name, ["python3", PROGRAM, "--gpus", box.most, *arguments], box.env(preload, **FEW_WORDS), 120, SERVED if preload else GOOD)


def jax(box):
    """Threads of one process, the same with collectives in graphs, a process for each rank; the times with NCCL alone, too."""
    return [step(box, f"{name} {'with' if preload else 'without'}", preload, *way, *(() if preload else ("--parts", "loop,times")))
            for name, way in WAYS.items() for preload in (True, False)]
