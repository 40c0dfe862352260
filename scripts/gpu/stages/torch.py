"""Stages that run PyTorch's programs of test/gpu with Beeline and without; none of them on an emulated box."""
import os
import socket
import subprocess
import tempfile
import time

from beeline.tuning.box import algorithms
from beeline.tuning.collectives import variable
from beeline.tuning.process import Step

from ..box import FEW_WORDS
from .collectives import FORCED

GPU_TESTS = "test/gpu"
TORCH_CHECKS = "eager,bits,same_bits,coalesced,in_flight,streams,groups,others,graphs"


def ports():
    """Free ones below those that the system hands out by itself, which could be taken before torchrun binds them."""
    for port in range(23456, 32768):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        yield port


PORTS = ports()


def torchrun(box, name, ranks, program, preload, limit, *arguments, **env):
    """A torchrun job of a program in test/gpu."""
    records = os.path.join(box.folder, f"torch-{name.replace(' ', '-')}.json")
    argv = ["python3", "-m", "torch.distributed.run", "--nproc_per_node", ranks,
            "--master_addr", "127.0.0.1", "--master_port", next(PORTS), os.path.join(GPU_TESTS, program),
            *arguments, "--json", records, "--tag", name]
    env = dict(dict(OMP_NUM_THREADS=1, TORCHINDUCTOR_COMPILE_THREADS=1, TORCH_CHECK_TIMEOUT=40), **env)
    return Step(name, argv, box.env(preload, **env), limit, r"\d+ passed, 0 failed", records)


def suite(box, name, ranks, parts, preload, limit, **env):
    """Several parts in one job.  Its tag names what was the same about losses to be compared."""
    return torchrun(box, name, ranks, "torch_suite.py", preload, limit, "--parts", parts, **env)


TOLD = 15  # seconds that a job needs from the start of its last round to its end


class Job:
    """One of the jobs that take turns: its name, whether Beeline is preloaded, arguments and variables of its own."""

    def __init__(self, name, preload, *arguments, **env):
        self.name, self.preload, self.arguments, self.env = name, preload, arguments, env


PAIR = (Job("with", True), Job("without", False))


def turns(box, all_ranks, program, limit, *arguments, jobs=PAIR):
    """Of each number of ranks the jobs of a program, as with Beeline and without.  All start at once, and take turns to measure.
    However long they took to start, what they measured is told before the limit."""
    folder = os.path.join(tempfile.gettempdir(), f"gpu-check-turns-{os.getpid()}-{program}")
    first, *others = [torchrun(box, f"{n} {job.name}", n, program, job.preload, limit, "--turns", os.path.join(folder, str(n)),
                               "--end", round(time.time() + limit - TOLD), *arguments, *job.arguments,
                               CUDA_VISIBLE_DEVICES=",".join(str(gpu) for gpu in range(n)), **job.env)
                      for n in all_ranks for job in jobs]
    first.beside += others
    return [first]


def compare_step(box, ranks, without, with_):
    """Judges errors of both sides, as compare_truth.py says."""
    results = os.path.join(box.folder, "results.jsonl")
    return Step(f"errors {with_}", ["python3", os.path.join(GPU_TESTS, "compare_truth.py"), results, results, "--tags", without, with_,
                                    "--ranks", ranks], limit=10, want=": ok")


