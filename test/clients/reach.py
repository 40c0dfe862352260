"""How clients reach NCCL: each way, with Beeline in it."""

import os
import shutil
import sys

from support import BEELINE, BUILD, EMU, NCCL, check, client, ctypes_client, emulated_only, warnings


def control(case):
    """Without Beeline the trace has both counts: the other cases would see it if Beeline were bypassed."""
    case.job(client("linked"), beeline=False, served=False)


def linked(case):
    case.job(client("linked"))


def linked_rpath(case):
    emulated_only()  # its run path leads there
    case.job(client("linked-rpath"))


def opened_name(case):
    case.job(client("opened"), "libnccl.so.2")


def opened_global(case):
    case.job(client("opened"), "libnccl.so.2", "global")


def opened_path(case):
    case.job(client("opened"), NCCL)


def opened_library(case):
    """As PyTorch is in a Python process: NCCL comes in RTLD_LOCAL, out of sight of RTLD_NEXT."""
    case.job(client("opened"), client("liblinked.so"), "library")


def opened_inside(case):
    """NCCL is linked into a library that is opened, as into some builds of libtorch_cuda."""
    emulated_only()
    case.job(client("opened"), client("libinside.so"), "library")


def opened_beeline(case):
    """As VLLM_NCCL_SO_PATH=libbeeline.so does: nothing is preloaded."""
    case.job(client("opened"), "libbeeline.so", beeline=False)


def closed_beeline(case):
    """Its watching thread has a second to go when it is closed."""
    case.job(client("opened"), "libbeeline.so", "closed", beeline=False)


def python_name(case):
    case.job(*ctypes_client("libnccl.so.2"))


def python_path(case):
    case.job(*ctypes_client(NCCL))


def python_beeline(case):
    case.job(*ctypes_client("libbeeline.so"), beeline=False)


def named_as_nccl(case):
    """Beeline lies first in the search path under NCCL's own name, as a link: linked clients, and clients that open."""
    os.symlink(BEELINE, case.path("libnccl.so.2"))
    case.job(client("linked"), beeline=False, nccl=case.folder)
    case.job(client("opened"), "libnccl.so.2", beeline=False, nccl=case.folder)


def two_beelines(case):
    """A copy under NCCL's name beside the preloaded one: neither takes the other for the real NCCL."""
    shutil.copy(BEELINE, case.path("libnccl.so.2"))
    case.job(client("linked"), nccl=case.folder)


def nccl_path(case):
    emulated_only()
    path = os.path.join(EMU, "old", "libnccl.so.2")
    done = case.job(client("linked"), env={"BEELINE_NCCL_PATH": path})
    check("version 22005" in done.stdout, done.stdout)
    check("the real NCCL: " + path in done.log, done.log)


def nccl_path_wrong(case):
    for path, why in (
        (case.path("none"), "No such file"),
        (BEELINE, "Beeline itself"),
        (os.path.join(EMU, "libcuda.so.1"), "not an NCCL"),
    ):
        done = case.box(client("linked"), env={"BEELINE_NCCL_PATH": path})
        told = warnings(done)
        check(len(told) == 1 and "BEELINE_NCCL_PATH=" + path in told[0] and why in told[0], done.stderr)


def disabled(case):
    for command in ([client("linked")], [client("opened"), "libnccl.so.2"], ctypes_client("libnccl.so.2")):
        case.job(*command, served=False, env={"BEELINE_ENABLE": "0"})


def second_nccl(case):
    """The first NCCL is Beeline's; the client of a second one gets that one, untouched."""
    emulated_only()
    program = (
        "import ctypes, sys\n"
        "versions = []\n"
        "for path in sys.argv[1:]:\n"
        "    version = ctypes.c_int()\n"
        "    ctypes.CDLL(path).ncclGetVersion(ctypes.byref(version))\n"
        "    versions.append(version.value)\n"
        "print(*versions)"
    )
    paths = [os.path.join(EMU, name, "libnccl.so.2") for name in ("new", "old")]
    for order in (paths, paths[::-1]):
        without, with_it = (
            case.box(sys.executable, "-c", program, *order, beeline=beeline).stdout.strip()
            for beeline in (False, True)
        )
        check(
            without == with_it and len(set(without.split())) == 2,
            "versions %s, without Beeline %s" % (with_it, without),
        )


