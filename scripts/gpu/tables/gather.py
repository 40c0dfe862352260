"""Tables of all-gather and reduce-scatter: sizes, routes, beside a matrix product, and FSDP's training steps."""
from beeline.tuning.records import part_bytes
from beeline.words import size_text

from ..floors import LAUNCH_US, LINK_GBS, ONE_WAY_US, part_floor_us
from ..table import HOW, MODES, NAMES, PLACES, Table, in_order, pairs, ranks_of, series_of, spread, wrong

FLOOR = (f"Floor: {LAUNCH_US} + {ONE_WAY_US} + (n-1) c/B µs for c bytes a rank, B = {LINK_GBS:.0f} GB/s: a launch, one trip, and what goes from one "
         "GPU to the others.")


def sweep(records):
    """Every size, in place and not."""
    for collective, mode, ranks, series in series_of(records, "perf-gather"):
        graph = mode == "graph"
        lines = []
        for r in in_order(series):
            mine, base, least = r["beeline"], r["nccl"], part_floor_us(part_bytes(r), ranks)
            more = [f"{least:.2f}", f"{mine['us'] / least:.2f}"] if graph else [f"{mine['host_us']:.2f}", f"{base['host_us']:.2f}"]
            lines.append([size_text(part_bytes(r)), PLACES[r["place"]], f"{mine['us']:.2f}", f"{base['us']:.2f}", f"{base['us'] / mine['us']:.2f}",
                          *more, f"{mine['p99_us']:.2f}", f"{base['p99_us']:.2f}", r["route"], wrong(r)])
        curves = [(f"{name}, {PLACES[place]}", [(part_bytes(r), r[side]["us"]) for r in series if r["place"] == place], False)
                  for name, side in (("Beeline", "beeline"), ("NCCL", "nccl")) for place in PLACES if any(r["place"] == place for r in series)]
        curves.append(("floor", sorted({(part_bytes(r), part_floor_us(part_bytes(r), ranks)) for r in series}), True))
        yield Table(f"{NAMES[collective].capitalize()}{MODES[mode]}, {ranks} ranks",
                    f"bf16{'' if collective == 'all_gather' else ' sum'}, {HOW[mode]}; Beeline and NCCL in turn in the same run. " +
                    (FLOOR if graph else "host: what a call costs its caller."),
                    ["bytes a rank", "", "Beeline", "NCCL", "NCCL / Beeline", *(["floor", "Beeline / floor"] if graph else ["host Beeline", "host NCCL"]),
                     "p99 Beeline", "p99 NCCL", "route", "wrong"],
                    lines, (f"{NAMES[collective]}-{mode}-{ranks}", curves))


def routes(records):
    """Each algorithm forced; sizes that it does not serve are left open."""
    for collective, mode, ranks, series in series_of(records, "perf-gather-routes"):
        series = [r for r in series if r["step"].endswith(" " + r["route"])]
        names = list(dict.fromkeys(r["route"] for r in series))
        times = {(r["route"], part_bytes(r)): r["beeline"]["us"] for r in series}
        nccl, lines = {}, []
        for r in series:
            nccl.setdefault(part_bytes(r), []).append(r["nccl"]["us"])
        for size, others in sorted(nccl.items()):
            best, least = min(us for (_, s), us in times.items() if s == size), part_floor_us(size, ranks)
            lines.append([size_text(size), *(f"{times[name, size]:.2f}" if (name, size) in times else "" for name in names), f"{min(others):.2f}",
                          f"{min(others) / best:.2f}", f"{least:.2f}", f"{best / least:.2f}"])
        if lines:
            yield Table(f"Algorithms of {NAMES[collective]}{MODES[mode]}, {ranks} ranks",
                        f"Each forced with `BEELINE_{collective.replace('_', '').upper()}`; in place, bf16, {HOW[mode]}. {FLOOR}",
                        ["bytes a rank", *names, "NCCL", "NCCL / best", "floor", "best / floor"], lines)


