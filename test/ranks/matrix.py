#!/usr/bin/env python3
"""Prints the cases of test/ranks: who drives the ranks, how many, which algorithm, which datatypes, which counts.

The rows below are all of them; `test/run --coverage` says what they add up to.  Every algorithm meets every datatype at every number of ranks (of
7, 8 and 16 most in `make soak`); modes, grids, odd alignments, capture, small staging and schedules are varied on top, not multiplied out.
"""
import itertools
import os
import pathlib
import re
import sys
import types

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "scripts"))
from beeline.tuning.collectives import ALGORITHMS, COLLECTIVES, routes, variable  # noqa: E402

RANKS = (2, 3, 4, 7, 8, 16)
MODES = ("groups", "threads", "processes")
SIZE = {"int8": 1, "uint8": 1, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8, "half": 2, "float": 4, "double": 8, "bfloat16": 2,
        "f8e4m3": 1, "f8e5m2": 1}
DATATYPES = tuple(SIZE)
# Each route's collective: of an algorithm that can spread over warps, name is the one that does not, and name:warps the one that does.
COLLECTIVE = {route: algorithm.collective for name, algorithm in ALGORITHMS.items() for route in routes(name)}

# A box of few multiprocessors has grids in which every block does all the work; of more, grids with crews.
GRIDS = ("", "--sms 7 ")
NVLS = "-t nvls "
# Kernels of two communicators must be resident at once, on hardware too, so the box has room for both: a grid has at most a block for
# each multiprocessor, which holds two.
ROOMY = "--sms 16 "
SMALL = "BEELINE_STAGING=1M"
# Less than usual where no size asks for more: the usual staging, of which most is never touched, takes as long to fill as all else together.
# What the table routes, groups that share launches, and large calls have that.
LEAST, LESS, USUAL = "BEELINE_STAGING=4M", "BEELINE_STAGING=16M", "BEELINE_STAGING=100M"
SOAK = "soak timeout=600"
# Of the calls that are drawn for a case `make soak` makes all, `make check` so many.
ALL = bool(os.environ.get("SOAK"))
SHARE, FEWEST = 1 if ALL else 0.35, 4


# --- how a row says what differs from case to case: a field is a value, or a function of the case's point ---

def turn(values, *dimensions):
    """They take turns, as the dimensions' values go by."""
    return lambda p: values[sum(p.at[name] for name in dimensions) % len(values)]


def modulo(dimension, values):
    return lambda p: values[getattr(p, dimension) % len(values)]


def least(steps):
    """{ranks: value}: the value of the largest number that is not more than the ranks."""
    return lambda p: next(value for ranks, value in reversed(steps.items()) if p.ranks >= ranks)


def of(dimension, values):
    return lambda p: values[getattr(p, dimension)]


