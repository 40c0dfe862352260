"""Tables of groups, types and latency, calls beside a matrix product, and decoding."""
from beeline.tuning.records import part_bytes, rows
from beeline.words import size_text

from ..floors import floor_us
from ..table import NAMES, Table, pairs, ranks_of, spread, wrong


GROUPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


def groups(records):
    """Of a group and, divided, of a message in it."""
    for collective in GROUPS:
        of_kind = [r for r in rows(records, collective=collective) if r["group"] > 1]
        for ranks in ranks_of(of_kind):
            series = [r for r in of_kind if r["ranks"] == ranks]
            number, name = series[0]["group"], NAMES[collective] + "s"
            what = "bf16" if collective in ("all_gather", "all_to_all") else "bf16 sum"
            lines = []
            for r in series:
                mine, base = r["beeline"]["us"], r["nccl"]["us"]
                lines.append([size_text(part_bytes(r)), r["mode"], f"{mine:.2f}", f"{base:.2f}", f"{base / mine:.3f}",
                              f"{mine / number:.2f}", f"{base / number:.2f}", r["route"], wrong(r)])
            yield Table(f"Groups of {number} {name}, {ranks} ranks",
                        f"{what}, out of place, one process a rank; a call is `ncclGroupStart`, {number} {name} of the size, `ncclGroupEnd`. "
                        "Both times of the whole group; then of one message, as a share of it; the route is that of one call by itself.",
                        ["bytes each" if collective == "all_reduce" else "bytes a rank, each", "mode", "Beeline", "NCCL", "NCCL / Beeline",
                         "a message, Beeline", "a message, NCCL", "route", "wrong"], lines)


def nearest(sizes, size):
    """The even, aligned size of which `size` is an odd variant."""
    return min((s for s in sizes if s >= size), default=None)


def type_lines(series):
    """One line a datatype, operation, count and offset: of each size, time over that of the aligned bf16 sum (or gather) and NCCL's over it."""
    def reference(step):
        return {part_bytes(r): r["beeline"]["us"] for r in series
                if (r["step"], r["datatype"], r["offset"]) == (step, "bfloat16", 0) and r["redop"] in ("sum", "none") and
                not part_bytes(r) & (part_bytes(r) - 1)}
    base, found = reference("types"), {}
    sizes = sorted(base)
    for r in series:
        size = nearest(sizes, part_bytes(r))
        us = (reference(r["step"]) or base).get(size)
        if us:
            kind = "odd" if part_bytes(r) != size else ""
            cells = found.setdefault((r["step"], r["datatype"], r["redop"], kind, r["offset"]), {})
            mine, nccl = r["beeline"]["us"], r["nccl"]["us"]
            cells[size] = f"{mine / us:.2f} ({nccl / mine:.2f}{', to NCCL' if r['route'] == 'nccl' else ''})"
    return sizes, [[datatype, redop, kind, str(offset), *(cells.get(size, "") for size in sizes)]
                   for (_, datatype, redop, kind, offset), cells in found.items()]


TYPES = (("perf-types", "all_reduce"), ("perf-gather-types", "all_gather"), ("perf-gather-types", "reduce_scatter"))