def torch(box):
    n = box.most
    alone = suite(box, f"{n} without", n, "ddp,latency", False, 60)
    steps = [suite(box, f"{n} with", n, TORCH_CHECKS + ",ddp,latency,graphs_overlap", True, 120), alone,
             compare_step(box, n, f"{n} without", f"{n} with")]
    if 2 in box.ranks and n > 2:
        two = suite(box, "2 with", 2, TORCH_CHECKS + ",ddp,graphs_overlap", True, 90, CUDA_VISIBLE_DEVICES="0,1")
        if n >= 4:  # the other GPUs are free meanwhile
            two.beside.append(suite(box, "2 without", 2, "ddp", False, 60, CUDA_VISIBLE_DEVICES="2,3"))
        steps += [two, compare_step(box, 2, "2 without", "2 with")] if n >= 4 else [two]
    steps += [suite(box, f"{n} expandable", n, "coalesced,graphs,ddp", True, 90,
                    PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"),
              compare_step(box, n, f"{n} without", f"{n} expandable"),
              suite(box, f"{n} compiled", n, "compiled", True, 120, TORCH_CHECK_TIMEOUT=100, BEELINE_TIMEOUT=100)]
    return steps


def truth(box):
    """Errors of sums of bf16 and fp16 against fp64, with Beeline and without."""
    steps = []
    for n in box.ranks:
        sides = ("without", False), ("with", True)
        steps += [torchrun(box, f"{n} sums {name}", n, "torch_truth.py", preload, 60) for name, preload in sides]
        steps.append(compare_step(box, n, *(f"{n} sums {name}" for name, _ in sides)))
    return steps


def distributed(box):
    """PyTorch's own suite, with and without Beeline.  Its verdicts stay in a file, so that a later command goes on with the rest."""
    added = {name: value for name, value in box.env().items() if name != "BEELINE_TIMEOUT"}  # as users have it: no limit
    sides = [f"{name}={value}" for name, value in added.items() if name != "LD_LIBRARY_PATH"]
    verdicts = os.path.join(box.folder, "torch-distributed.verdicts")
    return [Step(f"{n} ranks", ["python3", os.path.join(GPU_TESTS, "distributed_suite.py"), "--ranks", n, "--gpus", box.gpus, "--verdicts", verdicts,
                                *(word for side in sides for word in ("--with", side))], box.env(False), 570, r"(?m)^ok: of \d+ tests")
            for n in sorted(box.ranks)]


def plans(n):
    """Which ranks have Beeline (b), another build of it (o), nothing (-): every set of ranks without, and two builds."""
    some = ["".join("-b"[bits >> rank & 1] for rank in range(n)) for bits in range(1, 2**n - 1)]
    return [*some, "b" * (n - 1) + "o", *(["bo" * (n // 2)] if n > 3 else [])]


def preloads(box):
    """Jobs whose ranks do not all have the same preload, twenty at a time; on two GPUs each 20 times."""
    other = os.path.join(tempfile.mkdtemp(prefix="gpu-check-"), "libbeeline.so")
    subprocess.run([os.path.join(box.root, "test/meeting/other_build"), box.library, other], check=True)
    steps = []
    for n in box.ranks:
        jobs = [torchrun(box, f"{plan} {number}", n, "torch_preloads.py", False, 90, f"--plan={plan}", "--library", box.library, "--other", other,
                         BEELINE_DEBUG="INFO")
                for plan in plans(n) for number in range(20 if n == 2 else 5)]
        for first in range(0, len(jobs), 20):
            jobs[first].beside += jobs[first + 1:first + 20]
            steps.append(jobs[first])
    return steps


def gather(box):
    """All-gather and reduce-scatter through PyTorch: as Beeline routes them, then each algorithm forced."""
    n, names = box.most, [list(algorithms(collective).values()) for collective in FORCED]
    steps = [torchrun(box, f"{n} gather", n, "torch_gather.py", True, 90)]
    for i in range(max(map(len, names))):
        forced = {variable(collective): of[min(i, len(of) - 1)] for collective, of in zip(FORCED, names) if of}
        steps.append(torchrun(box, f"{n} {' '.join(forced.values())}", n, "torch_gather.py", True, 60, "--sections",
                              "gather,scatter,large,coalesced,streams,graphs", **forced))
    return steps


def messages(box):
    """Sends and receives: values, and times with Beeline and without."""
    return [torchrun(box, f"{n} {'with' if preload else 'without'}", n, "torch_messages.py", preload, 60) for n in box.ranks for preload in (True, False)]


def fsdp(box):
    """Training steps with FSDP2."""
    return turns(box, [box.most], "torch_fsdp.py", 100, "--seconds", "40", jobs=(Job("with", True, **FEW_WORDS), Job("without", False)))


def overlap(box):
    """An all-gather beside a matrix product: through NCCL, and each of Beeline's algorithms."""
    names = algorithms("all_gather")
    jobs = [Job("nccl", False), *(Job(name, True, "--route", name, BEELINE_ALLGATHER=forced, **FEW_WORDS) for name, forced in names.items())]
    return turns(box, [box.most], "torch_overlap.py", 50, "--jobs", len(jobs), jobs=jobs)


def load(box):
    """All-reduces beside a large matrix product."""
    return turns(box, [box.most], "torch_load.py", 50, "--seconds", "8")


def decode(box):
    """Tensor-parallel decoding of a model of Llama 8B's shape, on as many ranks as its heads can be divided by."""
    return llama(box, "torch_decode.py", 60, 12)


def prefill(box):
    """Prefill with the same model."""
    return llama(box, "torch_prefill.py", 80, 15)


def llama(box, program, limit, seconds):
    ranks = [n for n in box.ranks if 8 % n == 0]  # the model's key and value heads
    return turns(box, ranks, program, limit, "--seconds", seconds) if ranks else []
