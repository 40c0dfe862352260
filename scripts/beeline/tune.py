"""Measure this box and write thresholds for it: every algorithm of every collective and number of ranks, against the box's own NCCL.

Nobody else may use the GPUs meanwhile.  Ctrl-C ends it, and the same command goes on with what is missing.  The rows of this box, of
the collectives and numbers of ranks that were measured, take the place of those in FILE; everything else in it stays.

Exit status: 0; 1 if something failed or there was no time for it; 130 after Ctrl-C.
"""
import contextlib
import fcntl
import glob
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from . import box as boxes
from . import preload
from .words import Progress, Refused, columns

USAGE = "beeline tune [--out FILE] [--ranks LIST] [--collectives LIST] [--limit TIME] [--quick] [--again]"
MOST_RANKS = 16
NOTES = (["NCCL's time over Beeline's in CUDA graphs: geometric mean over sizes, and the least"], ["Times mean nothing on an emulated box."])
SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}


def arguments(parser):
    parser.add_argument("--out", metavar="FILE", help="default: $XDG_CONFIG_HOME/beeline/beeline.tune, or ~/.config/beeline/beeline.tune, where Beeline looks")
    parser.add_argument("--ranks", metavar="LIST", help="numbers of ranks, 8,4,2 (default: 2 to all GPUs)")
    parser.add_argument("--collectives", metavar="LIST", help="all_reduce,all_gather, ... (default: all)")
    parser.add_argument("--limit", metavar="TIME", help="begin nothing that would end later: 90s, 20m, 1h (default: none)")
    parser.add_argument("--quick", action="store_true", help="fewer sizes and samples: coarser thresholds in about half the time")
    parser.add_argument("--again", action="store_true", help="forget what an interrupted run has left")


