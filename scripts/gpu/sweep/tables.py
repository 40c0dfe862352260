"""The page and the summary of sweep-ranks, from its records."""
import statistics

from beeline.tuning.records import PARTS, part_bytes, rows
from beeline.tuning.thresholds import NCCL, measurements, route_of
from beeline.words import size_text

from ..notes import emulated
from ..floors import LAUNCH_US, LINK_GBS, ONE_WAY_US, floor_us, part_floor_us
from .plan import CANDIDATES, EAGER, SWEEP, TUNED, TYPES
from ..table import HOW, MODES, NAMES, Table, page, ranks_of, wrong
from ..tables.calls import groups
from .targets import PEERS_GPU, peers, targets

ROUTED = {SWEEP: "by the built-in thresholds", TUNED: "by the thresholds of this sweep", EAGER: "by the built-in thresholds"}
ABOUT = ("µs a call, the slowest rank, median over samples; bf16, sums where there is something to add; Beeline and NCCL in turn in the same run. "
         f"Floor: of all-reduces F(S, n) = {LAUNCH_US} + min({ONE_WAY_US} + (n-1) S/B, {2 * ONE_WAY_US} + 2 (n-1)/n S/B), of all-gathers, reduce-scatters "
         f"and all-to-alls with c bytes a rank {LAUNCH_US} + {ONE_WAY_US} + (n-1) c/B, B = {LINK_GBS:.0f} GB/s. Best peer: the fastest of NCCL's symmetric "
         "kernels and vLLM's custom all-reduces, on registered buffers, measured on 2026-11-20 (scripts/gpu/sweep/peers.tsv), not in this run.")


def grouped(pairs):
    """{key: rows} of (key..., row)."""
    by = {}
    for *key, row in pairs:
        by.setdefault(tuple(key), []).append(row)
    return by


def floor_of(row):
    """None where no floor is known."""
    if row["collective"] == "all_reduce":
        return floor_us(row["bytes"], row["ranks"])
    return part_floor_us(part_bytes(row), row["ranks"]) if row["collective"] in PARTS else None


def three(row):
    mine, base = row["beeline"]["us"], row["nccl"]["us"]
    return [f"{mine:.2f}", f"{base:.2f}", f"{base / mine:.2f}"]


def columns(row, inside, built, best):
    """[(header, cell)] of a size: its row out of place, the one in place and, out of place, that of the built-in thresholds: None where it
    was not measured, False where none of its kind is.  Floors and peers have a column where there is one."""
    mine, least = row["beeline"]["us"], floor_of(row)
    found = [("bytes a rank" if row["collective"] in PARTS else "bytes", size_text(part_bytes(row))), *zip(("Beeline", "NCCL", "NCCL / Beeline"), three(row))]
    if row["mode"] == "eager":
        return found + [(f"host {name}", f"{row[side]['host_us']:.2f}") for name, side in (("Beeline", "beeline"), ("NCCL", "nccl"))]
    if least:
        found.append(("x floor", f"{mine / least:.2f}"))
    if row["collective"] == "all_reduce" and any(ranks == row["ranks"] for ranks, _ in best):
        peer = best.get((row["ranks"], row["bytes"]))
        found += [("best peer", f"{peer[0]:.2f} {peer[1]}" if peer else ""), ("/ best peer", f"{mine / peer[0]:.2f}" if peer else "")]
    if inside is not False:
        found += zip(("in place: Beeline", "NCCL", "NCCL / Beeline"), three(inside) if inside else ("", "", ""))
    if built is not False:
        found.append(("built in: Beeline", f"{built['beeline']['us']:.2f} {built['route']}" if built else ""))
    return found


def sweeps(records):
    """Each number of ranks, collective and way to call; by the built-in thresholds where those of this sweep have not been tried."""
    by = grouped((r["ranks"], r["collective"], r["stage"], r) for stage in ROUTED for r in rows(records, stage))
    best = peers() if on_peers_machine(records) else {}
    for ranks in sorted({key[0] for key in by}, reverse=True):
        for collective, name in NAMES.items():
            found = {stage: {(r["bytes"], r["place"]): r for r in by.get((ranks, collective, stage), [])} for stage in ROUTED}
            for stage in (TUNED if found[TUNED] else SWEEP, EAGER):
                lines, anywhere = [], any(place == "in" for _, place in found[stage])
                for size in sorted({size for size, place in found[stage] if place == "out"}):
                    row, inside = (found[stage].get((size, place)) for place in ("out", "in"))
                    line = columns(row, inside if anywhere else False, found[SWEEP].get((size, "out")) if stage == TUNED else False, best)
                    wrong_ = sum(int(wrong(r)) for r in (row, inside) if r)
                    lines.append([*line, ("route", row["route"]), ("wrong", str(wrong_))])
                if lines:
                    mode = row["mode"]
                    about = f"{HOW[mode][0].upper()}{HOW[mode][1:]}; out of place first."
                    about += f" On other GPUs of the box meanwhile: {', '.join(row['beside'])}." if row["beside"] else ""
                    yield Table(f"{ranks} ranks: {name}{MODES[mode]}, routed {ROUTED[stage]}", about,
                                [header for header, _ in lines[0]], [[cell for _, cell in line] for line in lines])


