"""Runs the plan of sweep-ranks, and keeps what it leaves in its folder true after each batch."""
from beeline.tuning import thresholds
from beeline.tuning.runner import Runner
from beeline.tuning.store import figures

from . import plan, tables


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


class Sweep(Runner):
    def __init__(self, box, results, options, said, command, **where):
        """where: of the machine, for the records: host and driver."""
        self.options, self.said, self.command, self.plan = options, said, command, plan.Plan(box)
        batches = [batch for batch in self.plan.batches() if batch[0].stage in options.stages]
        super().__init__(box, results, batches, [device for device, _ in options.gpus], options.margin, **where)

    def needed(self, ranks, collective):
        return self.plan.needed(ranks, collective)

    def reduced(self, job, found):
        return checked(found) if job.stage == plan.TYPES else found  # tens of thousands otherwise

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

    def write(self):
        """All files; the lines of the summary."""
        records = self.results.records()
        runs = [r for r in records if r.get("record") == "run"]
        summary, put = self.summary(records), self.results.put
        self.results.write()
        if runs:
            nvls = self.results.identity.get("NCCL_NVLS_ENABLE") or "unset"
            head, device = thresholds.header(runs, "beeline-perf, bf16 sum, CUDA graphs, each algorithm forced with blocks of 64, 128 and 256 threads where it may win; the mean of "
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
        return [*lacking, thresholds.gpu_line(self.results.records(), device), *lines]

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