def overlap(records):
    found = [r for r in records if r.get("kind") == "overlap"]
    for ranks in ranks_of(found):
        lines = []
        of_ranks = [r for r in found if r["ranks"] == ranks]
        for size in sorted({r["bytes"] for r in of_ranks}):
            by = {r["route"]: r for r in of_ranks if r["bytes"] == size}
            if "nccl" not in by:
                continue
            base = by["nccl"]
            after = base["sequential_us"]
            lines.append([size_text(size), "one after the other, nccl", f"{base['product_us']:.1f}", f"{base['collective_us']:.1f}",
                          spread(after, base["sequential_us_all"]), "1.000", *[""] * 4])
            for route, r in by.items():
                cells = [cell for beside in (r["beside"]["collective first"], r["beside"]["product first"]) for cell in (
                    spread(beside["both_us"], beside["both_us_all"]), f"{after / beside['both_us']:.3f}", f"{beside['product_us'] / r['product_us']:.3f}")]
                lines.append([size_text(size), f"beside, {route}", f"{r['product_us']:.1f}", f"{r['collective_us']:.1f}", *cells])
        if not lines:
            continue
        one = of_ranks[0]
        yield Table(f"All-gather beside a matrix product, {ranks} ranks",
                    "`dist.all_gather_into_tensor`, bf16, in place, one process a rank, on one stream; on another one bf16 product of "
                    f"{' or '.join(str(rows_) for rows_ in sorted({r['rows'] for r in of_ranks}))} x {one['side']} and {one['side']} x {one['side']}, which takes "
                    "about as long. A job a route, in turns in the same minutes. µs until both are over, median (least-most) of "
                    f"{one['samples']} samples; NCCL's gather after the product, over that; and the product's time over its time alone. The gather begins "
                    "first, or 5 µs after the product.",
                    ["bytes in all", "", "product alone", "gather alone", "both, gather first", "one after the other / both", "product slowed",
                     "both, product first", "one after the other / both", "product slowed"], lines)


def fsdp(records):
    found = pairs(records, "fsdp", "ranks", "reduce", "batch")
    compared = {(r["ranks"], r["reduce"]): r for r in records if r.get("kind") == "fsdp-compare"}
    lines = []
    for mine, base in found:
        both = compared.get((mine["ranks"], mine["reduce"]))
        outputs = ["", "", ""]
        if both:
            outputs = ["equal" if both["first_equal"] else "DIFFER", f"{both['loss_error']:.1e}",
                       f"{both['error']:.2e}, {both['error_without']:.2e}, {both['rough']:.2e}"]
        lines.append([str(mine["ranks"]), str(mine["batch"] * mine["length"]), mine["reduce"], spread(mine["step_ms"], mine["step_ms_all"]),
                      spread(base["step_ms"], base["step_ms_all"]), f"{base['step_ms'] / mine['step_ms']:.3f}", f"{mine['wall_ms']:.2f}",
                      f"{base['wall_ms']:.2f}", f"{mine['tokens_s']}", f"{base['tokens_s']}", ", ".join(str(name) for name in mine["routes"]), *outputs])
    if lines:
        one = found[0][0]
        yield Table("Training steps with FSDP2",
                    f"`fully_shard`, a transformer of {one['parameters'] / 1e9:.2f} B parameters with {one['layers']} blocks, each of which is gathered in bf16 "
                    f"({one['block_bytes'] / 1e6:.0f} MB) and its gradients scattered; AdamW, sequences of {one['length']}. Two jobs with the same weights and "
                    f"data, with Beeline and without, in turns in the same minutes; ms a step, median (least-most) of {one['steps']} steps by the device's "
                    "clock, slowest rank. First losses: before any gradient. Losses: largest relative distance of the first steps with Beeline from "
                    "those with sums in fp64, rounded once; parameters after them: distance from those, over the way that they came, with Beeline, "
                    "without, and with one rounding more.",
                    ["ranks", "tokens a rank", "gradients", "ms with", "ms without", "without / with", "host's clock, with", "without", "tokens/s with",
                     "tokens/s without", "routes of a block", "first losses", "losses", "parameters"], lines)


PARTS = (sweep, routes, overlap, fsdp)
