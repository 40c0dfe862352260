#!/usr/bin/env python3
"""Prints the cases of test/ranks: who drives the ranks, how many, which algorithm, which datatypes, which counts.

Every algorithm meets every datatype at every number of ranks (of 16 most in `make soak`); modes, odd alignments, capture, small
staging and schedules are varied on top, not multiplied out.
"""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RANKS = (2, 3, 4, 7, 8, 16)
MODES = ("groups", "threads", "processes")
DATATYPES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16", "f8e4m3", "f8e5m2")
# Each algorithm: its collective, and the variable that forces it.
NAMES = {"ALLREDUCE": "all_reduce", "ALLGATHER": "all_gather", "REDUCESCATTER": "reduce_scatter", "ALLTOALL": "all_to_all",
         "BROADCAST": "broadcast", "REDUCE": "reduce"}
ROWS = re.findall(r"^BL_ALGORITHM\(\w+, \w+, (\w+), (\w+), (.*)\)$", (ROOT / "kernels/algorithms.def").read_text(), re.M)
# What each is of, and what forces it; what spreads over warps counts for itself.  Those that need a multicast object are below.
ALGORITHMS = {}
for name_, collective_, rest_ in ROWS:
    for spread_ in () if "BL_NVLS" in rest_ else (":lines", ":warps") if "WARPS" in rest_ else ("",):
        ALGORITHMS[name_ + spread_.replace(":lines", "")] = (NAMES[collective_], f"BEELINE_{collective_}={name_}{spread_}")
ALL_REDUCES = ("oneshot_ll", "oneshot_ll128", "twoshot_ll128")
SPREAD = tuple(name for name in ALGORITHMS if name.endswith(":warps"))
OTHERS = ("alltoall_ll128", "broadcast_ll128", "reduce_ll128", *SPREAD)  # which have fewer cases
SIZE = {"int8": 1, "uint8": 1, "f8e4m3": 1, "f8e5m2": 1, "half": 2, "bfloat16": 2, "int32": 4, "uint32": 4, "float": 4,
        "int64": 8, "uint64": 8, "double": 8}

# A box of few multiprocessors has grids in which every block does all the work; of more, grids with crews.
CREWS = ("", "--sms 7 ")


FORCES = re.compile("BEELINE_(ALLREDUCE|ALLGATHER|REDUCESCATTER|ALLTOALL|BROADCAST|REDUCE)=")


def box(mode, nranks, seed="$SEED", environment="", options="", program="collectives", arguments=""):
    """A command line on an emulated box."""
    start = f"-n {nranks} " if mode == "processes" else ""
    if nranks >= 8 and FORCES.search(environment) and ":warps" not in environment:
        options += "--block 64 "  # small blocks are quicker here, and only a warp for each peer needs larger ones
    if nranks >= 5:  # its self-test takes a while on two cores
        environment = f"BEELINE_SETUP_TIMEOUT=120 {environment}".rstrip()
    env = f"env {environment} " if environment else ""
    return (f"{env}scripts/emu-box -g {nranks} {start}--seed {seed} --beeline {options}-- "
            f"$BUILD/test/ranks/{program} -m {mode} -n {nranks} -s {seed} {arguments}").rstrip()


def case(name, command, attributes=""):
    name = name.replace(":", "/")
    print(f"{name} {attributes}| {command}" if attributes else f"{name} | {command}")


def forced(algorithm):
    """The environment that forces it, and the options that ask for it and check that it served."""
    collective, environment = ALGORITHMS[algorithm]
    return environment, f"-C {collective} -a {algorithm}"


def around(elements, reach=1):
    """The counts next to `elements`, as a set."""
    return {max(0, elements + d) for d in range(-reach, reach + 1)}


