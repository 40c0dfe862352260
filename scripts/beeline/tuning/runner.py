"""Runs batches of jobs: keeps what each has left, goes on where an earlier run ended, and finds the thresholds."""
import os
import re
import time

from . import process, thresholds
from .box import EMULATED, served
from .collectives import COLLECTIVES
from .jobs import tables_of
from .store import left_by

CANDIDATES = "candidates"  # the stage that decides
LEAST = 4  # seconds under which nothing is begun
PATIENCE = (25, 3)  # a step may take so many seconds, and so many times what is expected
FAILURES = 2  # of a number of ranks, after which it is left alone
ROUTES = "|".join(collective.key for collective in COLLECTIVES.values())
CHANGES = re.compile(rf"BEELINE_({ROUTES}|FUSE_MAX|BATCH_INVARIANT|TUNING_FILE|ENABLE|COPY_ENGINES|STAGING|BUDGET|SWITCH|COMMS|EARLY_LAUNCH)$|"
                     r"VLLM_BATCH_INVARIANT$|CUDA_(LAUNCH_BLOCKING|MPS_ACTIVE_THREAD_PERCENTAGE)$|"
                     r"NCCL_(ALGO|PROTO|CTA_POLICY|(MIN|MAX)_(CTAS|NCHANNELS|NRINGS|P2P_NCHANNELS)|NTHREADS|BUFFSIZE|CGA_CLUSTER_SIZE|NVLS_NCHANNELS|"
                     r"P2P_(DISABLE|LEVEL|DIRECT_DISABLE|USE_CUDA_MEMCPY)|COMM_BLOCKING|COMM_ID|TUNER_PLUGIN|TOPO_FILE|GRAPH_FILE|"
                     r"GRAPH_MIXING_SUPPORT|LAUNCH_ORDER_IMPLICIT|SYM_NOWIN_ENABLE)$")


def hindrances():
    """Variables under which something else would be measured, or that ask for multicast."""
    found = [f"{name}={value} is set: unset it, so that what is measured is what Beeline and NCCL do by themselves"
             for name, value in os.environ.items() if value and CHANGES.match(name)]
    multicast = os.environ.get("BEELINE_MULTICAST", "")
    if multicast not in ("", "0") and not EMULATED:
        found.append(f"BEELINE_MULTICAST={multicast} is set: this is without NVLink multicast (scripts/validate-nvls is with it)")
    return found


def finished(output):
    """beeline-perf's last line when it got to its end, if with wrong values."""
    return any(line.startswith("# ") and " wrong values" in line for line in output.splitlines()[-8:])


