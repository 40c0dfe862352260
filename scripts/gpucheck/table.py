"""A table, and what those who make them share.

A table is a title, what was measured, the header and the lines; all cells are text.  Some have a chart: a name for its file
and its curves, as svg.chart has them.
"""
from collections import namedtuple

from .records import rows

Table = namedtuple("Table", "title about header lines chart", defaults=[None])

NAMES = dict(all_reduce="all-reduce", all_gather="all-gather", reduce_scatter="reduce-scatter", all_to_all="all-to-all", broadcast="broadcast",
             reduce="reduce")
PLACES = dict(out="out of place", **{"in": "in place"})
MODES = dict(graph=" in CUDA graphs", eager=", eager")
HOW = dict(graph="a thread a GPU", eager="one process a rank, calls back to back by the host's clock")


def markdown(header, lines):
    return ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header), *("| " + " | ".join(line) + " |" for line in lines), ""]


def ranks_of(series):
    return sorted({r["ranks"] for r in series}, reverse=True)


def series_of(records, stage):
    """Rows of a stage by collective, mode and ranks."""
    found = rows(records, stage)
    for collective in NAMES:
        for mode in MODES:
            for ranks in ranks_of(found):
                series = [r for r in found if (r["collective"], r["mode"], r["ranks"]) == (collective, mode, ranks)]
                if series:
                    yield collective, mode, ranks, series


def in_order(series):
    """Out of place, then in place; by size."""
    return sorted(series, key=lambda r: (list(PLACES).index(r["place"]), r["bytes"]))


def wrong(row):
    return str(row["beeline"]["wrong"] + row["nccl"]["wrong"])


def pairs(records, kind, *keys):
    """Records of a kind that there are with Beeline and without: [(with, without)]."""
    by = {}
    for r in records:
        if r.get("kind") == kind:
            by.setdefault(tuple(r[key] for key in keys), {})[r["beeline"]] = r
    return [(both[True], both[False]) for _, both in sorted(by.items()) if len(both) == 2]


def spread(middle, samples):
    """A median, and the least and the most: some samples lie far apart."""
    return f"{middle:.2f} ({min(samples):.0f}-{max(samples):.0f})"
