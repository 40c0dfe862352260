"""beeline plot: which pictures, which curves, what is refused."""
import json
import os
import re

from support import beeline, check, refused


def row(size, mine, base, route, **more):
    return {"record": "row", "collective": "all_reduce", "datatype": "bfloat16", "redop": "sum", "mode": "graph", "place": "out", "route": route, "bytes": size, "offset": 0,
            "group": 1, "ranks": 4, "beeline": {"us": mine}, "nccl": {"us": base}, "busbw": size / mine / 1e3 * 1.5, **more}


def write(folder, name, rows):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write('{"record": "run"}\n' + "".join(json.dumps(r) + "\n" for r in rows) + '{"record": "row", "coll')
    return path


CHOSEN = [row(256, 3, 10, "oneshot_ll"), row(4096, 3.5, 11, "oneshot_ll"), row(65536, 5, 12, "twoshot_ll128"), row(1 << 20, 20, 19, "nccl")]
FORCED = [row(size, us, 10, route) for size in (256, 4096) for route, us in (("oneshot_ll", 3), ("oneshot_ll128", 4))]


def text(folder):
    """A curve for the choice, whose name says the routes, or one for each algorithm; NCCL on every picture."""
    chosen = write(folder, "a.json", CHOSEN + [row(256, 1, 2, "oneshot_ll", mode="eager")])
    shown = beeline("plot", "--text", chosen).stdout
    check(len(re.findall("^all_reduce bfloat16 sum, 4 ranks, (graph|eager), out of place: ", shown, re.M)) == 4, shown)
    check(shown.count("  N NCCL\n") == 4 and "  B Beeline: ..4K oneshot_ll, ..64K twoshot_ll128, ..1M nccl\n" in shown, shown)
    check(max(map(len, shown.splitlines())) <= 80, shown)
    graph = beeline("plot", "--text", "--only", "graph all_reduce", chosen).stdout
    check("eager" not in graph and graph.count("\n") < shown.count("\n"), graph)
    lines = graph.splitlines()
    marks = [(y, x, c) for y, line in enumerate(lines[1:19]) for x, c in enumerate(line[11:]) if c in "NB*"]
    check(len([m for m in marks if m[2] in "B*"]) == 4 and max(m[1] for m in marks) == 63 and min(m[1] for m in marks) == 0, graph)
    # Less time is further down, and at the last size the curves are next to each other.
    first = {c: y for y, x, c in marks if x == 0}
    check(first["B"] > first["N"], graph)
    check(re.search(r"^ +256 +4K +64K +1M$", graph, re.M), graph)
    each = beeline("plot", "--text", write(folder, "b.json", FORCED)).stdout
    check("  a oneshot_ll\n  N NCCL\n  b oneshot_ll128\n" in each and "Beeline:" not in each, each)
    two = beeline("plot", "--text", "--only", "graph", chosen, write(folder, "b.json", FORCED)).stdout
    check("a.json: NCCL" in two and "b.json: oneshot_ll128" in two and "a.json: Beeline: ..4K" in two, two)


def files(folder):
    """With matplotlib files, without it a line that says so, and the terminal."""
    path, out = write(folder, "a.json", CHOSEN), os.path.join(folder, "out")
    done = beeline("plot", path, "--out", out)
    name = "all_reduce-bfloat16-sum-4-ranks-graph-out-of-place"
    if "matplotlib is not installed" in done.stderr:
        check("  N NCCL" in done.stdout and not os.path.exists(out), done.stdout)
        print("pictures are not looked at: no matplotlib")
        return
    with open(os.path.join(out, name + ".svg"), encoding="utf-8") as file:
        drawn = file.read()
    check(all(f">{word}" in drawn for word in ("NCCL", "Beeline: ", "µs per call", "bus bandwidth")), drawn)
    beeline("plot", path, "--out", out, "--format", "png")
    with open(os.path.join(out, name + ".png"), "rb") as file:
        check(file.read(4) == b"\x89PNG", "no PNG")


def plot_refused(folder):
    path = write(folder, "a.json", CHOSEN)
    refused("/nonexistent: No such file", "plot", "/nonexistent")
    refused("no rows; want what beeline-perf --json writes", "plot", "/etc/hostname")
    refused("--only 'reduce_scatter': no picture has these words; there are: all_reduce bfloat16", "plot", "--only", "reduce_scatter", path)
    refused("a row has no 'mode'", "plot", write(folder, "b.json", [{"record": "row", "collective": "reduce", "datatype": "int8", "ranks": 2}]))
    for text, change in (("a row has no 'us'; want what beeline-perf --json writes, without --check", {"beeline": {"wrong": 0}}), ("none of beeline-perf's: 0 is not above 0", {"bytes": 0}),
                         ("none of beeline-perf's", {"nccl": "fast"}), ("none of beeline-perf's", {"route": 7}), ("none of beeline-perf's", {"tuning": 3}), ("none of beeline-perf's", {"group": "many"})):
        refused(text, "plot", "--text", write(folder, "b.json", [{**CHOSEN[0], **change}]))
    many = write(folder, "c.json", [row(size, 3, 10, f"route{i}") for size in (256, 512) for i in range(60)])
    check("  + route59\n" in beeline("plot", "--text", many).stdout, "many curves")
    refused("FILE", "plot")
    refused("gif", "plot", "--format", "gif", path)
