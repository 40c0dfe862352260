"""Run beeline-perf with Beeline preloaded; all arguments are beeline-perf's.

beeline perf --help lists them.  NCCL is the one that the loader finds, else the one that PyTorch's package brings.
"""
from . import preload

USAGE = "beeline perf [OPTION...]"


def arguments(parser):
    parser.add_argument("options", nargs="...", metavar="OPTION", help="of beeline-perf")


def start(options):
    program, environment = preload.find_perf(), preload.perf_environment()
    preload.become(program, [program, *options], environment)