def edges(most, datatype=None):
    """Counts at the edges of words, lines, ranks' shares, for messages of at most so many bytes, of this datatype or the first."""
    def counts(p):
        size = SIZE[datatype or p.first]
        bytes_most = most(p) if callable(most) else most
        found = set(range(0, 9)) | {15, 16, 17, 31, 33, 59, 60, 61, 119, 120, 121, 127, 255, 1023}
        middles = [words // size for words in (8, 16, 120, 240, 120 * p.ranks, 240 * p.ranks, bytes_most)] + [p.ranks, 3 * p.ranks]
        found |= {max(0, middle + d) for middle in middles for d in (-1, 0, 1)} | {bytes_most // size // 2 + 1}
        return ",".join(str(c) for c in sorted(found) if c * size <= bytes_most)
    return counts


def forced(algorithm, environment=""):
    spread = ":lines" * (f"{algorithm}:warps" in COLLECTIVE)
    return f"{variable(COLLECTIVE[algorithm])}={algorithm}{spread} {environment}".strip()


# --- the rows ---

FORCES = re.compile(f"({'|'.join(map(variable, COLLECTIVES))})=")
OPTIONS = "Caetocxgbk"  # of test/harness/options.h, in the order in which they are written


def row(name, over, program="collectives", soak="", attributes="", where=None, **fields):
    """One case for each combination of what `over` lists; those with `soak` run in `make soak` only.  Fields, which may be dimensions of
    `over`, too: ranks, mode, types, seed, environment, options (of the box), word (behind the program's options), without_beeline, and
    the program's options by their letters.  Collectives of an `algorithm` are forced to it and must have taken it."""
    for at in itertools.product(*(range(len(values)) for values in over.values())):
        p = types.SimpleNamespace(**{key: values[k] for (key, values), k in zip(over.items(), at)}, at=dict(zip(over, at)))
        if where and not where(p):
            continue
        for key in ("ranks", "mode", "types"):  # other fields may ask for these
            if key in fields:
                setattr(p, key, value(fields[key], p))
        if hasattr(p, "types"):
            p.first = p.types.partition(",")[0]
            fields["t"] = p.types
        said = soak(p) if callable(soak) else soak
        print(" ".join(word for word in ("soak/" * bool(said) + value(name, p).replace(":", "/"), attributes, said) if word), "|",
              command(p, program, {key: value(field, p) for key, field in fields.items()}))


def value(field, p):
    field = field(p) if callable(field) else field
    return field.format(**vars(p)) if isinstance(field, str) else field


def command(p, program, fields):
    environment, options, seed = fields.get("environment", ""), fields.get("options", ""), fields.get("seed", "$SEED")
    if hasattr(p, "algorithm") and p.algorithm and program == "collectives":
        # The self-test goes through all rings.  With multicast and in pieces one launch is to hold more.
        least = LEAST if p.ranks >= 5 and not re.search("_(bulk|nvls)", p.algorithm) else LESS
        environment = forced(p.algorithm, environment if "BEELINE_STAGING" in environment else f"{least} {environment}")
        fields = {"C": COLLECTIVE[p.algorithm], "a": p.algorithm, **fields}
    if p.ranks >= 8 and FORCES.search(environment) and ":warps" not in environment and "--block" not in options:
        options += "--block 64 "  # small blocks are quicker here, and only a warp for each peer needs larger ones
    if p.ranks >= 5:  # its self-test takes a while on two cores
        environment = f"BEELINE_SETUP_TIMEOUT=120 {environment}".rstrip()
    words = [f"env {environment}" if environment else "", f"scripts/emu-box -g {p.ranks}", f"-n {p.ranks}" if p.mode == "processes" else "",
             f"--seed {seed}", "" if fields.get("without_beeline") else "--beeline", options.strip(), "--",
             f"$BUILD/test/ranks/{program} -m {p.mode} -n {p.ranks} -s {seed}"]
    if "k" in fields and program == "collectives":
        fields["k"] = max(FEWEST, int(int(fields["k"]) * SHARE))
    words += [f"-{letter} {fields[letter]}".rstrip() for letter in OPTIONS if fields.get(letter, "") != ""]
    return " ".join(word for word in (*words, fields.get("word", "")) if word)


ALL_REDUCES = ("oneshot_ll", "oneshot_ll128", "twoshot_ll128")
BLOCKS = ("allgather_ll128", "reducescatter_ll128")
FEWER = ("alltoall_ll128", "broadcast_ll128", "reduce_ll128", "sendrecv_ll128")  # which have fewer cases
BULK = ("twoshot_bulk", "allgather_bulk", "reducescatter_bulk", "alltoall_bulk")
MOVING = ("allgather_bulk", "alltoall_bulk")
WARPS = "--block 128 "  # as many threads as a block of these needs
SPREAD = tuple(route for route in COLLECTIVE if route.endswith(":warps"))
CREWS = of("grid", {"": "", "crews/": GRIDS[1], "/crews": GRIDS[1]})

# --- an algorithm with all that it takes ---

MOST = {"oneshot_ll": 4096, "oneshot_ll128": 6000, "twoshot_ll128": 20000, "reducescatter_ll128": 5000}  # bytes of a call, or a block
# Datatypes of one size, whose edges are the same, share a communicator: to make one takes long.
ALIKE = tuple(",".join(name for name in DATATYPES if SIZE[name] == size) for size in (1, 2, 4, 8))
# Many ranks take longest, the algorithms share what depends on the datatype, and 7 and 8 ranks a kernel: of so many one runs always.
RARE = {7: 4, 8: 4, 16: 5}
row("{algorithm}/{ranks}/{first}", dict(algorithm=tuple(MOST), ranks=RANKS, types=ALIKE),
    soak=lambda p: SOAK if (p.at["algorithm"] + p.at["types"] + (p.ranks == 8)) % RARE.get(p.ranks, 1) else "",
    mode=lambda p: MODES[(p.at["algorithm"] + p.at["ranks"] + p.at["types"]) % 2],
    options=lambda p: GRIDS[(p.at["ranks"] + p.at["types"] // 2) % 2],
    o="all", c=edges(lambda p: MOST[p.algorithm] // (4 if p.ranks == 16 else 1)), x="elements", b=8,
    k=lambda p: len(p.types.split(",")) * (50 if p.ranks == 16 else 80 if p.algorithm == "reducescatter_ll128" else 120))

# What moves bytes: few datatypes, but every count and number of ranks, on grids with crews and without.
MOVED = dict(mode=turn(MODES, "ranks", "grid", "types"), options=CREWS, c=edges(least({2: 5000, 16: 1500})), x="elements", b=8,
             k=least({2: 90, 16: 40}))
WIDTHS = ("uint8", "bfloat16,f8e5m2", "double,uint32")
row("{algorithm}/{ranks}/{grid}{first}", dict(algorithm=("allgather_ll128",), ranks=RANKS, grid=("", "crews/"), types=WIDTHS),
    where=lambda p: p.ranks < (8 if ALL else 7) or p.at["types"] == (p.at["ranks"] + p.at["grid"]) % 3,
    soak=lambda p: SOAK if p.ranks < 7 and p.at["types"] == (p.at["ranks"] + p.at["grid"]) % 3 else "", **MOVED)
row("{algorithm}/{ranks}/{first}", dict(algorithm=("allgather_ce",), ranks=(2, 3, 4, 8), grid=("",), types=WIDTHS), **MOVED)

# Few cases of many datatypes each; of the warps on grids that take all lines in one round, and on smaller ones.
REDUCED = (",".join(DATATYPES[::2]), ",".join(DATATYPES[1::2]))
IN_TWO = {"broadcast_ll128": ("uint8,bfloat16", "f8e4m3,double,int32"), **dict.fromkeys(("reduce_ll128", *SPREAD), REDUCED),
          **dict.fromkeys(("alltoall_ll128", "sendrecv_ll128", "allgather_ll128:warps", "alltoall_ll128:warps"), ("uint8,double", "f8e5m2,bfloat16,uint32"))}
IN_FEW = dict(o="all", options=CREWS, c=edges(least({2: 5000, 8: 1500})), x="elements", b=8)


def both(p):
    """How far both kinds of grids have gone round, where both are."""
    return p.at["ranks"] + (p.at["grid"] if p.ranks < 9 else 0)


row("{algorithm}/{ranks}{grid}", dict(algorithm=FEWER, ranks=RANKS, grid=("", "/crews")), where=lambda p: p.ranks < 9 or p.grid,
    soak=lambda p: SOAK if p.ranks > 8 and p.at["algorithm"] % 2 else "",
    mode=lambda p: MODES[(p.at["algorithm"] + both(p)) % 3], types=lambda p: IN_TWO[p.algorithm][both(p) % 2],
    k=least({2: 120, 7: 60, 9: 24}), **IN_FEW)
# 9 and 16 ranks take longest, and these share most of their code.
row("{algorithm}/{ranks}{grid}", dict(algorithm=SPREAD, ranks=(2, 3, 4, 7, 8, 9, 16), grid=("/crews", "")),
    where=lambda p: p.at["grid"] == (p.at["algorithm"] + p.at["ranks"]) % 2,
    soak=lambda p: SOAK if p.ranks > 8 and (p.at["algorithm"] + p.ranks) % 4 else "",
    mode=turn(MODES, "algorithm", "ranks"), types=lambda p: IN_TWO[p.algorithm][p.at["ranks"] % 2],
    k=least({2: 120, 7: 60, 9: 10}), **IN_FEW)

# In pieces of 8 KB with two ranks, less with more; of grids with a block for each role, and with one that has all.
row("{algorithm}/{ranks}", dict(algorithm=BULK, ranks=RANKS), soak=lambda p: SOAK if p.ranks > 4 else "",
    mode=lambda p: MODES[(p.at["algorithm"] + p.at["ranks"]) % 3], options=turn((WARPS + ROOMY, "--block 256 --sms 3 "), "ranks", "algorithm"),
    types=lambda p: "uint8,double" if p.algorithm in MOVING else REDUCED[p.at["ranks"] % 2],
    o="all", c=edges(least({2: 50000, 7: 8000})), x="elements", b=8, k=least({2: 60, 7: 24}))

# --- no algorithm forced: the routes and their boundaries as shipped ---

TABLE = dict(t="all", o="all", x="elements")


def rarely(first):
    """Of more than 4 ranks, which take longest, one mode runs always, the next one of the next number; of fewer two."""
    return lambda p: SOAK if (p.at["mode"] == (p.at["ranks"] + first) % len(MODES)) == (p.ranks <= 4) else ""


def groups_or_processes(*dimensions):
    """Threads run always, and either groups or processes, in turns; the other ones in `make soak`."""
    left_out = turn(("groups", "processes"), *dimensions)
    return lambda p: SOAK if p.mode == left_out(p) else ""


row("table/{ranks}/{mode}", dict(ranks=RANKS, mode=MODES), soak=rarely(0),
    c="0-40,59-61,119-121,511-513,1000,4095-4097,10000,16383-16385", k=least({2: 40, 8: 20, 16: 6}), **TABLE)
row("table/others/{ranks}/{mode}", dict(ranks=RANKS, mode=MODES), soak=rarely(2),
    C="all", c="0-40,59-61,511-513,1000,4095-4097", k=least({2: 40, 8: 15, 16: 5}), **TABLE)

# --- odd alignment, capture, and the same calls under other interleavings ---

SCHEDULE = dict(mode=modulo("other", ("processes", "groups")), ranks=modulo("other", (2, 3, 4)), seed="$((SEED * 100 + {other}))",
                t="int32,bfloat16", o="sum", c="1,15,16,60,121,900", g=3, b=6)
# Of which algorithms, at which ranks, and how many schedules.
for algorithms, captured, odd, schedules in ((ALL_REDUCES, RANKS[:-1], (2, 4, 7), 6 if ALL else 3), (BLOCKS, RANKS[:-1], (2, 4, 7), 4 if ALL else 2),
                                             (("allgather_ce",), (2, 3, 4, 8), (2, 4, 7), 4 if ALL else 2), (FEWER, (2, 4, 7), (3,), 2), (SPREAD, (3,), (3,), 1), (BULK, (2, 4), (3,), 2)):
    wide = dict(options=WARPS + ROOMY) if algorithms is BULK else {}
    row("odd_alignment/{algorithm}/{ranks}", dict(algorithm=algorithms, ranks=odd), mode="groups",
        t="all", o="sum,avg", c=edges(2500, "float"), x="odd", k=100, **wide)
    row("captured/{algorithm}/{ranks}", dict(algorithm=algorithms, ranks=captured), mode=modulo("ranks", MODES),
        soak=lambda p: SOAK if ((p.at["algorithm"] + p.ranks) % 4 != 0 if p.ranks > 4 else (p.at["algorithm"] + p.ranks) % 3 == 1) else "",
        t="half,bfloat16,int32,f8e4m3", o="sum,max", c="1,7,60,61,500,1000,2000", x="elements", g=4, b=6, k=least({2: 24, 8: 12}), **(wide or dict(options=modulo("ranks", GRIDS))))
    row("schedule/{algorithm}/{other}", dict(algorithm=algorithms, other=range(1, schedules + 1)), **SCHEDULE, **wide)
row("captured/late_launch/3", {}, mode="threads", ranks=3, environment="BEELINE_EARLY_LAUNCH=0",
    C="all", t="bfloat16", o="sum", c="7,1000,20000", g=4, b=4, k=12)

# --- round the capacity of one launch and far beyond it, with the least staging and with the default ---

row("capacity/oneshot_ll/{ranks}", dict(ranks=(2, 3, 4, 8)), mode="groups", environment="BEELINE_ALLREDUCE=oneshot_ll",
    t="int8,bfloat16", o="sum", c="16383,16384,16385,32760,32767,32768", b=2)
row("capacity/small_staging/{ranks}", dict(algorithm=("twoshot_ll128",), ranks=(2, 3, 4, 8)), mode="groups", environment=SMALL,
    t="uint8,bfloat16", o="sum", c="30719-30721,61440,200000,262147", b=2)
# In pieces, of which a stream has room for a part, by one thread.
row("capacity/shallow/{ranks}", dict(ranks=(2, 3)), mode="groups", environment=SMALL + " BEELINE_REDUCE=reduce_ll128 BEELINE_EMU_DEPTH=70", options=ROOMY,
    C="reduce", t="uint8", o="sum", c="2000001", b=2)
# Round a ring some times.
row("capacity/{algorithm}/{ranks}", dict(algorithm=BULK, ranks=(2, 3)), mode=modulo("ranks", MODES), environment=SMALL.replace("1M", "2M"), options=WARPS + ROOMY,
    soak=lambda p: SOAK if (p.at["algorithm"] + p.ranks) % 2 else "",
    types=lambda p: "uint8" if p.algorithm in MOVING else "bfloat16", o="avg", c=of("algorithm", {"twoshot_bulk": "500003", "reducescatter_bulk": "200003", **dict.fromkeys(MOVING, "450001")}), x="odd", b=2, g=2)
row("capacity/oneshot_ll128/2", dict(algorithm=("oneshot_ll128",)), mode="groups", ranks=2, environment=SMALL, options=GRIDS[1],  # in pieces, too
    t="uint8,bfloat16", o="sum", c="100000,200000,400001,600001", b=2)


def about(room):
    """About what a launch holds, and what two do not."""
    return f"{room - room // 10},{room + room // 10},{2 * room + 1}"


for algorithms, ranks in ((BLOCKS, (2, 3, 4, 8)), (FEWER, (3, 4))):
    row("capacity/{algorithm}/{ranks}", dict(algorithm=algorithms, ranks=ranks), mode=modulo("ranks", MODES), options=modulo("ranks", GRIDS),
        soak=lambda p: SOAK if p.ranks == 8 or (p.at["algorithm"] + p.ranks) % 2 else "",
        environment=SMALL, types=lambda p: "bfloat16" if "reduce" in p.algorithm else "uint8",
        c=lambda p: about(480000 // (p.ranks - 1) // SIZE[p.first]), x="elements", b=2, g=1)


def slots(p):
    room = {2: 393216, 3: 393216, 4: 262144, 8: 83584}[p.ranks]  # copy_bytes of bl_staging_plan()
    return f"{room},{room + 1},{2 * room},{4 * room + 1}"


row("capacity/{algorithm}/{ranks}", dict(algorithm=("allgather_ce",), ranks=(2, 3, 4, 8)), mode=modulo("ranks", MODES), environment=SMALL,
    soak=lambda p: SOAK if p.ranks in (3, 8) else "", t="uint8", c=slots, x="odd", b=2, g=least({2: 2, 4: 1}))
row("few_warps/{algorithm}/{ranks}", dict(algorithm=("reducescatter_ll128",), ranks=(3, 4)), mode="groups", options="--sms 1 --block 32 ",  # than peers
    t="bfloat16", o="sum", c="481,2000,2001", x="elements", g=2)
# Long ones by few blocks, which have crews: of 3 ranks they are above.
row("few_blocks/{algorithm}/{ranks}", dict(algorithm=("allgather_ll128", "reducescatter_ll128", "alltoall_ll128"), ranks=(4,)), mode="groups", environment=USUAL, options="--sms 7 ",
    types=lambda p: "bfloat16" if "reduce" in p.algorithm else "uint8", c=lambda p: f"{180000 // SIZE[p.first]},{200003 // SIZE[p.first]}", x="elements", g=1)
# By grids as they are on a GPU, of nearly all multiprocessors, which have other ways than few blocks.
for algorithm, ranks, datatype, count in (("twoshot_ll128", 2, "float", 1100003), ("allgather_ll128", 4, "uint8", 520003), ("reducescatter_ll128", 3, "half", 260003)):
    row("all_multiprocessors/{algorithm}/{ranks}", dict(algorithm=(algorithm,)), mode="groups", ranks=ranks, environment=USUAL, options="--sms 132 --block 256 ",
        t=datatype, o="sum", c=count, x="elements", b=1)
row("capacity/large/{ranks}", dict(algorithm=("twoshot_ll128",), ranks=(2, 4)), mode="threads", environment=USUAL, options=turn(GRIDS, "ranks"),
    t="bfloat16,float", o="sum", c=1000003, x="elements", b=1)
row("capacity/large_small_staging/{ranks}", dict(algorithm=("twoshot_ll128",), ranks=(2, 4)), mode="groups", environment=SMALL,
    attributes="timeout=120", t="bfloat16", o="avg", c=500009, x="elements", b=1, g=1)

# --- the kernels alone ---

ALONE = dict(program="kernels", without_beeline=True, mode="groups", word="{name}")
SALVOS = dict(options=NVLS + "--arch 100 ", k=least({2: 14, 7: 5, 16: 2} if ALL else {2: 10, 7: 4, 16: 2}), **ALONE)
LONG = (("oneway", 7), ("pairs", 7), ("pairs", 16), ("blanks", 16), ("oneway", 16), ("pairs", 8), ("timeout", 16), ("abort", 16), ("places", 3), ("places", 8), ("alignments", 3), ("longest", 2), ("longest", 3), ("full", 2))
row("kernels/{name}/{ranks}", dict(name=("wide",), ranks=(2,)), options="--block 256 --sms 64 ", **ALONE)
row("kernels/{name}/{ranks}", dict(name=("shapes", "late", "oneway", "pairs", "multicast"), ranks=RANKS),
    soak=lambda p: SOAK if (p.at["name"] + p.at["ranks"]) % 3 == 2 or (p.name, p.ranks) in LONG else "", **SALVOS)
row("kernels/{name}/{ranks}", dict(name=("blanks", "epochs", "timeout", "abort", "stopped"), ranks=(2, 3, 16)),
    soak=lambda p: SOAK if (p.name, p.ranks) in LONG else "", **{**SALVOS, "options": lambda p: NVLS + "--arch 100 " + WARPS * (p.ranks < 8)})  # of 16 blocks are larger anyhow
row("kernels/{name}/{ranks}", dict(name=("bulk",), ranks=(2, 3, 4, 7, 16)), options=lambda p: ROOMY + ("--block 256 " if p.ranks < 4 else WARPS), k=least({2: 20, 7: 6, 16: 2} if ALL else {2: 14, 7: 4, 16: 2}), **ALONE)
# Several bundles in a block, a warp for each rank: by default blocks are too small for that.
row("kernels/{name}/{ranks}/large-blocks", dict(name=("shapes", "late"), ranks=(3, 4, 7, 8)), soak=lambda p: SOAK if (p.at["name"] + p.at["ranks"]) % 2 else "", **{**SALVOS, "options": NVLS + "--arch 100 --block 256 "})
# So many that launches in which a block takes what another one sends are seen to hang: of 3 and 5 ranks one in 260, and in 40, did.
row("kernels/{name}/{ranks}", dict(name=("places",), ranks=(2, 3, 5, 8)), soak=lambda p: SOAK if (p.name, p.ranks) in LONG else "", options="--block 256 --sms 4 ", k=least({2: 80, 5: 40, 8: 16}), **ALONE)
# What is about the cache is the same code for 3 and 4 ranks.
row("kernels/{name}/{ranks}", dict(name=("full",), ranks=(2, 3)), soak=lambda p: SOAK if (p.name, p.ranks) in LONG else "", options="--block 256 --sms 64 ", **ALONE)
row("kernels/{name}/{ranks}", dict(name=("far",), ranks=(3, 4)), soak=lambda p: SOAK if p.ranks == 4 else "", **ALONE)
row("kernels/{name}/{ranks}", dict(name=("alignments", "longest"), ranks=(2, 3, 4)), soak=lambda p: SOAK if (p.name, p.ranks) in LONG else "", **{**SALVOS, "k": least({2: 4 if ALL else 2, 3: 1})})

# --- scenarios ---

# They mix Beeline's calls with broadcasts and messages: as NCCL's, to show that calls of both keep their order, and as Beeline's.
BROADCASTS = ("BEELINE_BROADCAST=nccl BEELINE_SENDRECV=nccl", "", "BEELINE_BROADCAST=nccl BEELINE_SENDRECV=nccl")
SCENARIOS = dict(program="scenarios", word="{scenario}")
MIXED = turn(BROADCASTS, "mode")
BESIDE_EACH_OTHER = ("stream_two_communicators", "group_two_communicators", "graph_grouped", "comm_many", "fused_two_communicators",
                     "blocks_two_communicators")
ROOM = lambda p: ROOMY if p.scenario in BESIDE_EACH_OTHER else ""  # noqa: E731
ANY = lambda p: "all" if p.scenario.startswith("fused") else ""  # noqa: E731 - they draw from -C
row("{scenario}/{mode}", dict(scenario="""
    group_many group_two_communicators group_nested group_mixed_routes group_several_streams group_bad_call group_simulate group_empty
    stream_alternate stream_alternate_routes stream_destroyed stream_null stream_two_communicators stream_between_copies
    graph_replay_many graph_two graph_chain graph_forked graph_other_stream graph_beside_eager graph_replays_beside graph_grouped
    graph_captured_apart
    comm_recreate comm_many comm_split comm_shrink comm_config comm_scalable comm_same_id comm_nonblocking comm_finalized comm_aborted
    comm_aborted_while_waiting comm_nonblocking_children
    argument_errors argument_zero_count argument_huge_count argument_not_covered argument_unequal_ranks
    other_collectives other_send_receive other_premulsum other_one_rank
    fused_many fused_replayed fused_two_communicators fused_streams fused_streams_captured fused_destroyed
    turn_first_forwarded turn_gated turn_nonblocking turn_per_thread turn_simulated turn_destroyed_behind turn_in_order
    later_suspended later_suspended_plain later_suspended_mixed later_suspended_destroyed later_configured later_max_ctas later_graph_usage later_launch_order turn_made_beside
    """.split(), mode=MODES), soak=groups_or_processes("scenario"), ranks=turn((2, 4, 3), "scenario", "mode"), environment=lambda p: f"{LESS} {MIXED(p)}", options=ROOM, C=ANY, **SCENARIOS)
# Graphs that never overlap what is beside them need no event of their own.
row("no_mixing/{scenario}", dict(scenario=("graph_replay_many", "graph_chain", "graph_forked", "turn_destroyed_behind")),
    mode=turn(MODES, "scenario"), ranks=turn((2, 3), "scenario"),
    environment="NCCL_GRAPH_MIXING_SUPPORT=0", **SCENARIOS)
row("{scenario}/{mode}", dict(scenario=("later_configured_each",), mode=MODES), ranks=turn((2, 4, 3), "mode"), **SCENARIOS)
# What the environment says comes before configs, if NCCL knows it.
row("{scenario}/said/{said}", dict(scenario=("later_graph_usage",), said=("0", "1", "-2")), mode=turn(MODES, "said"), ranks=2,
    environment=LESS + " NCCL_GRAPH_MIXING_SUPPORT={said}", **SCENARIOS)
row("{scenario}/said/{said}", dict(scenario=("later_launch_order",), said=("0", "1")), mode=turn(MODES, "said"), ranks=2,
    environment="NCCL_LAUNCH_ORDER_IMPLICIT={said}", **SCENARIOS)
row("{scenario}/{mode}", dict(scenario=("argument_pointers",), mode=MODES), ranks=turn((2, 4, 3), "mode"), environment=LESS + " NCCL_CHECK_POINTERS=1", **SCENARIOS)
# Calls of NCCL's in launch order, too; replays that leave no event.
row("{scenario}", dict(scenario=("later_untold_room",)), mode="groups", ranks=2, options="--sms 32 ", environment="BEELINE_ALLREDUCE=twoshot_ll128", **SCENARIOS)
row("{scenario}/nccl", dict(scenario=("turn_in_order",)), mode="groups", ranks=2, environment="BEELINE_ALLREDUCE=nccl", **SCENARIOS)
row("{scenario}/{mode}", dict(scenario=("turn_destroyed_beside",), mode=("processes", "threads")), ranks=2, attributes="warn-ok leak-ok", **SCENARIOS)
# What an abort cannot wait for may be reported as left behind, and said.
row("{scenario}/threads", dict(scenario=("turn_aborted_behind",)), mode="threads", ranks=3, attributes="warn-ok leak-ok", **SCENARIOS)
# A child that somebody gives up while it is set up is left to NCCL, and said.
row("{scenario}/{mode}", dict(scenario=("comm_nonblocking_split_aborted",), mode=MODES), ranks=turn((2, 4, 3), "mode"), environment=LESS, attributes="warn-ok", **SCENARIOS)

# Many communicators, one after another, leave nothing behind.
GROWTH = dict(program="scenarios", word="growth")
row("growth/processes", {}, mode="processes", ranks=2, environment=LESS, attributes="timeout=240", **GROWTH)
row("growth/{mode}", dict(mode=("groups", "threads")), ranks=turn((3, 2), "mode"), attributes="soak timeout=240", **GROWTH)
row("soak/growth", {}, mode="processes", ranks=2, attributes="soak timeout=3600", environment="BEELINE_TEST_COMMUNICATORS=10000", **GROWTH)


def in_turn(p):
    return p.at["mode"] == (p.at["scenario"] + p.at["ranks"]) % len(MODES)


# Broadcasts and reduces that are done before their peers have called; on staging as it is, and on the least.
row("{scenario}/{ranks}/{mode}", dict(scenario=("oneway_ahead", "oneway_in_turn"), ranks=(2, 3, 4, 8, 16), mode=MODES),
    soak=lambda p: SOAK if p.ranks > 8 or p.ranks <= 4 and in_turn(p) else "", where=lambda p: p.ranks <= 4 or in_turn(p),
    environment=lambda p: f"{SMALL} " * p.at["scenario"] + "BEELINE_BROADCAST=broadcast_ll128 BEELINE_REDUCE=reduce_ll128", **SCENARIOS)

# Groups with messages of both kinds, by who drives one GPU and by who drives all.
SENT_BY_BOTH = dict(environment="'BEELINE_SENDRECV=..4K sendrecv_ll128 | nccl' 'BEELINE_ALLREDUCE=..4K oneshot_ll128 | nccl'", **SCENARIOS)
row("{scenario}/{mode}", dict(scenario=("messages_drawn",), mode=MODES), ranks=turn((4, 3, 2), "mode"), **SENT_BY_BOTH)
row("{scenario}/alone", dict(scenario=("messages_drawn",)), mode="groups", ranks=3, without_beeline=True, **SCENARIOS)

# All-gathers and reduce-scatters on the data of each other.  All-gathers go by kernels, by kernels up to 128K a rank and copy engines
# beyond, by copy engines in many pieces.
COPYING = {"table": "", "copy": "BEELINE_COPY_ENGINES=1 'BEELINE_ALLGATHER=..128K allgather_ll128 | allgather_ce'", "forced": f"BEELINE_ALLGATHER=allgather_ce {SMALL}"}
PIECES = 70003
BLOCK_SCENARIOS = ("blocks_eager", "blocks_captured", "blocks_beside_capture", "blocks_two_communicators")
row("{scenario}/{copying}/{mode}", dict(scenario=BLOCK_SCENARIOS, copying=tuple(COPYING), mode=MODES),
    soak=lambda p: SOAK if (p.at["scenario"] + p.at["copying"] + p.at["mode"]) % 3 else "",
    ranks=turn((2, 4, 3), "scenario", "copying", "mode"), environment=lambda p: f"{COPYING[p.copying]} {MIXED(p)}".strip(),
    c=lambda p: PIECES if p.copying == "forced" else "", options=lambda p: "--sms 8 " if p.scenario in BESIDE_EACH_OTHER else "", **SCENARIOS)
row("{scenario}/connections/{ranks}", dict(scenario=BLOCK_SCENARIOS, ranks=(2, 3, 4)), mode=turn(MODES, "scenario", "ranks"),
    soak=lambda p: SOAK if (p.at["scenario"] + p.at["ranks"]) % 3 else "",
    environment=lambda p: f"{COPYING['forced']} CUDA_DEVICE_MAX_CONNECTIONS={p.ranks + 1}", c=PIECES, options=ROOM, **SCENARIOS)
row("{scenario}/{mode}", dict(scenario=("blocks_same_bits",), mode=MODES), ranks=turn((4, 3, 2), "mode"), **SCENARIOS)
row("{scenario}/{mode}", dict(scenario=("blocks_policy",), mode=MODES), ranks=turn((2, 4, 3), "mode"),
    environment=turn(("", "NCCL_CTA_POLICY=DEFAULT", "NCCL_CTA_POLICY=any"), "mode"), **SCENARIOS)
ENDS = ("blocks_abandoned", "blocks_revoked")
row("{scenario}/{copying}/{mode}", dict(scenario=ENDS, copying=("copy", "forced"), mode=MODES), ranks=turn((2, 4, 3), "mode"),
    environment=of("copying", COPYING), a="allgather_ce", **SCENARIOS)
# Streams share queues, and in each one some wait.
row("{scenario}/connections/{connections}", dict(scenario=ENDS, connections=(3, 8)), mode=turn(MODES, "scenario", "connections"), ranks=2,
    environment=f"{COPYING['copy']} CUDA_DEVICE_MAX_CONNECTIONS={{connections}}", a="allgather_ce", **SCENARIOS)
row("{scenario}/line/{mode}", dict(scenario=ENDS, mode=MODES), ranks=turn((3, 2, 4), "mode"),
    environment=forced("allgather_ll128"), a="allgather_ll128", **SCENARIOS)

# Elements of one vector, as one call, in pieces, in groups, by other collectives, captured: above the thresholds of this file calls are NCCL's, unless
# every size is to have the same bits; a launch of the least staging holds no more than a part of it.
BITS = "BEELINE_TUNING_FILE=test/ranks/bits.tune"
INVARIANT = f"BEELINE_BATCH_INVARIANT=1 {BITS}"
ALWAYS = {3: 0}  # which of REDUCED `make check` has: of 3 ranks with the least staging (any order of 2 has the same bits)
row("{scenario}/{ranks}/{first}", dict(scenario=("bits_any_size",), ranks=(2, 3, 4, 8), types=REDUCED), mode=turn(MODES, "ranks", "types"),
    soak=lambda p: SOAK if p.at["types"] != ALWAYS.get(p.ranks) else "",
    environment=turn((INVARIANT, f"{INVARIANT} {SMALL}"), "ranks", "types"), o=lambda p: {2: "sum,prod,avg", 8: "sum"}.get(p.ranks, "sum,avg"), **SCENARIOS)
row("{scenario}/fused/{limit}", dict(scenario=("bits_any_size",), limit=("0", "2K", "1G")), mode=turn(MODES, "limit"), ranks=turn((3, 4, 2), "limit"),
    environment=f"{INVARIANT} BEELINE_FUSE_MAX={{limit}}", t="float,bfloat16", o="sum", **SCENARIOS)
row("{scenario}/{ranks}", dict(scenario=("bits_by_both",), ranks=(2, 3)), mode=turn(MODES, "ranks"), environment=BITS, t="float,bfloat16", o="avg", **SCENARIOS)
row("{scenario}/multicast/{mode}", dict(scenario=("bits_any_size",), mode=MODES), ranks=turn((4, 8, 5), "mode"), options=NVLS, o="sum",
    soak=lambda p: SOAK if p.mode != "processes" else "", t=lambda p: "float" if p.ranks == 8 else "float,half,bfloat16",
    environment="BEELINE_BATCH_INVARIANT=1 BEELINE_MULTICAST=1 BEELINE_TUNING_FILE=test/ranks/multicast.tune", **SCENARIOS)

# --- groups whose calls share launches ---

row("fused/{route}/{ranks}", dict(ranks=RANKS, route=("table", "oneshot_ll128", "twoshot_ll128")), mode=turn(MODES, "ranks", "route"),
    soak=lambda p: SOAK if p.ranks > 8 or p.ranks > 4 and (p.at["ranks"] + p.at["route"]) % 3 else "",
    program="scenarios", environment=lambda p: forced(p.route, SMALL) if p.at["route"] else "", C="all", k=least({2: 8, 7: 3}), word="fused_many")
row("{scenario}/{collective}/{ranks}", dict(scenario=("fused_many", "fused_replayed"), collective=("all_to_all",), ranks=RANKS[:4]), soak=lambda p: SOAK if p.ranks > 4 else "",
    mode=turn(MODES, "scenario", "ranks"), C="{collective}", **SCENARIOS)
row("fused_many/twoshot_in_runs", dict(mode=("groups",)), ranks=2, program="scenarios", environment="BEELINE_ALLREDUCE=twoshot_ll128:lines", options="--sms 4 ", C="all_reduce", word="fused_many")
row("fused_in_place/{mode}", dict(mode=MODES), ranks=turn((2, 4, 3), "mode"), program="scenarios", environment=forced("oneshot_ll128"),
    options=GRIDS[1], word="fused_in_place")
# What forces them, counts, and how many of them each launch has.
LAUNCHES = {"table": ("", "64,65,140,1,2,63", 123111),
            "capacity": (forced("oneshot_ll128", SMALL), "64,100", 0),
            "twoshot_ll128": (forced("twoshot_ll128"), "64,100", 12),
            "oneshot_ll": (forced("oneshot_ll"), "2,7", 27),
            "limit": ("'BEELINE_ALLREDUCE=..15K oneshot_ll128 | nccl'", "50,64", 0),
            "off": ("BEELINE_FUSE_MAX=0", "1,2,7", 127)}
LAUNCHES_OF = {"all_gather": ("all_gather", "64,65,140,1,2,63", 123111), "reduce_scatter": ("reduce_scatter", "64,65,140,1,2,63", 123111),
               "all_to_all": ("all_to_all", "64,65,140,1,2,63", 123111), "both": ("all_gather,reduce_scatter", "2,128,130,4", 1231),
               "broadcast": ("broadcast", "64,65,140,1,2,63,8,9", 12311111), "reduce": ("reduce", "64,65,140,1,2,63,8,9", 12311111),
               "rooted": ("broadcast,reduce", "2,128,130,4", 1231),
               "four": ("all_reduce,all_gather,reduce_scatter,all_to_all", "4,8,60,160", 1244)}
row("fused/launches/{what}", dict(what=tuple(LAUNCHES)), mode=turn(MODES, "what"), ranks=turn((4, 7, 3), "what"), program="scenarios",
    environment=lambda p: LAUNCHES[p.what][0], c=lambda p: LAUNCHES[p.what][1], k=lambda p: LAUNCHES[p.what][2], word="fused_launches")
row("fused/launches/{what}", dict(what=tuple(LAUNCHES_OF)), mode=turn(MODES, "what"), ranks=turn((3, 4, 2), "what"), program="scenarios",
    C=lambda p: LAUNCHES_OF[p.what][0], c=lambda p: LAUNCHES_OF[p.what][1], k=lambda p: LAUNCHES_OF[p.what][2], word="fused_launches")
# The first launch is by itself, since its algorithm is said; those behind it are still one.
row("fused/launches/{what}", dict(what=("behind_one_said",)), mode="groups", ranks=4, program="scenarios", environment=forced("twoshot_ll128"), C="all_reduce,broadcast,reduce", c="3,12", k=22, word="fused_launches")
# Thresholds that end below what a group has together; what has roots goes no farther than they do, nor do launches of few blocks.
LOW = "BEELINE_TUNING_FILE=test/ranks/low.tune"
LAUNCHES_LOW = {"all_reduce": ("64,16", 11), "all_gather": ("64,16", 11), "reduce_scatter": ("64,16", 11), "all_to_all": ("64,16", 11), "broadcast": ("64,16", 0)}
row("fused/low/launches/{what}", dict(what=tuple(LAUNCHES_LOW)), mode=turn(MODES, "what"), ranks=turn((4, 2), "what"), program="scenarios",
    environment=f"{LOW} 'BEELINE_BROADCAST=..6K broadcast_ll128'", C="{what}", c=lambda p: LAUNCHES_LOW[p.what][0], k=lambda p: LAUNCHES_LOW[p.what][1], word="fused_launches", options="--sms 64 ")
row("fused/low/launches/few_blocks", dict(what=("all_reduce",)), mode="threads", ranks=4, program="scenarios", environment=LOW, C="{what}", c="64", k=0, word="fused_launches")
# A launch for each small call; and one for what stays.
APART = "BEELINE_FUSE_MAX=100"
LEFT = {"": (LOW, 0), "many": (LOW, 2), "full": (LOW, 4), "invariant": (f"{LOW} BEELINE_BATCH_INVARIANT=1", 3),
        "said": (f"{LOW} 'BEELINE_BROADCAST=..6K broadcast_ll128' 'BEELINE_REDUCE=..6K reduce_ll128'", 1), "narrow": ("NCCL_MAX_CTAS=2", 0)}
row("{scenario}/{mode}", dict(scenario=("fused_left",), mode=MODES), ranks=turn((4, 2, 4), "mode"), environment=f"{LOW} {APART}", c=0, options="--sms 64 ", **SCENARIOS)
row("{scenario}/{how}{fused}", dict(scenario=("fused_left",), how=tuple(LEFT)[1:], fused=("", "/fused")), mode=turn(("groups", "groups", "groups", "groups", "threads"), "how"),
    ranks=turn((2, 2, 4, 4, 4), "how"), environment=lambda p: LEFT[p.how][0] + ("" if p.fused else f" {APART}"), c=lambda p: LEFT[p.how][1], options="--sms 64 ", **SCENARIOS)
# What is NCCL's for what the staging carries, with little of it or little left of the process's.
row("{scenario}/{cut}", dict(scenario=("fused_left",), cut=("staging", "budget")), mode=turn(("groups", "threads"), "cut"), ranks=4, c=0, options="--sms 64 ",
    environment=lambda p: f"BEELINE_TUNING_FILE=test/ranks/staging.tune {APART} " + ("BEELINE_BUDGET=8M" if p.cut == "budget" else SMALL), **SCENARIOS)
row("{scenario}/fused/{mode}", dict(scenario=("fused_left",), mode=MODES), ranks=turn((4, 2, 4), "mode"), environment=LOW, c=0, options="--sms 64 ", **SCENARIOS)
row("{scenario}/{mode}", dict(scenario=("fused_left_apart",), mode=MODES), ranks=turn((4, 2, 4), "mode"), environment=f"{LOW} {APART} BEELINE_ALLTOALL=nccl", options="--sms 64 ", **SCENARIOS)
row("{scenario}/{mode}", dict(scenario=("fused_whole",), mode=MODES), ranks=4, environment=f"{LOW} BEELINE_ALLTOALL=nccl", c=0, options="--sms 64 ", **SCENARIOS)
# Calls of more than 1 MB are launches of their own.
WHOLE = "BEELINE_TUNING_FILE=test/ranks/whole.tune BEELINE_ALLTOALL=nccl BEELINE_FUSE_MAX=1M"
row("{scenario}/{what}", dict(scenario=("fused_whole",), what=("in_all", "invariant")), mode=turn(("threads", "groups"), "what"), ranks=3, c=turn((1, 2), "what"),
    environment=lambda p: WHOLE + (" BEELINE_BATCH_INVARIANT=1" if p.what == "invariant" else ""), **SCENARIOS)
row("{scenario}/low/{mode}", dict(scenario=("fused_half_captured", "fused_destroyed"), mode=MODES), ranks=turn((4, 3, 4), "mode"), environment=LOW, c=5, attributes="warn-ok",
    options="--sms 64 ", **SCENARIOS)
row("{scenario}/{mode}", dict(scenario=("fused_left_nonblocking",), mode=MODES), ranks=turn((2, 4, 2), "mode"), environment=LOW, options="--sms 64 ", **SCENARIOS)
row("{scenario}/low/{mode}", dict(scenario=("fused_many", "fused_two_communicators"), mode=MODES), ranks=turn((4, 2, 4), "scenario", "mode"),
    soak=lambda p: SOAK if p.scenario == "fused_many" and p.mode != "threads" else "", environment=LOW, options="--sms 64 ", C=ANY, **SCENARIOS)
# Streams that have room for less than a group's launches.
row("{scenario}/shallow/{ranks}", dict(scenario=("fused_two_communicators",), ranks=(2, 3)), mode="groups", options=ROOMY,
    environment=lambda p: ("", "BEELINE_ALLGATHER=allgather_ce ")[p.at["ranks"]] + "BEELINE_FUSE_MAX=0 BEELINE_EMU_DEPTH=24", C="all", **SCENARIOS)
row("{scenario}/{mode}", dict(scenario=("fused_half_captured",), mode=MODES), ranks=turn((2, 4, 3), "mode"), attributes="warn-ok", **SCENARIOS)

# --- all at random; many ranks are long on two cores: `make soak` ---

PLAIN = tuple(name for name in COLLECTIVE if not name.endswith("_nvls"))
TORTURE = dict(program="scenarios", word="torture", seed=lambda p: f"$((SEED * 10 + {p.at['mode']}))", options="--sms 32 ")  # grids of 64K have 24 blocks
row("torture/3/{mode}", dict(mode=MODES), ranks=3, environment=MIXED, k=6, **TORTURE)
# Streams share one queue of the hardware, as for some who train with tensor parallelism.
row("torture/3/{mode}/connections/1", dict(mode=MODES), ranks=3, environment=lambda p: f"{MIXED(p)} CUDA_DEVICE_MAX_CONNECTIONS=1".strip(), k=6,
    **{**TORTURE, "seed": "$SEED"})
row("torture/{ranks}/{mode}", dict(ranks=RANKS, mode=MODES), soak="soak timeout=1800", environment=MIXED, k=1500, **TORTURE)
row("torture/4/{mode}/{forced}", dict(mode=MODES, forced=PLAIN), ranks=4, soak="soak timeout=1800",
    environment=lambda p: f"{MIXED(p)} {forced(p.forced)}".strip(), k=1500, **TORTURE)

# --- algorithms on a multicast object, on a box that has them ---

BY_SWITCH = ("half,bfloat16,int32,uint32,int64,uint64", "sum,min,max")
COVERED = {"oneshot_nvls": ("all", "all"), "twoshot_nvls": BY_SWITCH, "allgather_nvls": ("uint8,bfloat16,double", "sum"), "reducescatter_nvls": BY_SWITCH}
MULTICAST = dict(environment="BEELINE_MULTICAST=1", e=" ")
row("{algorithm}/{ranks}", dict(algorithm=tuple(COVERED), ranks=RANKS), mode=turn(MODES, "algorithm", "ranks"),
    soak=lambda p: SOAK if p.ranks == 16 and p.algorithm != "allgather_nvls" else "",
    options=lambda p: NVLS + turn(GRIDS, "algorithm", "ranks")(p), t=lambda p: COVERED[p.algorithm][0], o=lambda p: COVERED[p.algorithm][1],
    c=edges(least({2: 5000, 8: 1500}), "uint8"), x="elements", b=8, k=least({2: 150, 7: 80, 16: 40}), **MULTICAST)
# What has sums alone; what the sm_100 family has.
for types_of, ranks, arch, redops in (("float,double", 3, 90, "sum"), ("f8e4m3,f8e5m2", 4, 100, BY_SWITCH[1])):
    row("{algorithm}/{ranks}/{first}", dict(algorithm=("twoshot_nvls", "reducescatter_nvls"), ranks=(ranks,), types=(types_of,)),
        mode=modulo("ranks", MODES), options=f"{NVLS}--arch {arch} ", o=redops, c=edges(5000, "uint8"), x="elements", b=8, k=100, **MULTICAST)
row("captured/{algorithm}/{ranks}", dict(algorithm=tuple(COVERED), ranks=(2, 3, 8)), mode=lambda p: MODES[(p.at["algorithm"] + p.ranks) % 3],
    options=lambda p: NVLS + GRIDS[p.ranks % 2], t="half,bfloat16,int32", o="sum,max", c="1,7,60,61,500,1000,2000", x="elements", g=4, b=6, k=18,
    **MULTICAST)
row("odd_alignment/{algorithm}", dict(algorithm=tuple(COVERED)), mode="groups", ranks=4, options=NVLS,
    t="half,bfloat16,int64,uint32", o="sum,max", c=edges(2500, "float"), x="odd", k=120, **MULTICAST)
row("schedule/{algorithm}/{other}", dict(algorithm=tuple(COVERED), other=range(1, 5)), options=NVLS, **SCHEDULE, **MULTICAST)
# Many launches: of 1M of staging a launch carries 100 kB, or that of all ranks.
row("capacity/{algorithm}", dict(algorithm=tuple(COVERED)), where=lambda p: p.at["algorithm"], mode="threads", ranks=4,
    options=lambda p: NVLS + turn(GRIDS, "algorithm")(p), t="bfloat16", c=lambda p: "60000,200001" if p.algorithm == "twoshot_nvls" else "15000,50001",
    x="elements", b=2, g=2, **{**MULTICAST, "environment": f"BEELINE_MULTICAST=1 {SMALL}"})
# All routes of a tuning file with rows for multicast, beside calls that it does not cover, in groups and out of them.
TUNED = dict(environment="BEELINE_MULTICAST=1 BEELINE_TUNING_FILE=test/ranks/multicast.tune", options=NVLS, e=" ")
row("multicast/table/{mode}", dict(mode=MODES), ranks=turn((4, 8, 5), "mode"), C="all", t="all", o="all",
    c="0-40,59-61,511-513,1000,4095-4097,20000", x="elements", k=60, **TUNED)
row("multicast/{scenario}/{mode}", dict(mode=MODES, scenario=("group_many", "fused_many", "stream_alternate_routes", "graph_replays_beside",
                                                              "comm_recreate")),
    where=lambda p: p.scenario != "comm_recreate" or p.mode == "threads", soak=groups_or_processes("scenario"), ranks=turn((4, 5, 4), "mode"), C=ANY, **SCENARIOS, **TUNED)

# --- the tests themselves, on the reference NCCL alone: what they ask for is what NCCL does, but for averages of floats, which NCCL
# rounds more often (test/programs/values.c compares them) ---

REFERENCE = dict(ranks=3, without_beeline=True, C="all", c="0-17,60,1000", x="elements", g=2)
row("reference/{mode}", dict(mode=MODES), t="all", o="sum,prod,min,max", k=80, **REFERENCE)
row("reference/averages/{mode}", dict(mode=MODES), t=",".join(name for name in DATATYPES if "int" in name), o="avg", k=20, **REFERENCE)
