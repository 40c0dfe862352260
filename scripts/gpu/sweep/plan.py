"""What sweep-ranks runs, in order of importance: jobs of beeline-perf, in batches that run at the same time on disjoint GPUs.

A job's seconds are estimated from its rows; what they were is compared with that while it runs (sweep-ranks).
"""
import functools
from itertools import zip_longest

from beeline.tuning.box import blocks
from beeline.tuning.candidates import FEW, MOST, files_of, longest
from beeline.tuning.jobs import ALL_REDUCE, MIB, OTHERS, REDUCING, Job, tables_of

GROUPED = ("all_gather", "reduce_scatter")  # of these and of all-reduces a group is one launch

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


class Plan:
    def __init__(self, box):
        self.box, self.table = box, tables_of()

    def pick(self, real, emulated):
        return self.box.pick(real, emulated)

    def smoke(self, n):
        return Job(SMOKE, "all", n, "-t", (*ALL_REDUCE, *OTHERS), self.pick("-b 64 -e 256K -f 64 -n 2 -G 2 -w 1", "-b 256 -e 256 -n 1 -G 2 -w 0"), vital=True)

    def all_reduce(self, stage, n):
        sizes = self.pick("-b 8 -e 64M -f 2 -n 20 -G 20 -w 3 --seconds 0.4", "-b 256 -e 1K -f 4 -n 1 -G 2 -w 0")
        return Job(stage, "all_reduce", n, "-t", ALL_REDUCE, ["--mode", "graph", "--place", "both", *sizes], tuned=stage == TUNED)

    def candidates(self, n):
        """All of them in one run: what takes time is to start, then to make communicators.  Above 64 MB pieces alone are tried, where they have been measured."""
        most = longest(True, n) // (1 if self.is_small() else 4)
        sizes = self.pick(f"-b 8 -e {most} -f 2 -n 10 -G 20 -w 3 --seconds 0.2", "-b 1K -e 16K -f 16 -n 1 -G 2 -w 0")
        files = files_of({c: self.table[c] for c in ALL_REDUCE}, n)
        return Job(CANDIDATES, "all_reduce", n, "-t", ALL_REDUCE, ["--mode", "graph", "--place", "both", *sizes], files)

    def others(self, stage, n, forced=()):
        """Large blocks take long to check: thresholds are looked for there, but what they reach is not shown."""
        tried = longest(False, n) if self.is_small() else min(MOST, longest(False, n))
        most = tried if forced else (4 if n > FEW else 16) * MIB
        sizes = blocks(n, *self.pick((16, most, 4), (64, 256, 4)))
        how = self.pick("-n 10 -G 20 -w 2 --seconds 0.2", "-n 1 -G 2 -w 0")
        return Job(stage, "others", n, "-t", OTHERS, ["--mode", "graph", "--place", "both", *sizes, *how], forced, tuned=stage == TUNED)

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

    def is_small(self):
        """A box on which there is time for the longest messages: a larger one has more numbers of ranks."""
        return self.box.gpus <= FEW

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
