"""What the figures of a gpu-check run say, in few lines: for the summary."""
import statistics

from beeline.tuning.records import rows
from beeline.words import size_text

from .floors import floor_us
from .table import columns, launches
from .tables import tables


def graph_notes(records):
    """Times over size, and where Beeline is slower than NCCL."""
    notes = []
    for ranks in sorted({r["ranks"] for r in rows(records, "perf-graph")}, reverse=True):
        series = rows(records, "perf-graph", ranks=ranks) + rows(records, "perf-big", ranks=ranks)
        notes.append(f"bf16 sum, out of place, graph, {ranks} ranks: us Beeline, NCCL, floor; NCCL / Beeline; route")
        for r in series:
            mine, base = r["beeline"], r["nccl"]
            notes.append(f"  {size_text(r['bytes']):>6} {mine['us']:9.2f} {base['us']:9.2f} {floor_us(r['bytes'], ranks):9.2f} "
                         f"{r['ratio']:6.2f}  p99 {mine['p99_us']:9.2f}  {r['route']}")
        slower = [f"{size_text(r['bytes'])} (NCCL / Beeline {r['ratio']:.3f})" for r in series if r["ratio"] < 1 / 1.05]
        notes.append(f"  slower than 1.05 x NCCL: {', '.join(slower) or 'nowhere'}")
    return notes


def eager_notes(records):
    notes = []
    for ranks in sorted({r["ranks"] for r in rows(records, "perf-eager")}, reverse=True):
        notes.append(f"eager, {ranks} processes: bytes: us Beeline, NCCL (host us Beeline, NCCL)")
        notes.append("  " + "; ".join(
            f"{size_text(r['bytes'])}: {r['beeline']['us']:.1f}, {r['nccl']['us']:.1f} "
            f"({r['beeline'].get('host_us', 0):.2f}, {r['nccl'].get('host_us', 0):.2f})"
            for r in rows(records, "perf-eager", ranks=ranks)))
        notes += [f"  host us of one launch ({what}): {us:.2f}" for what, us in launches(records, "perf-eager", ranks)]
    return notes


def route_notes(records):
    """The fastest algorithm of each size."""
    notes = []
    for ranks in sorted({r["ranks"] for r in rows(records, "perf-routes")}, reverse=True):
        series = [r for r in rows(records, "perf-routes", ranks=ranks) if r["step"].endswith(" " + r["route"])]
        best = []
        for size in sorted({r["bytes"] for r in series}):
            times = sorted((r["beeline"]["us"], r["route"]) for r in series if r["bytes"] == size)
            best.append(f"{size_text(size)} {times[0][1]} {times[0][0]:.2f}")
        notes.append(f"fastest algorithm, {ranks} ranks: " + "; ".join(best))
    return notes


def host_notes(records):
    notes = []
    for step, text in (("routes to NCCL", "to NCCL through Beeline / past it"), ("own routes", "Beeline's launch / NCCL's")):
        for r in [r for r in rows(records, "host-time") if r["step"] == step]:
            mine, base = r["beeline"], r["nccl"]
            notes.append(f"host us of a call, {text}, {size_text(r['bytes'])}: {mine.get('host_us', 0):.2f} / {base.get('host_us', 0):.2f}, "
                         f"least {mine.get('host_min_us', 0):.2f} / {base.get('host_min_us', 0):.2f} ({r['route']})")
    return notes


def setup_notes(records):
    notes = []
    runs = [r for r in records if r.get("record") == "setup"]
    for ranks in sorted({r["ranks"] for r in runs}, reverse=True):
        by = {bool(r["step"].endswith("with")): r for r in runs if r["ranks"] == ranks}
        if len(by) == 2:
            mine, base = by[True], by[False]
            kept = [r.get("kept_mib") for r in (mine, base)]
            notes.append(f"communicator of {ranks} ranks: {mine['init_s']:.3f} s with, {base['init_s']:.3f} s without "
                         f"(+{mine['init_s'] - base['init_s']:.3f}; first {mine['first_s']:.3f} / {base['first_s']:.3f}); end "
                         f"{mine['destroy_s']:.3f} / {base['destroy_s']:.3f} s; memory +{(mine['bytes'] - base['bytes']) / 2**20:.1f} MiB"
                         + (f"; {mine['kept']} that each did a call {kept[0]:.0f} / {kept[1]:.0f} MiB" if all(kept) else ""))
    return notes


def torch_notes(records):
    rows_ = [r for r in records if r.get("kind") == "latency"]
    notes = []
    for mode in ("graph", "eager"):
        by = {}
        for r in rows_:
            if r["mode"] == mode:
                by.setdefault(r["bytes"], {})[r["beeline"]] = r
        pairs = [(size, pair[True], pair[False]) for size, pair in sorted(by.items()) if len(pair) == 2]
        if pairs:
            notes.append(f"PyTorch, {mode}, us with / without" + (" (host us)" if mode == "eager" else "") + ": " + "; ".join(
                f"{size_text(size)} {a['us']:.1f} / {b['us']:.1f}" +
                (f" ({a['host_us']:.1f} / {b['host_us']:.1f})" if mode == "eager" else "") for size, a, b in pairs))
    return notes


def table_notes(records):
    """As text in columns."""
    notes = []
    for table in tables(records):
        notes += [f"{table.title}: {table.about}", *("  " + line for line in columns(table.header, table.lines))]
    return notes


def other_notes(records):
    notes = [f"preloading adds {r['added_us']} us to /bin/true ({r['plain_us']} us)" for r in records if r.get("record") == "neutrality"]
    wrong = sum(r[side]["wrong"] for r in rows(records) for side in ("beeline", "nccl"))
    notes.append(f"{len(rows(records))} rows of beeline-perf, {wrong} wrong values")
    checks = [r for r in records if r.get("kind") == "checks"]
    if checks:
        notes.append(f"PyTorch: {sum(r['passed'] for r in checks)} checks passed, {sum(r['failed'] for r in checks)} failed")
    ratios = [r["ratio"] for r in rows(records, "perf-graph")]
    if ratios and not emulated(records):
        notes.append(f"NCCL's time through Beeline's in graphs: {statistics.geometric_mean(ratios):.2f} (geometric mean over sizes)")
    return notes


def emulated(records):
    return any("Emulated" in d["name"] for r in records if r.get("record") == "run" for d in r["devices"])


def notes(records):
    parts = (graph_notes, eager_notes, route_notes, host_notes, setup_notes, torch_notes, table_notes, other_notes)
    if emulated(records):
        parts = (other_notes,)  # times mean nothing there
    return [line for part in parts for line in part(records)]
