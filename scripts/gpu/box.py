"""Where the stages run, and how a command of theirs is put together."""
import itertools
import os
import sys

from . import machine
from .collectives import ALGORITHMS, routes
from .process import Step

WAIT = 20  # seconds that a kernel of Beeline waits for a peer: a hang then ends in an error that says where
FEW_WORDS = dict(BEELINE_DEBUG="INFO", BEELINE_STATS="1")


class Box:
    """ranks: the numbers of ranks; folder: of results; nccl_tests and vllm: folders that have them."""

    def __init__(self, build, gpus, ranks, folder, nccl_folder="", nccl_tests=None, vllm=None):
        self.root, self.emulated = machine.ROOT, bool(machine.EMULATED)
        self.build, self.gpus, self.ranks, self.folder = build, gpus, ranks, folder
        self.nccl_folder, self.nccl_tests, self.vllm = nccl_folder, nccl_tests, vllm
        self.library = os.path.join(build, "libbeeline.so")
        self.most = ranks[0]
        self.serial = itertools.count(1)

    def env(self, preload=True, **more):
        """What a command of a job gets beside our own environment."""
        added = {name: str(value) for name, value in more.items()}
        if preload:
            added.setdefault("BEELINE_TIMEOUT", str(WAIT))
            added["LD_PRELOAD"] = ":".join(filter(None, (self.library, os.environ.get("LD_PRELOAD"))))
        if self.nccl_folder:
            added["LD_LIBRARY_PATH"] = ":".join(filter(None, (self.nccl_folder, os.environ.get("LD_LIBRARY_PATH"))))
        return added

    def perf(self, name, *arguments, limit=30, want=None, **env):
        """beeline-perf with Beeline; its rows go to the records."""
        records = os.path.join(self.folder, f"perf-{next(self.serial)}.json")
        argv = [os.path.join(self.build, "beeline-perf"), "--timeout", max(10, limit - 5), "--json", records, *arguments]
        return Step(name, argv, self.env(**env), limit, want, records)

    def program(self, name, *arguments):
        """A program of scripts/gpu/programs."""
        return [sys.executable, os.path.join(self.root, "scripts/gpu/programs", name), *arguments]

    def pick(self, real, emulated):
        """Arguments for a GPU box, or for an emulated one, which is slower by a factor of a thousand."""
        chosen = emulated if self.emulated else real
        return chosen.split() if isinstance(chosen, str) else chosen


def algorithms(collective="all_reduce"):
    """{route: what forces it} of a collective's algorithms that need no multicast object."""
    found = {}
    for name, algorithm in ALGORITHMS.items():
        if algorithm.collective == collective and "BL_NVLS" not in algorithm.columns:
            found |= {route: f"{name}:lines" if route == name and len(routes(name)) > 1 else route for route in routes(name)}
    return found


def served(collectives=("all_reduce",)):
    """Matches a row that Beeline served."""
    return r"\| (" + "|".join(name for collective in collectives for name in algorithms(collective)) + r") "


def blocks(ranks, low, high, factor):
    """Sizes of a rank's block from low to high: beeline-perf's are of the whole message."""
    return ("-b", low * ranks, "-e", high * ranks, "-f", factor)
