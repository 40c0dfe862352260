"""Stages of beeline-perf that measure all-reduces."""
from beeline.tuning.box import algorithms
from beeline.tuning.collectives import COLLECTIVES, variable


def graph(box):
    sizes = box.pick("-b 8 -e 64M -f 2 -n 20 -G 20 --seconds 1", "-b 256 -e 16K -f 4 -n 3 -G 2")
    return [box.perf(f"{n} ranks", "-t", n, "--mode", "graph", "--place", "out", *sizes, limit=45) for n in box.ranks]


def eager(box):
    sizes = box.pick("-b 256 -e 64M -f 4 -n 15 -G 50 --seconds 1", "-b 256 -e 16K -f 8 -n 3 -G 2")
    return [box.perf(f"{n} processes", "--spawn", n, "--mode", "eager", "--place", "out", *sizes, limit=40) for n in box.ranks]


def routes(box):
    sizes = box.pick("-b 256 -e 16M -f 2 -n 11 -G 20 --seconds 0.5", "-b 256 -e 4K -f 4 -n 3 -G 2")
    return [box.perf(f"{n} ranks {name}", "-t", n, "--mode", "graph", "--place", "out", *sizes, limit=30, BEELINE_ALLREDUCE=forced)
            for n in box.ranks for name, forced in algorithms().items()]


def big(box):
    sizes = box.pick("-b 128M -e 1G -f 2 -n 5 -G 4 -w 1 --seconds 1", "-b 256K -e 1M -f 4 -n 1 -G 1 -w 0")
    return [box.perf(f"{n} ranks", "-t", n, "--mode", "graph", "--place", "out", *sizes, limit=60) for n in box.ranks[:1]]


def by_lines(ranks):
    """Settings with which Beeline has all sizes by lines.  One shot becomes two where it does in dispatch/thresholds, which are of all blocks."""
    last = {2: "4M", 3: "384K", 4: "192K"}.get(ranks, "64K")
    lines = {variable(name): f"{name.replace('_', '')}_ll128" for name in COLLECTIVES}
    lines[variable("all_reduce")] = f"..{last} oneshot_ll128 | ..1G twoshot_ll128 | nccl"
    return lines


def narrow(box):
    """With few blocks on both sides, Beeline's kernels at all sizes: where NCCL begins then (for_a_block in dispatch/table.c)."""
    sizes = box.pick("-b 16K -e 64M -f 2 -n 7 -G 10 --seconds 0.2", "-b 1K -e 4K -f 4 -n 1 -G 1 -w 0")
    return [box.perf(f"{n} ranks, {blocks} blocks", "-t", n, "-c", ",".join(COLLECTIVES), "--mode", "graph", "--place", "both", *sizes, limit=60, NCCL_MAX_CTAS=blocks, **by_lines(n))
            for n in box.ranks for blocks in (4, 8, 16, 24, 32, 48)]


def groups(box):
    """64 calls in one group: what a step of training or a list of small tensors issues."""
    sizes = box.pick("--group 64 -b 4K -e 64K -f 4 -n 15 -G 4 -w 2 --seconds 0.5", "--group 6 -b 1K -e 1K -n 2 -G 1 -w 1")
    return [box.perf(f"{n} ranks", "--spawn", n, "--place", "out", *sizes, limit=20) for n in box.ranks]


def types(box):
    """Times of datatypes, operations, odd counts and addresses, beside those of an aligned bf16 sum."""
    sizes = box.pick("-b 16K -e 16M -f 4 -n 10 -G 20 -w 2 --seconds 0.2", "-b 1K -e 4K -f 4 -n 2 -G 1 -w 1")
    common = ("-t", box.most, "--mode", "graph", "--place", "out", *sizes)
    return [box.perf("types", *common, "-d", "all", limit=30),
            box.perf("odd", *common, "-d", "bfloat16,float,int8", "--odd", "--offset", "0,1,2,8", limit=30),
            box.perf("operations", *common, "-d", "bfloat16,half,float,int32", "-o", "min,max,prod,avg", limit=30)]


def latency(box):
    """One eager call at a time, one process a rank, from a common start to its end."""
    sizes = box.pick("-b 256 -e 16M -f 4 -n 200 -G 1 -w 10 --seconds 0.5", "-b 256 -e 4K -f 16 -n 3 -G 1 -w 1")
    return [box.perf(f"{n} processes", "--spawn", n, "--mode", "eager", "--place", "out", *sizes, limit=20) for n in box.ranks]