def candidates(records):
    """What the thresholds were made of."""
    by = grouped((r["ranks"], r["collective"], r) for r in rows(records, CANDIDATES))
    for ranks in sorted({key[0] for key in by}, reverse=True):
        for collective, name in NAMES.items():
            table = measurements(by.get((ranks, collective), []), CANDIDATES, ranks, collective)
            names = sorted({n for times in table.values() for n in times} - {NCCL}, key=lambda n: (route_of(n), int(n.split("=")[1].split()[0])))
            if not names:
                continue
            lines = [[size_text(size), *(f"{times[n]:.2f}" if n in times else "" for n in (*names, NCCL)), min(times, key=times.get)]
                     for size, times in table.items()]
            yield Table(f"{ranks} ranks: {name}", "The fastest of each size is named.",
                        ["bytes a rank" if collective in PARTS else "bytes", *names, "NCCL", "fastest"], lines)


def on_peers_machine(records):
    return any(d["name"] == PEERS_GPU for r in records if r.get("record") == "run" for d in r["devices"])


def target_lines(records):
    if emulated(records):
        return ["Times mean nothing on an emulated box."]
    if not on_peers_machine(records):
        return [f"The peers' times are of {PEERS_GPU}."]
    lines = []
    for stage in (SWEEP, TUNED):
        for ranks in ranks_of(rows(records, stage, collective="all_reduce")):
            found = targets(records, stage, ranks)
            lines += [f"All-reduce, {ranks} ranks, bf16 sum, graph, out of place, routed {ROUTED[stage]}:", *(f"  {line}" for line in found)] if found else []
    return lines


def slower(records):
    """Where Beeline takes more than 1.05 of NCCL's time."""
    for stage in ROUTED:
        found = [f"{r['ranks']} {r['collective']} {size_text(part_bytes(r))} {r['place']} (NCCL / Beeline {r['ratio']:.2f}, {r['route']})"
                 for r in rows(records, stage) if r["ratio"] < 1 / 1.05]
        if rows(records, stage):
            yield f"slower than 1.05 x NCCL, {stage}: {'; '.join(found[:40]) or 'nowhere'}{f' and {len(found) - 40} more' if len(found) > 40 else ''}"


def latest(records, collective):
    """Rows of graphs, out of place, by (ranks, bytes): by the thresholds of this sweep where they have been tried."""
    return {(r["ranks"], r["bytes"]): r for stage in (SWEEP, TUNED) for r in rows(records, stage, collective=collective, place="out")}


def figures(records):
    """All-reduce: a line a size, a column a number of ranks; then how all collectives compare."""
    by = latest(records, "all_reduce")
    if not by:
        return
    numbers = sorted({n for n, _ in by}, reverse=True)
    yield (f"all-reduce, bf16 sum, graph, out of place, by the thresholds of this sweep where there are: us Beeline / NCCL, of "
           f"{', '.join(map(str, numbers))} ranks")
    for size in sorted({size for _, size in by}):
        pairs = [by.get((n, size)) for n in numbers]
        yield f"  {size_text(size):>5} " + "  ".join(f"{r['beeline']['us']:8.2f} / {r['nccl']['us']:7.2f}" if r else " " * 18 for r in pairs)
    yield "NCCL's time over Beeline's, the same rows: geometric mean over sizes that Beeline serves, least of all sizes"
    for collective, name in NAMES.items():
        by = latest(records, collective)
        for ranks in sorted({n for n, _ in by}, reverse=True):
            mine = [r for (n, _), r in by.items() if n == ranks]
            served = [r["ratio"] for r in mine if r["route"] != "nccl"]
            least = min(mine, key=lambda r: r["ratio"])
            mean = f"{statistics.geometric_mean(served):.2f}" if served else "-"
            yield f"  {ranks} {name}: {mean}, {least['ratio']:.2f} at {size_text(part_bytes(least))} ({least['route']})"


def values(records):
    """What was checked: rows of stage types are counted by their kind."""
    timed = [r for r in rows(records) if r["stage"] != TYPES]
    kinds = [r for r in records if r.get("record") == "checked"]
    count, wrong_ = len(timed), sum(r["beeline"]["wrong"] + r["nccl"]["wrong"] for r in timed)
    for ranks in ranks_of(kinds):
        of = [r for r in kinds if r["ranks"] == ranks]
        yield (f"datatypes, operations, odd counts and addresses, {ranks} ranks: {sum(r['rows'] for r in of)} rows, {sum(r['wrong'] for r in of)} wrong "
               f"values; served by {', '.join(sorted({route for r in of for route in r['routes']}))}")
    yield f"{count + sum(r['rows'] for r in kinds)} rows of beeline-perf, {wrong_ + sum(r['wrong'] for r in kinds)} wrong values"


def summary(records):
    lines = [*target_lines(records), *values(records)]
    return lines if emulated(records) else [*lines, *slower(records), "", *figures(records)]


def pages(records, title, provenance):
    """{name: text}: what was reached; and what the thresholds were made of."""
    about = [ABOUT, "", *(f"    {line}" for line in target_lines(records)), "", *(f"- {line}" for line in values(records))]
    return {"tables.md": page(title, provenance, about, [*sweeps(records), *groups(records)]),
            "candidates.md": page(f"{title}: each algorithm and block size", provenance,
                                  ["µs a call; in CUDA graphs, each forced; the mean of out of place and in place."], candidates(records))}
