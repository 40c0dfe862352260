#!/usr/bin/env python3
"""Runs tests of PyTorch's own DistributedTest, one after another, for distributed_suite.py, which says why and how many at once.

Reads lines `TEST LOG` and answers each with a line of JSON: verdict (ok, skipped, failed) and seconds; what the test's processes print goes
to LOG.  The first line is said once PyTorch is there: its version, the tests, and how ranks are started.  Like
test/distributed/test_distributed_spawn.py in PyTorch's repository, but that ranks are forked from this process, which has imported
everything and never touched a GPU: importing is most of what a test costs.  Where the driver has been started all the same, and with --spawn,
they are spawned as there.
"""
import ctypes
import json
import os
import signal
import sys
import time
import types
import unittest

os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # whether there are GPUs is asked without starting the driver

try:
    import expecttest  # noqa: F401
except ImportError:  # PyTorch's tests derive from its class, the distributed ones use nothing of it
    sys.modules["expecttest"] = types.ModuleType("expecttest")
    sys.modules["expecttest"].TestCase = unittest.TestCase

import torch
import torch.multiprocessing
from torch.testing._internal import common_distributed
from torch.testing._internal.distributed import distributed_test

torch.backends.cuda.matmul.allow_tf32 = False
NOT_STARTED = 3  # CUDA_ERROR_NOT_INITIALIZED
PR_SET_PDEATHSIG = 1


def end_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def start():
    """How ranks are started."""
    if "--spawn" in sys.argv:
        return "spawn"
    try:
        return "fork" if ctypes.CDLL("libcuda.so.1").cuDeviceGetCount(ctypes.byref(ctypes.c_int())) == NOT_STARTED else "spawn"
    except OSError:  # no driver
        return "fork"


class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        sys.stdout.flush()
        self._start_processes(torch.multiprocessing.get_context(start()).Process)

    @classmethod
    def _run(cls, *args, **kwargs):
        end_with_parent()
        torch.backends.cudnn.flags(enabled=True, allow_tf32=False).__enter__()
        super()._run(*args, **kwargs)


def run(name):
    result = unittest.TestResult()
    Suite(name).run(result)
    for child in torch.multiprocessing.active_children():
        child.kill()
        child.join(10)
    bad = result.failures + result.errors
    for _, trace in bad:
        print(trace)
    for _, reason in result.skipped:
        print(f"skipped: {reason}")
    return "failed" if bad or result.unexpectedSuccesses else "skipped" if result.skipped else "ok"


def main():
    end_with_parent()
    common_distributed.TIMEOUT_OVERRIDE.clear()  # some tests have longer limits than others: here all have ours
    torch.multiprocessing.set_start_method("spawn")  # of what ranks start themselves
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    names = unittest.defaultTestLoader.getTestCaseNames(Suite)
    print(json.dumps(dict(torch=torch.__version__, tests=names, start=start())), file=answers)
    for line in sys.stdin:
        name, log = line.split()
        with open(log, "wb", buffering=0) as out:
            for number in (1, 2):
                os.dup2(out.fileno(), number)
        began = time.monotonic()
        verdict = run(name)
        sys.stdout.flush()
        print(json.dumps(dict(verdict=verdict, seconds=round(time.monotonic() - began, 2))), file=answers)


if __name__ == "__main__":
    main()
