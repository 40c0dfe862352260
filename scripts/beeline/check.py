"""Look this box over, and say what to fix: versions, GPUs, links, permissions, the data that arrives.

The last checks run beeline-perf over all GPUs, and over two, with each algorithm in turn, and look at every element.  NVLink
multicast is never used.

Exit status: 0, or 1 if something is to be fixed.
"""
import array
import glob
import json
import os
import re
import resource
import shutil
import socket
import subprocess
import tempfile
from collections import namedtuple

from . import box as boxes
from . import preload, report
from .words import Progress, Refused, amount, size_of

USAGE = "beeline check [--json] [-e SIZE]"
OK, NOT_OK, SKIPPED = "ok", "not ok", "skipped"
Result = namedtuple("Result", "name state text fix", defaults=[None])

MOST_RANKS = 16
SMALLEST = 256  # message that is tried
DRIVER = (12, 3)  # the CUDA of the oldest driver that has all calls
FILES = 1024  # descriptors: a communicator of 8 ranks needs some dozens on each
SHM = 64 << 20
LIMIT_S = 120  # of one run of beeline-perf
# Each algorithm at several sizes, but those of multicast; what cannot carry a size goes to the next.
ROUTES = {"ALLREDUCE": "..2K oneshot_ll | ..16K oneshot_ll128 | twoshot_ll128", "ALLGATHER": "..16K allgather_ll128 | allgather_ce",
          "REDUCESCATTER": "reducescatter_ll128", "ALLTOALL": "alltoall_ll128", "BROADCAST": "broadcast_ll128", "REDUCE": "reduce_ll128",
          "SENDRECV": "sendrecv_ll128"}
CHANGING = ("BEELINE_SWITCH", "BEELINE_COMMS", "BEELINE_STAGING", "BEELINE_BUDGET")  # what is served; tried without
UNSET = (*CHANGING, "BEELINE_DEBUG", "BEELINE_DEBUG_FILE", "BEELINE_STATS")


def arguments(parser):
    parser.add_argument("--json", action="store_true", help="as JSON: the checks, and whether all is well")
    parser.add_argument("-e", "--maxbytes", metavar="SIZE", default="16M", help="largest message that is tried (default: %(default)s)")


def main(options, _parser):
    try:
        accepted = size_of(options.maxbytes) >= SMALLEST
    except ValueError:
        accepted = False
    if not accepted:
        raise Refused(f"check: -e {options.maxbytes} is not accepted: a size from {SMALLEST}, K, M or G may follow")
    results = []
    for result in checks(options):
        results.append(result)
        if not options.json:
            print("\n".join(lines(result)), flush=True)
    bad = sum(result.state == NOT_OK for result in results)
    if options.json:
        print(json.dumps({"ok": not bad, "checks": [result._asdict() for result in results]}, indent=1))
    else:
        print(f"{bad} to fix" if bad else "nothing to fix")
    return 1 if bad else 0


def lines(result):
    said = [f"{result.state:8} {result.name:10} {result.text}"]
    return said + ([f"{'':19} fix: {result.fix}"] if result.fix else [])


def checks(options):
    try:
        library = preload.find_library()
    except Refused as why:
        yield Result("library", NOT_OK, str(why), "run make, or install Beeline again")
        library = None
    box = None
    if library:
        yield Result("library", OK, f"{library} loads")
        try:
            box = boxes.ask(library)
        except Refused as why:
            yield Result("box", SKIPPED, str(why))
    yield settings()
    if box:
        yield driver(box)
        yield nccl(box)
        yield from gpus(box)
    yield devices()
    yield shared_memory()
    yield limits()
    yield sockets()
    if not library:
        yield Result("data", SKIPPED, "no library")
    elif box and len(box["gpus"]) < 2:
        yield Result("data", SKIPPED, "fewer than two GPUs")
    else:
        yield from data(options)


# --- what can be read ---

def settings():
    off = [f"{name}={os.environ[name]}" for name, values in
           (("BEELINE_ENABLE", ("0", "off", "false", "no")), ("NCCL_P2P_DISABLE", ("1",)), ("NCCL_P2P_LEVEL", ("loc", "0")))
           if os.environ.get(name, "").lower() in values]
    if off:
        return Result("settings", NOT_OK, f"{', '.join(off)}: Beeline serves nothing", f"unset {' '.join(text.partition('=')[0] for text in off)}")
    changed = [f"{name}={os.environ[name]}" for name in (*CHANGING, "BEELINE_TUNING_FILE", *(f"BEELINE_{name}" for name in ROUTES)) if os.environ.get(name)]
    if changed:
        return Result("settings", SKIPPED, f"{', '.join(changed)}: what follows is tried without")
    return Result("settings", OK, "no variable of the environment switches Beeline off")


