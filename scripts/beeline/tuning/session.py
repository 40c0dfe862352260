"""What `beeline tune` runs, and what it makes of that: blocks of a tuning file, and what is gained.

For each number of ranks: what holds so far, then every candidate of each collective, in CUDA graphs.  The rows that come of it are
tried eager, one process a rank, as frameworks call; a size at which eager calls lose to NCCL is NCCL's.  The rows that are left are
measured again in graphs, and with other datatypes: these are the times that the file has.
"""
import statistics
import time

from ..words import size_text
from . import file, thresholds
from .box import blocks
from .candidates import MOST, files_of, forced_on, longest
from .jobs import ALL_REDUCE, REDUCING, Job
from .records import part_bytes, rows
from .runner import CANDIDATES, Runner

BEFORE, EAGER, TUNED, KINDS = "before", "eager", "tuned", "kinds"
WORDS = {BEFORE: "as before", CANDIDATES: "candidates", EAGER: "eager calls", TUNED: "as tuned", KINDS: "other datatypes"}
OTHER_KINDS = "float,int8"
MARGIN = 0.03  # by which an algorithm must be faster to take a size
SLOWER = 1.05  # times NCCL's time is no noise
HEADING = """# Thresholds of this box by `beeline tune`; docs/tuning.md says what the lines mean.
# time COLLECTIVE RANKS BYTES: us of NCCL and Beeline in CUDA graphs, then of both eager; bf16, sums
"""


class Plan:
    """names: {collective: its routes}; quick: fewer sizes and samples."""

    def __init__(self, box, names, quick):
        self.box, self.names, self.quick = box, names, quick
        self.groups = [group for group in (tuple(c for c in names if c in ALL_REDUCE), tuple(c for c in names if c not in ALL_REDUCE)) if group]

    def sizes(self, ranks, collectives, factor=None, candidates=False):
        """Of one group: an all-reduce's thresholds lie closer to each other than those of others.  The longest others, which take long to check, are tried as candidates alone."""
        first = collectives[0] in ALL_REDUCE
        if self.box.emulated:
            return "-b 256 -e 4K -f 16".split() if first else blocks(ranks, 64, 1024, 16)
        most = longest(first, ranks) if first or candidates else min(MOST, longest(first, ranks))
        least, most, step = (8, most, 4 if self.quick else 2) if first else (16 * ranks, most * ranks, 4)
        return "-b", least, "-e", most, "-f", factor or step

    def job(self, stage, ranks, collectives, how="-t", mode="graph", place="both", calls="-G 20 -w 3", sizes=None, kinds="bfloat16", **more):
        samples = self.box.pick(f"-n {5 if self.quick else 10} {calls} --seconds 0.2", "-n 1 -G 2 -w 0")
        arguments = ["--mode", mode, "--place", place, "-d", kinds, *samples, *(sizes or self.sizes(ranks, collectives))]
        return Job(stage, collectives[0] if len(collectives) == 1 else "others", ranks, how, collectives, arguments, **more)

    def before(self, ranks):
        return [self.job(BEFORE, ranks, group, as_is=True) for group in self.groups]

    def candidates(self, ranks, collective):
        return self.job(CANDIDATES, ranks, (collective,), sizes=self.sizes(ranks, (collective,), candidates=True),
                        forced=files_of({collective: self.names[collective]}, ranks))

    def group_of(self, collective):
        return next(group for group in self.groups if collective in group)

    def eager(self, ranks, group):
        return self.job(EAGER, ranks, group, "--spawn", "eager", "out", "-G 30 -w 5", tuned=True)

    def tuned(self, ranks, group):
        return self.job(TUNED, ranks, group, tuned=True)

    def kinds(self, ranks, group):
        """Few sizes: bf16 decides, and this says where others would rather have NCCL."""
        of = tuple(c for c in group if c in REDUCING)
        return [self.job(KINDS, ranks, of, place="out", sizes=self.sizes(ranks, of, 16), kinds=OTHER_KINDS, tuned=True)] if of else []

    def jobs(self):
        """In the order in which they run."""
        found = [job for ranks in self.box.ranks for job in self.before(ranks)]
        for ranks in self.box.ranks:
            for group in self.groups:
                found += [self.candidates(ranks, collective) for collective in group]
                found += [self.eager(ranks, group), self.tuned(ranks, group), *self.kinds(ranks, group)]
        return found


