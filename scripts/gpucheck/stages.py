"""The stages of gpu-check, in order of importance: which commands each runs.  A stage is a function of the box."""
import itertools
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from . import program_stages, vllm_stage
from .process import Step

GPU_TESTS = "test/gpu"
WAIT = 20  # seconds that a kernel of Beeline waits for a peer: a hang then ends in an error that says where
NCCL_TESTS_OK = r"Out of bounds values : 0 OK"
FEW_WORDS = dict(BEELINE_DEBUG="INFO", BEELINE_STATS="1")


class Box:
    """Where this runs: root of the repository, build folder, GPUs, rank counts, folders of the real NCCL, nccl-tests, results and vLLM's files."""

    def __init__(self, root, build, gpus, ranks, emulated, nccl_folder, nccl_tests, folder, vllm=None):
        self.root, self.build, self.gpus, self.ranks, self.emulated = root, build, gpus, ranks, emulated
        self.nccl_folder, self.nccl_tests, self.folder, self.vllm = nccl_folder, nccl_tests, folder, vllm
        self.library = os.path.join(build, "libbeeline.so")
        self.most = ranks[0]
        self.serial = itertools.count(1)

    def env(self, preload=True, **more):
        """What a command of a job gets beside our own environment."""
        added = {name: str(value) for name, value in more.items()}
        if preload:
            added.setdefault("BEELINE_TIMEOUT", str(WAIT))
            added["LD_PRELOAD"] = ":".join(filter(None, (self.library, os.environ.get("LD_PRELOAD"))))
        if self.nccl_folder:
            added["LD_LIBRARY_PATH"] = ":".join(filter(None, (self.nccl_folder, os.environ.get("LD_LIBRARY_PATH"))))
        return added

    def perf(self, name, *arguments, limit=30, want=None, **env):
        """beeline-perf with Beeline; its rows go to the records."""
        records = os.path.join(self.folder, f"perf-{next(self.serial)}.json")
        argv = [os.path.join(self.build, "beeline-perf"), "--timeout", max(10, limit - 5), "--json", records, *arguments]
        return Step(name, argv, self.env(**env), limit, want, records)

    def pick(self, real, emulated):
        """Arguments for a GPU box, or for an emulated one, which is slower by a factor of a thousand."""
        chosen = emulated if self.emulated else real
        return chosen.split() if isinstance(chosen, str) else chosen


def algorithms(root, collective="ALLREDUCE"):
    """{route: what forces it} of a collective's algorithms that need no multicast object, from the one list of all; what spreads over
    warps is a route of its own."""
    with open(os.path.join(root, "kernels/algorithms.def"), encoding="utf-8") as rows:
        found = re.findall(rf"^BL_ALGORITHM\(\w+, \w+, (\w+), {collective}, (.*)\)$", rows.read(), re.M)
    routes = {}
    for name, rest in found:
        if "BL_NVLS" not in rest:
            routes |= {name: f"{name}:lines", f"{name}:warps": f"{name}:warps"} if "WARPS" in rest else {name: name}
    return routes


def served(root, collectives=("ALLREDUCE",)):
    """Matches a row that Beeline served."""
    return r"\| (" + "|".join(name for collective in collectives for name in algorithms(root, collective)) + r") "


def facts(box):
    program = "import torch, torch.cuda.nccl as n; print('torch', torch.__version__, 'NCCL', n.version(), torch.cuda.device_count(), 'GPUs')"
    first = Step("variables", ["sh", "-c", "uname -srm; nproc; date -u; env | grep -E '^(NCCL|BEELINE|NVSHMEM|TORCH|CUDA|LD)_' | sort; "
                 "git rev-parse HEAD 2>/dev/null; sha256sum " + box.library], limit=10)
    if not box.emulated:
        first.beside = [
            Step("GPUs", ["nvidia-smi", "-L"], limit=10),
            Step("driver", ["nvidia-smi", "--query-gpu=index,name,driver_version,pci.bus_id,mig.mode.current,memory.used,clocks.sm",
                            "--format=csv"], limit=10),
            Step("topology", ["nvidia-smi", "topo", "-m"], limit=10),
            Step("torch", ["python3", "-c", program], limit=30),
        ]
    return [first]


