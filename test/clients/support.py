"""What the cases of test/clients share: where things lie, running programs, checking.

By default programs run on the emulated box.  With BEELINE_TEST_NCCL=PATH they run on this machine's own GPUs and with
that NCCL; cases that need the emulated NCCL's variants are then skipped.
"""

import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("BUILD", os.path.join(ROOT, "build")))
CLIENTS = os.path.join(BUILD, "test", "clients")
BEELINE = os.path.join(BUILD, "libbeeline.so")
EMU = os.path.join(BUILD, "emu")
HERE = os.path.join(ROOT, "test", "clients")
REAL = os.environ.get("BEELINE_TEST_NCCL")
NCCL = REAL or os.path.join(EMU, "libnccl.so.2")
SKIP = 77


class Skip(Exception):
    """What is lacking, in words."""


def check(condition, text):
    if not condition:
        sys.exit("failed: %s" % text)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def client(name):
    return os.path.join(CLIENTS, name)


def ctypes_client(library):
    return [sys.executable, os.path.join(HERE, "ctypes_client.py"), library]


def warnings(done):
    return re.findall(r"^beeline \[\d+\] WARN (.*)$", done.stderr, re.M)


def emulated_only():
    if REAL:
        raise Skip("only on the emulated box")


class Case:
    """A folder of its own, and the means to run programs."""

    def __init__(self, folder):
        self.folder = folder
        self.trace = os.path.join(folder, "nccl.trace")

    def path(self, name):
        return os.path.join(self.folder, name)

    def run(self, command, env=(), status=0, **options):
        """Runs a command by itself: nothing of Beeline's is set but what `env` has."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("BEELINE_")}
        environment.update(env)
        done = subprocess.run(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            **options
        )
        if done.returncode == SKIP:
            raise Skip(done.stderr.strip())
        check(
            done.returncode == status,
            "%s: status %d, want %d\n%s%s" % (" ".join(command), done.returncode, status, done.stdout, done.stderr),
        )
        return done

    def box(self, *command, beeline=True, nccl=None, env=()):
        """Runs a command on a box of two GPUs; `nccl` is old, new, or a folder that comes first."""
        if REAL:
            return self.real(command, beeline, nccl, dict(env))
        variables = dict(BEELINE_EMU_NCCL_TRACE=self.trace, LD_LIBRARY_PATH=BUILD, BUILD=BUILD)
        arguments = [os.path.join(ROOT, "scripts", "emu-box"), "-g", "2"]
        arguments += ["--beeline"] if beeline else []
        arguments += ["--nccl", nccl] if nccl else []
        for name, value in dict(env).items():
            arguments += ["--env", "%s=%s" % (name, value)]
        return self.run([*arguments, "--", *command], variables)

    def real(self, command, beeline, nccl, env):
        if nccl in ("old", "new"):
            emulated_only()
        folders = [nccl, os.path.dirname(REAL), BUILD, os.environ.get("LD_LIBRARY_PATH")]
        variables = dict(LD_LIBRARY_PATH=":".join(filter(None, folders)))
        if beeline:
            variables["LD_PRELOAD"] = BEELINE
        return self.run(command, {**variables, **env})

    def job(self, *command, served=True, env=(), **options):
        """The job of client.h: right sums, ncclAllReduce in Beeline's hands, pncclAllReduce in the real NCCL's."""
        log = self.path("log")
        for path in (self.trace, log):
            if os.path.exists(path):
                os.unlink(path)
        done = self.box(*command, env={"BEELINE_DEBUG": "INFO", "BEELINE_DEBUG_FILE": log, **dict(env)}, **options)
        check("sums are right" in done.stdout, done.stdout + done.stderr)
        said = read(log) if os.path.exists(log) else ""
        check("WARN" not in said + done.stderr, said + done.stderr)
        routes = re.findall(r"all_reduce of 1000 float sum goes to (?!nccl)", said)
        check(len(routes) == (2 if served else 0), "Beeline took %d of ncclAllReduce\n%s" % (len(routes), said))
        check(" of 1001 " not in said, "Beeline saw pncclAllReduce\n%s" % said)
        if not REAL:
            self.check_trace(served)
        done.log = said
        return done

    def check_trace(self, served):
        calls = read(self.trace)
        opted_out = len(re.findall(r" p?ncclAllReduce 1001 ", calls))
        check(opted_out == 2, "pncclAllReduce reached the real NCCL %d times, want 2\n%s" % (opted_out, calls))
        forwarded = len(re.findall(r" ncclAllReduce 1000 ", calls))
        check(forwarded == (0 if served else 2), "ncclAllReduce reached NCCL %d times\n%s" % (forwarded, calls))
