#!/usr/bin/env python3
"""PyTorch's own DistributedTest, from its wheel, with and without what --with sets: which tests pass without and not with it?

  distributed_suite.py --ranks 2 --gpus 4 --verdicts FILE --with LD_PRELOAD=build/libbeeline.so [--tests PATTERN]

Workers (distributed_worker.py) import PyTorch once and run test after test, several on the same GPUs; half of them with Beeline.  The
longest tests come first, as far as FILE knows them.  A test that is not as well with as without is repeated, three times on each side,
with few beside it and with its ranks spawned as PyTorch's own program spawns them; these repeats alone decide.

FILE gets a line of JSON for each verdict, at once, so that a later command goes on with what is missing; those of another PyTorch, or of
another file preloaded, do not count.  Exit status: 0; 1 if a test differs; 2 if no test does, but some are still to be run.
"""
import argparse
import hashlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time

SIDES = ("without", "with")
WELL = ("ok", "skipped")
REPEATS = 3
WORKER = os.path.join(os.path.dirname(os.path.realpath(__file__)), "distributed_worker.py")
STARTING = 120  # seconds for a worker to import PyTorch
TAIL, TAILS = 2000, 5  # characters kept of what a test printed that did not pass; of how many tests they are shown
ASSUMED = ((re.compile("DistributedDataParallel|ddp|join|averager"), 8.0), (re.compile(""), 4.0))  # seconds of a test never run


WARNING = re.compile(r"beeline \[\d+\] WARN .*")


class Failure(Exception):
    """Something other than a test went wrong."""


class Stopped(Exception):
    """There is no time left."""


class Verdicts:
    """What is known of each test: attempts on both sides; attempt 0 is among many others, the rest are the repeats."""

    def __init__(self, path, ranks, settings):
        self.path, self.ranks, self.settings, self.lock = path, ranks, settings, threading.Lock()
        self.found, self.seconds, self.kind = {}, {}, None
        self.old = []
        if os.path.exists(path):
            with open(path, encoding="utf-8") as lines:
                self.old = [json.loads(line) for line in lines if line.endswith("}\n")]
        for r in self.old:
            self.seconds[r["name"]] = max(r["seconds"], self.seconds.get(r["name"], 0))

    def made_with(self, side):
        """A verdict counts for the same PyTorch, number of ranks and preloaded file."""
        return f"{self.kind} {self.ranks} ranks {self.settings if side == 'with' else ''}".strip()

    def begin(self, kind):
        """The kind of PyTorch is known: takes over what the file has of it."""
        with self.lock:
            if self.kind is None:
                self.kind = kind
                self.found = {(r["name"], r["side"], r["attempt"]): r for r in self.old if r["made_with"] == self.made_with(r["side"])}

    def add(self, name, side, attempt, verdict, seconds, output):
        record = dict(name=name, side=side, attempt=attempt, verdict=verdict, seconds=round(seconds, 2), made_with=self.made_with(side))
        warning = WARNING.search(output)
        if warning:
            record["warned"] = warning.group()[:300]
        if verdict not in WELL:
            record["tail"] = output[-TAIL:]
        with self.lock:
            self.found[name, side, attempt] = record
            with open(self.path, "a", encoding="utf-8") as out:
                out.write(json.dumps(record) + "\n")

    def of(self, name, side, attempts):
        return [self.found[name, side, i]["verdict"] for i in attempts if (name, side, i) in self.found]

    def expected(self, name):
        return self.seconds.get(name) or next(seconds for pattern, seconds in ASSUMED if pattern.search(name))


def suspicious(verdicts, name):
    """Whether the first attempts say that a test has to be repeated: not well with Beeline, or skipped there alone."""
    first = [verdicts.of(name, side, [0]) for side in SIDES]
    return all(first) and first[1] != ["ok"] and first != [["skipped"], ["skipped"]]


def judge(verdicts, name):
    """same, gained (well with Beeline alone), differs, flaky, fails on both sides; None where attempts are missing."""
    first = [verdicts.of(name, side, [0]) for side in SIDES]
    if not all(first):
        return None
    if not suspicious(verdicts, name):
        return "same" if first[0] == first[1] else "gained"
    without, with_ = (verdicts.of(name, side, range(1, REPEATS + 1)) for side in SIDES)
    if min(len(without), len(with_)) < REPEATS:
        return None
    if len(set(without)) == 1 and without[0] in WELL and with_ != without:
        return "differs"
    return "flaky" if any(verdict in WELL for verdict in without + with_) else "fails"


