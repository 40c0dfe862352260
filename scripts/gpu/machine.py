"""The machine: GPUs that may be used, the build, and the NCCL beside PyTorch."""
import os
import subprocess
import sys

from beeline.tuning.box import EMULATED

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
FIND_NCCL = "import nvidia.nccl as m; print(list(m.__path__)[0] + '/lib')"
NCCL_VERSION = "import ctypes; v = ctypes.c_int(); ctypes.CDLL('libnccl.so.2').ncclGetVersion(ctypes.byref(v)); print(v.value)"


def output_of(argv, **env):
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True, env={**os.environ, **env}).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def gpus():
    """[(what CUDA_VISIBLE_DEVICES calls it, name)] of those that CUDA would show."""
    if EMULATED:
        found = [(str(i), "", "Emulated GPU") for i in range(int(EMULATED))]
    else:
        lines = output_of(["nvidia-smi", "--query-gpu=index,uuid,name", "--format=csv,noheader"]).splitlines()
        found = [tuple(line.split(", ", 2)) for line in lines if line.count(", ") >= 2]
    if "CUDA_VISIBLE_DEVICES" not in os.environ:
        return [(index, name) for index, _, name in found]
    visible = []
    for asked in os.environ["CUDA_VISIBLE_DEVICES"].split(","):
        name = next((name for index, uuid, name in found if asked.strip() == index or asked.strip() and uuid.startswith(asked.strip())), None)
        if name is None:
            break  # as CUDA does: what follows is hidden
        visible.append((asked.strip(), name))
    return visible


def driver():
    """The version of the kernel driver, 580.159.04."""
    return "" if EMULATED else output_of(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]).split("\n")[0]


def nccl_folder():
    """Of PyTorch's NCCL; the emulated box has its own on the path."""
    return "" if EMULATED else output_of(["python3", "-c", FIND_NCCL])


def nccl_version(**env):
    """As a number, 22809; 0 if there is none."""
    return int(output_of([sys.executable, "-c", NCCL_VERSION], **env) or 0)


def lacking(build):
    """What is wrong with a build folder for tests, which will not do on GPUs; None: nothing."""
    if EMULATED or not os.path.exists(os.path.join(build, "kernels/sampled")):
        return None
    return f"--build {build} lacks most of the device code, as builds for tests do: one that make has made without check or FOR_TESTS=1 is accepted"


def built(name):
    """The build folder; builds where libbeeline.so is missing."""
    build = os.path.join(ROOT, name)
    if lacking(build):
        sys.exit(lacking(build))
    if not os.path.exists(os.path.join(build, "libbeeline.so")):
        print(f"# {name}/libbeeline.so is missing: building", flush=True)
        subprocess.run(["make", "-C", ROOT, f"BUILD={name}", f"-j{os.cpu_count()}", "all"], check=True, timeout=600)
    return build
