"""A table, those who write one as text or on a page, and what those who make them share.

A table is a title, what was measured, the header and the lines; all cells are text.  Some have a chart: a name for its file,
its curves, as chart.write has them, and its title where that is another.
"""
import os
import re
from collections import namedtuple

from beeline.tuning.collectives import COLLECTIVES
from beeline.tuning.records import rows

Table = namedtuple("Table", "title about header lines chart", defaults=[None])

with open(os.path.join(os.path.dirname(os.path.realpath(__file__)), "../perf/calls.def"), encoding="ascii") as calls:
    NAMES = {**{name: collective.words for name, collective in COLLECTIVES.items()}, **{name: name for name in re.findall(r"^PERF_CALL\(\w+, (\w+)", calls.read(), re.M)}}
PLACES = dict(out="out of place", **{"in": "in place"})
MODES = dict(graph=" in CUDA graphs", eager=", eager")
HOW = dict(graph="a thread a GPU", eager="one process a rank, calls back to back by the host's clock")


def markdown(header, lines):
    return ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header), *("| " + " | ".join(line) + " |" for line in lines), ""]


def columns(header, lines, form=None):
    """As text.  form: of a line; else every cell is as wide as the widest of its column, and to the right."""
    form = form or "  ".join(f"{{:>{max(map(len, column))}}}" for column in zip(header, *lines))
    return [form.format(*line).rstrip() for line in (header, *lines)]


def page(title, provenance, about, tables, chart=lambda table: []):
    """For docs/benchmarks.  chart: makes the lines that show a table's."""
    lines = [f"# {title}", "", *(f"- {line}" for line in provenance), "", *about, ""]
    for table in tables:
        lines += [f"## {table.title}", "", table.about, "", *chart(table), *markdown(table.header, table.lines)]
    return "\n".join(lines).rstrip() + "\n"


def launches(records, stage, ranks):
    """What a launch was measured with, and its microseconds on the host, in runs of a stage."""
    return [(r["what"], r["host_us"]) for r in records if r.get("record") == "launch" and r.get("stage") == stage and r["ranks"] == ranks]


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
