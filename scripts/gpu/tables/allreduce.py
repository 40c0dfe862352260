"""Tables of a gpu-check run's first stages: all-reduces in graphs and eager, each algorithm, PyTorch's; and making a communicator."""
from beeline.tuning.records import rows
from beeline.words import size_text

from ..floors import floor_us
from ..table import Table, launches, ranks_of, wrong

TITLE = "all-reduce, bf16 sum, {} ranks, in CUDA graphs"


def graph(records):
    for ranks in ranks_of(rows(records, "perf-graph")):
        series = rows(records, "perf-graph", ranks=ranks) + rows(records, "perf-big", ranks=ranks, mode="graph")
        lines = []
        for r in series:
            mine, base, least = r["beeline"], r["nccl"], floor_us(r["bytes"], ranks)
            lines.append([size_text(r["bytes"]), f"{mine['us']:.2f}", f"{base['us']:.2f}", f"{base['us'] / mine['us']:.2f}", f"{least:.2f}",
                          f"{mine['us'] / least:.2f}", f"{mine['p99_us']:.2f}", f"{base['p99_us']:.2f}", r["route"], wrong(r)])
        curves = [("Beeline", [(r["bytes"], r["beeline"]["us"]) for r in series], False), ("NCCL", [(r["bytes"], r["nccl"]["us"]) for r in series], False),
                  ("floor", [(r["bytes"], floor_us(r["bytes"], ranks)) for r in series], True)]
        yield Table(f"All-reduce in CUDA graphs, {ranks} ranks",
                    f"bf16 sum, out of place, one process with a thread a GPU, {series[0]['calls']} calls a graph, {series[0]['samples']} replays (fewer for the "
                    "largest); Beeline and NCCL in turn in the same run.",
                    ["bytes", "Beeline", "NCCL", "NCCL / Beeline", "floor", "Beeline / floor", "p99 Beeline", "p99 NCCL", "route", "wrong"], lines,
                    (f"graph-{ranks}", curves, TITLE.format(ranks)))


def eager(records):
    for ranks in ranks_of(rows(records, "perf-eager")):
        launch = launches(records, "perf-eager", ranks)
        about = ["bf16 sum, out of place, calls back to back by the host's clock; host: what a call costs its caller.",
                 *(f"One launch ({what}), in the same processes: {us:.2f} µs on the host." for what, us in launch)]
        yield Table(f"All-reduce, eager, {ranks} processes", "\n\n".join(about),
                    ["bytes", "Beeline", "NCCL", "NCCL / Beeline", "host Beeline", "host NCCL", *(["host Beeline / launch"] if launch else []), "route", "wrong"],
                    [[size_text(r["bytes"]), f"{r['beeline']['us']:.2f}", f"{r['nccl']['us']:.2f}", f"{r['ratio']:.2f}",
                      f"{r['beeline']['host_us']:.2f}", f"{r['nccl']['host_us']:.2f}", *([f"{r['beeline']['host_us'] / launch[0][1]:.2f}"] if launch else []),
                      r["route"], wrong(r)] for r in rows(records, "perf-eager", ranks=ranks)])


def routes(records):
    """Each algorithm forced; sizes that it does not serve are left open."""
    for ranks in ranks_of(rows(records, "perf-routes")):
        series = [r for r in rows(records, "perf-routes", ranks=ranks) if r["step"].endswith(" " + r["route"])]
        names = list(dict.fromkeys(r["route"] for r in series))
        if not names:
            continue
        times, nccl = {(r["route"], r["bytes"]): r["beeline"]["us"] for r in series}, {}
        for r in series:
            nccl.setdefault(r["bytes"], []).append(r["nccl"]["us"])
        curves = [*((name, [(size, us) for (route, size), us in times.items() if route == name], False) for name in names),
                  ("NCCL", [(size, min(us)) for size, us in nccl.items()], False), ("floor", [(size, floor_us(size, ranks)) for size in sorted(nccl)], True)]
        yield Table(f"Algorithms, {ranks} ranks", "Each forced with `BEELINE_ALLREDUCE`; else as above.", ["bytes", *names, "NCCL"],
                    [[size_text(size), *(f"{times[name, size]:.2f}" if (name, size) in times else "" for name in names), f"{min(nccl[size]):.2f}"]
                     for size in sorted(nccl)], (f"routes-{ranks}", curves, "algorithms of " + TITLE.format(ranks)))


def torch(records):
    for mode in ("graph", "eager"):
        by, hosts = {}, mode == "eager"
        for r in records:
            if r.get("kind") == "latency" and r["mode"] == mode:
                by.setdefault((r["ranks"], r["bytes"]), {})[r["beeline"]] = r
        lines = [[str(ranks), size_text(size), f"{p[True]['us']:.2f}", f"{p[False]['us']:.2f}", f"{p[False]['us'] / p[True]['us']:.2f}",
                  *([f"{p[True]['host_us']:.2f}", f"{p[False]['host_us']:.2f}"] if hosts else [])] for (ranks, size), p in sorted(by.items()) if len(p) == 2]
        if lines:
            yield Table(f"PyTorch, `dist.all_reduce`, {'eager' if hosts else 'in CUDA graphs'}",
                        "One process a rank, bf16 sum, in place; the same program with Beeline preloaded and without.",
                        ["ranks", "bytes", "with", "without", "without / with", *(["host with", "host without"] if hosts else [])], lines)


def setup(records):
    lines = [[str(r["ranks"]), r["step"].rsplit(" ", 1)[1] + " Beeline", f"{r['first_s']:.3f}", f"{r['init_s']:.3f}", f"{r['destroy_s']:.3f}",
              f"{r['bytes'] / 2**20:.1f}", *(f"{r[name]:.0f}" if name in r else "-" for name in ("one_mib", "kept_mib"))] for r in records if r.get("record") == "setup"]
    if lines:
        yield Table("Making a communicator", "One process a rank; seconds of the slowest rank, median of the rounds after the first. MiB are of one GPU: taken by the "
                    "making; then, where it was measured, in use after a call on one communicator, and after one on each of all that are kept.",
                    ["ranks", "", "first", "ncclCommInitRank", "ncclCommDestroy", "device memory, MiB", "one, used", "all, used"], lines)
