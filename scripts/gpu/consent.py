"""What keeps multicast objects from being created here, and what is said before any is."""
import os
import re
import time

from .machine import output_of

# The variables that forbid multicast, and the values that do not.
VARIABLES = (("NCCL_NVLS_ENABLE", ("", "1", "2")), ("TORCH_SYMM_MEM_DISABLE_MULTICAST", ("", "0")), ("NVSHMEM_DISABLE_NVLS", ("", "0")))
# NCCL reads variables from these files, too.
FILES = ("/etc/nccl.conf", os.path.expanduser("~/.nccl.conf"))
MOST_IDLE_MIB = 2048  # that the driver has in use on an idle GPU


def variables():
    """Those that forbid multicast in this environment: "NCCL_NVLS_ENABLE=0"."""
    return [f"{name}={os.environ[name]}" for name, fine in VARIABLES if os.environ.get(name, "") not in fine]


def settings():
    """The same in NCCL's files."""
    found = []
    for path in (*FILES, os.environ.get("NCCL_CONF_FILE", "")):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                lines = file.read().splitlines()
        except OSError:
            continue
        for line in lines:
            name, equals, value = (part.strip() for part in line.partition("="))
            if equals and any(name == variable and value not in fine for variable, fine in VARIABLES):
                found.append(f"{name}={value} in {path}")
    return found


def gpus():
    """Names, as nvidia-smi lists them."""
    return [line for line in output_of(["nvidia-smi", "-L"]).splitlines() if line.startswith("GPU ")]


def others():
    """Signs of others on the GPUs: nobody else may use them.  Between steps none is ours; one that has just ended may show still."""
    for last in (False, True):
        rows = output_of(["nvidia-smi", "--query-compute-apps=pid,name", "--format=csv,noheader"]).splitlines()
        found = [f"another process uses the GPUs: {row}" for row in rows if re.match(r"\d+", row)]
        # Processes of other containers are not listed.
        used = output_of(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]).split()
        if not used or not all(mib.isdigit() for mib in used):
            found.append("nvidia-smi does not say how much memory of the GPUs is in use")
        else:
            found += [f"{mib} MiB of GPU {i} are in use: somebody else is on it" for i, mib in enumerate(used) if int(mib) > MOST_IDLE_MIB]
        if last or not found:
            return found
        time.sleep(2)
    return []


def slices():
    return "Enabled" in output_of(["nvidia-smi", "--query-gpu=mig.mode.current", "--format=csv,noheader"]).split()


def reasons(emulated):
    """All that forbids it here."""
    found = [f"{what} is set: whoever set it does not want multicast objects here" for what in variables() + settings()]
    if not emulated:
        found += others()
        if slices():
            found.append("MIG is enabled")
    return found


RISKS = """What could go wrong:
  - Multicast objects are a resource of the NVSwitches, which all jobs of the box share.  There are few, and on shared machines
    objects that failed, or whose owner was killed half way, have put the machine out of service until its GPUs were reset or it
    was booted again.  Do not run this if anybody else uses this box, or if you cannot reboot it.
  - Kernels that never ran on hardware run.  One that hangs is told to leave after some seconds and ends the run; if it does not
    leave, the GPU needs a reset.
  - While it runs, other jobs that need multicast objects may get none, and those on the same GPUs are slowed."""