class Worker:
    """A process that runs tests of one side."""

    def __init__(self, options, side, gpus, spawn):
        environment = dict(os.environ, BACKEND=options.backend, WORLD_SIZE=str(options.ranks), PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS="1",
                           DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=str(options.limit))
        if gpus:
            environment["CUDA_VISIBLE_DEVICES"] = gpus
        if side == "with":
            environment.update(options.added)
        self.folder = tempfile.TemporaryDirectory(prefix="suite-")
        self.log = os.path.join(self.folder.name, "log")
        environment["TMPDIR"] = self.folder.name
        self.started = os.path.join(self.folder.name, "started")
        with open(self.started, "wb") as errors:
            self.process = subprocess.Popen([sys.executable, options.worker, *(["--spawn"] if spawn else [])], env=environment, start_new_session=True,
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)

    def hello(self):
        """What it says once it is ready: its PyTorch and its tests."""
        said = self.answer(STARTING)
        if not said:
            with open(self.started, encoding="utf-8", errors="replace") as errors:
                why = errors.read()[-TAIL:]
            raise Failure(f"{os.path.basename(self.process.args[1])} does not start: {why}")
        return said

    def answer(self, seconds):
        """The next line; None if it does not come in time, or the process has ended."""
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            return None
        line = self.process.stdout.readline()
        return json.loads(line) if line.startswith(b"{") and line.endswith(b"}\n") else None

    def run(self, name, limit):
        """(verdict, seconds, output); the process has ended where the verdict is that of the whole worker."""
        start = time.monotonic()
        try:
            self.process.stdin.write(f"{name} {self.log}\n".encode())
            self.process.stdin.flush()
            answer = self.answer(limit)
        except BrokenPipeError:
            answer = None
        seconds = time.monotonic() - start
        output = ""
        if os.path.exists(self.log):
            with open(self.log, encoding="utf-8", errors="replace") as log:
                output = log.read()
        if answer:
            return answer["verdict"], answer["seconds"], output
        verdict = "hangs" if self.process.poll() is None else "died"
        self.end()
        return verdict, seconds, output

    def end(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.folder.cleanup()  # may come twice


class Pass:
    """Jobs of both sides, and the threads that do them; a thread whose side has no more goes over to the other."""

    def __init__(self, options, verdicts, spawn):
        self.options, self.verdicts, self.spawn = options, verdicts, spawn
        self.jobs, self.lock, self.failure, self.workers = None, threading.Lock(), None, set()

    def wanted(self, names):
        """(test, attempt) of a side that are still to be done, the longest last."""
        attempts = range(1, REPEATS + 1) if self.spawn else [0]
        jobs = {side: [(name, i) for name in names for i in attempts if (name, side, i) not in self.verdicts.found] for side in SIDES}
        for of_side in jobs.values():
            of_side.sort(key=lambda job: self.verdicts.expected(job[0]))
        return jobs

    def take(self, side):
        with self.lock:
            return self.jobs[side].pop() if self.jobs[side] else None

    def begin(self, hello):
        """The first worker that is there says which tests there are."""
        with self.lock:
            if self.jobs is None:
                self.verdicts.begin(f"{self.options.backend} torch {hello['torch']}")
                self.options.names = [name for name in hello["tests"] if re.search(self.options.tests, name)]
                if not self.options.names:
                    raise Failure(f"no test matches {self.options.tests}")
                print(f"# torch {hello['torch']}, {self.options.backend}, {self.options.ranks} ranks, {len(self.options.names)} tests, ranks by "
                      f"{hello['start']}", flush=True)
                self.jobs = self.wanted(self.options.names)

    def work(self, slot):
        try:
            gpus = self.options.sets[slot % len(self.options.sets)]
            first = slot // len(self.options.sets) % 2
            for side in (SIDES[first], SIDES[1 - first]):
                self.work_on(side, gpus)
        except Exception as error:  # noqa: BLE001 - said by the main thread
            self.failure = self.failure or error

    def work_on(self, side, gpus):
        worker, job = None, None
        try:
            while not self.failure:
                if self.jobs is not None:
                    job = self.take(side)
                    if not job:
                        return
                if not worker:
                    with self.lock:  # either it is among those that a failure ends, or it does not start
                        if self.failure:
                            return
                        worker = Worker(self.options, side, gpus, self.spawn)
                        self.workers.add(worker)
                    self.begin(worker.hello())
                    if not job:
                        continue
                name, attempt = job
                verdict, seconds, output = worker.run(name, self.options.limit + self.options.grace)
                if verdict not in WELL:
                    time.sleep(0.5)  # whoever ends all processes of ours may have come to the worker first
                if self.failure:
                    return
                if verdict in ("hangs", "died"):
                    worker = None
                self.verdicts.add(name, side, attempt, verdict, seconds, output)
                if verdict not in WELL:
                    print(f"# {name} {side}: {verdict} after {seconds:.1f} s{', repeat ' + str(attempt) if attempt else ''}", flush=True)
        finally:
            if worker:
                worker.end()

    def run(self, slots):
        threads = [threading.Thread(target=self.work, args=[slot], daemon=True) for slot in range(slots)]
        try:
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                time.sleep(0.1)  # not join(): a signal that comes just before it blocks is noticed when it returns
        except (Stopped, KeyboardInterrupt) as error:
            with self.lock:
                self.failure = error
            for worker in list(self.workers):
                worker.end()
        if self.failure:
            raise self.failure


WORDS = dict(differs="pass without Beeline and not with it", flaky="pass sometimes only", fails="fail on both sides", gained="pass with Beeline alone",
             same="are the same")


def report(options, verdicts):
    """The last lines; the exit status."""
    by = {}
    for name in options.names:
        by.setdefault(judge(verdicts, name), []).append(name)
    skipped = sum(verdicts.of(name, SIDES[0], [0]) == ["skipped"] for name in by.get("same", ()))
    for kind in ("fails", "gained", "flaky", "differs"):
        for name in by.get(kind, ()):
            attempts = {side: verdicts.of(name, side, range(REPEATS + 1)) for side in SIDES}
            print(f"{kind}: {name}: " + "; ".join(f"{side} {', '.join(attempts[side])}" for side in SIDES))
    for name in by.get("differs", ())[:TAILS]:
        last = max((r for (test, side, _), r in verdicts.found.items() if test == name and side == "with" and "tail" in r),
                   key=lambda r: r["attempt"], default=None)
        if last:
            print(f"----- the end of what {name} printed with Beeline\n{last['tail']}\n-----")
    print(json.dumps(dict(record="torch-distributed", ranks=options.ranks, made_with=verdicts.made_with("with"), tests=len(options.names),
                          skipped=skipped, missing=len(by.get(None, ())), passed=len(by.get("same", ())) - skipped,
                          **{kind: by.get(kind, []) for kind in ("differs", "flaky", "fails", "gained")})))
    warned = {name: r["warned"] for (name, _, _), r in verdicts.found.items() if "warned" in r and name in options.names}
    for name, line in list(warned.items())[:3]:
        print(f"# {len(warned)} tests made Beeline warn, {name}: {line}")
    counts = ", ".join(f"{len(by[kind])} {words}" for kind, words in WORDS.items() if kind in by)
    missing = f"; {len(by[None])} still to be run: go on with the same --verdicts" if None in by else ""
    if not options.names:
        missing = "; no worker was there in time"
    verdict = "FAILED" if "differs" in by else "INCOMPLETE, no difference so far" if missing else "ok"
    print(f"{verdict}: of {len(options.names)} tests {counts or 'none is known'} ({skipped} of them skipped){missing}", flush=True)
    return 1 if "differs" in by else 2 if missing else 0


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--gpus", type=int, default=0, help="on this box: so many divided by --ranks tests have GPUs of their own")
    p.add_argument("--backend", default="nccl")
    p.add_argument("--with", dest="added", action="append", default=[], metavar="NAME=VALUE", help="in the environment of one side")
    p.add_argument("--verdicts", default="torch-distributed.jsonl", metavar="FILE", help="default: %(default)s")
    p.add_argument("--tests", default="", metavar="PATTERN", help="only tests whose name has it")
    p.add_argument("--limit", type=int, default=60, metavar="SECONDS", help="for a test (default: %(default)s)")
    p.add_argument("--workers", type=int, metavar="N", help="at once (default: a core for each rank and one for the worker)")
    p.add_argument("--worker", default=WORKER, help="another program for distributed_worker.py")
    p.add_argument("--grace", type=int, default=45, metavar="SECONDS", help="over the limit, for the worker to end a test by itself (default: %(default)s)")
    options = p.parse_args()
    options.added = dict(setting.split("=", 1) for setting in options.added)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(str(i) for i in range(options.gpus))).split(",")[:options.gpus]
    options.sets = [",".join(visible[i:i + options.ranks]) for i in range(0, len(visible) - options.ranks + 1, options.ranks)] or [None]
    options.workers = options.workers or max(2, len(os.sched_getaffinity(0)) // (options.ranks + 1))
    options.names = []
    return options


def settings_of(added):
    """What --with sets; of a file what is in it."""
    def text(value):
        if not os.path.isfile(value):
            return value
        with open(value, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()[:16]
    return " ".join(f"{name}={':'.join(map(text, value.split(':')))}" for name, value in sorted(added.items()))


def stop(*_):
    raise Stopped("stopped: no time left")


def main():
    options = parse_arguments()
    verdicts = Verdicts(options.verdicts, options.ranks, settings_of(options.added))
    signal.signal(signal.SIGTERM, stop)
    failed = False
    try:
        Pass(options, verdicts, False).run(options.workers)
        repeated = Pass(options, verdicts, True)
        repeated.jobs = repeated.wanted([name for name in options.names if suspicious(verdicts, name)])
        repeated.run(max(2, options.workers // 4))
    except (Stopped, KeyboardInterrupt) as error:
        print(f"# {error or 'stopped'}", flush=True)
    except Failure as error:
        print(f"FAILED: {error}", flush=True)
        failed = True
    status = report(options, verdicts)
    sys.stdout.flush()
    os._exit(1 if failed else status)  # whatever threads still wait for: their processes end with us


if __name__ == "__main__":
    sys.exit(main())
