"""Where the CUDA toolkit and nccl.h are: what the Makefile finds."""
import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))


def path(variable):
    """CUDA_HOME, NCCL_H or another variable of the Makefile that is a path, made absolute."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(["make", "-s", "print-" + variable], cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return os.path.join(ROOT, done.stdout.strip())