VERSIONS = """
import ctypes, sys
for path in sys.argv[1:]:
    version = ctypes.c_int()
    library = ctypes.CDLL(None if path == "process" else path)
    if not hasattr(library, "ncclGetVersion"):
        print("none")
        continue
    result = library.ncclGetVersion(ctypes.byref(version))
    print(result, version.value)
"""


def loaded_first(case):
    """Beeline named as the library beside an NCCL that the process has already: that one is the real NCCL."""
    emulated_only()
    old = os.path.join(EMU, "old", "libnccl.so.2")
    done = case.box(sys.executable, "-c", VERSIONS, old, "libbeeline.so", beeline=False)
    check(done.stdout == "0 22005\n0 22005\n", done.stdout + done.stderr)


def late_nccl(case):
    """In a process that has no NCCL yet none is found, as without Beeline; once it opens one, that is."""
    with open(case.path("libnccl.so.2"), "w", encoding="utf-8") as file:
        file.write("not a library\n")
    done = case.box(sys.executable, "-c", VERSIONS, "process", NCCL, "process", nccl=case.folder)
    lines = done.stdout.splitlines()
    check(lines[0] == "none" and lines[1].startswith("0 2") and lines[2] == lines[1], done.stdout + done.stderr)
    check(not warnings(done), done.stderr)


def late_call(case):
    """Beeline named as the library before there is an NCCL: a call fails, and one behind the opening of one does not."""
    with open(case.path("libnccl.so.2"), "w", encoding="utf-8") as file:
        file.write("not a library\n")
    done = case.box(sys.executable, "-c", VERSIONS, "libbeeline.so", NCCL, "libbeeline.so", nccl=case.folder, beeline=False)
    lines = done.stdout.splitlines()
    check(lines[0] == "2 0" and lines[1].startswith("0 2") and lines[2] == lines[1], done.stdout + done.stderr)
    check(len(warnings(done)) == 1 and "there is no real NCCL" in warnings(done)[0], done.stderr)


def probed(case):
    """What a program finds before and after it opens an NCCL, or a library linked with one."""
    emulated_only()
    old = os.path.join(EMU, "old", "libnccl.so.2")
    for name in ("ncclAllReduce", "ncclCommSuspend", "ncclNoSuchFunction", "pncclAllReduce"):
        for library in ("-", NCCL, old, client("liblinked.so"), client("libinside.so")):
            for deep in ((), ("deep",)):
                command = [client("probe"), name, library, *deep]
                without, with_it = (case.box(*command, beeline=beeline).stdout.splitlines() for beeline in (False, True))
                differ = [line for line in zip(without, with_it) if line[0] != line[1]]
                # Beeline stands in front of the whole process: what was in a library alone is in sight then.
                allowed = {("not found, an error", "found, no error")} if library != "-" else set()
                differ = [(a, b) for a, b in differ if (a.split(": ")[1], b.split(": ")[1]) not in allowed]
                check(not differ, "%s: %s" % (command, differ))
                if library == old and name == "ncclCommSuspend":
                    check(without == with_it, "%s\n%s" % (without, with_it))


def deep_bound(case):
    """A library that is opened to look in its own libraries first has NCCL to itself."""
    emulated_only()
    done = case.box(client("opened"), client("liblinked.so"), "deep", env={"BEELINE_DEBUG": "INFO"})
    check("sums are right" in done.stdout and "communicator" not in done.stderr, done.stdout + done.stderr)

def racing(case):
    for _ in range(10):
        case.box(client("racing"), "libbeeline.so", beeline=False)
        case.box(client("racing"), "libnccl.so.2")


def launcher(case):
    """`beeline run` puts Beeline before a command and all that it starts: test/command has the rest."""
    case.job(os.path.join(BUILD, "beeline"), "run", "sh", "-c", "exec " + client("linked"), beeline=False)