def driver(box):
    found = box.get("driver")
    if not found:
        return Result("driver", NOT_OK, f"none: {(box.get('sources') or {}).get('driver')}", "install the NVIDIA driver; start a container with --gpus all")
    text = ", ".join(filter(None, (found.get("version"), found.get("cuda") and f"CUDA {found['cuda']}")))
    numbers = tuple(map(int, re.findall(r"\d+", str(found.get("cuda")))[:2]))
    if numbers and numbers < DRIVER:
        return Result("driver", NOT_OK, f"{text}: Beeline needs CUDA {DRIVER[0]}.{DRIVER[1]} or later", "update the driver")
    return Result("driver", OK, text)


def nccl(box):
    found = box.get("nccl")
    if not found:
        return Result("nccl", NOT_OK, "the loader finds no libnccl.so.2, and Python has no package nvidia.nccl",
                      "put its folder into LD_LIBRARY_PATH, or its path into BEELINE_NCCL_PATH")
    return Result("nccl", OK, ", ".join(filter(None, (found.get("version"), found.get("path")))))


def gpus(box):
    found = box["gpus"]
    if len(found) < 2:
        yield Result("gpus", NOT_OK if box.get("driver") and not found else SKIPPED, f"{len(found)} seen; Beeline serves 2 to {MOST_RANKS}",
                     "look at nvidia-smi -L and CUDA_VISIBLE_DEVICES" if box.get("driver") and not found else None)
        return
    unfit = [f"GPU {gpu.get('ordinal')}: {gpu['lacks']}" for gpu in found if gpu.get("lacks")]
    if unfit:
        yield Result("gpus", SKIPPED, f"{'; '.join(unfit)}: communicators with it are NCCL's")
    else:
        yield Result("gpus", OK, f"{len(found)}: {', '.join(sorted({str(gpu.get('name')) for gpu in found}))}")
    links = box.get("links") or []
    without = sum(link not in ("self", "nvlink") for row in links for link in row) // 2
    if box.get("not_served"):
        yield Result("links", SKIPPED, f"{box.get('class_text') or box.get('class')}: left to NCCL: {box['not_served']}")
    elif not links or without:
        yield Result("links", SKIPPED, f"{without} pairs of GPUs have no NVLink: communicators with both are NCCL's" if links else "not known")
    else:
        yield Result("links", OK, box.get("class_text") or "NVLink between all pairs")


def devices():
    paths = [path for path in sorted(glob.glob("/dev/nvidia*")) if re.search(r"nvidia(\d+|ctl|-uvm)$", path)]
    if not paths:
        return Result("devices", SKIPPED, "no /dev/nvidia* here")
    refused = [path for path in paths if not os.access(path, os.R_OK | os.W_OK)]
    if refused:
        return Result("devices", NOT_OK, f"no right to read and write {' '.join(refused)}", "run as a user of their group, or start the container with --gpus all")
    return Result("devices", OK, f"{len(paths)} of /dev/nvidia* can be read and written")


def shared_memory(folder="/dev/shm"):
    try:
        with tempfile.NamedTemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free
    except OSError as error:
        return Result("shm", NOT_OK, f"{folder} cannot be written: {error.strerror}; NCCL needs it", f"mount a tmpfs on {folder}")
    if free < SHM:
        return Result("shm", NOT_OK, f"{folder} has {amount(free)}B free; NCCL may need more", "empty it, or start the container with --shm-size=1g")
    return Result("shm", OK, f"{folder} has {amount(free)}B free")


def limits():
    def text(value):
        return "unlimited" if value == resource.RLIM_INFINITY else str(value)
    files, locked = (resource.getrlimit(which)[0] for which in (resource.RLIMIT_NOFILE, resource.RLIMIT_MEMLOCK))
    said = f"ulimit -n {text(files)}, -l {text(locked if locked == resource.RLIM_INFINITY else locked >> 10)}"
    if files != resource.RLIM_INFINITY and files < FILES:
        return Result("limits", NOT_OK, f"{said}: ranks pass each other file descriptors", f"ulimit -n {FILES} or more")
    return Result("limits", OK, said)