class Runner:
    """Of a plan: batches of jobs, in their order; devices: what CUDA_VISIBLE_DEVICES calls the GPUs; where: of the machine, for the
    records.  Who derives from it says which job decides a collective's thresholds (needed), and what is made of the records (write)."""

    def __init__(self, box, results, batches, devices, margin, **where):
        self.box, self.results, self.batches, self.devices, self.margin, self.where = box, results, batches, devices, margin, where
        self.failures, self.left_out, self.found = {}, {}, {}
        self.served = served(tables_of())

    def needed(self, ranks, collective):
        raise NotImplementedError

    def write(self):
        raise NotImplementedError

    def lost(self, job, collective):  # pylint: disable=unused-argument
        """Sizes that are NCCL's while the job runs, whatever the candidates did."""
        return ()

    def reduced(self, job, found):  # pylint: disable=unused-argument
        """What is kept of a job's records."""
        return found

    def tick(self):
        """Once a second, while a step runs."""

    # --- what there is to do ---

    def tunings_of(self, job):
        """The tuning files of a job; None if what it needs is not measured yet."""
        if not job.tuned:
            return job.tunings()
        lines = [line for collective in job.collectives for line in self.thresholds(job.ranks, collective, self.lost(job, collective))]
        if len({line.split()[0] for line in lines}) < len(job.collectives):
            return None
        return ["\n".join(["gpu any", *lines]) + "\n"]

    def is_done(self, job):
        texts = self.tunings_of(job)
        return texts is not None and self.results.done(job.key, job.line, "".join(texts))

    def missing(self):
        return [job for batch in self.batches for job in batch if not self.is_done(job)]

    def complete(self):
        return not self.missing()

    def chosen(self, ranks, collective, lost=()):
        """[(most bytes, candidate)], the rest is NCCL's; None until all that decides it is measured."""
        key = ranks, collective, tuple(lost)
        if key not in self.found:
            job = self.needed(ranks, collective)
            if not self.is_done(job):
                return None
            self.found[key] = thresholds.tuning_rows(self.results.steps[job.key][1], CANDIDATES, ranks, collective, self.margin, lost)
        return self.found[key]

    def thresholds(self, ranks, collective, lost=()):
        """The lines of a tuning file for that; none until then."""
        found = self.chosen(ranks, collective, lost)
        return [] if found is None else thresholds.row_lines(collective, ranks, found)

    def pace(self):
        """How long steps take here, of what was expected."""
        times = [(m["seconds"], m["expected"]) for m in self.results.markers().values() if m["good"] and not m.get("merged")]
        return min(4, max(0.25, sum(t for t, _ in times) / sum(e for _, e in times))) if len(times) > 2 else 1

    def seconds(self, batch):
        return max(job.seconds for job in batch) * self.pace()

    # --- running ---

    def run(self, deadline):
        if self.results.steps:
            self.write()  # what was taken over counts, whatever becomes of this run
        for batch in self.batches:
            todo = [job for job in batch if not self.is_done(job) and self.may_run(job)]
            left = deadline - time.monotonic()
            if not todo:
                continue
            if left < max(LEAST, self.seconds(todo)):
                for job in todo:
                    self.left_out[job.key] = "no time"
                continue
            self.run_batch(todo, left)
            self.write()

    def may_run(self, job):
        reason = None
        if self.failures.get(job.ranks, 0) >= FAILURES:
            reason = f"too many steps with {job.ranks} ranks failed"
        elif self.tunings_of(job) is None:
            reason = "not all that decides its thresholds is measured"
        if reason:
            self.left_out[job.key] = reason
        return not reason

    def step(self, job, devices, left, texts):
        env, arguments = dict(CUDA_VISIBLE_DEVICES=",".join(devices)), job.arguments
        if not job.as_is:
            env["BEELINE_TUNING_FILE"] = "built-in"
        folder = os.path.join(self.box.folder, f"tunings-{next(self.box.serial)}")
        files = [os.path.join(folder, str(i)) for i in range(len(texts))]
        os.makedirs(folder)
        for path, text in zip(files, texts):
            with open(path, "w", encoding="ascii") as file:
                file.write(text)
        if job.forced:
            env["BEELINE_TUNING_FILE"], arguments = os.path.join(folder, "place"), [*arguments, "--tunings", ",".join(files)]
        elif files:
            env["BEELINE_TUNING_FILE"] = files[0]
        limit = min(left, 100 if self.box.emulated else PATIENCE[0] + PATIENCE[1] * job.seconds)
        return self.box.perf(job.name, *arguments, limit=limit, want=self.served if job.forced or job.vital else None, **env)

    def run_batch(self, jobs, left):
        """The jobs at the same time, each with GPUs of its own."""
        devices = list(self.devices)
        steps, tunings = [], [self.tunings_of(job) for job in jobs]
        for job, texts in zip(jobs, tunings):
            steps.append(self.step(job, devices[:job.ranks], left, texts))
            del devices[:job.ranks]
        steps[0].beside = steps[1:]
        names = [job.key for job in jobs]
        for job, text, result in zip(jobs, map("".join, tunings), process.run(steps[0], left, self.box.folder, self.tick)):
            if result.timed_out and result.seconds > left - 1:  # the sweep's time is over, not the step's
                self.left_out[job.key] = "cut off: no time"
                self.results.log(job.key, result, "cut off", text)
                continue
            self.keep(job, text, result, [name for name in names if name != job.key], max(each.seconds for each in jobs))

    def keep(self, job, text, result, beside, expected):
        """A step that did not get to its end leaves its marker alone; one with wrong values all its records."""
        found = left_by(result)
        if not (result.good or finished(result.output)):
            found = []
        tag = dict(stage=job.stage, step=job.name, beside=beside)
        found = [dict(tag, **r) for r in self.reduced(job, found)]
        for r in found:
            if "tuning" in r:
                r["tuning"] = int(os.path.basename(r["tuning"]))
                r["forced"] = job.candidate(r, r["tuning"])
        marker = dict(tag, ranks=job.ranks, arguments=job.line, tuning=text, good=result.good, reason=result.reason,
                      seconds=round(result.seconds, 2), expected=round(expected, 2),
                      date=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **self.where)
        self.results.add(marker, found)
        self.left_out.pop(job.key, None)
        if not result.good:
            self.failures[job.ranks] = FAILURES if job.vital else self.failures.get(job.ranks, 0) + 1
        self.results.tell(job.stage, result, text)
