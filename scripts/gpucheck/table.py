"""A table, and what those who make them share.

A table is a title, what was measured, the header and the lines; all cells are text.  Some have a chart: a name for its file
and its curves, as svg.chart has them.
"""
from collections import namedtuple

Table = namedtuple("Table", "title about header lines chart", defaults=[None])

NAMES = dict(all_reduce="all-reduce", all_gather="all-gather", reduce_scatter="reduce-scatter")


def ranks_of(series):
    return sorted({r["ranks"] for r in series}, reverse=True)


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