def smoke(box):
    """Few small sizes, each checked: threads of one process, then processes."""
    sizes = box.pick("-b 8 -e 1M -f 8 --odd -n 3 -G 3 -w 1", "-b 8 -e 4K -f 8 --odd -n 2 -G 2 -w 1")
    return [box.perf(f"{how} {box.most}", option, box.most, *sizes, limit=40, want=served(box.root), **FEW_WORDS)
            for how, option in (("threads", "-t"), ("processes", "--spawn"))]


FORBID_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}


def multicast_off(box):
    """Multicast stays off by default; and, where a variable forbids it, even if it is asked for.  Elsewhere nobody asks."""
    def step(name, reason, **env):
        return box.perf(name, "-t", box.most, "-b", "1K", "-e", "1K", "-n", 2, "-G", 2, want=rf"multicast off \({reason}\)",
                        **dict(FEW_WORDS, **env))
    forbidding = [f"{name}={value}" for name, value in FORBID_MULTICAST.items() if os.environ.get(name) == value]
    steps = [step("default", "BEELINE_MULTICAST=0")]
    return steps + [step("forbidden", rf"rank \d+: {forbidding[0]}", BEELINE_MULTICAST="1")] if forbidding else steps


def perf_graph(box):
    sizes = box.pick("-b 8 -e 64M -f 2 -n 20 -G 20 --seconds 1", "-b 256 -e 16K -f 4 -n 3 -G 2")
    return [box.perf(f"{n} ranks", "-t", n, "--mode", "graph", "--place", "out", *sizes, limit=45) for n in box.ranks]


def perf_eager(box):
    sizes = box.pick("-b 256 -e 64M -f 4 -n 15 -G 50 --seconds 1", "-b 256 -e 16K -f 8 -n 3 -G 2")
    return [box.perf(f"{n} processes", "--spawn", n, "--mode", "eager", "--place", "out", *sizes, limit=40) for n in box.ranks]


def perf_routes(box):
    sizes = box.pick("-b 256 -e 16M -f 2 -n 11 -G 20 --seconds 0.5", "-b 256 -e 4K -f 4 -n 3 -G 2")
    return [box.perf(f"{n} ranks {name}", "-t", n, "--mode", "graph", "--place", "out", *sizes, limit=30, BEELINE_ALLREDUCE=forced)
            for n in box.ranks for name, forced in algorithms(box.root).items()]


def perf_big(box):
    sizes = box.pick("-b 128M -e 1G -f 2 -n 5 -G 4 -w 1 --seconds 1", "-b 256K -e 1M -f 4 -n 1 -G 1 -w 0")
    return [box.perf(f"{n} ranks", "-t", n, "--mode", "graph", "--place", "out", *sizes, limit=60) for n in box.ranks[:1]]


def types(box):
    """Every datatype and operation, odd counts, in place and not; odd addresses; the collectives beside all-reduce."""
    sizes = box.pick("-b 3000 -e 3000000 -f 31", "-b 300 -e 3000 -f 10")
    few = box.pick("-b 8 -e 4M -f 32", "-b 64 -e 4K -f 64")
    n = box.most
    once = ("-n", 1, "-G", 1, "-w", 0)
    odd_address = box.pick("bfloat16,float,int8,double", "bfloat16")[0]
    return [
        box.perf("all", "-t", n, "-d", "all", "-o", "all", "--odd", "--mode", "eager", *once, *sizes, limit=90),
        box.perf("odd address", "-t", n, "-d", odd_address, "--odd", "--offset", 1, *once, *few, limit=40),
        box.perf("other collectives", "-t", n, "-c", "all_gather,reduce_scatter", "-d", odd_address, *once, *few, limit=40),
    ]


def perf_groups(box):
    """64 calls in one group: what a step of training or a list of small tensors issues."""
    sizes = box.pick("--group 64 -b 4K -e 64K -f 4 -n 15 -G 4 -w 2 --seconds 0.5", "--group 6 -b 1K -e 1K -n 2 -G 1 -w 1")
    return [box.perf(f"{n} ranks", "--spawn", n, "--place", "out", *sizes, limit=20) for n in box.ranks]


def perf_types(box):
    """Times of datatypes, operations, odd counts and addresses, beside those of an aligned bf16 sum."""
    sizes = box.pick("-b 16K -e 16M -f 4 -n 10 -G 20 -w 2 --seconds 0.2", "-b 1K -e 4K -f 4 -n 2 -G 1 -w 1")
    common = ("-t", box.most, "--mode", "graph", "--place", "out", *sizes)
    return [box.perf("types", *common, "-d", "all", limit=30),
            box.perf("odd", *common, "-d", "bfloat16,float,int8", "--odd", "--offset", "0,1,2,8", limit=30),
            box.perf("operations", *common, "-d", "bfloat16,half,float,int32", "-o", "min,max,prod,avg", limit=30)]


