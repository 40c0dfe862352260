"""Starting programs with the library preloaded: where things are, and what stands against it."""
import ctypes
import functools
import os
import signal
import shutil
import stat
import struct
import subprocess
import sys

from . import library
from .words import Refused

CANNOT = 125  # as of env, nohup and timeout; 126: it cannot be executed, 127: it is not there
PT_INTERP, ELFCLASS64 = 3, 2


def find_library():
    """An absolute path that the loader can preload; Refused, with the reason, where it cannot."""
    path = library()
    said = os.environ.get("BEELINE_LIBRARY")
    what = f"BEELINE_LIBRARY={said}" if said else path
    if not path:
        raise Refused("no libbeeline.so beside this command: run make, or set BEELINE_LIBRARY to its path", CANNOT)
    if not os.path.exists(path):
        raise Refused(f"{what} does not exist: want the path of libbeeline.so", CANNOT)
    if any(c in path for c in ": \t\n"):
        raise Refused(f"{path}: the loader takes no path with a colon or blank: move it, or set BEELINE_LIBRARY to a link to it", CANNOT)
    tried = subprocess.run(["/bin/true"], env={"LD_PRELOAD": path}, capture_output=True, text=True, check=False)
    if tried.returncode or tried.stderr:
        why = tried.stderr.strip().splitlines() or [f"status {tried.returncode}"]
        raise Refused(f"{what} cannot be preloaded: {why[0]}", CANNOT)
    return path


def find_perf():
    """beeline-perf, beside the library or in the bin of its installation."""
    folder = os.path.dirname(find_library())
    for path in (os.path.join(folder, "beeline-perf"), os.path.join(os.path.dirname(folder), "bin", "beeline-perf")):
        if os.access(path, os.X_OK):
            return path
    raise Refused(f"no beeline-perf beside {folder}/libbeeline.so: run make", CANNOT)


def preloaded(path):
    """LD_PRELOAD with the library before what is there already."""
    others = [other for other in os.environ.get("LD_PRELOAD", "").replace(" ", ":").split(":") if other and other != path]
    return ":".join([path, *others])


def has_library(name):
    try:
        ctypes.CDLL(name)
        return True
    except OSError:
        return False


@functools.lru_cache(maxsize=None)  # once this process has looked at the box, NCCL is loaded in it, and the loader finds it by its name
def nccl_folder():
    """Of the NCCL that PyTorch's package brings, where the loader finds none; else None."""
    if has_library("libnccl.so.2"):
        return None
    try:
        import nvidia.nccl  # pylint: disable=import-outside-toplevel
        return os.path.join(list(nvidia.nccl.__path__)[0], "lib")
    except (ImportError, IndexError):
        return None


def perf_environment():
    """What beeline-perf needs to find NCCL, and Beeline before it."""
    folders = [nccl_folder(), os.environ.get("LD_LIBRARY_PATH")]
    return {**os.environ, "LD_PRELOAD": preloaded(find_library()), "LD_LIBRARY_PATH": ":".join(filter(None, folders))}


def warn_without_driver():
    if not has_library("libcuda.so.1"):
        print("beeline: no NVIDIA driver here (libcuda.so.1): the command runs, without GPUs", file=sys.stderr)


# --- the command ---

def find_command(name):
    path = name if "/" in name else shutil.which(name)
    if not path or not os.path.exists(path):
        raise Refused(f"{name}: no such command", 127)
    if os.path.isdir(path) or not os.access(path, os.X_OK):
        raise Refused(f"{name}: it cannot be executed", 126)
    return path


def interpreter(path):
    """That of a script; else the file itself."""
    with open(path, "rb") as file:
        words = file.read(254).split(b"\n")[0].split() if file.read(2) == b"#!" else []
    found = shutil.which(os.fsdecode(words[0])) if words else None
    return found or path


def is_bare_script(path):
    """Text without #!, which the kernel does not run and a shell does."""
    try:
        with open(path, "rb") as file:
            head = file.read(256)
    except OSError:
        return False
    return not head.startswith(b"#!") and b"\0" not in head


def gains_rights(path):
    """Whether the loader ignores preloads there, since it runs with other rights than ours."""
    status = os.stat(path)
    if status.st_mode & stat.S_ISUID and status.st_uid != os.geteuid() or status.st_mode & stat.S_ISGID and status.st_gid != os.getegid():
        return True
    try:
        return os.geteuid() != 0 and bool(os.getxattr(path, "security.capability"))
    except OSError:
        return False


def elf_problem(path):
    """Why the loader has no say in a program, or None: it is static, or not of 64 bits."""
    with open(path, "rb") as file:
        head = file.read(64)
        if head[:4] != b"\x7fELF" or len(head) < 64:
            return None
        if head[4] != ELFCLASS64:
            return "it is a 32-bit program, and the library has 64"
        order = "<" if head[5] == 1 else ">"
        offset, = struct.unpack_from(order + "Q", head, 32)
        size, count = struct.unpack_from(order + "HH", head, 54)
        file.seek(offset)
        headers = file.read(size * count)
    kinds = [struct.unpack_from(order + "I", headers, at)[0] for at in range(0, len(headers) - 3, size or 1)]
    return None if PT_INTERP in kinds else "it is statically linked, and ignores LD_PRELOAD"


def check_command(name):
    """The path of a command that a preload reaches; Refused where it does not."""
    path = find_command(name)
    try:
        program = interpreter(path)
        if gains_rights(path) or gains_rights(program):
            raise Refused(f"{name}: it is set-uid, set-gid or has capabilities, so the loader ignores LD_PRELOAD; put beeline run behind it: "
                          f"{os.path.basename(name)} beeline run ...", CANNOT)
        problem = elf_problem(program)
    except OSError:
        return path  # it can be executed, and not read
    if problem:
        raise Refused(f"{name}: {problem}", CANNOT)
    return path


def become(program, words, environment):
    """In our place; what Python ignores is not to be ignored there."""
    sys.stdout.flush()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(program, words, environment)
    except OSError as error:
        raise Refused(f"{words[0]}: {error.strerror}", 126) from error
