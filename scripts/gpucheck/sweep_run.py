"""Runs the plan of sweep-ranks, and keeps what it leaves in its folder true after each batch."""
import os
import time

from . import process, sweep_plan, sweep_tables, tuning
from .records import read
from .stages import served
from .sweep_results import checked, write_atomically

LEAST = 4  # seconds under which nothing is begun
PATIENCE = (25, 3)  # a step may take so many seconds, and so many times what is expected
FAILURES = 2  # of a number of ranks, after which it is left alone
LOG_BYTES = 12 << 20
SERVED = (sweep_plan.SMOKE, sweep_plan.CANDIDATES)  # stages in which Beeline must serve something


def finished(output):
    """beeline-perf's last line when it got to its end, if with wrong values."""
    return any(line.startswith("# ") and " wrong values" in line for line in output.splitlines()[-8:])


class Sweep:
    def __init__(self, box, results, options, said, command, **where):
        """where: of the machine, for the records: host and driver."""
        self.box, self.results, self.options, self.said, self.command, self.where = box, results, options, said, command, where
        self.plan = sweep_plan.Plan(box)
        self.batches = [batch for batch in self.plan.batches() if batch[0].stage in options.stages]
        self.failures, self.left_out, self.warnings, self.found = {}, {}, {}, {}
        self.served = served(box.root, [sweep_plan.variable(c) for c in self.plan.table])

    # --- what there is to do ---

    def tunings_of(self, job):
        """The tuning files of a job; None if what it needs is not measured yet."""
        if job.stage != sweep_plan.TUNED:
            return job.tunings()
        lines = [line for collective in job.collectives for line in self.thresholds(job.ranks, collective)]
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

    def thresholds(self, ranks, collective):
        """The lines of a tuning file; none until all that decides them is measured."""
        if (ranks, collective) not in self.found:
            job = self.plan.needed(ranks, collective)
            if not self.is_done(job):
                return []
            rows = tuning.tuning_rows(self.results.steps[job.key][1], sweep_plan.CANDIDATES, ranks, collective, self.options.margin)
            self.found[ranks, collective] = tuning.row_lines(collective, ranks, rows)
        return self.found[ranks, collective]

    def pace(self):
        """How long steps take here, of what was expected."""
        times = [(m["seconds"], m["expected"]) for m in self.results.markers().values() if m["good"] and not m.get("merged")]
        return min(4, max(0.25, sum(t for t, _ in times) / sum(e for _, e in times))) if len(times) > 2 else 1

    def seconds(self, batch):
        return max(job.seconds for job in batch) * self.pace()

    def plan_lines(self):
        lines, total = [f"{len(self.box.ranks)} numbers of ranks on {self.box.gpus} GPUs; seconds are estimates for H200"], 0
        for batch in self.batches:
            todo = [job for job in batch if not self.is_done(job)]
            lines += [f"             done  {job.key}" for job in batch if job not in todo]
            if not todo:
                continue
            seconds = max(job.seconds for job in todo)
            total += seconds
            late = "  (after --limit)" if total > self.options.limit else ""
            lines.append(f"{seconds:6.1f} {total:7.1f} s  " + "  beside  ".join(job.key for job in todo) + late)
        return lines

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
        return self.box.perf(job.key, *arguments, limit=limit, want=self.served if job.stage in SERVED else None, **env)

    def run_batch(self, jobs, left):
        """The jobs at the same time, each with GPUs of its own."""
        devices = [device for device, _ in self.options.gpus]
        steps, tunings = [], [self.tunings_of(job) for job in jobs]
        for job, texts in zip(jobs, tunings):
            steps.append(self.step(job, devices[:job.ranks], left, texts))
            del devices[:job.ranks]
        steps[0].beside = steps[1:]
        names = [job.key for job in jobs]
        for job, text, result in zip(jobs, map("".join, tunings), process.run(steps[0], left, self.box.folder)):
            if result.timed_out and result.seconds > left - 1:  # the sweep's time is over, not the step's
                self.left_out[job.key] = "cut off: no time"
                self.log(job, text, result, "cut off")
                continue
            self.keep(job, text, result, [name for name in names if name != job.key], max(each.seconds for each in jobs))

    def keep(self, job, text, result, beside, expected):
        """A step that did not get to its end leaves its marker alone; one with wrong values all its records."""
        found = read(result.step.records) if os.path.exists(result.step.records) else []
        if not (result.good or finished(result.output)):
            found = []
        if job.stage == sweep_plan.TYPES:
            found = checked(found)  # tens of thousands otherwise
        tag = dict(stage=job.stage, step=job.name, beside=beside)
        found = [dict(tag, **r) for r in found]
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
            smoke = job.stage == sweep_plan.SMOKE
            self.failures[job.ranks] = FAILURES if smoke else self.failures.get(job.ranks, 0) + 1
        for line in result.warnings:
            self.warnings.setdefault(line.split(" WARN", 1)[-1].strip()[:240], job.key)
        verdict = "ok" if result.good else f"FAILED: {result.reason}"
        self.log(job, text, result, verdict)
        print(f"  {job.key}: {verdict[:400]} ({result.seconds:.1f} s)", flush=True)

    def log(self, job, text, result, verdict):
        path = os.path.join(self.options.out, "logs.txt")
        output = result.output
        if os.path.exists(path) and os.path.getsize(path) > LOG_BYTES:
            output = output[-4000:]
        added = " ".join(f"{name}={value}" for name, value in result.step.env.items())
        with open(path, "a", encoding="utf-8") as out:
            out.write(f"===== {job.key}: {verdict} ({result.seconds:.1f} s)\n$ {added} {' '.join(result.step.argv)}\n{text}{output}\n")

    # --- what it leaves ---

    def write(self):
        """All files; the lines of the summary."""
        records = self.results.records()
        runs = [r for r in records if r.get("record") == "run"]
        summary = self.summary(records)

        def put(name, text):
            write_atomically(os.path.join(self.options.out, name), text)
        self.results.write()
        if runs:
            nvls = self.results.identity.get("NCCL_NVLS_ENABLE") or "unset"
            head, device = tuning.header(runs, "beeline-perf, bf16 sum, CUDA graphs, each algorithm forced with blocks of 64, 128 and 256 threads where it may win; the mean of "
                                               f"out of place and in place; Beeline without NVLink multicast, NCCL with NCCL_NVLS_ENABLE {nvls}", self.command,
                                         [marker.get("driver", "") for marker in self.results.markers().values()])
            put("thresholds.tune", "\n".join([*head, *self.tune_lines(device)]) + "\n")
            title = f"{max(self.box.ranks)} to {min(self.box.ranks)} ranks: {device['name']}"
            for name, text in sweep_tables.pages(records, title, [line.lstrip("# ") for line in head if "Source:" not in line]).items():
                put(name, text)
        put("summary.txt", "\n".join(summary) + "\n")
        return summary

    def tune_lines(self, device):
        lines, lacking = [], []
        for collective in self.plan.table:
            for ranks in sorted({*self.box.ranks, *(marker["ranks"] for marker in self.results.markers().values())}):
                found = self.thresholds(ranks, collective)
                lines += ["", *found] if found else []
                lacking += [] if found else [f"# Not measured in full, so without rows: {collective}, {ranks} ranks"]
        return [*lacking, tuning.gpu_line(device), *lines]

    def summary(self, records):
        markers = self.results.markers()
        lines = [*self.said]
        missing = self.missing()
        keys = {job.key for batch in self.batches for job in batch}
        done = len(keys) - len(missing)
        lines.append(f"{done} of {len(keys)} steps done, {sum(m['seconds'] for m in markers.values()):.0f} s of steps; pace {self.pace():.2f} of the estimate")
        lines += [f"FAILED: {key}: {m['reason']}" for key, m in markers.items() if not m["good"]]
        if missing:
            lines.append(f"missing, about {sum(job.seconds for job in missing) * self.pace():.0f} s if one after another:")
            reasons = {}
            for job in missing:
                reason = self.left_out.get(job.key, "failed" if job.key in markers else "not begun")
                reasons.setdefault((job.stage, reason), []).append(job.name)
            lines += [f"  {stage} ({reason}): {', '.join(names)}" for (stage, reason), names in reasons.items()]
        lines += [f"warning at {where}: {text}" for text, where in list(self.warnings.items())[:8]]
        try:
            lines += ["", *sweep_tables.summary(records)]
        except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            lines.append(f"no figures: {type(error).__name__} {error}")
        return lines
