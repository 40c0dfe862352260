"""What sweep-ranks runs, in order of importance: jobs of beeline-perf, in batches that run at the same time on disjoint GPUs.

A job's seconds are estimated from its rows; what they were is compared with that while it runs (sweep-ranks).
"""
from itertools import zip_longest

from .records import part_bytes, size_of, size_text
from .stages import algorithms

ALL_REDUCE = ("all_reduce",)
OTHERS = ("all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce")
GROUPED = ("all_gather", "reduce_scatter")  # of these and of all-reduces a group is one launch
THREADS = (64, 128, 256)
NO_CANDIDATES = ("gather_copy",)  # serves where copy engines are asked for, whatever the rows say
MIB = 1 << 20

SMOKE, SWEEP, CANDIDATES, TUNED, EAGER, TYPES, GROUPS, BIG = (
    "smoke", "sweep", "candidates", "tuned", "eager", "types", "groups", "big")
STAGES = {
    SMOKE: "few sizes of every collective, each checked; a number of ranks that fails here is not run further",
    SWEEP: "as routed by the built-in thresholds, in graphs, in place and not",
    CANDIDATES: "each algorithm with each block size, in graphs, in place and not: what the thresholds are made of",
    TUNED: "as routed by the thresholds found here",
    EAGER: "one process a rank, calls back to back",
    TYPES: "every datatype, operation, odd counts and addresses, in place and not",
    GROUPS: "64 calls in one group, one process a rank",
    BIG: "the largest messages",
}


def variable(collective):
    """As in BEELINE_..._ALGO, and in the names of the dispatcher's table."""
    return collective.replace("_", "").upper()


class Job:
    """One run of beeline-perf.  forced: {collective: [(most bytes, candidate)]}, the rows of a tuning file of its own; or it runs with
    those found for its number of ranks (stage tuned)."""

    def __init__(self, stage, name, ranks, how, collectives, arguments, forced=None):
        self.stage, self.name, self.ranks, self.collectives = stage, f"{ranks} ranks {name}", ranks, collectives
        self.arguments = [how, str(ranks), "-c", ",".join(collectives), *(str(a) for a in arguments)]
        self.line = " ".join(self.arguments)
        self.forced = forced or {}
        self.seconds = estimate(ranks, self.arguments)

    @property
    def key(self):
        return f"{self.stage} / {self.name}"

    def tuning(self):
        """The tuning file that forces the candidates."""
        rows = [f"{collective} {self.ranks} {size_text(most) if most else 'max'} {name}\n"
                for collective, found in self.forced.items() for most, name in found]
        return "".join(["gpu any\n", *rows]) if rows else ""

    def candidate(self, row):
        """What was forced on a row's size."""
        return next((name for most, name in self.forced.get(row["collective"], ()) if not most or part_bytes(row) <= most), None)


def option(arguments, name, default):
    return arguments[arguments.index(name) + 1] if name in arguments else default


def rows_of(arguments):
    """How many rows beeline-perf makes of the arguments, and their bytes in all."""
    low, high, factor = (size_of(option(arguments, name, default)) for name, default in (("-b", "256"), ("-e", "64M"), ("-f", "4")))
    sizes = []
    while low <= high:
        sizes.append(low)
        low *= factor
    datatypes, operations = option(arguments, "-d", "bfloat16"), option(arguments, "-o", "sum")
    kinds = 12 if datatypes == "all" else len(datatypes.split(","))
    redops = 5 if operations == "all" else len(operations.split(","))
    offsets = len(option(arguments, "--offset", "0").split(","))
    variants = offsets * (2 if "--odd" in arguments else 1) * (2 if option(arguments, "--mode", "both") == "both" else 1) * kinds
    series = 0
    for collective in option(arguments, "-c", "").split(","):
        places = 2 if option(arguments, "--place", "both") == "both" and collective != "all_to_all" else 1
        series += variants * places * (redops if "reduce" in collective else 1)
    return series * len(sizes), series * sum(sizes)


