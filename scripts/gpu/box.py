"""The box as gpu-check and its like see it: a build of this tree, programs, and what was built elsewhere."""
import os
import sys

from beeline.tuning import box

from . import machine

FEW_WORDS = dict(BEELINE_DEBUG="INFO", BEELINE_STATS="1")


class Box(box.Box):
    """nccl_tests and vllm: folders that have them."""

    def __init__(self, build, gpus, ranks, folder, nccl_folder="", nccl_tests=None, vllm=None):
        library, program = (os.path.join(build, name) for name in ("libbeeline.so", "beeline-perf"))
        super().__init__(library, program, gpus, ranks, folder, nccl_folder)
        self.root, self.build, self.nccl_tests, self.vllm = machine.ROOT, build, nccl_tests, vllm

    def script(self, name, *arguments):
        """A program of scripts/gpu/programs."""
        return [sys.executable, os.path.join(self.root, "scripts/gpu/programs", name), *arguments]
