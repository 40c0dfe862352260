"""Runs the plan of sweep-ranks, and keeps what it leaves in its folder true after each batch."""
import os
import time

from .. import process, tuning
from ..box import served
from ..store import figures, left_by
from . import plan, tables

LEAST = 4  # seconds under which nothing is begun
PATIENCE = (25, 3)  # a step may take so many seconds, and so many times what is expected
FAILURES = 2  # of a number of ranks, after which it is left alone
SERVED = (plan.SMOKE, plan.CANDIDATES)  # stages in which Beeline must serve something


def finished(output):
    """beeline-perf's last line when it got to its end, if with wrong values."""
    return any(line.startswith("# ") and " wrong values" in line for line in output.splitlines()[-8:])


def checked(found):
    """Of rows that were run for their values alone: how many there are of each collective and datatype, and those that were wrong."""
    kept, count = [], {}
    for r in found:
        if r.get("record") != "row":
            kept.append(r)
            continue
        wrong = r["beeline"]["wrong"] + r["nccl"]["wrong"]
        one = count.setdefault((r["collective"], r["datatype"]), dict(record="checked", collective=r["collective"], datatype=r["datatype"],
                                                                      ranks=r["ranks"], rows=0, wrong=0, routes=[]))
        one["rows"] += 1
        one["wrong"] += wrong
        one["routes"] = sorted({*one["routes"], r["route"]})
        kept += [r] if wrong else []
    return kept + list(count.values())


class Sweep:
    def __init__(self, box, results, options, said, command, **where):
        """where: of the machine, for the records: host and driver."""
        self.box, self.results, self.options, self.said, self.command, self.where = box, results, options, said, command, where
        self.plan = plan.Plan(box)
        self.batches = [batch for batch in self.plan.batches() if batch[0].stage in options.stages]
        self.failures, self.left_out, self.found = {}, {}, {}
        self.served = served(self.plan.table)

    # --- what there is to do ---

    def tunings_of(self, job):
        """The tuning files of a job; None if what it needs is not measured yet."""
        if job.stage != plan.TUNED:
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
            rows = tuning.tuning_rows(self.results.steps[job.key][1], plan.CANDIDATES, ranks, collective, self.options.margin)
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
        env, arguments = dict(CUDA_VISIBLE_DEVICES=",".join(devices), BEELINE_TUNING_FILE="built-in"), job.arguments
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
        return self.box.perf(job.name, *arguments, limit=limit, want=self.served if job.stage in SERVED else None, **env)

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
                self.results.log(job.key, result, "cut off", text)
                continue
            self.keep(job, text, result, [name for name in names if name != job.key], max(each.seconds for each in jobs))

    def keep(self, job, text, result, beside, expected):
        """A step that did not get to its end leaves its marker alone; one with wrong values all its records."""
        found = left_by(result)
        if not (result.good or finished(result.output)):
            found = []
        if job.stage == plan.TYPES:
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
            smoke = job.stage == plan.SMOKE
            self.failures[job.ranks] = FAILURES if smoke else self.failures.get(job.ranks, 0) + 1
        self.results.tell(job.stage, result, text)

    # --- what it leaves ---

    def write(self):
        """All files; the lines of the summary."""
        records = self.results.records()
        runs = [r for r in records if r.get("record") == "run"]
        summary, put = self.summary(records), self.results.put
        self.results.write()
        if runs:
            nvls = self.results.identity.get("NCCL_NVLS_ENABLE") or "unset"
            head, device = tuning.header(runs, "beeline-perf, bf16 sum, CUDA graphs, each algorithm forced with blocks of 64, 128 and 256 threads where it may win; the mean of "
                                               f"out of place and in place; Beeline without NVLink multicast, NCCL with NCCL_NVLS_ENABLE {nvls}", self.command,
                                         [marker.get("driver", "") for marker in self.results.markers().values()])
            put("thresholds.tune", "\n".join([*head, *self.tune_lines(device)]) + "\n")
            title = f"{max(self.box.ranks)} to {min(self.box.ranks)} ranks: {device['name']}"
            for name, text in tables.pages(records, title, [line.lstrip("# ") for line in head if "Source:" not in line]).items():
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
        return [*lacking, tuning.gpu_line(self.results.records(), device), *lines]

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
        return [*lines, *self.results.warning_lines(), "", *figures(tables.summary, records)]
