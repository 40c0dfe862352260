"""Peers' times (peers.tsv), and what all-reduces of 8 ranks are meant to reach: one line a target, held or missed by how much."""
import functools
import os

from beeline.tuning.records import rows
from beeline.words import size_of, size_text

PEERS = os.path.join(os.path.dirname(os.path.realpath(__file__)), "peers.tsv")
PEERS_GPU = "NVIDIA H200"
RANKS = 8
KIB, MIB = 1 << 10, 1 << 20
# least and most bytes; how many times as fast as NCCL; noise that is let through
RATIOS = ((0, 256 * KIB, 2.5, 0), (MIB, MIB, 1.8, 0), (4 * MIB, 4 * MIB, 1.4, 0), (0, 1 << 40, 1.0, 0.01))


@functools.cache
def peers():
    """{(ranks, bytes): (us, who)} of the best peer."""
    best = {}
    with open(PEERS, encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("#"):
                continue
            ranks, size, name, us = line.rstrip("\n").split("\t")
            key = int(ranks), size_of(size)
            best[key] = min(best.get(key, (float("inf"), "")), (float(us), name))
    return best


def graph_series(records, ranks, stage):
    return sorted(rows(records, stage, ranks=ranks, collective="all_reduce", datatype="bfloat16", redop="sum", mode="graph", place="out", offset=0,
                       group=1), key=lambda r: r["bytes"])


def verdict(name, margins, wanted):
    """margins: [(how many times as good as was aimed at, what was found)]; below 1 is a miss."""
    if not margins:
        return f"not measured: {name}"
    worst, found = min(margins)
    many = sum(margin < 1 for margin, _ in margins)
    if worst >= 1:
        return f"held:   {name} ({wanted} sizes; least: {found})"
    return f"MISSED: {name}, at {many} of {len(margins)} sizes, most by {100 * (1 / worst - 1):.1f} %: {found}"


def targets(records, stage, ranks):
    """Lines about the rows of a stage, as routed by some thresholds.  Fewer ranks are only held against the peers, where those were measured."""
    series = graph_series(records, ranks, stage)
    wanted = {size: peer for (n, size), peer in peers().items() if n == ranks}
    if not wanted:
        return []
    by_size = {r["bytes"]: r["beeline"]["us"] for r in series}
    margins = [(us / by_size[size], f"{size_text(size)} {by_size[size]:.2f} us, {who} {us:.2f}") for size, (us, who) in wanted.items() if size in by_size]
    lacking = [size_text(size) for size in wanted if size not in by_size]
    lines = [verdict("faster than the best peer", margins, len(margins)) + (f"; not measured: {', '.join(lacking)}" if lacking and margins else "")]
    for low, high, ratio, noise in RATIOS if ranks == RANKS else ():
        at = "anywhere" if high > 1 << 30 else f"at {size_text(high)}" if low == high else f"up to {size_text(high)}"
        margins = [(r["ratio"] / (ratio - noise), f"{size_text(r['bytes'])} {r['ratio']:.2f}, {r['beeline']['us']:.2f} us") for r in series
                   if low <= r["bytes"] <= high]
        lines.append(verdict(f"NCCL's time at least {ratio:.1f} times Beeline's {at}" + (f" ({ratio - noise:.2f} with noise)" if noise else ""), margins,
                             len(margins)))
    return lines
