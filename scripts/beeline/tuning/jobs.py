"""Jobs of beeline-perf: what they measure, the tuning files that force candidates, and about how long they take."""
from ..words import size_of
from .box import algorithms
from .candidates import forced_on, rows_text
from .collectives import COLLECTIVES, having
from .records import part_bytes

ALL_REDUCE = ("all_reduce",)
OTHERS = tuple(name for name in COLLECTIVES if name not in ALL_REDUCE)
REDUCING = having("BL_REDUCES")
NOT_IN_PLACE = ("all_to_all", "sendrecv")  # NCCL has no such calls
NO_CANDIDATES = ("allgather_ce",)  # serves where copy engines are asked for, whatever the rows say
MIB = 1 << 20


class Job:
    """One run of beeline-perf.  forced: of each of its tuning files {collective: [(most bytes, candidate)]}; tuned: there is one, with
    the thresholds found for its number of ranks; as_is: it has the tuning files of this box; vital: where it fails nothing else is run
    with so many ranks."""

    def __init__(self, stage, name, ranks, how, collectives, arguments, forced=(), tuned=False, as_is=False, vital=False):
        self.stage, self.name, self.ranks, self.collectives = stage, f"{ranks} ranks {name}", ranks, collectives
        self.tuned, self.as_is, self.vital = tuned, as_is, vital
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
        places = 2 if option(arguments, "--place", "both") == "both" and collective not in NOT_IN_PLACE else 1
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