PARTS = "all_gather,reduce_scatter"
FORCED = (("all_gather", "ALLGATHER"), ("reduce_scatter", "REDUCESCATTER"))  # BEELINE_...


def parts(ranks, low, high, factor):
    """Sizes from `low` to `high` bytes a rank: beeline-perf's are of the whole message."""
    return ("-b", low * ranks, "-e", high * ranks, "-f", factor)


def perf_gather(box):
    """All-gather and reduce-scatter, 8 B to 64 MB a rank, in place and not."""
    steps = []
    for n in box.ranks:
        graph = box.pick("-n 12 -G 20 -w 2 --seconds 0.2", "-n 2 -G 2 -w 1")
        eager = box.pick("-n 10 -G 20 -w 2 --seconds 0.2", "-n 2 -G 2 -w 1")
        steps.append(box.perf(f"{n} ranks", "-t", n, "-c", PARTS, "--mode", "graph", *parts(n, 16, *box.pick((64 << 20, 4), (1024, 8))), *graph, limit=30))
        steps.append(box.perf(f"{n} processes", "--spawn", n, "-c", PARTS, "--mode", "eager", *parts(n, 8, *box.pick((16 << 20, 8), (512, 64))), *eager,
                              limit=25))
    return steps[::2] + steps[1::2]


def perf_gather_routes(box):
    """Each algorithm forced, in place as FSDP's calls are; in graphs and, one process a rank, eager."""
    steps = []
    for n in box.ranks:
        for collective, variable in FORCED:
            for name, forced in algorithms(box.root, variable).items():
                how = box.pick("-n 9 -G 10 -w 2 --seconds 0.15", "-n 2 -G 2 -w 1")
                steps.append(box.perf(f"{n} ranks {name}", "--spawn", n, "-c", collective, "--place", "in",
                                      *parts(n, 256, *box.pick((64 << 20, 4), (1024, 4))), *how, limit=20, **{f"BEELINE_{variable}": forced}))
    return steps


def perf_gather_groups(box):
    """64 of them in one group."""
    how = box.pick("--group 64 -n 11 -G 4 -w 2 --seconds 0.3", "--group 6 -n 2 -G 1 -w 1")
    return [box.perf(f"{n} ranks", "--spawn", n, "-c", PARTS, "--place", "out", *parts(n, *box.pick((4 << 10, 64 << 10, 4), (256, 256, 4))), *how,
                     limit=20) for n in box.ranks]


def perf_gather_types(box):
    """As perf-types."""
    n = box.most
    sizes = (*parts(n, *box.pick((16 << 10, 4 << 20, 16), (256, 1024, 4))), *box.pick("-n 8 -G 10 -w 2 --seconds 0.15", "-n 2 -G 1 -w 1"))
    common = ("-t", n, "--mode", "graph", "--place", "out", *sizes)
    return [box.perf("types", *common, "-c", PARTS, "-d", "all", limit=25),
            box.perf("odd", *common, "-c", PARTS, "-d", "bfloat16,float,int8", "--odd", "--offset", "0,1,2,8", limit=25),
            box.perf("operations", *common, "-c", "reduce_scatter", "-d", "bfloat16,half,float,int32", "-o", "min,max,prod,avg", limit=25)]


def perf_others(box):
    """All-to-all, broadcast and reduce, 8 B to 16 MB, in place and not."""
    graph, eager = (("-c", "all_to_all,broadcast,reduce", "--mode", mode, *box.pick(real, "-b 64 -e 4K -f 64 -n 2 -G 2 -w 1")) for mode, real in (
        ("graph", "-b 1K -e 16M -f 4 -n 12 -G 20 -w 2 --seconds 0.2"), ("eager", "-b 8 -e 16M -f 8 -n 10 -G 20 -w 2 --seconds 0.2")))
    return [*(box.perf(f"{n} ranks", "-t", n, *graph, limit=20) for n in box.ranks),
            *(box.perf(f"{n} processes", "--spawn", n, *eager, limit=20) for n in box.ranks)]


