"""What Beeline does to a process: nothing, where there is no NCCL; fork; dlsym."""

import os
import re
import shutil
import statistics
import subprocess
import sys
import time

from support import BEELINE, Skip, check, client, ctypes_client, read


def neutral_output(case):
    for command in (
        ["bash", "-c", "echo $((1+1))"],
        ["ls", "/"],
        [sys.executable, "-c", "import os, json; print(len(os.sep))"],
    ):
        without, with_it = (
            case.run(command, env)
            for env in ({}, {"LD_PRELOAD": BEELINE, "BEELINE_DEBUG": "TRACE", "BEELINE_NONSENSE": "1"})
        )
        check((without.stdout, without.stderr) == (with_it.stdout, with_it.stderr), "%s: %s" % (command, with_it))


def neutral_process(case):
    """No thread, no driver, no NCCL, no file: Beeline lies in memory and that is all."""
    program = (
        "import re\n"
        "maps = open('/proc/self/maps').read()\n"
        "print(len(re.findall('libbeeline', maps)) > 0, re.findall(r'lib(?:cuda|nccl|nvidia)[\\w.-]*', maps))\n"
        "print(re.search(r'Threads:\\s*(\\d+)', open('/proc/self/status').read()).group(1))"
    )
    done = case.run([sys.executable, "-c", program], {"LD_PRELOAD": BEELINE})
    check(done.stdout == "True []\n1\n", done.stdout)


def neutral_calls(case):
    """The only system calls that Beeline adds are the loader's: open, read, map and close of Beeline itself."""
    if not shutil.which("strace"):
        raise Skip("no strace")
    lines = []
    for env in ({}, {"LD_PRELOAD": BEELINE}):
        out = case.path("strace")
        arguments_ = [part for name, value in env.items() for part in ("-E", "%s=%s" % (name, value))]
        done = subprocess.run(
            ["strace", "-f", "-o", out, *arguments_, "/bin/true"], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise Skip("strace may not trace here: %s" % done.stderr.strip())
        # Of the loader: what it opens, and where it maps, change with the number of libraries.
        lines.append([re.sub(r"^\d+ +", "", line).split("(")[0] for line in read(out).splitlines()])
    allowed = {
        "openat",
        "open",
        "read",
        "pread64",
        "fstat",
        "newfstatat",
        "mmap",
        "mprotect",
        "close",
        "munmap",
        "brk",
        "access",
    }
    added = {name for name in set(lines[1]) if lines[1].count(name) > lines[0].count(name)}
    check(added <= allowed, "adds %s" % sorted(added - allowed))
    check("clone" not in added and lines[1].count("openat") - lines[0].count("openat") <= 3, "opens more than itself, libpthread and libdl")


def neutral_time(case):
    """Measured and printed; a busy machine must not fail it."""

    def start_time(env):
        began = time.perf_counter()
        subprocess.run(["/bin/true"], env=dict(os.environ, **env), check=True)
        return (time.perf_counter() - began) * 1e3

    times = [(start_time({}), start_time({"LD_PRELOAD": BEELINE})) for _ in range(100)]
    without, with_it = (statistics.median(column) for column in zip(*times))
    print("start of /bin/true: %.3f ms, with Beeline %.3f ms: %.3f ms more" % (without, with_it, with_it - without))
    check(with_it - without < 20, "loading Beeline takes far more than a millisecond")


def forked(case):
    done = case.box(client("forked"), env={"BEELINE_DEBUG": "TRACE", "BEELINE_DEBUG_FILE": case.path("log.%p")})
    ids = dict(re.findall(r"^(parent|child) (\d+):", done.stderr, re.M))
    check(len(set(ids.values())) == 2, done.stderr)
    for name in os.listdir(case.folder):
        if name.startswith("log."):
            said = set(re.findall(r"^beeline \[(\d+)\]", read(case.path(name)), re.M))
            check(said <= {name[4:]}, "%s has lines of %s" % (name, said))


def dlsym(case):
    for nccl in ([], ["libnccl.so.2"]):
        without, with_it = (case.box(client("dlsym"), *nccl, beeline=beeline) for beeline in (False, True))
        if nccl:
            # The one difference that is meant: the address of pncclAllReduce stays NCCL's, so there is none.
            check("in libnccl.so.2" in with_it.stdout, with_it.stdout)
        check(
            without.stdout == with_it.stdout and without.stdout,
            "without:\n%swith:\n%s" % (without.stdout, with_it.stdout),
        )


def ahead_preload(case):
    """A library that interposes dlsym, too, and knows the next one by its version, before Beeline and behind it."""
    ahead = client("ahead.so")
    for order in ((ahead, BEELINE), (BEELINE, ahead)):
        env = {"LD_PRELOAD": ":".join(order), "BEELINE_TEST_AHEAD": "1"}
        case.run(["bash", "-c", "echo one"], env)
        for command in ([client("opened"), "libnccl.so.2"], ctypes_client("libnccl.so.2")):
            done = case.job(*command, beeline=False, env=env)
            seen = [int(n) for n in re.findall(r"^ahead saw (\d+) look-ups", done.stderr, re.M)]
            check(seen and max(seen) >= 5, "%s: %s" % (order, done.stderr))


def shim_preload(case):
    """A profiler's library before Beeline, and behind it, sees the calls; in front it is not taken for the real NCCL, behind it leads there."""
    shim = client("shim.so")
    linked, opened = [client("linked")], [client("opened"), client("liblinked.so"), "library"]
    for order, command in (((shim, BEELINE), linked), ((BEELINE, shim), linked), ((shim, BEELINE), opened)):
        env = {"LD_PRELOAD": ":".join(order), "BEELINE_TEST_SHIM": "1"}
        done = case.job(*command, beeline=False, env=env)
        seen = [int(n) for n in re.findall(r"^shim saw (\d+) calls", done.stderr, re.M)]
        check(seen and max(seen) >= 2 and ("found one early" in done.stderr) == (command is linked), "%s: %s" % (order, done.stderr))


def other_preload(case):
    """A library that finds the next malloc by dlsym(RTLD_NEXT) from inside malloc, before Beeline and behind it."""
    counting = client("counting.so")
    for order in ((counting, BEELINE), (BEELINE, counting)):
        done = case.run(["bash", "-c", "echo one"], {"LD_PRELOAD": ":".join(order), "BEELINE_TEST_COUNTING": "1"})
        check(re.search(r"^counted some, next malloc in \S*libc", done.stderr, re.M), done.stderr)
        case.job(client("opened"), "libnccl.so.2", beeline=False, env={"LD_PRELOAD": ":".join(order)})
