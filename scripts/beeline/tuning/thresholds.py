"""Thresholds from measurements: the rows of a tuning file for one collective and number of ranks.

A candidate is what stands behind the bytes of a row: "twoshot_ll128 threads=256 spread=warps", "oneshot_ll", "nccl".  The series of
candidates is taken that loses least time to the fastest of each size, where every change of candidate costs as much as the
margin: so noise near a crossing makes no extra rows.  A candidate must be faster than NCCL by the margin to take a size from
it.  Between two sizes of which different candidates win, the threshold is where their times would meet, NCCL's less the margin,
drawn straight on logarithmic axes, rounded down to a power of two or one and a half of it.  Above the largest size measured NCCL serves.

Long all-gathers and reduce-scatters run beside compute more often than not, and lines take all multiprocessors: there they must gain
more over NCCL and over pieces alone, or what they run beside loses more; over pieces between more than two ranks.  Measured on 4 H200 with FSDP2, 26 MB a rank: lines 12 % faster
alone, steps 2.5 % longer; pieces by 32 blocks 6 to 14 % faster, steps 0.8 % shorter (docs/benchmarks).
"""
import math
import statistics

from ..words import size_text
from .records import part_bytes, rows

NCCL = "nccl"
MOST_ROWS = 12  # of a section, for one collective and number of ranks
PLACES = ("out", "in")
BESIDE_COMPUTE, LONG, GAIN = ("all_gather", "reduce_scatter"), 8 << 20, 0.2  # from so many bytes a rank on, so much faster than NCCL
AS_FAST = 1.06  # pieces that take no longer than that over lines have their place, for they take a quarter of the multiprocessors
PAIR = 2  # ranks, of which lines beside a product are over sooner than pieces that take as long alone (docs/benchmarks): over pieces they need gain no more


def words_of(route, *options):
    """As a tuning file says "oneshot_ll128:warps"."""
    name, _, spread = route.partition(":")
    return " ".join((name, *options, *([f"spread={spread}"] if spread else [])))


def route_of(forced):
    """As beeline-perf's column says a candidate."""
    return forced.split()[0] + (":warps" if forced.endswith(" spread=warps") else "")


def is_pieces(name):
    """Whether a route, or a candidate, is by pieces."""
    return name.split()[0].endswith("_bulk")


def candidate(row):
    """What was forced, in the words of a tuning file; None where it does not serve the size and another took its place."""
    return row["forced"] if route_of(row["forced"]) == row["route"] and not row["beeline"]["wrong"] else None


def measurements(records, stage, ranks, collective):
    """{bytes: {candidate: us}}, the mean of the places; bytes as in a tuning file: of a rank's block where there are blocks.
    NCCL's time of a size is the median of those beside the candidates."""
    mine, nccl = {}, {}
    for r in rows(records, stage, ranks=ranks, collective=collective, datatype="bfloat16", mode="graph", offset=0, group=1):
        if r["redop"] not in ("sum", "none"):
            continue
        size, name = part_bytes(r), candidate(r)
        nccl.setdefault(size, {}).setdefault(r["place"], []).append(r["nccl"]["us"])
        if name:
            mine.setdefault(size, {}).setdefault(name, {})[r["place"]] = r["beeline"]["us"]
    table = {}
    for size in sorted(nccl):
        places = [place for place in PLACES if place in nccl[size]]
        table[size] = {name: statistics.mean(us.values()) for name, us in mine.get(size, {}).items() if len(us) == len(places)}
        table[size][NCCL] = statistics.mean(statistics.median(nccl[size][place]) for place in places)
    return table


def to_beat(times, name, margin):
    """What a candidate's time counts as: NCCL keeps the sizes at which it is slower by less than the margin."""
    return times[name] * (1 - margin if name == NCCL else 1)


def winners(table, margin):
    """[(size, candidate)]: the cheapest series, a loss of time and a change of candidate both costing; each size extends
    the cheapest series that end in each candidate."""
    best = {None: (0.0, [])}  # by last candidate: cost, series
    for size, times in table.items():
        fair = {name: us for name, us in times.items() if name == NCCL or us < to_beat(times, NCCL, margin)}
        least = min(fair.values())
        best = {name: min(((cost + math.log(us / least) + (margin if last not in (None, name) else 0), series + [(size, name)])
                           for last, (cost, series) in best.items()), key=lambda way: way[0]) for name, us in fair.items()}
    return min(best.values(), key=lambda way: way[0])[1]


