"""beeline run: what it starts, what it refuses, what its report adds up to."""
import json
import os
import re
import shutil
import subprocess
import sys
import unittest.mock

from support import BEELINE, BUILD, LIBRARY, PERF, Skip, beeline, box, check, refused, run

PRINT = "echo $LD_PRELOAD"


def preloads(folder):
    """An absolute path, once, before what is there already, for all that is started from anywhere."""
    other = os.path.join(BUILD, "test", "clients", "counting.so")
    for said in ({}, {"BEELINE_LIBRARY": LIBRARY}, {"BEELINE_LIBRARY": os.path.relpath(LIBRARY, folder)}):
        done = beeline("run", "sh", "-c", f"cd / && sh -c '{PRINT}'", env=said, cwd=folder)
        check(done.stdout.strip() == LIBRARY, done.stdout)
    for before in (other, f"{other}:{LIBRARY}", f"{LIBRARY} {other}"):
        done = beeline("run", "--", "sh", "-c", PRINT, env={"LD_PRELOAD": before})
        check(done.stdout.strip() == f"{LIBRARY}:{other}", f"{before}: {done.stdout}")


def statuses(folder):
    """The command's own; its arguments are not the launcher's."""
    beeline("run", "sh", "-c", "exit 3", status=3)
    beeline("run", "--report", "sh", "-c", "exit 3", status=3)
    beeline("run", "--report", "sh", "-c", "kill -KILL $$", status=137)
    done = beeline("run", "echo", "--report", "--help", "--", "x")
    check(done.stdout == "--report --help -- x\n", done.stdout)
    refused("no such command", "run", "no-such-command", status=127)
    plain = os.path.join(folder, "plain")
    with open(plain, "w", encoding="utf-8") as file:
        file.write("no program\n")
    refused("plain: it cannot be executed", "run", plain, status=126)
    with open(plain, "w", encoding="utf-8") as file:
        file.write("echo $1 $LD_PRELOAD; exit 4\n")
    os.chmod(plain, 0o755)
    for option in ((), ("--report",)):
        done = beeline("run", *option, "./plain", "a script without #!", cwd=folder, status=4)
        check(done.stdout == f"a script without #! {LIBRARY}\n", done.stdout)
    refused("no COMMAND", "run", status=125)
    refused("--no-such", "run", "--no-such", "true")
    done = subprocess.run(["sh", "-c", f"exec {BEELINE} run --report sh -c 'trap \"exit 5\" TERM; kill -TERM $PPID; sleep 5 & wait'"], check=False, stderr=subprocess.DEVNULL)
    check(done.returncode == 5, f"a signal is for the command: {done.returncode}")


def library_refused(folder):
    """Where the library is not, or cannot be loaded."""
    broken, blank = os.path.join(folder, "broken.so"), os.path.join(folder, "a b")
    with open(broken, "w", encoding="utf-8") as file:
        file.write("no library\n")
    os.mkdir(blank)
    shutil.copy(broken, blank)
    os.mkdir(os.path.join(folder, "a:b"))
    shutil.copy(broken, os.path.join(folder, "a:b"))
    refused("BEELINE_LIBRARY=/nonexistent does not exist", "run", "true", env={"BEELINE_LIBRARY": "/nonexistent"}, status=125)
    refused("cannot be preloaded: ERROR", "run", "true", env={"BEELINE_LIBRARY": broken}, status=125)
    for place in ("a b", "a:b"):
        refused("colon or blank", "run", "true", env={"BEELINE_LIBRARY": os.path.join(folder, place, "broken.so")}, status=125)
    refused("BEELINE_STATS_FILE=/tmp/x is set", "run", "--report", "true", env={"BEELINE_STATS_FILE": "/tmp/x"}, status=125)