def sockets():
    """As ranks meet: an abstract name, and a descriptor that is passed."""
    name = f"\0beeline-check-{os.getpid()}"
    try:
        with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as peer, open(os.devnull, "rb") as file:
            listener.bind(name)
            listener.listen(1)
            peer.connect(name)
            with listener.accept()[0] as accepted:
                peer.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file.fileno()]))])
                passed = array.array("i")
                for _, _, content in accepted.recvmsg(1, socket.CMSG_SPACE(passed.itemsize))[1]:
                    passed.frombytes(content)
                for descriptor in passed:
                    os.close(descriptor)
    except OSError as error:
        return Result("sockets", NOT_OK, f"abstract Unix sockets fail here: {error.strerror}; ranks meet by them", "allow them in the sandbox or the security module")
    if not passed:
        return Result("sockets", NOT_OK, "no file descriptor comes through a Unix socket", "allow them in the sandbox or the security module")
    return Result("sockets", OK, "ranks can meet: abstract Unix sockets pass descriptors; containers need one network namespace for it")


# --- what has to be tried ---

def data(options):
    try:
        first, ranks = try_out(options, None)
    except Refused as why:
        yield Result("data", NOT_OK, str(why), "run make, or install Beeline again")
        return
    yield first
    if ranks > 2:
        yield try_out(options, 2)[0]


def environment(folder):
    added = {f"BEELINE_{name}": routes for name, routes in ROUTES.items()}
    added.update(BEELINE_MULTICAST="0", BEELINE_TUNING_FILE="built-in", BEELINE_COPY_ENGINES="1", BEELINE_STATS_FILE=os.path.join(folder, "stats"))
    return {**{name: value for name, value in preload.perf_environment().items() if name not in UNSET}, **added}


def try_out(options, ranks):
    """The result with so many GPUs (None: all), and how many there were."""
    with tempfile.TemporaryDirectory(prefix="beeline-check-") as folder:
        stored = os.path.join(folder, "json")
        command = [preload.find_perf(), "-c", "all", "-b", str(SMALLEST), "-e", options.maxbytes, "-f", "4", "--place", "out", "-n", "2", "-G", "2", "-w", "1",
                   "--seconds", "1", "--timeout", "60", "--json", stored, *(["-t", str(ranks)] if ranks else [])]
        progress = Progress()
        progress.say(f"beeline-perf over {ranks or 'all'} GPUs ...")
        try:
            done = subprocess.run(command, env=environment(folder), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace",
                                  timeout=LIMIT_S, check=False)
            status, said = done.returncode, done.stderr
        except subprocess.TimeoutExpired as late:
            status, said = 124, f"no end after {late.timeout:.0f} s"
        finally:
            progress.end()
        records = report.read(folder)
    run = next((r for r in records if r.get("record") == "run"), {})
    ranks = run.get("ranks") or ranks or 0
    return judge(f"{ranks} GPUs: " if ranks else "", records, status, said), ranks


def judge(head, records, status, said):
    """From beeline-perf's rows, and what the library says of communicators."""
    rows = [r for r in records if r.get("record") == "row"]
    left = {r["left"]: r["failed"] for r in records if r.get("record") == "communicator" and r["left"] is not None}
    for why, failed in left.items():
        if failed:
            return Result("data", NOT_OK, f"{head}left to NCCL: {why}",
                          "look at the IOMMU, at ACS of the PCIe bridges and at dmesg" if "self-test" in why else "docs/troubleshooting.md has the reason")
    wrong = {}
    for row in rows:
        for side, route in (("beeline", row["route"]), ("nccl", "nccl")):
            if row[side]["wrong"]:
                name = f"{row['collective']} by {route}"
                wrong[name] = wrong.get(name, 0) + row[side]["wrong"]
    if wrong:
        return Result("data", NOT_OK, f"{head}wrong values: " + ", ".join(f"{name} {n}" for name, n in wrong.items()),
                      "run it again, and report it with the output of beeline info --json")
    if not rows or status:
        why = said.strip().splitlines()[-1:] or [f"status {status}"]
        lines_said = [line for line in said.splitlines() if line.startswith("beeline-perf:")]
        lacking = status == 1 and rows and lines_said and all("cannot be run" in line for line in lines_said)
        if not lacking:
            return Result("data", NOT_OK, f"{head}beeline-perf failed: {why[0]}", "run beeline perf, and read what it says")
    for why in left:
        return Result("data", SKIPPED, f"{head}NCCL's: {why}; {len(rows)} rows through NCCL are right")
    routes = sorted({row["route"].partition(":")[0] for row in rows} - {"nccl"})
    if not routes:
        return Result("data", NOT_OK, f"{head}Beeline has served nothing", "run beeline perf with BEELINE_DEBUG=INFO")
    idle = sorted({name for said in ROUTES.values() for name in re.findall(r"[a-z]\w*_\w+", said)} - set(routes))
    idle = f"; not tried, for no size went there: {', '.join(idle)}" if idle else ""
    return Result("data", OK, f"{head}every element is right, {len(rows)} rows: {', '.join(routes)}{idle}")
