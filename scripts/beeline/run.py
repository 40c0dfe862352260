"""Run a command, and all that it starts, with Beeline preloaded.

Exit status: the command's; 125 if Beeline cannot be preloaded, 126 and 127 if the command cannot be run.
"""
import os
import signal
import subprocess
import sys
import tempfile

from . import preload, report, saved
from .words import Refused

USAGE = "beeline run [--report] [--] COMMAND [ARGUMENT...]"
REST = "..."
HANDED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def arguments(parser):
    parser.add_argument("--report", action="store_true", help="afterwards say on stderr which calls went where: per collective, size and route, over all ranks")
    parser.add_argument("words", nargs=REST, metavar="COMMAND", help="with its arguments")


def main(options, _parser):
    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    if not words:
        raise Refused("run: no COMMAND; " + USAGE, preload.CANNOT)
    if options.report and os.environ.get("BEELINE_STATS_FILE"):
        raise Refused(f"run: BEELINE_STATS_FILE={os.environ['BEELINE_STATS_FILE']} is set, and --report sets it itself: unset it", preload.CANNOT)
    path = preload.find_library()
    program = preload.check_command(words[0])
    if preload.is_bare_script(program):
        program, words = "/bin/sh", ["sh", program, *words[1:]]
    preload.warn_without_driver()
    environment = {**os.environ, "LD_PRELOAD": preload.preloaded(path)}
    if os.environ.get("BEELINE_LIBRARY"):
        environment["BEELINE_LIBRARY"] = path
    if not options.report:
        preload.become(program, words, environment)
    with tempfile.TemporaryDirectory(prefix="beeline-report-") as folder:
        environment["BEELINE_STATS_FILE"] = os.path.join(folder, "%p.json")
        status = run_and_wait(program, words, environment)
        records = report.read(folder)
        print("\n".join(report.lines(records) + saved.lines(records)), file=sys.stderr)
    return status


def run_and_wait(program, words, environment):
    """Its exit status, as a shell has it.  Signals for us are for it; those of the terminal it gets itself."""
    child, early = None, []

    def hand_on(number, _):
        if child:
            child.send_signal(number)
        else:
            early.append(number)
    for number in HANDED_ON:
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup has it
            signal.signal(number, hand_on)
    signal.signal(signal.SIGINT, lambda *_: None)  # to ignore it would be inherited
    try:
        child = subprocess.Popen(words, executable=program, env=environment)
    except OSError as error:
        raise Refused(f"{words[0]}: {error.strerror}", 126) from error
    for number in early:
        child.send_signal(number)
    code = child.wait()
    return code if code >= 0 else 128 - code