def command_refused(folder):
    """Programs that ignore preloads: static, of 32 bits, set-uid; and scripts for such."""
    source, static, script = (os.path.join(folder, name) for name in ("main.c", "static", "script"))
    with open(source, "w", encoding="utf-8") as file:
        file.write("int main(void) { return 0; }\n")
    if subprocess.run(["cc", "-static", "-o", static, source], check=False, stderr=subprocess.DEVNULL).returncode:
        raise Skip("no static libc")
    refused("statically linked", "run", static, status=125)
    with open(script, "w", encoding="utf-8") as file:
        file.write(f"#!{static}\n")
    os.chmod(script, 0o755)
    refused("statically linked", "run", script, status=125)
    with open(static, "r+b") as file:
        file.seek(4)
        file.write(b"\x01")
    refused("32-bit", "run", static, status=125)
    if os.geteuid():
        raise Skip("set-uid needs root")
    other = os.path.join(folder, "other")
    shutil.copy("/bin/true", other)
    os.chown(other, 65534, 65534)
    os.chmod(other, 0o4755)
    refused("set-uid", "run", other, status=125)
    os.chmod(other, 0o755)
    beeline("run", other)


def without_driver(_):
    """A warning, and no more; none on the emulated box."""
    if subprocess.run([sys.executable, "-c", "import ctypes; ctypes.CDLL('libcuda.so.1')"], check=False, stderr=subprocess.DEVNULL).returncode == 0:
        raise Skip("there is a driver")
    check("no NVIDIA driver" in beeline("run", "true").stderr, "it does not warn")
    check(not box(2, BEELINE, "run", "true").stderr, "it warns of the emulated driver")


def nccl_of_package(folder):
    """That of PyTorch's package is found, and still once it is loaded in this process."""
    from beeline import preload  # pylint: disable=import-outside-toplevel
    os.makedirs(os.path.join(folder, "nvidia", "nccl"))
    for package in ("nvidia", "nvidia/nccl"):
        with open(os.path.join(folder, package, "__init__.py"), "w", encoding="utf-8"):
            pass
    sys.path.insert(0, folder)
    with unittest.mock.patch.object(preload, "has_library", side_effect=[False, True]):
        found = [preload.nccl_folder(), preload.perf_environment()["LD_LIBRARY_PATH"].split(":")[0]]
    check(found == [os.path.join(folder, "nvidia", "nccl", "lib")] * 2, found)


def stats_lines(text):
    """{route: [calls, bytes]} of what BEELINE_STATS=1 says, over all ranks."""
    sums = {}
    for line in re.findall(r"NOTE stats: communicator .*: (.*)", text):
        for route, calls, size in re.findall(r"(\w+(?::warps)?) (\d+) calls (\d+) bytes", line):
            total = sums.setdefault(route, [0, 0])
            total[0] += int(calls)
            total[1] += int(size)
    return sums


def report(_):
    """Over processes and threads: what the lines of BEELINE_STATS add up to, and why calls went to NCCL."""
    for ranks in (("--spawn", "2"), ("-t", "2"), ("--spawn", "2", "-t", "2")):
        done = box(4, BEELINE, "run", "--report", PERF, *ranks, "-c", "all_reduce,all_gather", "-b", "1K", "-e", "16K", "--place", "out", "-n", "1", "-G", "1", "-w", "1",
                   env={"BEELINE_STATS": "1", "BEELINE_ALLREDUCE": "..4K oneshot_ll128 | nccl"})
        by_route, classes, collective = {}, set(), None
        for name, size, route, calls, moved, unit in re.findall(r"^  (all_\w+)? +\.\.(\d+)K? +(\S+) +(\d+) +([\d.]+)( [KM])?", done.stderr, re.M):
            collective = name or collective
            route = route.partition(":")[0]
            by_route[route] = by_route.get(route, 0) + int(calls)
            if collective == "all_reduce":  # whose sizes are each the largest of a class
                classes.add(f"{size}K {route}")
                scale = {"": 1, " K": 1 << 10, " M": 1 << 20}[unit]
                check(abs(float(moved) * scale / (int(calls) * int(size) * 1024) - 1) < 0.01, f"bytes of {size}K\n{done.stderr}")
        check(classes == {"1K oneshot_ll128", "4K oneshot_ll128", "16K nccl"}, f"{classes}\n{done.stderr}")
        said = stats_lines(done.stderr)
        wanted = {}
        for route, (calls, _) in said.items():
            wanted[route.partition(":")[0]] = wanted.get(route.partition(":")[0], 0) + calls
        check(by_route == wanted and len(said) >= 3, f"{by_route}, and the lines say {wanted}\n{done.stderr}")
        count = 4 if len(ranks) == 4 else 2
        check(f"1 of {count} ranks" in done.stderr and "(NCCL forced by the user's setting)" in done.stderr, done.stderr)
        served = sum(calls for route, calls in wanted.items() if route != "nccl")
        check(f"Beeline served {100 * served / sum(wanted.values()):.1f} % of {sum(wanted.values())} calls" in done.stderr, done.stderr)


