"""The report of validate-nvls: a folder with report.txt, results.jsonl, logs.txt and tuned.tune, and the same as one archive."""
import glob
import json
import os
import platform
import tarfile
import time

from gpucheck import records

from .steps import ALGORITHMS

LOG_BYTES = 24 << 20  # of logs.txt; what comes later is cut to its end
SHOWN = 4000
NOTHING = "no multicast object was created"


class Report:
    def __init__(self, folder, heading):
        self.folder, self.heading, self.lines, self.warnings = folder, heading, [], {}
        self.start, self.stopped, self.begun = time.monotonic(), None, False
        os.makedirs(folder, exist_ok=True)
        for name in ("results.jsonl", "logs.txt"):
            open(os.path.join(folder, name), "w", encoding="utf-8").close()

    def append(self, name, text):
        with open(os.path.join(self.folder, name), "a", encoding="utf-8") as out:
            out.write(text)

    def begins(self, stage, step):
        """Says what runs, before it does: a machine that goes down leaves that behind."""
        self.append("logs.txt", f"===== {stage} / {step.name} begins, {time.strftime('%H:%M:%S', time.gmtime())} UTC\n")
        self.write(f"under way: {stage} / {step.name}")

    def step(self, stage, result):
        step, verdict = result.step, "ok" if result.good else f"FAILED: {result.reason}"
        added = " ".join(f"{name}={value}" for name, value in step.env.items())
        full = os.path.getsize(os.path.join(self.folder, "logs.txt")) > LOG_BYTES
        self.append("logs.txt", f"$ {added} {' '.join(step.argv)}\n{result.output[-SHOWN:] if full else result.output}\n"
                                f"===== {stage} / {step.name}: {verdict} ({result.seconds:.1f} s)\n")
        found = []
        if step.records and os.path.exists(step.records):
            found = records.read(step.records)
            os.unlink(step.records)
        for line in result.output.splitlines():
            if line.startswith('{"record"'):
                try:
                    found.append(json.loads(line))
                except ValueError:
                    continue
        self.append("results.jsonl", "".join(json.dumps(dict(stage=stage, step=step.name, **r)) + "\n" for r in found))
        for line in result.warnings:
            self.warnings.setdefault(line.split(" WARN", 1)[-1].strip()[:240], f"{stage} / {step.name}")
        self.lines.append(f"{stage:<8} {step.name:<44} {result.seconds:7.1f} s  {verdict}")
        print(f"  {self.lines[-1]}"[:400], flush=True)
        if not result.good:
            self.stopped = f"{stage} / {step.name}: {result.reason}"

    def write(self, state):
        """report.txt, as far as it goes."""
        lines = ["Beeline: validation of NVLink multicast", *self.heading, "", f"Result: {state}", f"In all {time.monotonic() - self.start:.0f} s"]
        if not self.begun:
            lines.append(f"So far {NOTHING}.")
        lines += ["", "Steps", *self.lines]
        lines += [f"warning at {where}: {text}" for text, where in list(self.warnings.items())[:20]]
        found = records.read(os.path.join(self.folder, "results.jsonl"))
        try:
            lines += ["", *checked(found), "", *times(found)]
        except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            lines.append(f"no tables: {type(error).__name__} {error}")
        with open(os.path.join(self.folder, "report.txt"), "w", encoding="utf-8") as out:
            out.write("\n".join(lines) + "\n")

    def gather_thresholds(self):
        """One tuning file of those of each number of ranks."""
        texts = []
        for path in sorted(glob.glob(os.path.join(self.folder, "tuned-*.tune"))):
            with open(path, encoding="ascii", errors="replace") as file:
                texts.append(file.read())
        if texts:
            with open(os.path.join(self.folder, "tuned.tune"), "w", encoding="ascii", errors="replace") as out:
                out.write("\n".join(texts))

    def pack(self):
        """The archive beside the folder."""
        name = os.path.basename(self.folder.rstrip("/"))
        path = self.folder.rstrip("/") + ".tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            for file in ("report.txt", "results.jsonl", "logs.txt", "tuned.tune"):
                if os.path.exists(os.path.join(self.folder, file)):
                    archive.add(os.path.join(self.folder, file), f"{name}/{file}")
        return path


def heading(gpus):
    return [f"{len(gpus)} GPUs: {', '.join(sorted({line.split(' (UUID')[0].split(': ', 1)[-1] for line in gpus}))}",
            f"{platform.node()}, {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC"]


def checked(found):
    """How many rows each algorithm served when it was forced, and what was wrong."""
    lines = ["Checked: rows that the algorithm served, every element of each; wrong elements", f"{'algorithm':<20} {'ranks':>5} {'rows':>6} {'wrong':>6}  datatypes"]
    for name in (algorithm[2] for algorithm in ALGORITHMS):
        rows = records.rows(found, "check", route=name)
        for ranks in sorted({row["ranks"] for row in rows}):
            mine = [row for row in rows if row["ranks"] == ranks]
            kinds = sorted({row["datatype"] for row in mine})
            lines.append(f"{name:<20} {ranks:>5} {len(mine):>6} {sum(row['beeline']['wrong'] for row in mine):>6}  {' '.join(kinds)}")
    return lines


def times(found):
    """Microseconds in graphs: each algorithm, NCCL beside it, NCCL without multicast, Beeline with the new thresholds."""
    lines = ["Microseconds a call in graphs, bf16 sum; bytes of the whole message"]
    rows = [row for row in records.rows(found, mode="graph") if row["stage"] in ("measure", "tuned")]
    for collective in dict.fromkeys(algorithm[0] for algorithm in ALGORITHMS):
        names = [name for algorithm in ALGORITHMS if algorithm[0] == collective for name in algorithm[2:]]
        for ranks in sorted({row["ranks"] for row in rows}):
            mine = [row for row in rows if row["collective"] == collective and row["ranks"] == ranks]
            if not mine:
                continue
            lines += ["", f"{collective}, {ranks} ranks", " ".join([f"{'bytes':>8}", *(f"{name:>25}" for name in names), f"{'NCCL':>10}",
                                                                  f"{'NCCL, no NVLS':>14}", f"{'tuned':>10}  route"])]
            for size in sorted({row["bytes"] for row in mine}):
                at = [row for row in mine if row["bytes"] == size and row["stage"] == "measure"]
                of = {name: best([row["beeline"]["us"] for row in at if row["route"] == name]) for name in names}
                plain = [row["nccl"]["us"] for row in at if row["step"].startswith("NCCL without")]
                nccl = [row["nccl"]["us"] for row in at if row["step"].startswith(tuple(names))]
                after = [row for row in mine if row["bytes"] == size and row["stage"] == "tuned"]
                lines.append(" ".join([f"{records.size_text(size):>8}", *(f"{of[name]:>18}" for name in names), f"{middle(nccl):>10}", f"{best(plain):>14}",
                                       f"{best([row['beeline']['us'] for row in after]):>10}  {after[0]['route'] if after else '-'}"]))
    return lines


def best(values):
    return f"{min(values):.2f}" if values else "-"


def middle(values):
    return f"{sorted(values)[len(values) // 2]:.2f}" if values else "-"
