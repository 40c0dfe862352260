"""What the cases of test/command share: running the command, on the emulated box or beside it, and checking."""
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("BUILD", os.path.join(ROOT, "build")))
LIBRARY = os.path.join(BUILD, "libbeeline.so")
BEELINE = os.path.join(BUILD, "beeline")
PERF = os.path.join(BUILD, "beeline-perf")
sys.path.insert(0, os.path.join(ROOT, "scripts"))


class Skip(Exception):
    """What is lacking, in words."""


def check(condition, text):
    if not condition:
        sys.exit(f"failed: {text}")


def environment(env=()):
    """Nothing of Beeline's is set but what `env` has."""
    return {**{name: value for name, value in os.environ.items() if not name.startswith(("BEELINE_", "LD_"))}, **dict(env)}


def run(*command, env=(), status=0, **options):
    done = subprocess.run(command, env=environment(env), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, **options)
    check(done.returncode == status, f"{' '.join(command)}: status {done.returncode}, want {status}\n{done.stdout}{done.stderr}")
    return done


def beeline(*arguments, **options):
    return run(BEELINE, *arguments, **options)


def box(gpus, *command, topology="nvlink", path=None, **options):
    """On the emulated box, or on the machine that a file describes; times of the command itself are those of the emulation."""
    what = ["--box", path] if path else ["-t", topology, "-g", str(gpus)]
    return run(os.path.join(ROOT, "scripts", "emu-box"), "--build", BUILD, *what, "--", *command, **options)


def refused(text, *arguments, status=2, by=beeline, **options):
    """One line on stderr, which has this text, and nothing else."""
    done = by(*arguments, status=status, **options)
    check(done.stderr.startswith("beeline: ") and text in done.stderr and done.stderr.count("\n") == 1 and not done.stdout, f"want {text!r} in one line:\n{done.stdout}{done.stderr}")