def report_left(_):
    """A communicator that is NCCL's: why, and what it did."""
    done = box(2, BEELINE, "run", "--report", PERF, "-b", "1K", "-e", "1K", "--place", "out", "-n", "1", "-G", "1", topology="pcie")
    check("served 0 communicators" in done.stderr and re.search(r"left to NCCL: 1 of 2 ranks: .*NVLink", done.stderr), done.stderr)
    check(re.search(r"all_reduce +\.\.1K +nccl +\d+ .*\(the communicator is left to NCCL\)", done.stderr), done.stderr)
    done = box(2, BEELINE, "run", "--report", "true")
    check("no process made an NCCL communicator" in done.stderr, done.stderr)


def report_silent(folder):
    """A line that is cut off, and ranks that were killed."""
    from beeline import report as reports  # pylint: disable=import-outside-toplevel
    with open(os.path.join(folder, "1"), "w", encoding="utf-8") as file:
        for rank in range(2):
            file.write(f'{{"record": "communicator", "pid": 7, "communicator": "a", "rank": {rank}, "ranks": 2, "left": null, "failed": false}}\n')
        file.write('{"record": "calls", "pid": 7, "communicator": "a", "rank": 0, "ranks": 2, "batches": 0, "calls": [{"collective": "reduce", "up_to": null, '
                   '"route": "reduce_ll128", "why": null, "calls": 1, "bytes": 2147483648}]}\n{"record": "calls", "pid"')
    said = "\n".join(reports.lines(reports.read(folder)))
    check("1 rank ended without" in said and "process 7" in said and re.search(r"reduce +above +reduce_ll128 +1 +2.00 G", said), said)


def report_saved(folder):
    """The time saved, by a tuning file whose times are known; and that it is not known without."""
    program = (PERF, "--spawn", "2", "-c", "all_reduce,reduce", "-b", "1K", "-e", "4K", "-f", "2", "--place", "out", "--mode", "eager", "-n", "1", "-G", "1", "-w", "0")
    path = os.path.join(folder, "config", "beeline", "beeline.tune")
    os.makedirs(os.path.dirname(path))
    here = json.loads(box(2, BEELINE, "info", "--json").stdout)["fingerprint"]
    for section, times in ((None, ""), ("gpu any", "# time all_reduce 2 1K 1000 500\n"),
                           (here, "# time all_reduce 2 2K 1000.00 500.00 1 1\n# time all_reduce 2 4K 3000.00 1500.00\n")):
        if section:
            with open(path, "w", encoding="utf-8") as file:
                file.write(f"{section}\n{times}all_reduce 2 4K oneshot_ll\nall_reduce 2 max nccl\n")
        said = box(2, BEELINE, "run", "--report", *program, env={"XDG_CONFIG_HOME": os.path.join(folder, "config")}).stderr
        lacking = "all_reduce of 2 ranks, reduce of 2 ranks: the tuning file has no times for these; beeline tune"
        if section != here:
            check(f"time saved not known: {lacking}" in said and "estimated" not in said, said)
            continue
        # Of a size a call of each rank: classes have up to 1K, 4K; 2K and 4K are 3K on average. A run has calls to check, too.
        counts = [int(calls) for calls in re.findall(r"oneshot_ll +(\d+)", said)]
        check(len(counts) == 2 and all(count % 2 == 0 for count in counts), said)
        ms = counts[0] / 2 * 0.5 + counts[1] / 2 * 1.0
        check(re.search(rf"estimated time saved, .*\n +all_reduce +{ms:.3g} ms +of {2 * ms:.3g} ms by NCCL\n", said), f"want {ms}:\n{said}")
        check("not known: reduce of 2 ranks: the tuning file has no times for all of these" in said, said)


