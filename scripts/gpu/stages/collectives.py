"""Stages of beeline-perf that measure all-gather and reduce-scatter, and then the other collectives."""
from beeline.tuning.box import algorithms, blocks
from beeline.tuning.collectives import variable

FORCED = ("all_gather", "reduce_scatter")
PARTS = ",".join(FORCED)


def gather(box):
    """All-gather and reduce-scatter, 8 B to 64 MB a rank, in place and not."""
    steps = []
    for n in box.ranks:
        graph = box.pick("-n 12 -G 20 -w 2 --seconds 0.2", "-n 2 -G 2 -w 1")
        eager = box.pick("-n 10 -G 20 -w 2 --seconds 0.2", "-n 2 -G 2 -w 1")
        steps.append(box.perf(f"{n} ranks", "-t", n, "-c", PARTS, "--mode", "graph", *blocks(n, 16, *box.pick((64 << 20, 4), (1024, 8))), *graph, limit=30))
        steps.append(box.perf(f"{n} processes", "--spawn", n, "-c", PARTS, "--mode", "eager", *blocks(n, 8, *box.pick((16 << 20, 8), (512, 64))), *eager,
                              limit=25))
    return steps[::2] + steps[1::2]


def gather_routes(box):
    """Each algorithm forced, in place as FSDP's calls are; in graphs and, one process a rank, eager."""
    steps = []
    for n in box.ranks:
        for collective in FORCED:
            for name, forced in algorithms(collective).items():
                how = box.pick("-n 9 -G 10 -w 2 --seconds 0.15", "-n 2 -G 2 -w 1")
                steps.append(box.perf(f"{n} ranks {name}", "--spawn", n, "-c", collective, "--place", "in",
                                      *blocks(n, 256, *box.pick((64 << 20, 4), (1024, 4))), *how, limit=20, **{variable(collective): forced}))
    return steps


def gather_groups(box):
    """64 of them in one group, and of all-to-all."""
    how = box.pick("--group 64 -n 11 -G 4 -w 2 --seconds 0.3", "--group 6 -n 2 -G 1 -w 1")
    return [box.perf(f"{n} ranks", "--spawn", n, "-c", f"{PARTS},all_to_all", "--place", "out", *blocks(n, *box.pick((4 << 10, 64 << 10, 4), (256, 256, 4))), *how,
                     limit=20) for n in box.ranks]


def gather_types(box):
    """As perf-types."""
    n = box.most
    sizes = (*blocks(n, *box.pick((16 << 10, 4 << 20, 16), (256, 1024, 4))), *box.pick("-n 8 -G 10 -w 2 --seconds 0.15", "-n 2 -G 1 -w 1"))
    common = ("-t", n, "--mode", "graph", "--place", "out", *sizes)
    return [box.perf("types", *common, "-c", PARTS, "-d", "all", limit=25),
            box.perf("odd", *common, "-c", PARTS, "-d", "bfloat16,float,int8", "--odd", "--offset", "0,1,2,8", limit=25),
            box.perf("operations", *common, "-c", "reduce_scatter", "-d", "bfloat16,half,float,int32", "-o", "min,max,prod,avg", limit=25)]


def others(box):
    """All-to-all, broadcast, reduce and sends, 8 B to 16 MB, in place and not."""
    graph, eager = (("-c", "all_to_all,broadcast,reduce,sendrecv", "--mode", mode, *box.pick(real, "-b 64 -e 4K -f 64 -n 2 -G 2 -w 1")) for mode, real in (
        ("graph", "-b 1K -e 16M -f 4 -n 12 -G 20 -w 2 --seconds 0.2"), ("eager", "-b 8 -e 16M -f 8 -n 10 -G 20 -w 2 --seconds 0.2")))
    return [*(box.perf(f"{n} ranks", "-t", n, *graph, limit=20) for n in box.ranks),
            *(box.perf(f"{n} processes", "--spawn", n, *eager, limit=20) for n in box.ranks)]