def types(records):
    for stage, collective in TYPES:
        of_kind = rows(records, stage, collective=collective)
        for ranks in ranks_of(of_kind):
            series = [r for r in of_kind if r["ranks"] == ranks]
            sizes, lines = type_lines(series)
            number = sum(r["beeline"]["wrong"] + r["nccl"]["wrong"] for r in series)
            what = "all-gather of bf16" if collective == "all_gather" else "bf16 sum"
            of = "" if collective == "all_reduce" else f" of {NAMES[collective]}"
            yield Table(f"Datatypes, operations, odd counts and addresses{of}, {ranks} ranks",
                        f"In CUDA graphs, out of place: Beeline's time over that of its {what} of an even count at an aligned address, in the "
                        "same run; in brackets NCCL's for the same call over Beeline's. odd: one element fewer; offset: bytes. "
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


def load(records):
    found = pairs(records, "load", "ranks", "bytes")
    for ranks in sorted({mine["ranks"] for mine, _ in found}, reverse=True):
        lines, one = [], next(mine for mine, _ in found if mine["ranks"] == ranks)
        for mine, base in found:
            if mine["ranks"] != ranks:
                continue
            note = [f"{name}: {text}" for name, r in (("with", mine), ("without", base))
                    for good, text in ((r["inside"], "calls outlasted the product"), (r["covered"], "the product outlasted the calls")) if not good]
            lines.append([size_text(mine["bytes"]), *(f"{r['idle_us']:.2f}" for r in (mine, base)),
                          *(spread(r["loaded_us"], r["loaded_us_all"]) for r in (mine, base)),
                          f"{base['loaded_us'] / mine['loaded_us']:.3f}",
                          *(f"{r['product_loaded_ms'] / r['product_alone_ms']:.3f}" for r in (mine, base)), "; ".join(note)])
        yield Table(f"Beside a matrix product, {ranks} ranks",
                    "`dist.all_reduce`, bf16 sum, in place, one process a rank, calls back to back from CUDA graphs on one stream; on another "
                    f"{one['products']} bf16 products of {one['side']} x {one['side']} matrices. Two jobs, with Beeline and without, in turns in the "
                    "same minutes; loaded: median (least-most) of the rounds. Slowdown: the products' time while calls go on over their time alone.",
                    ["bytes", "idle, with", "idle, without", "loaded, with", "loaded, without", "loaded, without / with", "slowdown, with",
                     "slowdown, without", ""], lines)


def errors(compared):
    """Of logits: with Beeline, without, with one rounding more."""
    return f"{compared['error']:.5f}, {compared['error_without']:.5f}, {compared['rough']:.5f} of {compared['deviation']:.2f}"


def decode(records):
    found = pairs(records, "decode", "ranks", "batch")
    compared = {(r["ranks"], r["batch"]): r for r in records if r.get("kind") == "decode-compare"}
    lines = []
    for mine, base in found:
        both = compared.get((mine["ranks"], mine["batch"]))
        how = "graph" if mine["graph"] and base["graph"] else "eager"
        outputs = ["", "", ""]
        if both:
            outputs = [errors(both), f"{both['choices_differ']} of {both['choices']}", f"{both['tokens_differ']} of {both['tokens']}"]
        lines.append([str(mine["ranks"]), str(mine["batch"]), size_text(mine["message"]), f"{mine['tokens_s']:.0f}", f"{base['tokens_s']:.0f}",
                      f"{mine['tokens_s'] / base['tokens_s']:.3f}", f"{mine['step_us']:.0f}", f"{base['step_us']:.0f}", how, *outputs])
    if lines:
        one = found[0][0]
        yield Table("Tensor-parallel decoding",
                    f"transformers' Llama modules, Llama 8B's shape with {one['layers']} layers and random weights, bf16; greedy, "
                    f"{one['steps']} tokens after a context of {one['context']}; two all-reduces a layer. Two jobs with the same weights, with "
                    "Beeline and without, in turns in the same minutes. Error of the logits: root mean square distance from those with all-reduces in "
                    "fp64, rounded once: with Beeline, without, and with one rounding more; of their standard deviation. Choices: other words where both are given the same tokens. Tokens: of free decoding, where one other "
                    "choice changes all that follow.",
                    ["ranks", "batch", "bytes a call", "tokens/s with", "tokens/s without", "with / without", "µs a step with", "µs without", "step",
                     "error of the logits", "choices", "tokens"], lines)


def prefill(records):
    found = pairs(records, "prefill", "ranks", "tokens")
    compared = {(r["ranks"], r["tokens"]): r for r in records if r.get("kind") == "prefill-compare"}
    lines = []
    for mine, base in found:
        both = compared.get((mine["ranks"], mine["tokens"]))
        lines.append([str(mine["ranks"]), str(mine["tokens"]), size_text(mine["message"]), *(spread(r["step_ms"], r["step_ms_all"]) for r in (mine, base)),
                      f"{base['step_ms'] / mine['step_ms']:.3f}",
                      errors(both) if both else ""])
    if lines:
        how = "in a graph" if all(r["graph"] for pair in found for r in pair) else "eager"
        yield Table("Tensor-parallel prefill",
                    f"transformers' Llama modules, Llama 8B's shape with {found[0][0]['layers']} layers and random weights, bf16, one sequence, {how}; two "
                    "all-reduces a layer. Two jobs with the same weights, with Beeline and without, in turns in the same minutes; ms a step, median "
                    "(least-most) of the rounds. Error of the last place's logits: as for decoding.",
                    ["ranks", "tokens", "bytes a call", "ms with", "ms without", "without / with", "error of the logits"], lines)
