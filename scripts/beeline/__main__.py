"""The command `beeline`: a file of this package for each subcommand."""
import argparse
import difflib
import importlib
import os
import sys

if not __package__:  # started as `python3 FOLDER`
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    sys.dont_write_bytecode = True

from beeline import version  # noqa: E402
from beeline.words import Parser, Refused  # noqa: E402

COMMANDS = ("run", "info", "check", "tune", "perf", "plot", "completion")
EPILOG = "`beeline COMMAND --help` says more.  Documentation: docs/command.md, man beeline."


def module(name):
    return importlib.import_module(f"beeline.{name}")


def make_parser():
    """All commands, each with its own parser, by name in `.commands`."""
    parser = Parser(prog="beeline", description="Faster NCCL collectives on one box of GPUs.", epilog=EPILOG)
    parser.add_argument("--version", action="version", version=f"beeline {version()}")
    commands = parser.add_subparsers(metavar="COMMAND", parser_class=Parser, title="commands")
    parser.commands = {}
    for name in COMMANDS:
        of = module(name)
        about = of.__doc__.partition("\n\n")
        parser.commands[name] = commands.add_parser(name, help=about[0].rstrip("."), description=of.__doc__, usage=of.USAGE, epilog=getattr(of, "EPILOG", None),
                                                    formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
        of.arguments(parser.commands[name])
    return parser


def unknown(word):
    nearest = difflib.get_close_matches(word, COMMANDS, 1, 0) or COMMANDS
    return f"{word} is no command; the nearest is {nearest[0]}, and there are {', '.join(COMMANDS)}"


def main(argv=None):
    argv = sys.argv[1:] if argv is None else argv
    try:
        if not argv or argv[0].startswith("-"):
            parser = make_parser()
            parser.parse_args(argv)
            parser.print_help()
            return 0
        if argv[0] not in COMMANDS:
            raise Refused(unknown(argv[0]))
        if argv[0] == "perf":  # whose options are beeline-perf's own
            return module("perf").start(argv[1:])
        parser = make_parser()
        status = module(argv[0]).main(parser.commands[argv[0]].parse_args(argv[1:]), parser)
        sys.stdout.flush()
        return status
    except Refused as problem:
        print(f"beeline: {problem}", file=sys.stderr)
        return problem.status
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
