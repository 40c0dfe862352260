"""Tables that the summary and the page share: groups, types, latency, calls beside a matrix product, decoding.

A table is a title, what was measured, the header and the lines; all cells are text.  Some have a chart: a name for its file
and its curves, as svg.chart has them.
"""
from collections import namedtuple

from .records import floor_us, rows, size_text

Table = namedtuple("Table", "title about header lines chart", defaults=[None])


def ranks_of(series):
    return sorted({r["ranks"] for r in series}, reverse=True)


def wrong(row):
    return str(row["beeline"]["wrong"] + row["nccl"]["wrong"])


def groups(records):
    """Of a group and, divided, of a message in it."""
    for ranks in ranks_of(rows(records, "perf-groups")):
        series = rows(records, "perf-groups", ranks=ranks)
        number = series[0]["group"]
        lines = []
        for r in series:
            mine, base = r["beeline"]["us"], r["nccl"]["us"]
            lines.append([size_text(r["bytes"]), r["mode"], f"{mine:.2f}", f"{base:.2f}", f"{mine / base:.3f}",
                          f"{mine / number:.2f}", f"{base / number:.2f}", r["route"], wrong(r)])
        yield Table(f"Groups of {number} all-reduces, {ranks} ranks",
                    f"bf16 sum, out of place, one process a rank; a call is `ncclGroupStart`, {number} all-reduces of the size, `ncclGroupEnd`. "
                    "Both times of the whole group; then of one message, as a share of it.",
                    ["bytes each", "mode", "Beeline", "NCCL", "Beeline / NCCL", "a message, Beeline", "a message, NCCL", "route", "wrong"], lines)


def nearest(sizes, size):
    """The even, aligned size of which `size` is an odd variant."""
    return min((s for s in sizes if s >= size), default=None)


def type_lines(series):
    """One line a datatype, operation, count and offset: of each size, time over that of the aligned bf16 sum and over NCCL's."""
    def reference(step):
        return {r["bytes"]: r["beeline"]["us"] for r in series
                if (r["step"], r["datatype"], r["redop"], r["offset"]) == (step, "bfloat16", "sum", 0) and not r["bytes"] & (r["bytes"] - 1)}
    base, found = reference("types"), {}
    sizes = sorted(base)
    for r in series:
        size = nearest(sizes, r["bytes"])
        us = (reference(r["step"]) or base).get(size)
        if us:
            kind = "odd" if r["bytes"] != size else ""
            cells = found.setdefault((r["step"], r["datatype"], r["redop"], kind, r["offset"]), {})
            mine, nccl = r["beeline"]["us"], r["nccl"]["us"]
            cells[size] = f"{mine / us:.2f} ({mine / nccl:.2f}{', to NCCL' if r['route'] == 'nccl' else ''})"
    return sizes, [[datatype, redop, kind, str(offset), *(cells.get(size, "") for size in sizes)]
                   for (_, datatype, redop, kind, offset), cells in found.items()]


def types(records):
    for ranks in ranks_of(rows(records, "perf-types")):
        series = rows(records, "perf-types", ranks=ranks)
        sizes, lines = type_lines(series)
        number = sum(r["beeline"]["wrong"] + r["nccl"]["wrong"] for r in series)
        yield Table(f"Datatypes, operations, odd counts and addresses, {ranks} ranks",
                    "In CUDA graphs, out of place: Beeline's time over that of its bf16 sum of an even count at an aligned address, in the "
                    "same run; in brackets over NCCL's for the same call. odd: one element fewer; offset: bytes. "
                    f"{len(series)} rows, {number} wrong values.",
                    ["datatype", "operation", "count", "offset", *(size_text(s) for s in sizes)], lines)


