"""What sweep-ranks runs, in order of importance: jobs of beeline-perf, in batches that run at the same time on disjoint GPUs.

A job's seconds are estimated from its rows; what they were is compared with that while it runs (sweep-ranks).
"""
import functools
from itertools import zip_longest

from ..box import algorithms, blocks
from ..collectives import COLLECTIVES, having
from ..records import part_bytes, size_of
from .candidates import files_of, forced_on, rows_text

ALL_REDUCE = ("all_reduce",)
OTHERS = tuple(name for name in COLLECTIVES if name not in ALL_REDUCE)
GROUPED = ("all_gather", "reduce_scatter")  # of these and of all-reduces a group is one launch
REDUCING = having("BL_REDUCES")
NO_CANDIDATES = ("allgather_ce",)  # serves where copy engines are asked for, whatever the rows say
MIB = 1 << 20

SMOKE, SWEEP, CANDIDATES, TUNED, EAGER, TYPES, GROUPS, BIG = (
    "smoke", "sweep", "candidates", "tuned", "eager", "types", "groups", "big")
STAGES = {
    SMOKE: "few sizes of every collective, each checked; a number of ranks that fails here is not run further",
    SWEEP: "as routed by the built-in thresholds, in graphs, in place and not",
    CANDIDATES: "each algorithm with each block size where it may win, in graphs, in place and not: what the thresholds are made of",
    TUNED: "as routed by the thresholds found here",
    EAGER: "one process a rank, calls back to back",
    TYPES: "every datatype, operation, odd counts and addresses, in place and not",
    GROUPS: "64 calls in one group, one process a rank",
    BIG: "the largest messages",
}


class Job:
    """One run of beeline-perf.  forced: of each of its tuning files {collective: [(most bytes, candidate)]}; or there is none, or (stage
    tuned) one with the thresholds found for its number of ranks."""

    def __init__(self, stage, name, ranks, how, collectives, arguments, forced=()):
        self.stage, self.name, self.ranks, self.collectives = stage, f"{ranks} ranks {name}", ranks, collectives
        self.arguments = [how, str(ranks), "-c", ",".join(collectives), *(str(a) for a in arguments), *(["--served"] if forced else [])]
        self.line = " ".join(self.arguments)
        self.forced = forced
        self.seconds = estimate(ranks, self.arguments, forced)

    @property
    def key(self):
        return f"{self.stage} / {self.name}"

    def tunings(self):
        """The tuning files that force the candidates."""
        return ["".join(["gpu any\n", *(rows_text(collective, self.ranks, rows) for collective, rows in forced.items())]) for forced in self.forced]

    def candidate(self, row, number):
        """What that file of ours forced on a row's size."""
        return forced_on(self.forced[number][row["collective"]], part_bytes(row))


def option(arguments, name, default):
    return arguments[arguments.index(name) + 1] if name in arguments else default


def rows_of(ranks, arguments, forced=()):
    """How many rows beeline-perf makes of the arguments, with each file what that forces, and their bytes in all."""
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
    count = total = 0
    for collective in option(arguments, "-c", "").split(","):
        places = 2 if option(arguments, "--place", "both") == "both" and collective != "all_to_all" else 1
        series = variants * places * (redops if collective in REDUCING else 1)
        for size in sizes:
            part = part_bytes(dict(collective=collective, bytes=size, ranks=ranks))
            times = sum(forced_on(rows[collective], part) is not None for rows in forced) if forced else 1
            count += series * times
            total += series * times * size
    return count, total


def estimate(ranks, arguments, forced=()):
    """Seconds on H200: contexts and communicators, those for each further file, rows, and the checking of bytes on the host."""
    rows, size = rows_of(ranks, arguments, forced)
    group = int(option(arguments, "--group", "1"))
    row = (0.0015 + 0.0008 * ranks) if option(arguments, "-G", "20") == "1" else 0.008 + 0.002 * ranks
    more = max(0, len(forced) - 1) * (0.3 + 0.1 * ranks)
    return 0.8 + 0.5 * ranks + more + rows * row * (5 if group > 1 else 1) + size * group / MIB * 0.0025


def tables_of():
    """{collective: its routes that rows may have}"""
    return {c: [name for name in algorithms(c) if name not in NO_CANDIDATES] for c in (*ALL_REDUCE, *OTHERS)}


