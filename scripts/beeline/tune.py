"""Measure this box and write thresholds for it: every algorithm of every collective and number of ranks, against the box's own NCCL.

Nobody else may use the GPUs meanwhile.  Ctrl-C ends it, and the same command goes on with what is missing.  The rows of this box, of
the collectives and numbers of ranks that were measured, take the place of those in FILE; everything else in it stays.

Exit status: 0; 1 if something failed or there was no time for it; 130 after Ctrl-C.
"""
import contextlib
import fcntl
import hashlib
import json
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
    text, here = check_out(file, out), facts.get("fingerprint")
    other = here and file.before(text, here, {(name, n) for name in names for n in ranks})
    if other:
        raise Refused(f"tune: {out}: the rows of its later section `{other.strip()}` would hold in place of what is measured: remove them, or put them first")
    state = os.path.join(cache, "beeline", f"tune-{socket.gethostname()}")
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup has it
            signal.signal(number, lambda n, _: sys.exit(128 + n))
    # The second is the library's own, which measures boxes that nobody has measured.
    with locked(os.path.join(state, "lock"), os.path.join(cache, file.NAME + ".lock")), tempfile.TemporaryDirectory(prefix="beeline-tune-") as folder:
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
    if not all(text.isdecimal() and 2 <= int(text) <= most for text in found):
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
    path = "file"  # the library cuts long names
    with tempfile.TemporaryDirectory(prefix="beeline-tune-") as folder:
        with open(os.path.join(folder, path), "w", encoding="utf-8", errors="surrogateescape", newline="") as out:
            out.write(text)
        environment = {name: value for name, value in preload.perf_environment().items() if not name.startswith("BEELINE_DEBUG") and name != "LD_PRELOAD"}
        environment.update(BEELINE_TUNING_FILE=path, BEELINE_LIBRARY=preload.find_library())
        done = subprocess.run([sys.executable, os.path.dirname(os.path.abspath(__file__)), "info", "--json"], env=environment, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, errors="replace", check=False, cwd=folder)
    if done.returncode:
        raise Refused(f"tune: the library could not look at the tuning file: {(done.stderr.strip().splitlines() or [f'status {done.returncode}'])[-1]}", 1)
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
    path = None
    try:
        handle, path = tempfile.mkstemp(dir=os.path.dirname(out), prefix=".beeline-tune-")
        with open(handle, "w", encoding="utf-8", errors="surrogateescape", newline="") as new:
            new.write(text)
        before = os.stat(out) if os.path.exists(out) else None
        os.chmod(path, before.st_mode & 0o777 if before else 0o644)
        if before and os.geteuid() == 0:
            os.chown(path, before.st_uid, before.st_gid)
        os.replace(path, out)
    except OSError as error:
        if path and os.path.exists(path):
            os.unlink(path)
        raise Refused(f"tune: {out} cannot be written: {error.strerror}; what is measured is kept, and the same command writes it", 1) from error


# --- the run ---

@contextlib.contextmanager
def locked(*paths):
    """One run at a time.  The files stay: who has opened one is to lock what others do."""
    with contextlib.ExitStack() as held:
        for path in paths:
            try:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                fcntl.flock(held.enter_context(open(path, "a", encoding="utf-8")), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Refused(f"tune: somebody else measures this box: {path} is locked", 1) from None
            except OSError as error:
                raise Refused(f"tune: {path}: {error.strerror}") from error
        yield


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
            try:
                print(f"{self.state}  {text.strip()}", flush=True)
            except BrokenPipeError:  # who read it has seen enough; the measuring goes on
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        elif "FAILED" in text:
            self.bar.end()
            print(text.strip(), flush=True)


def measure(options, limit, facts, library, ranks, names, out, state, folder):
    from .tuning import file, session  # pylint: disable=import-outside-toplevel
    from .tuning.box import Box  # pylint: disable=import-outside-toplevel
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    devices = [name.strip() for name in visible.split(",")] if visible else [str(i) for i in range(len(facts["gpus"]))]
    box, teller = Box(library, preload.find_perf(), len(facts["gpus"]), ranks, folder, preload.nccl_folder() or ""), Teller()
    results = earlier(box, facts, state, [sorted(names), options.quick], options.again)
    tuning = session.Session(box, results, session.Plan(box, names, options.quick), devices, teller, host=socket.gethostname())
    count = len(tuning.batches)
    print(f"{facts.get('fingerprint') or facts['gpus'][0].get('name')}\n{', '.join(map(str, ranks))} ranks, {count} steps, "
          f"{count - len(tuning.missing())} of them done before", flush=True)
    try:
        tuning.run(time.monotonic() + limit)
    except KeyboardInterrupt:
        tuning.write()  # a step may have ended, and not been written
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
        shutil.rmtree(results.folder)
        return 0
    for job in missing:
        why = tuning.left_out.get(job.key) or results.markers().get(job.key, {}).get("reason") or "not begun"
        print(f"beeline: not done: {job.key}: {why}", file=sys.stderr)
    print(f"beeline: {len(missing)} of {count} steps are missing, and the same command goes on; all output: {results.file('logs.txt')}", file=sys.stderr)
    return 1


def earlier(box, facts, state, plan, again):
    """What an interrupted run of this plan has left, of the same library, NCCL and GPUs; each has a folder of its own."""
    from .tuning import store  # pylint: disable=import-outside-toplevel
    identity = box.identity([gpu.get("name") for gpu in facts["gpus"]], (facts.get("nccl") or {}).get("version"))
    name = hashlib.sha256(json.dumps([identity, box.ranks, plan], sort_keys=True).encode()).hexdigest()[:12]
    results = store.Steps(os.path.join(state, name), identity)
    if again:
        shutil.rmtree(results.folder, ignore_errors=True)
    os.makedirs(results.folder, exist_ok=True)
    if os.path.exists(results.path):
        results.load(results.path)
    return results
