"""Stages that check: the machine, few sizes, every datatype; what preloading and a communicator cost; NCCL's own tests."""
import os
import shutil

from beeline.tuning.box import served
from beeline.tuning.process import Step

from ..box import FEW_WORDS

NCCL_TESTS_OK = r"Out of bounds values : 0 OK"


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
    return [box.perf(f"{how} {box.most}", option, box.most, *sizes, limit=40, want=served(), **FEW_WORDS)
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


def host_time(box):
    """Host microseconds of a call: on the way to NCCL through Beeline and past it, and of Beeline's own launches."""
    sizes = box.pick("-b 1K -e 64K -f 8 -n 20 -G 50 -w 20", "-b 1K -e 1K -f 8 -n 2 -G 2")
    common = ("--spawn", box.most, "--mode", "eager", "--place", "out", *sizes)
    return [box.perf("own routes", *common, limit=30),
            box.perf("routes to NCCL", *common, limit=30, BEELINE_ALLREDUCE="nccl")]


def setup_time(box):
    program = box.script("setup_time.py", "--ranks", box.most, "--rounds", 2 if box.emulated else 4, "--keep", 20)
    return [Step(f"{box.most} ranks {name}", program, box.env(preload, BEELINE_DEBUG="INFO"), 45, '"record": "setup"')
            for name, preload in (("without", False), ("with", True))]


def neutrality(box):
    return [Step("/bin/true", box.script("neutrality.py", box.library, "--runs", "200", "--limit", "5000" if box.emulated else "1000"), limit=20)]


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
    ("sendrecv", "sendrecv_perf", "-g {n} -b 256 -e 16M -f 16 -c 1 -n 5 -w 2", 30),
    ("sendrecv, graphs", "sendrecv_perf", "-t {n} -g 1 -G 5 -b 256 -e 16M -f 16 -c 1 -n 5 -w 2", 30),
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
    if not box.nccl_tests:
        return []
    steps = []
    for name, program, arguments, limit in NCCL_TESTS:
        path = find_program(box.nccl_tests, program, False)
        if path:
            steps.append(Step(name, [path, *arguments.format(n=box.most).split()], box.env(), limit, NCCL_TESTS_OK))
    return steps[:3] + mpi_step(box, box.most) + steps[3:]