def round_down(size):
    """To 2^k or 3 * 2^(k-1): what a reader can remember."""
    power = 1 << (int(size).bit_length() - 1)
    return power * 3 // 2 if size >= power * 3 // 2 and power > 1 else power


def crossing(table, below, above, one, other, margin):
    """The size between the two at which `other` becomes faster than `one`; `below` where that cannot be said."""
    a, b = table[below], table[above]
    if any(name not in times for name in (one, other) for times in (a, b)):
        return below
    start, end = (math.log(to_beat(times, one, margin) / to_beat(times, other, margin)) for times in (a, b))
    if start >= 0 or end <= 0:
        return below
    return max(below, round_down(math.exp(math.log(below) + start / (start - end) * math.log(above / below))))


def weighed(times, collective, ranks, size, margin):
    """Times of a size, as they count: of lines, which take all multiprocessors, for more."""
    pieces_win = any(is_pieces(name) and us < to_beat(times, NCCL, margin) for name, us in times.items())  # over NCCL
    beside = collective in BESIDE_COMPUTE and size >= LONG and not (pieces_win and ranks == PAIR)
    share = (1 - margin) / (1 - GAIN) if beside else AS_FAST if pieces_win else 1  # the margin is asked later
    return {name: us * (1 if name == NCCL or is_pieces(name) else share) for name, us in times.items()}


def chosen_rows(table, collective, ranks, margin):
    """[(max_bytes, candidate)] of measurements, without the last one to NCCL; a margin that grows until there is room for them."""
    table = {size: weighed(times, collective, ranks, size, margin) for size, times in table.items()}
    while table:
        chosen = winners(table, margin)
        lines = [(crossing(table, size, above, name, following, margin), name) for (size, name), (above, following) in zip(chosen, chosen[1:])
                 if name != following]
        if len(lines) <= MOST_ROWS - 2:
            return lines + [(size, name) for size, name in chosen[-1:] if name != NCCL]
        margin *= 1.5
    return []


def tuning_rows(records, stage, ranks, collective, margin, lost=()):
    """The same, of records; lost: sizes that are NCCL's, whatever was measured."""
    table = measurements(records, stage, ranks, collective)
    return chosen_rows({size: {NCCL: times[NCCL]} if size in lost else times for size, times in table.items()}, collective, ranks, margin)


def row_lines(collective, ranks, found, above=NCCL):
    """The lines of a tuning file for [(max_bytes, candidate)], and for what is larger."""
    lines = []
    for size, name in [*((size_text(size), name) for size, name in found), ("max", above)]:
        algorithm, *options = name.split()
        lines.append(" ".join((f"{collective} {ranks} {size:>5} {algorithm:<25}", *options)).rstrip())
    return lines


def some(values):
    """Without repetitions, in order."""
    return ", ".join(dict.fromkeys(str(value) for value in values))


def header(runs, source, command, drivers=()):
    """Where the numbers come from; and the GPU they hold for.  Runs are beeline-perf's records of its runs, drivers the versions of the kernel's."""
    devices = max((run["devices"] for run in runs), key=len)  # a job that runs beside another does not see all
    return [f"# Machine:  {some(run['host'] for run in runs)}, {runs[0]['machine']}, {len(devices)} x {devices[0]['name']}",
            f"# Driver:   {''.join(f'{version}, ' for version in dict.fromkeys(drivers) if version)}CUDA driver API "
            f"{some('%d.%d' % (run['driver'] // 1000, run['driver'] % 1000 // 10) for run in runs)}",
            f"# NCCL:     {some('%d.%d.%d' % (run['nccl'] // 10000, run['nccl'] % 10000 // 100, run['nccl'] % 100) for run in runs)}, plain buffers",
            f"# Date:     {some(sorted(run['date'][:10] for run in runs))}", f"# Source:   {source}", f"# Command:  {command}"], devices[0]


def gpu_line(records, device):
    """The section's first line, as Beeline said it of the box with most ranks; of records before it did, the GPU alone."""
    boxes = [r for r in records if r.get("record") == "box"]
    return max(boxes, key=lambda r: r["ranks"])["section"] if boxes else f'gpu "{device["name"]}" arch {device["arch"]}'