class Session(Runner):
    """teller: is told, by progress(), the share that is done, the seconds that are left and what runs; and, by say(), how a step ended."""

    def __init__(self, box, results, plan, devices, teller, **where):
        super().__init__(box, results, [[job] for job in plan.jobs()], devices, MARGIN, **where)
        self.plan, self.teller, self.running = plan, teller, None
        results.say = self.say

    def needed(self, ranks, collective):
        return self.plan.candidates(ranks, collective)

    def write(self):
        self.results.write()

    # --- progress ---

    def run_batch(self, jobs, left):
        self.running = jobs[0], time.monotonic()
        self.tick()
        super().run_batch(jobs, left)

    def tick(self):
        (job, start), pace, missing = self.running, self.pace(), self.missing()
        spent = min(time.monotonic() - start, job.seconds * pace) if job in missing else 0
        left = sum(each.seconds for each in missing) * pace - spent
        total = sum(each.seconds for batch in self.batches for each in batch) * pace
        self.teller.progress(1 - left / total, left, f"{WORDS[job.stage]}, {job.name}")

    def say(self, text):
        self.tick()
        self.teller.say(text)

    # --- what is known ---

    def rows(self, stage, ranks, collective, **fields):
        return [r for job in self.of(stage, ranks, collective) for r in rows(self.results.steps[job.key][1], stage, collective=collective, **fields)]

    def of(self, stage, ranks, collective):
        """The jobs of a stage that have run and have it."""
        jobs = (job for batch in self.batches for job in batch)
        return [job for job in jobs if (job.stage, job.ranks) == (stage, ranks) and collective in job.collectives and self.is_done(job)]

    def tunings_of(self, job):
        """With the rows that are left after the eager calls there is nothing to do before these."""
        if job.stage in (TUNED, KINDS) and not self.is_done(self.plan.eager(job.ranks, self.plan.group_of(job.collectives[0]))):
            return None
        return super().tunings_of(job)

    def lost(self, job, collective):
        return () if job.stage == EAGER else self.lost_eager(job.ranks, collective)

    def lost_eager(self, ranks, collective):
        """Sizes at which eager calls of Beeline's take longer than NCCL's."""
        return tuple(part_bytes(r) for r in self.rows(EAGER, ranks, collective) if r["route"] != "nccl" and r["ratio"] < 1 / SLOWER)

    def tuned(self):
        """(ranks, collective) of which all is measured."""
        return [(ranks, collective) for ranks in self.box.ranks for collective in self.plan.names if self.of(TUNED, ranks, collective)]

    # --- what comes of it ---

    def block(self, ranks, collective):
        """The gpu line that it belongs to, and its lines."""
        job, = self.of(TUNED, ranks, collective)
        found = self.results.steps[job.key][1]
        run = next(r for r in found if r.get("record") == "run")
        name, lost = f"{collective} {ranks}", self.lost_eager(ranks, collective)
        lines = [f"# tuned {name}: {provenance(run)}"]
        lines += [f"# tuned {name}: eager calls are NCCL's at {', '.join(map(size_text, lost))}, where they lose"] if lost else []
        eager = {part_bytes(r): r for r in self.rows(EAGER, ranks, collective)}
        shown = means(self.rows(TUNED, ranks, collective))
        for size, us in sorted({**self.longer(ranks, collective, lost, max(shown)), **shown}.items()):
            cells = [*us, *((eager[size]["nccl"]["us"], eager[size]["beeline"]["us"]) if size in eager and size not in lost else ())]
            lines.append(f"# time {name} {size_text(size):>5} " + " ".join(f"{cell:9.2f}" for cell in cells))
        for r in self.rows(TUNED, ranks, collective) + self.rows(KINDS, ranks, collective):
            if r["route"] != "nccl" and r["ratio"] < 1 / SLOWER:
                lines.append(f"# slower {name} {size_text(part_bytes(r)):>5} {r['datatype']} {r['place']}: {r['nccl']['us']:.2f} {r['beeline']['us']:.2f}")
        deciding = self.results.steps[self.needed(ranks, collective).key][1]  # where rows give NCCL everything, nothing else tells of a box
        section = next(r["section"] for r in deciding if r.get("record") == "box")
        return section, lines + self.thresholds(ranks, collective, lost)

    def longer(self, ranks, collective, lost, most):
        """{bytes: (NCCL's us, Beeline's)} above `most`, which the candidates alone have."""
        table = thresholds.measurements(self.results.steps[self.needed(ranks, collective).key][1], CANDIDATES, ranks, collective)
        chosen = self.chosen(ranks, collective, lost)
        return {size: (times[thresholds.NCCL], times[forced_on(chosen, size)]) for size, times in table.items() if size > most and forced_on(chosen, size) in times}

    def merged(self, text):
        """The text of a tuning file with all that was found."""
        by = {}
        for ranks, collective in self.tuned():
            section, lines = self.block(ranks, collective)
            by.setdefault(section, {})[collective, ranks] = lines
        text = text or HEADING
        for section, found in by.items():
            text = file.merged(text, section, found)
        return text

    def gains(self):
        """Cells of a table: NCCL's time over Beeline's, before and now; and Beeline's time before over that of now."""
        yield "collective", "ranks", "before", "least", "now", "least", "at", "faster than before"
        for ranks, collective in self.tuned():
            now, before = (means(self.rows(stage, ranks, collective)) for stage in (TUNED, BEFORE))
            ratios = {size: nccl / mine for size, (nccl, mine) in now.items()}
            worst = min(ratios, key=ratios.get)
            old = [nccl / mine for nccl, mine in before.values()]
            gained = [mine / now[size][1] for size, (_, mine) in before.items() if size in now]
            yield (collective, str(ranks), *(two(old) if old else ("-", "-")), *two(list(ratios.values())), size_text(worst),
                   f"{statistics.geometric_mean(gained):.2f}" if gained else "-")


def two(ratios):
    return f"{statistics.geometric_mean(ratios):.2f}", f"{min(ratios):.2f}"


def means(found):
    """{bytes: (NCCL's us, Beeline's)}, of rows out of place and in place."""
    by = {}
    for r in found:
        by.setdefault(part_bytes(r), []).append((r["nccl"]["us"], r["beeline"]["us"]))
    return {size: tuple(map(statistics.mean, zip(*us))) for size, us in by.items()}


def provenance(run):
    """Of a record of beeline-perf's."""
    nccl = run["nccl"]
    return (f"{run['date'][:10]}, {run['host']}, {run['devices'][0]['name']}, driver {run.get('kernel_driver', '?')}, "
            f"NCCL {nccl // 10000}.{nccl // 100 % 100}.{nccl % 100}, Beeline {run.get('build', '?')}")
