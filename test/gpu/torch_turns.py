"""Turns between jobs on the same GPUs, as one with Beeline preloaded and one without: all are measured in the same minutes,
round by round, and start only once.

They share a folder.  For its turn, rank 0 of a job locks the folder that this one lies in, so that several pairs can
take turns as well; the system gives up the lock of a job that ends, in whatever way, so none waits for one that is gone.
Without a folder a job is alone, and always has its turn.
"""
import contextlib
import fcntl
import os
import shutil
import time

LONGEST = 40  # seconds to wait for a turn
COMING = 25  # and for the other jobs to come


class Turns:
    def __init__(self, folder, tag, jobs=2):
        self.folder, self.tag, self.jobs = folder, tag, jobs
        self.leads = folder is not None and os.environ["RANK"] == "0"
        if self.leads:
            os.makedirs(folder, exist_ok=True)
            self.lock = os.open(os.path.dirname(os.path.abspath(folder)), os.O_RDONLY)

    def path(self, name):
        return os.path.join(self.folder, name)

    def take(self):
        """For rank 0, before it touches the GPU; the others wait for it in their first meeting."""
        if not self.leads:
            return
        time.sleep(0.01)  # the others, which look every millisecond, come before this one again
        deadline = time.monotonic() + LONGEST
        while True:
            try:
                fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"no turn within {LONGEST} s") from None
                time.sleep(0.001)

    def give(self):
        if self.leads:
            fcntl.flock(self.lock, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def turn(self, run):
        """All ranks have idle devices at its start and at its end."""
        self.take()
        try:
            run.meet()
            yield
            run.meet()
        finally:
            self.give()

    def arrive(self, where):
        """Rank 0 says that it got there, and waits for the other jobs.  Whether all came, for rank 0."""
        if not self.leads:
            return False
        with open(self.path(where), "a", encoding="utf-8") as out:
            out.write(f"{self.tag}\n")
        deadline = time.monotonic() + COMING
        while len({*self.arrived(where), *self.arrived("end")}) < self.jobs and time.monotonic() < deadline:
            time.sleep(0.01)
        return len(self.arrived(where)) == self.jobs

    def arrived(self, where):
        if not os.path.exists(self.path(where)):
            return []
        with open(self.path(where), encoding="utf-8") as lines:
            return lines.read().split("\n")[:-1]

    def end(self):
        """The last to end takes the folder away, and the last set of jobs the one around it."""
        if not self.leads:
            return
        with open(self.path("end"), "a", encoding="utf-8") as out:
            out.write(f"{self.tag}\n")
        if len(self.arrived("end")) == self.jobs:
            shutil.rmtree(self.folder, ignore_errors=True)
            with contextlib.suppress(OSError):
                os.rmdir(os.path.dirname(os.path.abspath(self.folder)))


def add_arguments(parser, seconds):
    parser.add_argument("--turns", metavar="DIR", help="takes turns with other jobs that name this folder")
    parser.add_argument("--rounds", type=int, default=5, help="at most (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=seconds, help="of rounds, after which none begins (default: %(default)s)")
    parser.add_argument("--end", type=float, metavar="TIME", help="in seconds of the epoch, after which none begins either")


def rounds(run, options):
    """0, 1, ... as long as there is time, alike on all ranks; at least one."""
    end = min(time.time() + options.seconds, options.end or float("inf"))
    for number in range(options.rounds):
        if number and not run.everyone(time.time() < end)[0]:
            return
        yield number
