"""The box that is measured: its library and beeline-perf, and how a command is put together; which algorithms can be forced there."""
import hashlib
import itertools
import os

from .collectives import ALGORITHMS, routes
from .process import Step

WAIT = 20  # seconds that a kernel of Beeline waits for a peer: a hang then ends in an error that says where
EMULATED = os.environ.get("BEELINE_EMU_GPUS") if "BEELINE_EMU_RUN" in os.environ else None  # both of emu-box


class Box:
    """gpus: how many; ranks: the numbers of ranks; folder: of results; nccl_folder: "" where the loader finds NCCL."""

    def __init__(self, library, program, gpus, ranks, folder, nccl_folder=""):
        self.library, self.program, self.gpus, self.ranks, self.folder = library, program, gpus, ranks, folder
        self.nccl_folder, self.emulated, self.most = nccl_folder, bool(EMULATED), ranks[0]
        self.serial = itertools.count(1)

    def env(self, preload=True, **more):
        """What a command of a job gets beside our own environment."""
        added = {name: str(value) for name, value in more.items()}
        if preload:
            added.setdefault("BEELINE_TIMEOUT", str(WAIT))
            added.setdefault("BEELINE_TUNE", "0")  # what is measured is what there is
            added["LD_PRELOAD"] = ":".join(filter(None, (self.library, os.environ.get("LD_PRELOAD"))))
        if self.nccl_folder:
            added["LD_LIBRARY_PATH"] = ":".join(filter(None, (self.nccl_folder, os.environ.get("LD_LIBRARY_PATH"))))
        return added

    def perf(self, name, *arguments, limit=30, want=None, **env):
        """beeline-perf with Beeline; its rows go to the records."""
        records = os.path.join(self.folder, f"perf-{next(self.serial)}.json")
        argv = [self.program, "--timeout", max(10, limit - 5), "--json", records, *arguments]
        return Step(name, argv, self.env(**env), limit, want, records)

    def pick(self, real, emulated):
        """Arguments for a GPU box, or for an emulated one, which is slower by a factor of a thousand."""
        chosen = emulated if self.emulated else real
        return chosen.split() if isinstance(chosen, str) else chosen

    def identity(self, gpus, nccl):
        """What must be the same for measurements to belong together.  gpus: their names; nccl: its version."""
        with open(self.library, "rb") as file:
            library = hashlib.sha256(file.read()).hexdigest()
        return dict(library=library, gpus=gpus, nccl=nccl, NCCL_NVLS_ENABLE=os.environ.get("NCCL_NVLS_ENABLE", ""))


def algorithms(collective="all_reduce"):
    """{route: what forces it} of a collective's algorithms that need no multicast object."""
    return {route: f"{name}:lines" if route == name and len(routes(name)) > 1 else route
            for name, algorithm in ALGORITHMS.items() if algorithm.collective == collective and "BL_NVLS" not in algorithm.columns
            for route in routes(name)}


def served(collectives=("all_reduce",)):
    """Matches a row that Beeline served."""
    return r"\| (" + "|".join(name for collective in collectives for name in algorithms(collective)) + r") "


def blocks(ranks, low, high, factor):
    """Sizes of a rank's block from low to high: beeline-perf's are of the whole message."""
    return ("-b", low * ranks, "-e", high * ranks, "-f", factor)