def latency(box):
    """One eager call at a time, one process a rank, from a common start to its end."""
    sizes = box.pick("-b 256 -e 16M -f 4 -n 200 -G 1 -w 10 --seconds 0.5", "-b 256 -e 4K -f 16 -n 3 -G 1 -w 1")
    return [box.perf(f"{n} processes", "--spawn", n, "--mode", "eager", "--place", "out", *sizes, limit=20) for n in box.ranks]


def load(box):
    """All-reduces beside a large matrix product."""
    return torch_turns(box, [box.most], "torch_load.py", 50, "--seconds", "8")


def decode(box):
    """Tensor-parallel decoding of a model of Llama 8B's shape."""
    return torch_turns(box, box.ranks, "torch_decode.py", 60, "--seconds", "12")


# name, program, arguments ({n} ranks), limit
NCCL_TESTS = (
    ("one thread", "all_reduce_perf", "-g {n} -b 8 -e 64M -f 8 -c 1 -n 5 -w 2", 30),
    ("threads", "all_reduce_perf", "-t {n} -g 1 -b 8 -e 64M -f 8 -c 1 -n 5 -w 2", 30),
    ("graphs", "all_reduce_perf", "-g {n} -G 5 -b 8 -e 16M -f 8 -c 1 -n 5 -w 2", 30),
    ("graphs, threads", "all_reduce_perf", "-t {n} -g 1 -G 5 -b 8 -e 16M -f 8 -c 1 -n 5 -w 2", 30),
    ("all_gather", "all_gather_perf", "-g {n} -b 256 -e 16M -f 16 -c 1 -n 5 -w 2", 30),
    ("reduce_scatter", "reduce_scatter_perf", "-g {n} -b 256 -e 16M -f 16 -c 1 -n 5 -w 2", 30),
    ("odd sizes, bytes", "all_reduce_perf", "-g {n} -d uint8 -b 1 -e 70001 -i 7001 -c 1 -n 2 -w 1", 30),
    ("odd sizes, half", "all_reduce_perf", "-t {n} -g 1 -d half -o all -b 2 -e 200002 -i 40002 -c 1 -n 2 -w 1", 30),
    ("all types", "all_reduce_perf", "-t {n} -g 1 -d all -o all -b 8 -e 1M -f 8 -c 1 -n 2 -w 1", 90),
    ("all_gather, graphs", "all_gather_perf", "-t {n} -g 1 -G 5 -b 256 -e 16M -f 16 -c 1 -n 5 -w 2", 30),
    ("reduce_scatter, types", "reduce_scatter_perf", "-t {n} -g 1 -d all -o all -b 256 -e 256K -f 32 -c 1 -n 2 -w 1", 60),
)


def find_program(folder, name, mpi):
    """In the folder or its build/; an MPI build in mpi/ or with the ending _mpi."""
    places = (f"mpi/{name}", f"{name}_mpi", f"build/{name}_mpi") if mpi else (name, f"build/{name}")
    return next((path for path in (os.path.join(folder, place) for place in places) if os.access(path, os.X_OK)), None)


def mpi_step(box, n):
    program = find_program(box.nccl_tests, "all_reduce_perf", True)
    mpirun = shutil.which("mpirun")
    if not program or not mpirun:
        return []
    options = []
    if "Open MPI" in os.popen(f"{mpirun} --version 2>&1").read():
        options = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    given = [f"{name}={value}" for name, value in box.env().items()]  # to the ranks alone, whatever mpirun passes on
    argv = [mpirun, *options, "-np", n, "env", *given, program, *"-g 1 -b 8 -e 64M -f 8 -c 1 -n 5 -w 2".split()]
    return [Step("processes", argv, limit=40, want=NCCL_TESTS_OK)]


def nccl_tests(box):
    if not box.nccl_tests or box.emulated:
        return []
    steps = []
    for name, program, arguments, limit in NCCL_TESTS:
        path = find_program(box.nccl_tests, program, False)
        if path:
            steps.append(Step(name, [path, *arguments.format(n=box.most).split()], box.env(), limit, NCCL_TESTS_OK))
    return steps[:3] + mpi_step(box, box.most) + steps[3:]


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


TORCH_CHECKS = "eager,bits,same_bits,coalesced,in_flight,streams,groups,others,graphs"


