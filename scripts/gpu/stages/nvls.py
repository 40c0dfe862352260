"""The stages of validate-nvls in their order: a stage is a function of the box that gives its steps."""
import os
import shlex

from beeline.tuning.box import algorithms, served
from beeline.tuning.collectives import variable
from beeline.tuning.process import Stage, Step

from .. import machine
from ..box import FEW_WORDS
from ..nvls_tuning import write_forced, write_tuned
from . import torch

ALGORITHMS = (  # collective; what is forced with multicast, and without
    ("all_reduce", "oneshot_nvls", "oneshot_ll"),
    ("all_reduce", "twoshot_nvls", "twoshot_ll128"),
    ("all_gather", "allgather_nvls", "allgather_ll128"),
    ("reduce_scatter", "reducescatter_nvls", "reducescatter_ll128"),
)
COLLECTIVES = "all_reduce,all_gather,reduce_scatter"
ON = dict(BEELINE_MULTICAST="1")
# An object is made only where a row or a forced algorithm would use it.
USED = dict(ON, BEELINE_ALLREDUCE="twoshot_nvls")
STANDS = r"INFO .*\bmulticast [0-9.]+ [KM]iB"  # the line that a communicator with an object prints
GRIDS = (8, 16, 32, 64, 128)


def route(name):
    """Matches a row that it served."""
    return rf"\| {name} "


def facts(box):
    """What the machine is; nothing here can fail."""
    lines = ["uname -srm", "date -u", "nproc", "cat /proc/driver/nvidia/version", "nvidia-smi", "nvidia-smi topo -m",
             "nvidia-smi -q | grep -i -A6 -E 'fabric|vbios version|product name'",
             "systemctl is-active nvidia-fabricmanager", "nv-fabricmanager --version", "ls -l /dev/nvidia-caps-imex-channels /dev/nvidia-nvswitchctl",
             "env | grep -E '^(NCCL|BEELINE|NVSHMEM|TORCH|CUDA|LD)_' | sort", "git rev-parse HEAD", "git status --short",
             f"sha256sum {shlex.quote(box.library)}", "python3 -c 'import torch; print(torch.__version__, torch.cuda.nccl.version())'"]
    script = "; ".join(f"echo {shlex.quote('$ ' + line)}; timeout 30 {line if '|' not in line else 'sh -c ' + shlex.quote(line)} 2>&1" for line in lines)
    return [Step("machine", ["sh", "-c", script + "; true"], limit=120)]


def without(box):
    """Beeline and NCCL as they are without multicast objects of Beeline's: nothing is created yet."""
    sizes = box.pick("-b 8 -e 16M -f 8 --odd -n 3 -G 3 -w 1", "-b 8 -e 4K -f 8 --odd -n 1 -G 2 -w 0")
    return [box.perf(f"{box.most} ranks", "-t", box.most, "-c", COLLECTIVES, *sizes, limit=90, want=served(),
                     BEELINE_MULTICAST="0", **FEW_WORDS)]


def first(box):
    """The first objects: two ranks, then all, as threads and as processes."""
    sizes = box.pick("-b 8 -e 64K -f 8 -n 1 -G 1 -w 0", "-b 64 -e 1K -f 16 -n 1 -G 1 -w 0")
    return [box.perf(f"{n} {how}", option, n, *sizes, limit=90, want=STANDS, **USED, **FEW_WORDS)
            for n in sorted({2, box.most}) for how, option in (("threads", "-t"), ("processes", "--spawn"))]


def measured(box):
    """Numbers of ranks for which there are thresholds, and all."""
    return [n for n in box.ranks if n in (2, 4, 6, 8, box.most)]


def check(box):
    """Each algorithm forced, with every number of ranks: sizes, datatypes, operations, odd counts and addresses, in place and
    not, eager and in graphs."""
    steps = []
    for collective, name, _ in ALGORITHMS:
        env = dict(ON, **{variable(collective): name})
        for n in box.ranks:
            common = ("-c", collective, "-n", "1", "-w", "0")
            kinds = box.pick("-d all -o all" if n in measured(box) else "-d bfloat16,half,float,int32 -o sum,max", "-d bfloat16,int32 -o sum,max")
            every = box.pick("-b 8 -e 1M -f 128 --odd --offset 0,1 -G 2", "-b 24 -e 3K -f 128 --odd --offset 1 -G 1 --place in")
            steps.append(box.perf(f"{name}, {n} ranks, types", "-t", n, *common, *kinds, *every, limit=600, want=route(name), **env))
            if box.emulated and n != box.most:
                continue
            sizes = box.pick("-b 8 -e 1G -f 4 --odd --offset 0,2 -G 3", "-b 8 -e 20K -f 50 --odd --offset 2 -G 1")
            steps.append(box.perf(f"{name}, {n} ranks, sizes", "--spawn", n, *common, *sizes, limit=600, want=route(name), **env))
    return steps


