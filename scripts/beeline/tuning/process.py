"""Stages, and the commands that they are made of: one is started, limited in time, ended with everything that it started, and logged."""
import ctypes
import math
import os
import re
import signal
import subprocess
import time
from collections import namedtuple

TAG = "GPU_CHECK_STEP"
LOG_BYTES = 768 << 10  # of one step; more is cut in the middle
BAD_LINE = re.compile(r"FAILED|Traceback|[Ee]rror|wrong|[Ff]ailed|not |terminated|Out of bounds values : [1-9]")
WARNING = re.compile(r"^.*beeline \[\d+\] WARN.*$", re.MULTILINE)
LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1


def end_with_parent():
    """Runs in a new process: it must not stay on the GPUs when we are killed outright."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Stage(namedtuple("Stage", "name plan limit on_gpus by_name", defaults=[math.inf, False, False])):
    """plan: a function of the box that gives the steps; limit: seconds for the whole stage, where that is less than its steps' limits
    together; on_gpus: an emulated box has no such steps; by_name: runs where it is asked for only."""

    def steps(self, box):
        return [] if self.on_gpus and box.emulated else self.plan(box)


class Step:
    """name; argv; env: what is added to ours; limit: seconds; want: a pattern that the output must have;
    records: file of JSON lines that the command writes; beside: steps that run at the same time."""

    def __init__(self, name, argv, env=None, limit=30, want=None, records=None, beside=()):
        self.name, self.argv, self.env, self.limit = name, [str(a) for a in argv], env or {}, limit
        self.want, self.records, self.beside = want, records, list(beside)


class Result:
    def __init__(self, step, status, output, seconds, timed_out):
        self.step, self.output, self.seconds, self.timed_out = step, output, seconds, timed_out
        self.reason = self.judge(status)
        self.good = self.reason is None
        self.warnings = WARNING.findall(output)

    def judge(self, status):
        if self.timed_out:
            return f"no end after {self.seconds:.0f} s; last: {self.last_line()}"
        if status:
            bad = next((line for line in self.output.splitlines() if BAD_LINE.search(line) and not line.startswith("#")), None)
            return f"status {status}: {(bad or self.last_line()).strip()[:300]}"
        if self.step.want and not re.search(self.step.want, self.output):
            return f"the output has no '{self.step.want}'; last: {self.last_line()}"
        return None

    def last_line(self):
        lines = [line for line in self.output.splitlines() if line.strip()]
        return lines[-1].strip()[:300] if lines else "no output"


def tagged(tag):
    """Processes that descend from the step, whatever session they moved to: they carry its tag."""
    mark = f"{TAG}={tag}".encode()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as environ:
                if mark in environ.read().split(b"\0"):
                    yield int(entry)
        except OSError:
            continue


def tag_of(number):
    return f"{os.getpid()}-{number}"


def end(*tags):
    """TERM, a moment to say where they stood, then KILL, which a busy machine takes its time for."""
    def alive():
        return [pid for tag in tags for pid in tagged(tag)]
    for number, grace in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 30.0)):
        for pid in alive():
            try:
                os.kill(pid, number)
            except OSError:
                pass
        deadline = time.monotonic() + grace
        while alive() and time.monotonic() < deadline:
            time.sleep(0.05)


class Running:
    count = 0

    def __init__(self, step, limit, folder):
        Running.count += 1
        self.step, self.limit, self.tag = step, limit, tag_of(Running.count)
        self.path = os.path.join(folder, f"output-{Running.count}")
        self.start = time.monotonic()
        environment = {**os.environ, **step.env, TAG: self.tag, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        with open(self.path, "wb") as out:
            try:
                self.process = subprocess.Popen(step.argv, env=environment, stdin=subprocess.DEVNULL, stdout=out,
                                                stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=end_with_parent)
            except OSError as error:
                self.process = None
                out.write(f"{step.argv[0]}: {error.strerror}\n".encode())

    def wait(self, tick):
        """Its status, None at the end of its time; calls tick once a second."""
        while True:
            left = self.start + self.limit - time.monotonic()
            try:
                return self.process.wait(max(0.1, min(1, left)))
            except subprocess.TimeoutExpired:
                if left <= 1:
                    return None
                tick()

    def finish(self, tick):
        timed_out = False
        status = 127
        if self.process:
            status = self.wait(tick)
            end(self.tag)  # also what an ended command left behind
            timed_out = status is None
            if timed_out:
                status = self.process.wait()
        seconds = time.monotonic() - self.start
        with open(self.path, "rb") as out:
            output = out.read()
        os.unlink(self.path)
        if len(output) > LOG_BYTES:
            cut = len(output) - LOG_BYTES
            output = output[:LOG_BYTES // 2] + b"\n[... %d bytes left out ...]\n" % cut + output[-LOG_BYTES // 2:]
        return Result(self.step, status, output.decode("utf-8", "replace"), seconds, timed_out)


def run(step, left, folder, tick=lambda: None):
    """Runs the step, and those beside it; at most `left` seconds.  A list of results.  All have ended then, also where we are interrupted."""
    before = Running.count
    try:
        running = [Running(s, min(s.limit, left), folder) for s in [step, *step.beside]]
        return [r.finish(tick) for r in running]
    except BaseException:
        end(*map(tag_of, range(before + 1, Running.count + 1)))
        raise