def estimate(ranks, arguments):
    """Seconds on H200: contexts and communicators, rows, and the checking of bytes on the host."""
    rows, size = rows_of(arguments)
    group = int(option(arguments, "--group", "1"))
    row = (0.0015 + 0.0008 * ranks) if option(arguments, "-G", "20") == "1" else 0.008 + 0.002 * ranks
    return 0.8 + 0.5 * ranks + rows * row * (5 if group > 1 else 1) + size * group / MIB * 0.0025


def blocks(ranks, low, high, factor):
    """Sizes of a rank's block from low to high: beeline-perf's are of the whole message."""
    return ("-b", low * ranks, "-e", high * ranks, "-f", factor)


def runs_of(names, ranks):
    """All-reduce: [(name, least bytes, most, [(most bytes, candidate)])], every algorithm with every block size where it can win, in as
    few runs as that takes: small and large messages are of one run."""
    # What is sent to every peer grows with the peers, and two shots take two trips; wide of the crossings of 2 and 4 ranks.
    one_shot = 1 << (32 * MIB // ranks**2).bit_length() - 1
    small, rest = 16 << 10, 1 << 18
    runs = []
    for t in THREADS:
        packet, line, two = (f"{name} threads={t}" for name in ("oneshot_packet", "oneshot_line", "twoshot_line"))
        runs += [(f"oneshot_packet twoshot_line {t}", 8, 64 * MIB, [(small, packet), (None, two)]),
                 (f"oneshot_line {t}", small // 4, one_shot, [(None, line)])]
    # Of packets that fill the GPU block sizes differ little.
    runs.append(("oneshot_packet 128", 2 * small, rest, [(None, "oneshot_packet threads=128")]))
    known = {"oneshot_packet", "oneshot_line", "twoshot_line"}
    return runs + [(f"{name} {t}", 8, 64 * MIB, [(None, f"{name} threads={t}")]) for name in names if name not in known for t in THREADS]


def tables_of(root):
    """{collective: its algorithms that rows may name}"""
    return {c: [name for name in algorithms(root, variable(c)) if name not in NO_CANDIDATES] for c in (*ALL_REDUCE, *OTHERS)}


class Plan:
    def __init__(self, box):
        self.box, self.table = box, tables_of(box.root)

    def pick(self, real, emulated):
        return self.box.pick(real, emulated)

    def smoke(self, n):
        return [Job(SMOKE, "all", n, "-t", (*ALL_REDUCE, *OTHERS), self.pick("-b 64 -e 256K -f 64 -n 2 -G 2 -w 1", "-b 256 -e 256 -n 1 -G 2 -w 0"))]

    def all_reduce(self, stage, n):
        sizes = self.pick("-b 8 -e 64M -f 2 -n 20 -G 20 -w 3 --seconds 0.4", "-b 256 -e 1K -f 4 -n 1 -G 2 -w 0")
        return Job(stage, "all_reduce", n, "-t", ALL_REDUCE, ["--mode", "graph", "--place", "both", *sizes])

    def candidates(self, n):
        jobs = []
        for name, low, high, forced in runs_of(self.table["all_reduce"], n):
            sizes = self.pick(f"-b {low} -e {high} -f 2 -n 10 -G 20 -w 3 --seconds 0.2", "-b 1K -e 32K -f 32 -n 1 -G 2 -w 0")
            jobs.append(Job(CANDIDATES, name, n, "-t", ALL_REDUCE, ["--mode", "graph", "--place", "both", *sizes], {"all_reduce": forced}))
        return jobs

    def others(self, stage, n, name="others", forced=None):
        sizes = blocks(n, *self.pick((16, (16 if n > 4 else 64) * MIB, 4), (64, 256, 4)))
        how = self.pick("-n 10 -G 20 -w 2 --seconds 0.2", "-n 1 -G 2 -w 0")
        return Job(stage, name, n, "-t", tuple(forced or OTHERS), ["--mode", "graph", "--place", "both", *sizes, *how], forced)

    def other_candidates(self, n):
        """One candidate of every collective at a time."""
        most = max(len(self.table[c]) for c in OTHERS)
        return [self.others(CANDIDATES, n, f"others {i + 1} {t}", {c: [(None, f"{self.table[c][i]} threads={t}")] for c in OTHERS if i < len(self.table[c])})
                for i in range(most) for t in THREADS]

    def eager(self, n):
        sizes = blocks(n, *self.pick((64, 8 * MIB, 8), (64, 64, 8)))
        how = self.pick("-n 12 -G 30 -w 3 --seconds 0.3", "-n 1 -G 2 -w 0")
        return [Job(EAGER, "all", n, "--spawn", (*ALL_REDUCE, *OTHERS), ["--mode", "eager", "--place", "out", *sizes, *how])]

    def types(self, n):
        kinds = self.pick("-d all -o all --offset 0,1 -b 3000 -e 690000 -f 230", "-d bfloat16,int8 -o sum,max --offset 1 -b 400 -e 400")
        return [Job(TYPES, "all", n, "-t", (*ALL_REDUCE, *OTHERS), ["--mode", "eager", "--odd", "-n", 1, "-G", 1, "-w", 0, *kinds])]

    def groups(self, n):
        how = self.pick("--group 64 -n 11 -G 4 -w 2 --seconds 0.3", "--group 3 -n 1 -G 1 -w 0")
        sizes = blocks(n, *self.pick((4 << 10, 64 << 10, 4), (256, 256, 4)))
        return [Job(GROUPS, "all", n, "--spawn", (*ALL_REDUCE, *GROUPED), ["--place", "out", *sizes, *how])]

    def big(self, n):
        sizes = self.pick("-b 128M -e 256M -f 2 -n 5 -G 4 -w 1 --seconds 1", "-b 8K -e 8K -n 1 -G 1 -w 0")
        return Job(BIG, "all_reduce", n, "-t", ALL_REDUCE, ["--mode", "graph", "--place", "out", *sizes])

    def needed(self, ranks, collective):
        """The jobs without which no thresholds are written for a collective."""
        jobs = self.candidates(ranks) if collective in ALL_REDUCE else self.other_candidates(ranks)
        return [job for job in jobs if collective in job.forced]

    def batches(self):
        """Lists of jobs that run at the same time, in order of importance."""
        gpus = self.box.gpus
        pairs = shared(self.box.ranks, gpus)
        found = list(each(self.smoke, pairs, gpus))
        for pair in pairs:
            for jobs in (lambda n: [self.all_reduce(SWEEP, n), *self.candidates(n)], lambda n: [self.all_reduce(TUNED, n)],
                         lambda n: [self.others(SWEEP, n), *self.other_candidates(n)]):
                found += each(jobs, [pair], gpus)
        new = [pair for pair in pairs if pair[0] > 4] or pairs  # what 2 to 4 GPUs can show they have shown
        for jobs, of in ((self.eager, pairs), (self.types, new), (self.groups, pairs), (lambda n: [self.others(TUNED, n)], pairs)):
            found += each(jobs, of, gpus)
        return [*found, [self.big(self.box.most)]]


def shared(numbers, gpus):
    """Numbers of ranks that fit beside each other on the box, each number once: [(8,), (7,), (6, 2), (5, 3), (4,)]."""
    left, found = sorted(set(numbers), reverse=True), []
    while left:
        first = left.pop(0)
        beside = next((n for n in left if n <= gpus - first), None)
        if beside:
            left.remove(beside)
        found.append((first, beside) if beside else (first,))
    return found


def each(jobs, pairs, gpus):
    """Batches of the jobs of each number of ranks: those of a pair beside each other, those of one number beside their like where it fits."""
    for pair in pairs:
        if len(pair) > 1:
            yield from ([job for job in both if job] for both in zip_longest(*map(jobs, pair)))
        else:
            every, width = jobs(pair[0]), gpus // pair[0]
            yield from (every[i:i + width] for i in range(0, len(every), width))
