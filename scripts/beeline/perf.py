"""Run beeline-perf with Beeline preloaded; all arguments are beeline-perf's.

beeline perf --help lists them.  NCCL is the one that the loader finds, else the one that PyTorch's package brings.
"""
import os
import sys

from . import preload
from .words import Refused

USAGE = "beeline perf [OPTION...]"


def arguments(parser):
    parser.add_argument("options", nargs="...", metavar="OPTION", help="of beeline-perf")


def start(options):
    program, environment = preload.find_perf(), preload.perf_environment()
    sys.stdout.flush()
    try:
        os.execve(program, [program, *options], environment)
    except OSError as error:
        raise Refused(f"{program}: {error.strerror}", 126) from error
