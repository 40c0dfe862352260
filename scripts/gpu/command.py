"""What the commands on boxes with GPUs have in common: their options."""
import argparse
import os


def parser(text, ranks, stages, also="", **out):
    """text: the command's own, for --help; ranks: the default in words; stages: the names that run by default, also: what else may; out: of
    --out."""
    p = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    p.add_argument("--out", metavar="DIR", **out)
    p.add_argument("--ranks", metavar="LIST", help=f"numbers of ranks{ranks}")
    p.add_argument("--stages", metavar="LIST", default=",".join(stages), help=f"default: %(default)s{also}")
    p.add_argument("--build", default=os.environ.get("BUILD", "build"), metavar="DIR", help="default: $BUILD, else build")
    return p


def parse(p, stages):
    """The options; stages and ranks as lists, of ranks None where none are named."""
    options = p.parse_args()
    options.stages = options.stages.split(",")
    for name in options.stages:
        if name not in stages:
            p.error(f"--stages {name}: one of {', '.join(stages)}")
    try:
        options.ranks = [int(n) for n in options.ranks.split(",")] if options.ranks else None
    except ValueError:
        p.error(f"--ranks {options.ranks}: numbers, separated by commas")
    return options