def main(options, _parser):
    # Here, for this reads files that only tuning needs.
    from .tuning import file, runner  # pylint: disable=import-outside-toplevel
    limit = seconds(options.limit)
    library = preload.find_library()
    wrong = runner.hindrances()
    if wrong:
        raise Refused("tune: " + "; ".join(wrong))
    os.environ["BEELINE_TUNING_FILE"] = "built-in"  # in this process no file is to be read, and warned of
    facts = boxes.ask(library)
    del os.environ["BEELINE_TUNING_FILE"]
    ranks, names = wanted_ranks(options, facts), wanted_names(options, facts)
    cache = file.folder("XDG_CACHE_HOME", ".cache")
    out = os.path.realpath(options.out or default_out(file))
    if not cache:
        raise Refused("tune: neither XDG_CACHE_HOME nor HOME says where to keep what is measured")
    check_out(file, out)
    state = os.path.join(cache, "beeline", f"tune-{socket.gethostname()}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with locked(state), tempfile.TemporaryDirectory(prefix="beeline-tune-") as folder:
        return measure(options, limit, facts, library, ranks, names, out, state, folder)


# --- what is asked for ---

def seconds(text):
    if text is None:
        return float("inf")
    words = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if not words or not float(words[1]):
        raise Refused(f"tune: --limit {text} is not accepted: a time as 90s, 20m or 1h")
    return float(words[1]) * SECONDS[words[2]]


def wanted_ranks(options, facts):
    gpus = len(facts["gpus"])
    if gpus < 2:
        raise Refused(f"tune: {gpus} GPU{'s are' if gpus != 1 else ' is'} visible: 2 or more are needed")
    if facts.get("not_served") and not options.ranks:
        raise Refused(f"tune: {facts.get('class_text')}: left to NCCL: {facts['not_served']}; --ranks names fewer")
    most = min(gpus, MOST_RANKS)
    if not options.ranks:
        return list(range(most, 1, -1))
    found = options.ranks.split(",")
    if not all(text.isdigit() and 2 <= int(text) <= most for text in found):
        raise Refused(f"tune: --ranks {options.ranks} is not accepted: numbers from 2 to {most}, separated by commas")
    return sorted(set(map(int, found)), reverse=True)


def wanted_names(options, facts):
    """{collective: the routes that are its candidates}"""
    from .tuning import jobs  # pylint: disable=import-outside-toplevel
    every = jobs.tables_of()
    version = str((facts.get("nccl") or {}).get("version"))
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
    lacking = ["all_to_all"] if numbers and numbers < [2, 28] else []  # which has no such call
    if not options.collectives:
        return {name: routes for name, routes in every.items() if name not in lacking}
    found = options.collectives.split(",")
    for name in found:
        if name not in every:
            raise Refused(f"tune: --collectives {options.collectives} is not accepted: {name} is none of {', '.join(every)}")
        if name in lacking:
            raise Refused(f"tune: --collectives {name}: NCCL {version} has no such call; 2.28 has")
    return {name: routes for name, routes in every.items() if name in found}


# --- the file ---

def default_out(file):
    folder = file.folder("XDG_CONFIG_HOME", ".config")
    if not folder:
        raise Refused("tune: neither XDG_CONFIG_HOME nor HOME says where tuning files are: name one with --out")
    return os.path.join(folder, file.NAME)


def mistakes(text):
    """What the library says of such a tuning file: its lines that are not accepted, and why."""
    with tempfile.TemporaryDirectory(prefix="beeline-tune-") as folder:
        path = os.path.join(folder, "file")
        with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="") as out:
            out.write(text)
        environment = {name: value for name, value in preload.perf_environment().items() if not name.startswith("BEELINE_DEBUG") and name != "LD_PRELOAD"}
        environment.update(BEELINE_TUNING_FILE=path, BEELINE_LIBRARY=preload.find_library())
        done = subprocess.run([sys.executable, os.path.dirname(os.path.abspath(__file__)), "info", "--json"], env=environment, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    return [f"line {line}: {why}" for line, why in re.findall(rf"{re.escape(path)}:(\d+): (.*)", done.stderr)] + \
        re.findall(rf"{re.escape(path)} (cannot be read: [^;]*)", done.stderr)


def check_out(file, out):
    """Before anything is measured: that it can be written, and what it holds is right."""
    try:
        os.makedirs(os.path.dirname(out), exist_ok=True)
        text = file.read(out)
    except OSError as error:
        raise Refused(f"tune: {out}: {error.strerror}") from error
    if not os.access(os.path.dirname(out), os.W_OK):
        raise Refused(f"tune: {os.path.dirname(out)} cannot be written")
    wrong = text and mistakes(text)
    if wrong:
        raise Refused(f"tune: {out} has a mistake, and stays as it is: {wrong[0]}")
    return text


def write(file, out, session):
    """Through a file beside it, once the library has read that."""
    text = session.merged(check_out(file, out))
    wrong = mistakes(text)
    if wrong:
        raise Refused(f"tune: {out} stays as it is: it would have a mistake: {wrong[0]}", 1)
    handle, path = tempfile.mkstemp(dir=os.path.dirname(out), prefix=".beeline-tune-")
    with open(handle, "w", encoding="utf-8", errors="surrogateescape", newline="") as new:
        new.write(text)
    os.chmod(path, os.stat(out).st_mode & 0o777 if os.path.exists(out) else 0o644)
    os.replace(path, out)


# --- the run ---

@contextlib.contextmanager
def locked(folder):
    """The folder of what is measured, for one run at a time; it goes when nothing is left in it."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "lock")
    with open(path, "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Refused(f"tune: another beeline tune is under way: {path} is locked", 1) from None
        yield
        if os.listdir(folder) == ["lock"]:
            shutil.rmtree(folder)


def span(left):
    return f"{left:.0f} s" if left < 99.5 else f"{left / 60:.0f} min"


class Teller:
    """A bar on a terminal; elsewhere a line for each step that has ended."""

    def __init__(self):
        self.bar, self.state = Progress(), ""

    def progress(self, share, left, what):
        self.state = f"{100 * share:3.0f} %  {span(left):>6} left"
        self.bar.say(f"[{'#' * int(20 * share):<20}] {self.state}  {what}")

    def say(self, text):
        """What a step says at its end."""
        if not self.bar.shown:
            print(f"{self.state}  {text.strip()}", flush=True)
        elif "FAILED" in text:
            self.bar.end()
            print(text.strip(), flush=True)


def measure(options, limit, facts, library, ranks, names, out, state, folder):
    from .tuning import file, session  # pylint: disable=import-outside-toplevel
    from .tuning.box import Box  # pylint: disable=import-outside-toplevel
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    devices = [name.strip() for name in visible.split(",")] if visible else [str(i) for i in range(len(facts["gpus"]))]
    box, teller = Box(library, preload.find_perf(), len(facts["gpus"]), ranks, folder, preload.nccl_folder() or ""), Teller()
    results = earlier(box, facts, state, options.again)
    tuning = session.Session(box, results, session.Plan(box, names, options.quick), devices, teller, host=socket.gethostname())
    count = len(tuning.batches)
    print(f"{facts.get('fingerprint') or facts['gpus'][0].get('name')}\n{', '.join(map(str, ranks))} ranks, {count} steps, "
          f"{count - len(tuning.missing())} of them done before", flush=True)
    try:
        tuning.run(time.monotonic() + limit)
    except KeyboardInterrupt:
        teller.bar.end()
        print(f"beeline: interrupted; {count - len(tuning.missing())} of {count} steps are done, and the same command goes on", file=sys.stderr)
        return 130
    finally:
        teller.bar.end()
    if tuning.tuned():
        write(file, out, tuning)
        print("\n".join([*columns(list(tuning.gains()), right=range(1, 8)), *NOTES[box.emulated], f"Written: {out}"]))
    missing = tuning.missing()
    if not missing:
        forget(state)
        return 0
    for job in missing:
        why = tuning.left_out.get(job.key) or results.markers().get(job.key, {}).get("reason") or "not begun"
        print(f"beeline: not done: {job.key}: {why}", file=sys.stderr)
    print(f"beeline: {len(missing)} of {count} steps are missing, and the same command goes on; all output: {results.file('logs.txt')}", file=sys.stderr)
    return 1


def earlier(box, facts, state, again):
    """What an interrupted run has left, if it was of the same library, NCCL and GPUs."""
    from .tuning import store  # pylint: disable=import-outside-toplevel
    identity = box.identity([gpu.get("name") for gpu in facts["gpus"]], (facts.get("nccl") or {}).get("version"))
    results = store.Steps(state, identity)
    try:
        if not again and os.path.exists(results.path):
            results.load(results.path)
            return results
    except store.Different as why:
        print(f"beeline: what an earlier run has left is not used: it {why}", file=sys.stderr)
    forget(state)
    return results


def forget(state):
    """All but the lock."""
    for path in glob.glob(os.path.join(glob.escape(state), "*")):
        if os.path.basename(path) != "lock":
            os.unlink(path)