def latency(records):
    for ranks in ranks_of(rows(records, "latency")):
        series = rows(records, "latency", ranks=ranks)
        yield Table(f"Latency of one eager call, {ranks} processes",
                    "bf16 sum, out of place: one call at a time, from a common start to its end as the host sees it; "
                    f"{series[0]['samples']} samples.",
                    ["bytes", "Beeline", "NCCL", "NCCL / Beeline", "p99 Beeline", "p99 NCCL", "route", "wrong"],
                    [[size_text(r["bytes"]), f"{r['beeline']['us']:.2f}", f"{r['nccl']['us']:.2f}", f"{r['ratio']:.2f}",
                      f"{r['beeline']['p99_us']:.2f}", f"{r['nccl']['p99_us']:.2f}", r["route"], wrong(r)] for r in series],
                    (f"latency-{ranks}", [(name, [(r["bytes"], r[side]["us"]) for r in series], False) for name, side in
                                          (("Beeline", "beeline"), ("NCCL", "nccl"))] +
                     [("floor", [(r["bytes"], floor_us(r["bytes"], ranks)) for r in series], True)]))


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


def load(records):
    found = pairs(records, "load", "ranks", "bytes")
    for ranks in sorted({mine["ranks"] for mine, _ in found}, reverse=True):
        lines, one = [], next(mine for mine, _ in found if mine["ranks"] == ranks)
        for mine, base in found:
            if mine["ranks"] != ranks:
                continue
            note = [f"{name}: {text}" for name, r in (("with", mine), ("without", base))
                    for good, text in ((r["inside"], "calls outlasted the product"), (r["covered"], "the product outlasted the calls")) if not good]
            lines.append([size_text(mine["bytes"]), *(f"{r['idle_us']:.2f}" for r in (mine, base)), *(spread(r["loaded_us"], r["loaded_us_all"]) for r in (mine, base)),
                          f"{mine['loaded_us'] / base['loaded_us']:.3f}",
                          *(f"{r['product_loaded_ms'] / r['product_alone_ms']:.3f}" for r in (mine, base)), "; ".join(note)])
        yield Table(f"Beside a matrix product, {ranks} ranks",
                    "`dist.all_reduce`, bf16 sum, in place, one process a rank, calls back to back from CUDA graphs on one stream; on another "
                    f"{one['products']} bf16 products of {one['side']} x {one['side']} matrices. Two jobs, with Beeline and without, in turns in the "
                    "same minutes; loaded: median (least-most) of the rounds. Slowdown: the products' time while calls go on over their time alone.",
                    ["bytes", "idle, with", "idle, without", "loaded, with", "loaded, without", "loaded, with / without", "slowdown, with",
                     "slowdown, without", ""], lines)


def decode(records):
    found = pairs(records, "decode", "ranks", "batch")
    compared = {(r["ranks"], r["batch"]): r for r in records if r.get("kind") == "decode-compare"}
    lines = []
    for mine, base in found:
        both = compared.get((mine["ranks"], mine["batch"]))
        how = "graph" if mine["graph"] and base["graph"] else "eager"
        outputs = ["", "", ""]
        if both:
            outputs = [f"{both['logit_difference']:.4f} of {both['logit_deviation']:.2f}", f"{both['choices_differ']} of {both['choices']}",
                       f"{both['tokens_differ']} of {both['tokens']}"]
        lines.append([str(mine["ranks"]), str(mine["batch"]), size_text(mine["message"]), f"{mine['tokens_s']:.0f}", f"{base['tokens_s']:.0f}",
                      f"{mine['tokens_s'] / base['tokens_s']:.3f}", f"{mine['step_us']:.0f}", f"{base['step_us']:.0f}", how, *outputs])
    if lines:
        one = found[0][0]
        yield Table("Tensor-parallel decoding",
                    f"transformers' Llama modules, Llama 8B's shape with {one['layers']} layers and random weights, bf16; greedy, "
                    f"{one['steps']} tokens after a context of {one['context']}; two all-reduces a layer. Two jobs with the same weights, with "
                    "Beeline and without, in turns in the same minutes. Logits: largest difference, and their standard deviation; a quarter of "
                    "that is accepted. Choices: other words where both are given the same tokens. Tokens: of free decoding, where one other "
                    "choice changes all that follow.",
                    ["ranks", "batch", "bytes a call", "tokens/s with", "tokens/s without", "with / without", "µs a step with", "µs without", "step",
                     "logits", "choices", "tokens"], lines)


def tables(records):
    return [table for part in (groups, types, latency, load, decode) for table in part(records)]
