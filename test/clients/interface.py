"""The whole ABI: every symbol, every argument, older and newer NCCL, and none."""

import os
import re
import sys

from support import BEELINE, ROOT, check, client, emulated_only, read, warnings


def symbols(case):
    """Every function of nccl.h and of later ones, in both names, and nothing that is not meant."""
    header = os.path.join(ROOT, case.run(["make", "-s", "print-NCCL_H"], cwd=ROOT).stdout.strip())
    later = read(os.path.join(ROOT, "plugin/real/nccl_later.h"))
    text = re.sub(r"/\*.*?\*/", "", read(header) + later, flags=re.S)
    want = set(re.findall(r"\b(p?nccl[A-Z]\w*)\s*\(", re.sub(r'"[^"\n]*"', "", text)))
    have = set(re.findall(r" [TRBDW] (\w+)(?:@.*)?$", case.run(["nm", "-D", "--defined-only", BEELINE]).stdout, re.M))
    check(want <= have, "lacks %s" % sorted(want - have))
    check({"p" + name for name in want if name.startswith("nccl")} <= have, "lacks some pncclX")
    extra = {name for name in have if not re.match(r"p?nccl[A-Z]", name)}
    check(extra == {"dlsym", "beeline_identity", "beelineRouteOf", "beelineLeftWhy", "beelineBuild", "beelineBox", "beelineSectionOf"}, "exports %s" % sorted(extra))


def needed(case):
    """At load time libc alone (its loader, and what older ones kept in files of their own, included); no constructor."""
    dynamic = case.run(["readelf", "-d", BEELINE]).stdout
    libraries = set(re.findall(r"NEEDED.*\[(.*)\]", dynamic))
    libc = {"libc.so.6", "libdl.so.2", "libpthread.so.0"}
    check({name for name in libraries if not name.startswith("ld-")} <= libc, "needs %s" % sorted(libraries))
    size = re.search(r"INIT_ARRAYSZ\)\s+(\d+)", dynamic)
    own = 1 + (" init_have_lse_atomics" in case.run(["nm", BEELINE]).stdout)  # on aarch64
    check(not size or int(size.group(1)) <= 8 * own, "has a constructor, beside the compiler's own")
    undefined = case.run(["nm", "-D", "--undefined-only", BEELINE]).stdout
    loose = [name for name in re.findall(r" U (\S+)", undefined) if "@GLIBC_" not in name]
    check(not loose, "undefined and of no version of libc: %s" % loose)


def arguments(case):
    """Each argument of each forwarded function arrives bit for bit, and the result comes back."""
    folder = client("recording")
    for env in ({}, {"LD_PRELOAD": BEELINE}):
        done = case.run([os.path.join(folder, "calls")], dict(env, LD_LIBRARY_PATH=folder))
        check(" 0 failures" in done.stdout and not done.stderr, done.stdout + done.stderr)
    print(done.stdout.strip())


def old_nccl(case):
    emulated_only()
    done = case.box(client("absent"), "libbeeline.so", beeline=False, nccl="old")
    check("window 5\nwindow again 5" in done.stdout, done.stdout)
    told = [line for line in warnings(done) if "ncclCommWindowDeregister" in line]
    check(len(told) == 1 and "2.20.5" in told[0] and os.path.join("old", "libnccl.so.2") in told[0], done.stderr)
    case.job(client("linked"), nccl="old")


def new_nccl(case):
    """A function that this Beeline does not know just works."""
    emulated_only()
    program = (
        "import ctypes\n"
        "nccl = ctypes.CDLL('libnccl.so.2')\n"
        "print(nccl.ncclFutureFunction(7), nccl.pncclFutureFunction(8), hasattr(nccl, 'ncclNoSuchFunction'))"
    )
    done = case.box(sys.executable, "-c", program, nccl="new")
    check(done.stdout.strip() == "0 0 False", done.stdout)
    check("ncclFutureFunction 7 " in read(case.trace), read(case.trace))
    case.job(client("linked"), nccl="new")


def no_nccl(case):
    """Every call fails with an error, and one line says what was searched; nothing ends the process."""
    with open(case.path("libnccl.so.2"), "w", encoding="utf-8") as file:
        file.write("not a library\n")
    done = case.box(client("absent"), "libbeeline.so", beeline=False, nccl=case.folder)
    numbers = re.findall(r"^(?:version|id|init|window|window again|all-reduce) (\d+)$", done.stdout, re.M)
    check(numbers == ["2"] * 6, done.stdout)
    check("text invalid argument\nodd text unknown result code\nlast Beeline" in done.stdout, done.stdout)
    told = warnings(done)
    check(len(told) == 1 and "libnccl.so.2" in told[0] and "BEELINE_NCCL_PATH" in told[0], done.stderr)