class Plan:
    def __init__(self, box):
        self.box, self.table = box, tables_of()

    def pick(self, real, emulated):
        return self.box.pick(real, emulated)

    def smoke(self, n):
        return Job(SMOKE, "all", n, "-t", (*ALL_REDUCE, *OTHERS), self.pick("-b 64 -e 256K -f 64 -n 2 -G 2 -w 1", "-b 256 -e 256 -n 1 -G 2 -w 0"))

    def all_reduce(self, stage, n):
        sizes = self.pick("-b 8 -e 64M -f 2 -n 20 -G 20 -w 3 --seconds 0.4", "-b 256 -e 1K -f 4 -n 1 -G 2 -w 0")
        return Job(stage, "all_reduce", n, "-t", ALL_REDUCE, ["--mode", "graph", "--place", "both", *sizes])

    def candidates(self, n):
        """All of them in one run: what takes time is to start, then to make communicators."""
        sizes = self.pick("-b 8 -e 64M -f 2 -n 10 -G 20 -w 3 --seconds 0.2", "-b 1K -e 16K -f 16 -n 1 -G 2 -w 0")
        files = files_of({c: self.table[c] for c in ALL_REDUCE}, n)
        return Job(CANDIDATES, "all_reduce", n, "-t", ALL_REDUCE, ["--mode", "graph", "--place", "both", *sizes], files)

    def others(self, stage, n, forced=()):
        """Large blocks take long to check: thresholds are looked for there, but what they reach is not shown."""
        most = (16 if n > 4 else 64) if forced else (4 if n > 4 else 16)
        sizes = blocks(n, *self.pick((16, most * MIB, 4), (64, 256, 4)))
        how = self.pick("-n 10 -G 20 -w 2 --seconds 0.2", "-n 1 -G 2 -w 0")
        return Job(stage, "others", n, "-t", OTHERS, ["--mode", "graph", "--place", "both", *sizes, *how], forced)

    def other_candidates(self, n):
        return self.others(CANDIDATES, n, files_of({c: self.table[c] for c in OTHERS}, n))

    def eager(self, n):
        sizes = blocks(n, *self.pick((64, 8 * MIB, 8), (64, 64, 8)))
        how = self.pick("-n 12 -G 30 -w 3 --seconds 0.3", "-n 1 -G 2 -w 0")
        return Job(EAGER, "all", n, "--spawn", (*ALL_REDUCE, *OTHERS), ["--mode", "eager", "--place", "out", *sizes, *how])

    def typed(self, n, name, collectives, operations, low, kinds):
        """Two sizes, which different algorithms serve."""
        how = self.pick(f"-d all -o {operations} --offset 0,1 -b {low} -e {36 * low} -f 36", f"{kinds} --offset 1 -b 400 -e 400")
        return Job(TYPES, name, n, "-t", collectives, ["--mode", "eager", "--odd", "-n", 1, "-G", 1, "-w", 0, *how])

    def types(self, n):
        """An average depends on the number of ranks; the other operations are the same code for 5 to 8.  All-reduces of the two are
        oneshot_ll128:warps and twoshot_ll128, oneshot_ll and twoshot_ll128:warps by the built-in rows for 5 to 8."""
        return self.typed(n, "all", (*ALL_REDUCE, *OTHERS), "sum,avg", 18000, "-d bfloat16,int8 -o sum,avg")

    def more_types(self, n):
        return self.typed(n, "other operations", REDUCING, "prod,max,min", 3000, "-d bfloat16 -o max")

    def groups(self, n):
        how = self.pick("--group 64 -n 11 -G 4 -w 2 --seconds 0.3", "--group 3 -n 1 -G 1 -w 0")
        sizes = blocks(n, *self.pick((4 << 10, 64 << 10, 4), (256, 256, 4)))
        return Job(GROUPS, "all", n, "--spawn", (*ALL_REDUCE, *GROUPED), ["--place", "out", *sizes, *how])

    def big(self, n):
        sizes = self.pick("-b 128M -e 256M -f 2 -n 5 -G 4 -w 1 --seconds 1", "-b 8K -e 8K -n 1 -G 1 -w 0")
        return Job(BIG, "all_reduce", n, "-t", ALL_REDUCE, ["--mode", "graph", "--place", "out", *sizes])

    def needed(self, ranks, collective):
        """The job without which no thresholds are written for a collective."""
        return self.candidates(ranks) if collective in ALL_REDUCE else self.other_candidates(ranks)

    def of_pair(self, pair):
        """What comes first of all for some numbers of ranks."""
        def batches(*makers):
            return each(lambda n: [make(n) for make in makers], [pair], self.box.gpus)
        sweep, tuned = (functools.partial(self.all_reduce, stage) for stage in (SWEEP, TUNED))
        others, tuned_others = (functools.partial(self.others, stage) for stage in (SWEEP, TUNED))
        if self.is_wide(pair):
            return [*batches(sweep, others, self.candidates, self.other_candidates), *batches(tuned, tuned_others)]
        return [*batches(sweep, self.candidates, tuned), *batches(others, self.other_candidates)]

    def is_wide(self, pair):
        """Whether two jobs of this number of ranks fit beside each other."""
        return len(pair) == 1 and 2 * pair[0] <= self.box.gpus

    def batches(self):
        """Lists of jobs that run at the same time, in order of importance."""
        gpus = self.box.gpus
        pairs = shared(self.box.ranks, gpus)
        most = [(self.box.most,)]
        new = [pair for pair in pairs if pair[0] > 4] or pairs  # what 2 to 4 GPUs can show they have shown
        found = list(each(lambda n: [self.smoke(n)], pairs, gpus))
        for pair in pairs:
            found += self.of_pair(pair)
        for make, of in ((self.eager, pairs), (self.types, new), (functools.partial(self.others, TUNED), [p for p in pairs if not self.is_wide(p)]),
                         (self.more_types, most), (self.groups, pairs), (self.big, most), (self.more_types, [p for p in new if p[0] != self.box.most])):
            found += each(lambda n, make=make: [make(n)], of, gpus)
        return found


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