def torch_job(box, name, ranks, program, preload, limit, *arguments, **env):
    """A torchrun job of a program in test/gpu."""
    records = os.path.join(box.folder, f"torch-{name.replace(' ', '-')}.json")
    argv = [sys.executable if box.emulated else "python3", "-m", "torch.distributed.run", "--nproc_per_node", ranks,
            "--master_addr", "127.0.0.1", "--master_port", next(PORTS), os.path.join(GPU_TESTS, program),
            *arguments, "--json", records, "--tag", name]
    env = dict(dict(OMP_NUM_THREADS=1, TORCHINDUCTOR_COMPILE_THREADS=1, TORCH_CHECK_TIMEOUT=40), **env)
    return Step(name, argv, box.env(preload, **env), limit, r"\d+ passed, 0 failed", records)


def torch_step(box, name, ranks, parts, preload, limit, **env):
    """Several parts in one job.  Its tag names what was the same about losses to be compared."""
    return torch_job(box, name, ranks, "torch_suite.py", preload, limit, "--parts", parts, **env)


TOLD = 15  # seconds that a job needs from the start of its last round to its end


class Job:
    """One of the jobs that take turns: its name, whether Beeline is preloaded, arguments and variables of its own."""

    def __init__(self, name, preload, *arguments, **env):
        self.name, self.preload, self.arguments, self.env = name, preload, arguments, env


PAIR = (Job("with", True), Job("without", False))