def bits(box):
    """All ranks get the same bits, of numbers whose sum depends on the order; needs PyTorch."""
    if not machine.output_of(["python3", "-c", "import torch; print(torch.__version__)"]):
        return []
    return [torch.torchrun(box, f"{box.most} {name}", box.most, "torch_allreduce.py", True, 120, "--sections", sections,
                             **ON, BEELINE_ALLREDUCE=name)
            for name, sections in (("twoshot_nvls", "same_bits"), ("oneshot_nvls", "bits,same_bits"))]


def slots(box):
    """Objects are given back: many communicators, one after another."""
    rounds = 3 if box.emulated else 40
    return [Step(f"{box.most} ranks {name}", box.script("setup_time.py", "--ranks", box.most, "--rounds", rounds), box.env(**env),
                 240, '"record": "setup"') for name, env in (("without", dict(BEELINE_MULTICAST="0")), ("with", USED))]


def measure(box):
    """Each algorithm forced, with multicast and its counterpart without, and NCCL in turn in each run; NCCL with and without
    multicast of its own."""
    steps = []
    graph = box.pick("-b 1K -e 256M -f 2 -n 15 -G 20 -w 3 --seconds 0.6", "-b 1K -e 4K -f 4 -n 2 -G 2 -w 1")
    eager = box.pick("-b 1K -e 64M -f 4 -n 15 -G 50 -w 5 --seconds 0.6", "-b 1K -e 1K -n 2 -G 2 -w 1")
    for n in reversed(measured(box)):
        for collective, ours, plain in ALGORITHMS:
            for name, env in ((ours, ON), (plain, dict(BEELINE_MULTICAST="0"))):
                forced = {variable(collective): algorithms(collective).get(name, name)}
                steps.append(box.perf(f"{name}, {n} ranks, graph", "-t", n, "-c", collective, "--mode", "graph", "--place", "out", *graph,
                                      limit=120, want=route(name), **env, **forced))
                if n == box.most:
                    steps.append(box.perf(f"{name}, {n} ranks, eager", "--spawn", n, "-c", collective, "--mode", "eager", "--place", "out",
                                          *eager, limit=120, want=route(name), **env, **forced))
        steps.append(box.perf(f"NCCL without multicast, {n} ranks, graph", "-t", n, "-c", COLLECTIVES, "--mode", "graph", "--place", "out",
                              *graph, limit=240, NCCL_NVLS_ENABLE="0"))
    return steps


def grids(box):
    """twoshot_nvls with fewer blocks and more."""
    steps = []
    sizes = box.pick("-b 256K -e 64M -f 4 -n 15 -G 20 -w 3 --seconds 0.5", "-b 4K -e 4K -n 1 -G 1 -w 0")
    for blocks in box.pick(GRIDS, GRIDS[:1]):
        path = os.path.join(box.folder, f"blocks-{blocks}.tune")
        with open(path, "w", encoding="ascii") as file:
            file.write(f"gpu any multicast\nall_reduce {box.most} max twoshot_nvls threads=256 blocks={blocks}\n")
        steps.append(box.perf(f"{blocks} blocks", "-t", box.most, "--mode", "graph", "--place", "out", *sizes, limit=90,
                              want=route("twoshot_nvls"), BEELINE_TUNING_FILE=path, **ON))
    return steps


def tuned_file(box, n):
    return os.path.join(box.folder, f"tuned-{n}.tune")


def tune(box):
    """Thresholds for this box: each algorithm with each block size, with every number of ranks."""
    sizes = box.pick("-b 256 -e 64M -f 2 -n 15 -G 20 -w 3 --seconds 0.4", "-b 1K -e 4K -f 4 -n 1 -G 1 -w 0")
    return [box.perf(f"{n} ranks", "-t", n, "-c", COLLECTIVES, "--mode", "graph", "--place", "out", *sizes, "--served", "--tunings",
                     ",".join(write_forced(box.folder, COLLECTIVES.split(","), n)), limit=900, want=route("twoshot_nvls"),
                     BEELINE_TUNING_FILE=os.path.join(box.folder, f"place-{n}"), **ON)
            for n in reversed(measured(box))]


def tuned(box):
    """Beeline with these thresholds, a tuning file for each number of ranks, and NCCL."""
    sizes = box.pick("-b 256 -e 256M -f 2 -n 15 -G 20 -w 3 --seconds 0.6", "-b 1K -e 4K -f 4 -n 2 -G 2 -w 1")
    for n in reversed(measured(box)):
        write_tuned(tuned_file(box, n), box.folder, COLLECTIVES.split(","), n)
        yield box.perf(f"{n} ranks", "-t", n, "-c", COLLECTIVES, "--mode", "graph", "--place", "out", *sizes, limit=240,
                       want="0 wrong values", BEELINE_TUNING_FILE=tuned_file(box, n), **ON, **FEW_WORDS)


STAGES = {plan.__name__: Stage(plan.__name__, plan, on_gpus=plan == bits)
          for plan in (facts, without, first, check, bits, slots, measure, grids, tune, tuned)}
CREATES = ("first", "check", "bits", "slots", "measure", "grids", "tune", "tuned")  # stages whose communicators have multicast objects