def edge_counts(datatype, nranks, most_bytes):
    """Counts at the edges of words, lines, ranks' shares, for messages of at most most_bytes."""
    size = SIZE[datatype]
    counts = set(range(0, 9)) | {15, 16, 17, 31, 33, 59, 60, 61, 119, 120, 121, 127, 255, 1023}
    for words in (8, 16, 120, 240, 120 * nranks, 120 * nranks * 2):
        counts |= around(words // size)
    counts |= around(nranks) | around(3 * nranks)
    counts |= around(most_bytes // size) | {most_bytes // size // 2 + 1}
    return sorted(c for c in counts if c * size <= most_bytes)


def listed(counts):
    return ",".join(str(c) for c in counts)


def algorithms_by_datatypes():
    # Bytes of a call, or of a block where there are several.
    most = {"oneshot_ll": 4096, "oneshot_ll128": 6000, "twoshot_ll128": 20000, "reducescatter_ll128": 5000}
    for a, algorithm in enumerate(most):
        environment, arguments = forced(algorithm)
        calls = {"reducescatter_ll128": 80}.get(algorithm, 120)
        for n, nranks in enumerate(RANKS):
            for d, datatype in enumerate(DATATYPES):
                # Many ranks take longest, the algorithms share what depends on the datatype, and 7 and 8 ranks a kernel.
                rare = {7: (a + d) % 2, 8: (a + d + 1) % 2, 16: (a + d) % 4}.get(nranks)
                soak = "soak/" if rare else ""
                mode = MODES[(a + n + d // 2) % 2]
                counts = edge_counts(datatype, nranks, most[algorithm] if nranks < 16 else most[algorithm] // 4)
                case(f"{soak}{algorithm}/{nranks}/{datatype}",
                     box(mode, nranks, environment=environment, options=CREWS[(d if nranks < 16 else d // 4) % 2],
                         arguments=f"{arguments} -t {datatype} -o all -c {listed(counts)} -x elements "
                                   f"-b 8 -k {calls if nranks < 16 else 50}"), "soak timeout=600 " if soak else "")


def gathered():
    """All-gather moves bytes: few datatypes, but every count and number of ranks, on grids with crews and without."""
    for algorithm, ranks in (("allgather_ll128", RANKS), ("allgather_ce", (2, 3, 4, 8))):
        environment, arguments = forced(algorithm)
        for n, nranks in enumerate(ranks):
            for c, crews in enumerate(CREWS if algorithm == "allgather_ll128" else ("",)):
                for d, datatypes in enumerate(("uint8", "bfloat16,f8e5m2", "double,uint32")):
                    if algorithm == "allgather_ll128" and nranks >= 8 and d != (n + c) % 3:
                        continue  # slow, and of the same kernels as with other datatypes
                    counts = edge_counts(datatypes.partition(",")[0], nranks, 5000 if nranks < 16 else 1500)
                    case(f"{algorithm}/{nranks}/{'crews/' if crews else ''}{datatypes.partition(',')[0]}",
                         box(MODES[(n + c + d) % 3], nranks, environment=environment, options=crews,
                             arguments=f"{arguments} -t {datatypes} -c {listed(counts)} -x elements -b 8 -k {90 if nranks < 16 else 40}"))


def others():
    """All-to-all, broadcast, reduce and all that spreads over warps: few cases of many datatypes each, with counts of the narrowest, on
    both kinds of grids.  For the latter: grids that take all lines in one round, and smaller ones."""
    types = {"alltoall_ll128": ("uint8,double", "bfloat16,f8e5m2,uint32"), "broadcast_ll128": ("uint8,bfloat16", "double,f8e4m3,int32"),
             "reduce_ll128": (",".join(DATATYPES[::2]), ",".join(DATATYPES[1::2]))}
    for a, algorithm in enumerate(OTHERS):
        environment, arguments = forced(algorithm)
        as_line = algorithm.replace("allgather_ll128:warps", "alltoall_ll128").replace("alltoall_ll128:warps", "alltoall_ll128")
        spread = algorithm in SPREAD
        for n, nranks in enumerate((*RANKS[:-1], 9, 16) if spread else RANKS):
            soak = "soak/" if spread and nranks > 8 and a % 2 else ""  # 9 and 16 ranks take longest, and these share most of their code
            for c, crews in enumerate(CREWS[(a + n) % 2:][:1] if spread else CREWS if nranks < 9 else CREWS[1:]):
                datatypes = types.get(as_line, types["reduce_ll128"])[(n + c) % 2]
                counts = edge_counts(min(datatypes.split(","), key=SIZE.get), nranks, 5000 if nranks < 8 else 1500)
                case(f"{soak}{algorithm}/{nranks}{'/crews' if crews else ''}",
                     box(MODES[(a + n + c) % 3], nranks, environment=environment, options=crews,
                         arguments=f"{arguments} -t {datatypes} -o all -c {listed(counts)} -x elements "
                                   f"-b 8 -k {120 if nranks < 7 else 60 if nranks < 9 else 10 if spread else 24}"),
                     "soak timeout=600 " if soak else "")


def by_table():
    """No algorithm forced: the routes and their boundaries as shipped."""
    for nranks in RANKS:
        for m, mode in enumerate(MODES):
            counts = "0-40,59-61,119-121,511-513,1000,4095-4097,10000,16383-16385"
            for o, (name, options) in enumerate((("table", f"-t all -o all -c {counts} -x elements -k {40 if nranks < 8 else 20 if nranks < 16 else 6}"),
                                                 ("table/others", "-C all -t all -o all -c 0-40,59-61,511-513,1000,4095-4097 -x elements "
                                                                  f"-k {40 if nranks < 8 else 15 if nranks < 16 else 5}"))):
                soak = nranks == 16 and m != 2 - o  # they take longest
                case(f"{'soak/' if soak else ''}{name}/{nranks}/{mode}", box(mode, nranks, arguments=options), "soak timeout=600 " if soak else "")


def odd_alignment():
    for algorithm in ALGORITHMS:
        environment, arguments = forced(algorithm)
        for nranks in (2, 4, 7) if algorithm not in OTHERS else (3,):
            counts = listed(edge_counts("float", nranks, 2500))
            case(f"odd_alignment/{algorithm}/{nranks}",
                 box("groups", nranks, environment=environment,
                     arguments=f"{arguments} -t all -o sum,avg -c {counts} -x odd -k 150"))


def captured():
    for algorithm in ALGORITHMS:
        environment, arguments = forced(algorithm)
        for nranks in (3,) if algorithm in SPREAD else (2, 4, 7) if algorithm in OTHERS else (2, 3, 4, 8) if algorithm == "allgather_ce" else RANKS[:-1]:
            mode = MODES[nranks % 3]
            case(f"captured/{algorithm}/{nranks}",
                 box(mode, nranks, environment=environment, options=CREWS[nranks % 2],
                     arguments=f"{arguments} -t half,bfloat16,int32,f8e4m3 -o sum,max -c 1,7,60,61,500,1000,2000 -x elements "
                               f"-g 4 -b 6 -k {24 if nranks < 8 else 12}"))


def capacity():
    """Messages round the capacity of one launch and far beyond it, with the least staging and with the default."""
    for nranks in (2, 3, 4, 8):
        case(f"capacity/oneshot_ll/{nranks}",
             box("groups", nranks, environment="BEELINE_ALLREDUCE=oneshot_ll",
                 arguments="-t int8,bfloat16 -o sum -c 16383,16384,16385,32760,32767,32768 -b 2"))
        case(f"capacity/small_staging/{nranks}",
             box("groups", nranks, environment="BEELINE_ALLREDUCE=twoshot_ll128:lines BEELINE_STAGING=1M",
                 arguments="-t uint8,bfloat16 -o sum -c 30719-30721,61440,200000,262147 -a twoshot_ll128 -b 2"))
        for algorithm, datatypes in (("allgather_ll128", "uint8"), ("reducescatter_ll128", "bfloat16"), ("alltoall_ll128", "uint8"),
                                     ("broadcast_ll128", "uint8"), ("reduce_ll128", "bfloat16")):
            if algorithm in OTHERS and nranks in (2, 8):
                continue
            environment, arguments = forced(algorithm)
            room = 480000 // (nranks - 1) // (2 if datatypes == "bfloat16" else 1)  # about what a launch holds
            case(f"capacity/{algorithm}/{nranks}",
                 box(MODES[nranks % 3], nranks, environment=f"{environment} BEELINE_STAGING=1M", options=CREWS[nranks % 2],
                     arguments=f"{arguments} -t {datatypes} -c {room - room // 10},{room + room // 10},{2 * room + 1} "
                               f"-x elements -b 2 -g 1"))
        environment, arguments = forced("allgather_ce")
        room = (1 << 20) * 3 // 4 // max(nranks - 1, 2) // 128 * 128 if nranks < 8 else 70000  # of a slot
        case(f"capacity/allgather_ce/{nranks}",
             box(MODES[nranks % 3], nranks, environment=f"{environment} BEELINE_STAGING=1M",
                 arguments=f"{arguments} -t uint8 -c {room - 1}-{room + 1},{2 * room},{2 * room + 17},{4 * room + 1} "
                           f"-x odd -b 3 -g 2"))
    case("capacity/oneshot_ll128/2",  # two ranks: in pieces, too
         box("groups", 2, environment="BEELINE_ALLREDUCE=oneshot_ll128 BEELINE_STAGING=1M", options=CREWS[1],
             arguments="-t uint8,bfloat16 -o sum -c 100000,200000,400001,600001 -a oneshot_ll128 -b 2"))
    environment, arguments = forced("reducescatter_ll128")
    for nranks in (3, 4):
        case(f"few_warps/reducescatter_ll128/{nranks}",  # than peers
             box("groups", nranks, environment=environment, options="--sms 1 --block 32 ",
                 arguments=f"{arguments} -t bfloat16 -o sum -c 481,2000,2001 -x elements -g 2"))
    case("captured/late_launch/3",
         box("threads", 3, environment="BEELINE_EARLY_LAUNCH=0",
             arguments="-C all -t bfloat16 -o sum -c 7,1000,20000 -g 4 -b 4 -k 12"))
    for nranks in (2, 4):
        case(f"capacity/large/{nranks}",
             box("threads", nranks, environment="BEELINE_ALLREDUCE=twoshot_ll128:lines", options=CREWS[nranks == 4],
                 arguments="-t bfloat16,float -o sum -c 1000003 -x elements -a twoshot_ll128 -b 1"))
        case(f"capacity/large_small_staging/{nranks}",
             box("groups", nranks, environment="BEELINE_ALLREDUCE=twoshot_ll128:lines BEELINE_STAGING=1M",
                 arguments="-t bfloat16 -o avg -c 500009 -x elements -a twoshot_ll128 -b 1 -g 1"), "timeout=120")


def schedules():
    """The same calls under other interleavings."""
    for algorithm in ALGORITHMS:
        environment, arguments = forced(algorithm)
        for seed in range(1, 7 if algorithm in ALL_REDUCES else 2 if algorithm in SPREAD else 3 if algorithm in OTHERS else 5):
            nranks = (2, 3, 4)[seed % 3]
            case(f"schedule/{algorithm}/{seed}",
                 box("groups" if seed % 2 else "processes", nranks, seed=f"$((SEED * 100 + {seed}))", environment=environment,
                     arguments=f"{arguments} -t int32,bfloat16 -o sum -c 1,15,16,60,121,900 -g 3 -b 6"))


SCENARIOS = ("group_many group_two_communicators group_nested group_mixed_routes group_several_streams group_bad_call "
             "group_simulate group_empty stream_alternate stream_alternate_routes stream_destroyed stream_null "
             "stream_two_communicators stream_between_copies graph_replay_many graph_two graph_chain graph_forked "
             "graph_other_stream graph_beside_eager graph_replays_beside graph_grouped graph_captured_apart comm_recreate "
             "comm_many comm_split comm_shrink comm_config comm_scalable comm_same_id comm_nonblocking comm_finalized comm_aborted "
             "comm_aborted_while_waiting argument_errors argument_zero_count argument_huge_count argument_not_covered "
             "argument_unequal_ranks other_collectives other_send_receive other_premulsum other_one_rank fused_many fused_replayed "
             "fused_two_communicators fused_streams fused_streams_captured fused_destroyed turn_first_forwarded turn_gated "
             "turn_nonblocking turn_per_thread turn_simulated turn_destroyed_behind "
             "later_suspended later_suspended_plain later_suspended_mixed later_suspended_destroyed later_configured later_max_ctas turn_made_beside").split()


# Kernels of two communicators must be resident at once, on hardware too, so the box has room for both: a grid has at most a
# block for each multiprocessor, which holds two.
ROOMY = "--sms 16 "
BESIDE_EACH_OTHER = {"stream_two_communicators", "group_two_communicators", "graph_grouped", "comm_many",
                     "fused_two_communicators", "blocks_two_communicators"}


# Scenarios mix Beeline's calls with broadcasts: as NCCL's, to show that calls of both keep their order, and as Beeline's.
BROADCASTS = ("BEELINE_BROADCAST=nccl", "", "BEELINE_BROADCAST=nccl")


def growth():
    """Many communicators, one after another, leave nothing behind."""
    for mode, nranks in (("processes", 2), ("groups", 3), ("threads", 2)):
        soak = "" if mode == "processes" else "soak"
        case(f"growth/{mode}", box(mode, nranks, program="scenarios", arguments="growth"), f"{soak} timeout=240")
    case("soak/growth", box("processes", 2, program="scenarios", arguments="growth", environment="BEELINE_TEST_COMMUNICATORS=10000"), "soak timeout=3600")


def scenarios():
    for s, scenario in enumerate(SCENARIOS):
        for m, mode in enumerate(MODES):
            nranks = (2, 4, 3)[(s + m) % 3]
            case(f"{scenario}/{mode}", box(mode, nranks, program="scenarios", arguments=scenario, environment=BROADCASTS[m],
                                             options=ROOMY if scenario in BESIDE_EACH_OTHER else ""))
    # Graphs that never overlap what is beside them need no event of their own.
    for s, scenario in enumerate(("graph_replay_many", "graph_chain", "graph_forked", "turn_destroyed_behind")):
        case(f"no_mixing/{scenario}", box(MODES[s % 3], 2 + s % 2, program="scenarios", arguments=scenario,
                                          environment=("BEELINE_GRAPH_MIXING=0", "NCCL_GRAPH_MIXING_SUPPORT=0")[s % 2]))
    # What an abort cannot wait for may be reported as left behind, and said.
    case("turn_aborted_behind/threads", box("threads", 3, program="scenarios", arguments="turn_aborted_behind"), "warn-ok leak-ok")


def oneway():
    """Broadcasts and reduces that are done before their peers have called; on staging as it is, and on the least."""
    forced_both = "BEELINE_BROADCAST=broadcast_ll128 BEELINE_REDUCE=reduce_ll128"
    for s, scenario in enumerate(("oneway_ahead", "oneway_in_turn")):
        for n, nranks in enumerate((2, 3, 4, 8, 16)):
            for m, mode in enumerate(MODES):
                if nranks > 4 and m != (s + n) % 3:
                    continue
                small = "BEELINE_STAGING=1M " if scenario == "oneway_in_turn" else ""
                case(f"{scenario}/{nranks}/{mode}", box(mode, nranks, program="scenarios", environment=small + forced_both, arguments=scenario))


# What all-gathers go by: kernels, kernels up to 128K a rank and copy engines beyond, copy engines in many pieces.
COPYING = {"": "", "copy": "BEELINE_COPY_ENGINES=1", "forced": "BEELINE_ALLGATHER=allgather_ce BEELINE_STAGING=1M"}


def blocks():
    """All-gathers and reduce-scatters on the data of each other."""
    for s, scenario in enumerate(("blocks_eager", "blocks_captured", "blocks_beside_capture", "blocks_two_communicators")):
        for c, (name, environment) in enumerate(COPYING.items()):
            for m, mode in enumerate(MODES):
                case(f"{scenario}/{name or 'table'}/{mode}",
                     box(mode, (2, 4, 3)[(s + c + m) % 3], program="scenarios", environment=f"{environment} {BROADCASTS[m]}".strip(),
                         arguments=scenario,
                         options="--sms 8 " if scenario == "blocks_two_communicators" else ""))
    for s, scenario in enumerate(("blocks_eager", "blocks_captured", "blocks_beside_capture", "blocks_two_communicators")):
        for n, nranks in enumerate((2, 3, 4)):
            case(f"{scenario}/connections/{nranks}",
                 box(MODES[(s + n) % 3], nranks, program="scenarios", environment=f"{COPYING['forced']} CUDA_DEVICE_MAX_CONNECTIONS={3 + n}",
                     arguments=scenario, options=ROOMY if scenario == "blocks_two_communicators" else ""))
    for m, mode in enumerate(MODES):
        case(f"blocks_same_bits/{mode}", box(mode, (4, 3, 2)[m], program="scenarios", arguments="blocks_same_bits"))
        case(f"blocks_policy/{mode}", box(mode, (2, 4, 3)[m], program="scenarios", arguments="blocks_policy"))
        for end in ("abandoned", "revoked"):
            for name in ("copy", "forced"):
                case(f"blocks_{end}/{name}/{mode}",
                     box(mode, (2, 4, 3)[m], program="scenarios", environment=COPYING[name], arguments=f"-a allgather_ce blocks_{end}"))
            # Streams share queues, and in each one some wait.
            for connections in (3, 8):
                case(f"blocks_{end}/connections/{connections}/{mode}",
                     box(mode, 2, program="scenarios", environment=f"{COPYING['copy']} CUDA_DEVICE_MAX_CONNECTIONS={connections}",
                         arguments=f"-a allgather_ce blocks_{end}"))
            case(f"blocks_{end}/line/{mode}",
                 box(mode, (3, 2, 4)[m], program="scenarios", environment="BEELINE_ALLGATHER=allgather_ll128:lines",
                     arguments=f"-a allgather_ll128 blocks_{end}"))


def fused():
    """Groups whose calls share launches: over ranks and algorithms, and how many launches they are."""
    for n, nranks in enumerate(RANKS):
        for a, algorithm in enumerate(("", "oneshot_ll128", "twoshot_ll128")):
            environment = f"BEELINE_ALLREDUCE={algorithm} BEELINE_STAGING=1M" if algorithm else ""
            case(f"fused/{algorithm or 'table'}/{nranks}",
                 box(MODES[(n + a) % 3], nranks, program="scenarios", environment=environment,
                     arguments=f"-k {8 if nranks < 7 else 3} fused_many"))
    for m, mode in enumerate(MODES):
        case(f"fused_in_place/{mode}",
             box(mode, (2, 4, 3)[m], program="scenarios", environment="BEELINE_ALLREDUCE=oneshot_ll128", options=CREWS[1], arguments="fused_in_place"))
    for name, environment, counts, launches in (
            ("table", "", "64,65,140,1,2,63", 123111),
            ("capacity", "BEELINE_ALLREDUCE=oneshot_ll128 BEELINE_STAGING=1M", "64,100", 0),
            ("twoshot_ll128", "BEELINE_ALLREDUCE=twoshot_ll128", "64,100", 12),
            ("oneshot_ll", "BEELINE_ALLREDUCE=oneshot_ll", "2,7", 27),
            ("limit", "'BEELINE_ALLREDUCE=..15K oneshot_ll128 | nccl'", "50,64", 0),
            ("off", "BEELINE_FUSE_MAX=0", "1,2,7", 127)):
        for m, mode in enumerate(MODES):
            case(f"fused/launches/{name}/{mode}",
                 box(mode, (4, 7, 3)[m], program="scenarios", environment=environment,
                     arguments=f"-c {counts} -k {launches} fused_launches"))
    for name, counts, launches, collectives in (
            ("all_gather", "64,65,140,1,2,63", 123111, "all_gather"), ("reduce_scatter", "64,65,140,1,2,63", 123111, "reduce_scatter"),
            ("both", "2,128,130,4", 2242, "all_gather,reduce_scatter"), ("three", "3,6,60,159", 3333, "all_reduce,all_gather,reduce_scatter")):
        for m, mode in enumerate(MODES):
            case(f"fused/launches/{name}/{mode}",
                 box(mode, (3, 4, 2)[m], program="scenarios", arguments=f"-C {collectives} -c {counts} -k {launches} fused_launches"))
    # Streams that have room for less than a group's launches.
    for m, environment in enumerate(("", "BEELINE_ALLGATHER=allgather_ce")):
        case(f"fused_two_communicators/shallow/{m + 2}",
             box("groups", m + 2, program="scenarios", environment=f"{environment} BEELINE_FUSE_MAX=0 BEELINE_EMU_DEPTH=24".strip(),
                 options=ROOMY, arguments="fused_two_communicators"))
    for m, mode in enumerate(MODES):
        case(f"fused_half_captured/{mode}", box(mode, (2, 4, 3)[m], program="scenarios", arguments="fused_half_captured"), "warn-ok")


def torture():
    roomy = "--sms 32 "  # grids of 64K have 24 blocks
    for nranks in RANKS:
        for m, mode in enumerate(MODES):
            for algorithm in ("", *ALGORITHMS) if nranks == 4 else ("",):
                environment = f"{BROADCASTS[m]} {forced(algorithm)[0] if algorithm else ''}".strip()
                if nranks == 3:  # the others are long on two cores: `make soak`
                    case(f"torture/{nranks}/{mode}{'/' + algorithm if algorithm else ''}",
                         box(mode, nranks, seed=f"$((SEED * 10 + {m}))", environment=environment, program="scenarios",
                             options=roomy, arguments="-k 6 torture"))
                    if not algorithm:  # streams share one queue of the hardware, as for some who train with tensor parallelism
                        case(f"torture/{nranks}/{mode}/connections/1",
                             box(mode, nranks, environment=f"{environment} CUDA_DEVICE_MAX_CONNECTIONS=1".strip(), program="scenarios",
                                 options=roomy, arguments="-k 6 torture"))
                case(f"soak/torture/{nranks}/{mode}{'/' + algorithm if algorithm else ''}",
                     box(mode, nranks, seed=f"$((SEED * 10 + {m}))", environment=environment, program="scenarios", options=roomy,
                         arguments="-k 1500 torture"), "soak timeout=1800 ")


def kernels():
    for name in ("shapes", "late", "oneway", "multicast", "epochs", "timeout", "abort"):
        for nranks in RANKS if name in ("shapes", "late", "oneway", "multicast") else (2, 3, 16):
            command = box("groups", nranks, program="kernels", options=NVLS + "--arch 100 ", arguments=f"-k {20 if nranks < 7 else 6 if nranks < 16 else 3} {name}")
            case(f"kernels/{name}/{nranks}", command.replace("--beeline ", ""))
            if name in ("shapes", "late") and 2 < nranks < 16:  # several bundles in a block, a warp for each rank: by default blocks are too small for that
                case(f"kernels/{name}/{nranks}/large-blocks", command.replace("--beeline ", "--block 256 "))
    for nranks in (2, 3, 5, 8):
        command = box("groups", nranks, program="kernels", options="--block 256 --sms 4 ", arguments=f"-k {20 if nranks < 5 else 8} places")
        case(f"kernels/places/{nranks}", command.replace("--beeline ", ""))
    for nranks in (2, 3, 4):
        command = box("groups", nranks, program="kernels", options=NVLS + "--arch 100 ", arguments=f"-k {20 // nranks} alignments")
        case(f"kernels/alignments/{nranks}", command.replace("--beeline ", ""))


# Algorithms on a multicast object, on a box that has them: what they cover.
NVLS = "-t nvls "
BY_SWITCH = ("half,bfloat16,int32,uint32,int64,uint64", "sum,min,max")
MULTICAST = {"oneshot_nvls": ("all_reduce", "BEELINE_ALLREDUCE", ("all", "all")),
             "twoshot_nvls": ("all_reduce", "BEELINE_ALLREDUCE", BY_SWITCH),
             "allgather_nvls": ("all_gather", "BEELINE_ALLGATHER", ("uint8,bfloat16,double", "sum")),
             "reducescatter_nvls": ("reduce_scatter", "BEELINE_REDUCESCATTER", BY_SWITCH)}


def multicast():
    for a, (algorithm, (collective, variable, (datatypes, redops))) in enumerate(MULTICAST.items()):
        environment = f"BEELINE_MULTICAST=1 {variable}={algorithm}"
        arguments = f"-C {collective} -a {algorithm} -e"
        for n, nranks in enumerate(RANKS):
            counts = edge_counts("uint8", nranks, 5000 if nranks < 8 else 1500)
            case(f"{algorithm}/{nranks}",
                 box(MODES[(a + n) % 3], nranks, environment=environment, options=NVLS + CREWS[(a + n) % 2],
                     arguments=f"{arguments} -t {datatypes} -o {redops} -c {listed(counts)} -x elements "
                               f"-b 8 -k {150 if nranks < 7 else 80 if nranks < 16 else 40}"))
        if (datatypes, redops) == BY_SWITCH:  # what has sums alone; what the sm_100 family has
            for nranks, types, arch in ((3, "float,double", 90), (4, "f8e4m3,f8e5m2", 100)):
                case(f"{algorithm}/{nranks}/{types.partition(',')[0]}",
                     box(MODES[nranks % 3], nranks, environment=environment, options=f"{NVLS}--arch {arch} ",
                         arguments=f"{arguments} -t {types} -o {'sum' if arch < 100 else redops} "
                                   f"-c {listed(edge_counts('uint8', nranks, 5000))} -x elements -b 8 -k 100"))
        for nranks in (2, 3, 8):
            case(f"captured/{algorithm}/{nranks}",
                 box(MODES[(a + nranks) % 3], nranks, environment=environment, options=NVLS + CREWS[nranks % 2],
                     arguments=f"{arguments} -t half,bfloat16,int32 -o sum,max -c 1,7,60,61,500,1000,2000 -x elements -g 4 -b 6 -k 18"))
        case(f"odd_alignment/{algorithm}",
             box("groups", 4, environment=environment, options=NVLS,
                 arguments=f"{arguments} -t half,bfloat16,int64,uint32 -o sum,max -c {listed(edge_counts('float', 4, 2500))} -x odd -k 120"))
        for seed in range(1, 5):
            case(f"schedule/{algorithm}/{seed}",
                 box("groups" if seed % 2 else "processes", (2, 3, 4)[seed % 3], seed=f"$((SEED * 100 + {seed}))",
                     environment=environment, options=NVLS,
                     arguments=f"{arguments} -t int32,bfloat16 -o sum -c 1,15,16,60,121,900 -g 3 -b 6"))
        if algorithm != "oneshot_nvls":  # many launches: of 1M of staging a launch carries 100 kB, or that of all ranks
            case(f"capacity/{algorithm}",
                 box("threads", 4, environment=f"{environment} BEELINE_STAGING=1M", options=NVLS + CREWS[a % 2],
                     arguments=f"{arguments} -t bfloat16 -c {'60000,200001' if algorithm == 'twoshot_nvls' else '15000,50001'} "
                               f"-x elements -b 2 -g 2"))
    # All routes of a tuning file with rows for multicast, beside calls that it does not cover, in groups and out of them.
    table = "BEELINE_MULTICAST=1 BEELINE_TUNING_FILE=test/ranks/multicast.tune"
    for m, mode in enumerate(MODES):
        case(f"multicast/table/{mode}",
             box(mode, (4, 8, 5)[m], environment=table, options=NVLS,
                 arguments="-C all -t all -o all -e -c 0-40,59-61,511-513,1000,4095-4097,20000 -x elements -k 60"))
        for scenario in ("group_many", "fused_many", "stream_alternate_routes", "graph_replays_beside", *("comm_recreate",) * (m == 1)):
            case(f"multicast/{scenario}/{mode}",
                 box(mode, (4, 5, 4)[m], environment=table, program="scenarios", options=NVLS, arguments=f"-e {scenario}"))


def without_beeline():
    """The tests themselves, on the reference NCCL alone: what they ask for is what NCCL does, but for averages of floats, which NCCL
    rounds more often (test/programs/values.c compares them)."""
    whole = "int8,uint8,int32,uint32,int64,uint64"
    for mode in MODES:
        for name, types, redops, calls in ((mode, "all", "sum,prod,min,max", 80), (f"averages/{mode}", whole, "avg", 20)):
            command = box(mode, 3, arguments=f"-C all -t {types} -o {redops} -c 0-17,60,1000 -x elements -g 2 -k {calls}")
            case(f"reference/{name}", command.replace("--beeline ", ""))


for generate in (algorithms_by_datatypes, gathered, others, by_table, odd_alignment, captured, capacity, kernels, schedules, growth, scenarios, oneway, blocks,
                 fused, torture, multicast, without_beeline):
    generate()