def torch_turns(box, all_ranks, program, limit, *arguments, jobs=PAIR):
    """Of each number of ranks the jobs of a program, as with Beeline and without.  All start at once, and take turns to measure.
    However long they took to start, what they measured is told before the limit."""
    if box.emulated:
        return []
    folder = os.path.join(tempfile.gettempdir(), f"gpu-check-turns-{os.getpid()}-{program}")
    first, *others = [torch_job(box, f"{n} {job.name}", n, program, job.preload, limit, "--turns", os.path.join(folder, str(n)),
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
    if box.emulated:
        return []
    n = box.most
    alone = torch_step(box, f"{n} without", n, "ddp,latency", False, 60)
    steps = [torch_step(box, f"{n} with", n, TORCH_CHECKS + ",ddp,latency,graphs_overlap", True, 120), alone,
             compare_step(box, n, f"{n} without", f"{n} with")]
    if 2 in box.ranks and n > 2:
        two = torch_step(box, "2 with", 2, TORCH_CHECKS + ",ddp,graphs_overlap", True, 90, CUDA_VISIBLE_DEVICES="0,1")
        if n >= 4:  # the other GPUs are free meanwhile
            two.beside.append(torch_step(box, "2 without", 2, "ddp", False, 60, CUDA_VISIBLE_DEVICES="2,3"))
        steps += [two, compare_step(box, 2, "2 without", "2 with")] if n >= 4 else [two]
    steps += [torch_step(box, f"{n} expandable", n, "coalesced,graphs,ddp", True, 90,
                         PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"),
              compare_step(box, n, f"{n} without", f"{n} expandable"),
              torch_step(box, f"{n} compiled", n, "compiled", True, 120, TORCH_CHECK_TIMEOUT=100, BEELINE_TIMEOUT=100)]
    return steps


def truth(box):
    """Errors of sums of bf16 and fp16 against fp64, with Beeline and without."""
    if box.emulated:
        return []
    steps = []
    for n in box.ranks:
        sides = ("without", False), ("with", True)
        steps += [torch_job(box, f"{n} sums {name}", n, "torch_truth.py", preload, 60) for name, preload in sides]
        steps.append(compare_step(box, n, *(f"{n} sums {name}" for name, _ in sides)))
    return steps


def torch_distributed(box):
    """PyTorch's own suite, with and without Beeline.  Its verdicts stay in a file, so that a later command goes on with the rest."""
    if box.emulated:
        return []
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
    if box.emulated:
        return []
    other = os.path.join(tempfile.mkdtemp(prefix="gpu-check-"), "libbeeline.so")
    subprocess.run([os.path.join(box.root, "test/meeting/other_build"), box.library, other], check=True)
    steps = []
    for n in box.ranks:
        jobs = [torch_job(box, f"{plan} {number}", n, "torch_preloads.py", False, 90, f"--plan={plan}", "--library", box.library, "--other", other,
                          BEELINE_DEBUG="INFO")
                for plan in plans(n) for number in range(20 if n == 2 else 5)]
        for first in range(0, len(jobs), 20):
            jobs[first].beside += jobs[first + 1:first + 20]
            steps.append(jobs[first])
    return steps


def torch_gather(box):
    """All-gather and reduce-scatter through PyTorch: as Beeline routes them, then each algorithm forced."""
    if box.emulated:
        return []
    n, names = box.most, [list(algorithms(box.root, variable).values()) for _, variable in FORCED]
    steps = [torch_job(box, f"{n} gather", n, "torch_gather.py", True, 90)]
    for i in range(max(map(len, names))):
        forced = {f"BEELINE_{variable}": of[min(i, len(of) - 1)] for (_, variable), of in zip(FORCED, names) if of}
        steps.append(torch_job(box, f"{n} {' '.join(forced.values())}", n, "torch_gather.py", True, 60, "--sections",
                               "gather,scatter,large,coalesced,streams,graphs", **forced))
    return steps


def fsdp(box):
    """Training steps with FSDP2."""
    return torch_turns(box, [box.most], "torch_fsdp.py", 100, jobs=(Job("with", True, **FEW_WORDS), Job("without", False)))


def overlap(box):
    """An all-gather beside a matrix product: through NCCL, and each of Beeline's algorithms."""
    names = algorithms(box.root, "ALLGATHER")
    jobs = [Job("nccl", False), *(Job(name, True, "--route", name, BEELINE_ALLGATHER=forced, **FEW_WORDS) for name, forced in names.items())]
    return torch_turns(box, [box.most], "torch_overlap.py", 50, "--jobs", len(jobs), jobs=jobs)


def host_time(box):
    """Host microseconds of a call: on the way to NCCL through Beeline and past it, and of Beeline's own launches."""
    sizes = box.pick("-b 1K -e 64K -f 8 -n 20 -G 50 -w 20", "-b 1K -e 1K -f 8 -n 2 -G 2")
    common = ("--spawn", box.most, "--mode", "eager", "--place", "out", *sizes)
    return [box.perf("own routes", *common, limit=30),
            box.perf("routes to NCCL", *common, limit=30, BEELINE_ALLREDUCE="nccl")]


def setup_time(box):
    program = os.path.join(box.root, "scripts/gpucheck/setup_time.py")
    steps = []
    for n in box.ranks[:1]:
        rounds = 2 if box.emulated else 4
        for name, preload in (("without", False), ("with", True)):
            steps.append(Step(f"{n} ranks {name}", [sys.executable, program, "--ranks", n, "--rounds", rounds, "--keep", 20],
                              box.env(preload, BEELINE_DEBUG="INFO"), 45, '"record": "setup"'))
    return steps


def neutrality(box):
    program = os.path.join(box.root, "scripts/gpucheck/neutrality.py")
    return [Step("/bin/true", [sys.executable, program, box.library, "--runs", "200", "--limit", "5000" if box.emulated else "1000"],
                 limit=20)]


STAGES = {"facts": facts, "smoke": smoke, "multicast-off": multicast_off, "perf-graph": perf_graph, "perf-eager": perf_eager, "perf-routes": perf_routes,
          "perf-big": perf_big, "types": types, "nccl-tests": nccl_tests, "torch": torch, "host-time": host_time,
          "setup-time": setup_time, "neutrality": neutrality, "perf-groups": perf_groups, "perf-types": perf_types,
          "latency": latency, "load": load, "decode": decode, "perf-gather": perf_gather, "perf-gather-routes": perf_gather_routes,
          "perf-gather-groups": perf_gather_groups, "perf-gather-types": perf_gather_types, "torch-gather": torch_gather,
          "preloads": preloads, "fsdp": fsdp, "overlap": overlap, "perf-others": perf_others, "torch-distributed": torch_distributed, "truth": truth,
          **vllm_stage.STAGES, **program_stages.STAGES}
BY_NAME = {**vllm_stage.STAGES, **program_stages.STAGES}  # need a network or `make gpu-programs`: asked for by name
DEFAULT = [name for name in STAGES if name not in BY_NAME]

# Seconds for a whole stage, where that is less than its steps' limits together.
LIMITS = {"perf-groups": 25, "perf-types": 45, "latency": 25, "load": 50, "decode": 60, "perf-gather": 40, "perf-gather-routes": 45,
          "perf-gather-groups": 20, "perf-gather-types": 40, "torch-gather": 120, "preloads": 300, "fsdp": 100, "overlap": 50, "perf-others": 40, **program_stages.LIMITS}