def report_saved_ends(_):
    """A message has two ends, each a call: the time is of a send and a receive of every rank at once."""
    from beeline import saved  # pylint: disable=import-outside-toplevel
    of = {"pid": 7, "communicator": "a", "ranks": 2}
    calls = [{"collective": "sendrecv", "up_to": 1024, "route": "sendrecv_ll128", "why": None, "calls": 20, "bytes": 20480}]
    records = [{**of, "rank": rank, **more} for rank in range(2) for more in ({"record": "communicator", "left": None, "section": "gpu any"}, {"record": "calls", "calls": calls})]
    found, unknown = saved.estimate(records, ["gpu any\n# time sendrecv 2 1K 1000 500\nsendrecv 2 1K sendrecv_ll128\n"])
    check(not unknown and list(found) == ["sendrecv"] and [round(seconds, 9) for seconds in found["sendrecv"]] == [0.005, 0.01], f"{found} {unknown}")


def stats_file(folder):
    """The library's own: a file of each process, no link, one line for each rank."""
    path = os.path.join(folder, "stats")
    program = (PERF, "--spawn", "2", "-b", "1K", "-e", "1K", "--place", "out", "-n", "1", "-G", "1")
    box(2, BEELINE, "run", *program, env={"BEELINE_STATS_FILE": path + ".%p"})
    files = os.listdir(folder)
    check(len(files) == 2 and all(re.fullmatch(r"stats\.\d+", name) for name in files), files)
    for name in files:
        os.unlink(os.path.join(folder, name))
    os.symlink(os.path.join(folder, "elsewhere"), path)
    done = box(2, BEELINE, "run", *program, env={"BEELINE_STATS_FILE": path})
    check(f"BEELINE_STATS_FILE={path} cannot be opened: a symbolic link" in done.stderr and os.listdir(folder) == ["stats"], done.stderr)


def installed(folder):
    """From an installation: its library, its programs, its man page; no path of the tree."""
    run("scripts/build/install", os.path.relpath(BUILD), os.path.join(folder, "opt", "x"))
    prefix = os.path.join(folder, "opt", "x")
    command, installed_library = os.path.join(prefix, "bin", "beeline"), os.path.join(prefix, "lib", "libbeeline.so")
    os.symlink(command, os.path.join(folder, "link"))
    done = run(os.path.join(folder, "link"), "run", "sh", "-c", PRINT, cwd="/")
    check(done.stdout.strip() == os.path.realpath(installed_library), done.stdout)
    with open("VERSION", encoding="utf-8") as file:
        check(run(command, "--version").stdout == f"beeline {file.read()}", "the version")
    check("--collectives" in run(command, "perf", "--help").stdout, "beeline-perf is not found")
    completion = os.path.join(prefix, "share", "bash-completion", "completions", "beeline")
    with open(completion, encoding="utf-8") as file:
        check("--collectives" in file.read(), "the completion knows nothing of beeline-perf")
    check(os.path.exists(os.path.join(prefix, "share", "man", "man1", "beeline.1")), "no man page")
    out = os.path.join(folder, "box.tune")
    box(2, command, "tune", "--collectives", "reduce", "--out", out, env={"XDG_CACHE_HOME": folder})
    check(os.path.exists(out), "nothing was tuned")
    check(not any(name == "__pycache__" for _, names, _ in os.walk(prefix) for name in names), "byte code is installed")
