#!/usr/bin/env python3
"""Prints the cases of this folder, a line each: `name [attributes] | command`, for test/run.

What NCCL runs: sizes are such that those that are called large go to the emulated NCCL.
"""
MODES = ("threads", "processes")
SIZES = "--seed $SEED --small 1K --middle 32K --large 256K --late 1 --limit 40"
BEELINE = "--beeline --env 'BEELINE_ALLREDUCE=..2K oneshot_ll | ..8K oneshot_ll128:warps | ..16K oneshot_ll128:lines | ..64K twoshot_ll128:lines | nccl'"

# (ranks, times): programs.  How many ranks one has, and how often it is run, is a matter of its time.
PROGRAMS = {
    (2, 1): """
        green_context many_communicators many_communicators_12 many_communicators_30
        average late_peer_graph one_way_reduce_8 one_way_destroy one_way_abort finalize_nonblocking
        nonblocking_dead_peer nonblocking_unconnected_peer
    """,
    (2, 2): """
        legacy_stream per_thread_streams nccl_between nccl_fills nccl_fills_reversed nccl_fills_graph nccl_graphs_fill
        nccl_fills_then_tiny nccl_group_fills wide_then_tiny one_way_broadcast one_way_finalize abort_open_group
        abort_init finalize_in_group
    """,
    (2, 3): """
        destroyed_stream destroyed_stream_pending destroyed_stream_captured heir_of_stream heir_of_stream_captured captured_beside_eager abort_beside_another
        destroy_beside_another updated_graphs child_graphs
    """,
    (2, 4): """
        abort_beside_launches revoke_beside_launches
    """,
    (3, 1): """
        many_communicators_graphs late_peer one_way_broadcast_8
    """,
    (3, 2): """
        nccl_between_reversed one_way_reduce grouped_crosswise made_in_passing
    """,
    (3, 4): """
        group_on_streams reused_stream
    """,
    (4, 1): """
        many_communicators_mixed receives_posted
    """,
}


# The usual staging, of which most is never touched, takes as long to fill as all else together: less, but where something is said of it.
LESS, USUAL = "--env BEELINE_STAGING=16M", "--env BEELINE_STAGING=100M"


def case(name, box, program, attributes=""):
    if "--beeline" in box and "BEELINE_STAGING" not in box:
        box = box.replace("--beeline", f"--beeline {LESS}")
    print(f"{name} {attributes}| scripts/emu-box {box} -- $BUILD/test/programs/{program}")


# What is about messages that are NCCL's, and the same with them Beeline's.
SENT = ("receives_posted", "nonblocking_dead_peer", "nonblocking_unconnected_peer")
BY_NCCL, BY_BEELINE = "--env BEELINE_SENDRECV=nccl", "--env BEELINE_SENDRECV=sendrecv_ll128"

# With NCCL alone: what the emulated one does as the real one.  It keeps no order between replayed and other calls, and its kernels
# take a quarter of a GPU each, however small, so that more than a few communicators keep each other out.
case("alone", "-g 2", f"programs {SIZES} destroyed_stream destroyed_stream_pending heir_of_stream heir_of_stream_captured reused_stream group_on_streams legacy_stream per_thread_streams captured_after_small broadcast_in_place updated_graphs child_graphs "
                      "late_peer late_peer_graph one_way_abort")
case("alone-many", "-g 3", f"programs --ranks 3 {SIZES} many_communicators nccl_between nccl_between_reversed grouped_crosswise made_in_passing nccl_fills "
                           "nccl_fills_reversed receives_posted")
case("alone-ends", "-g 2", f"programs --repeat 2 {SIZES} abort_beside_launches revoke_beside_launches abort_init "
                           "nonblocking_dead_peer nonblocking_unconnected_peer")
case("alone-processes", "-n 2", f"programs --processes {SIZES} reused_stream many_communicators late_peer")

for (ranks, times), names in PROGRAMS.items():
    for name in names.split():
        for suffix, way in ((("", f" {BY_NCCL}"), ("_served", f" {BY_BEELINE}")) if name in SENT else (("", ""),)):
            case(name + suffix, f"-g {ranks} {BEELINE}{way}", f"programs --ranks {ranks} --repeat {times} {SIZES} {name}")
# Large for all of them: what is captured is to go to NCCL.
LINES = " ".join(f"--env 'BEELINE_{name.upper()}=..64K {name}_ll128 | nccl'" for name in ("allgather", "reducescatter", "alltoall", "broadcast", "reduce", "sendrecv"))
for name in ("captured_after_small", "broadcast_in_place"):
    case(name, f"-g 3 {BEELINE} {LINES}", f"programs --ranks 3 --repeat 2 {SIZES} {name}")
for name, times in (("green_communicators", 3), ("green_communicators_graphs", 3), ("many_communicators_threads", 8)):
    case(name, f"-g 2 --sms 32 {BEELINE}", f"programs --repeat {times} {SIZES} {name}")
# Pieces, longer than what is on its way, on few multiprocessors.
case("green_context_bulk", "-g 2 --beeline --sms 16 --block 256 --env BEELINE_ALLREDUCE=twoshot_bulk --env BEELINE_STAGING=4M", "programs --ranks 2 --repeat 1 --seed $SEED --small 4M --middle 4M --large 4M --late 1 green_context")
# A long call in pieces, by NCCL, or in pieces beside NCCL's, which runs behind what was issued later.
for long, sms, routes in (("bulk", "--sms 32 --nccl-sms 8", "..500K oneshot_ll128 | twoshot_bulk"), ("nccl", "--sms 132 --nccl-sms 24", "..500K twoshot_ll128 | nccl"),
                          ("beside_nccl", "--sms 132 --nccl-sms 24", "..500K nccl | twoshot_bulk")):
    for name in ("calls_meanwhile", "graphs_meanwhile", "graphs_before"):
        if (name, long) == ("graphs_before", "nccl"):
            continue  # what graphs hold is not known to be beside a kernel of NCCL's that comes later (docs/limits.md)
        case(f"{name}_{long}", f"-g 2 {sms} --block 256 --beeline --env 'BEELINE_ALLREDUCE={routes}' --env BEELINE_STAGING=4M",
             f"programs --seed $SEED --small 1K --middle 490K --large 2M --late 0.5 --limit 100 {name}")
# Of all-to-alls in a group that is tried some are Beeline's.
for name, box in (("alltoall_simulated", ""), ("alltoall_simulated_mixed", "--beeline --env 'BEELINE_ALLTOALL=..4K alltoall_ll128 | nccl'")):
    case(name, f"-g 2 {box}", f"programs {SIZES} alltoall_simulated")
case("processes", f"-n 2 {BEELINE}", f"programs --processes {SIZES} reused_stream many_communicators late_peer")
# A limit that somebody has set, and a peer that is later: calls may fail, but nothing that comes out is wrong.
for name in ("late_peer", "late_peer_graph"):
    case(f"{name}_limited", f"-g 2 {BEELINE} --env BEELINE_TIMEOUT=1", f"programs {SIZES} --late 3 --may-fail {name}", "warn-ok leak-ok ")

# Messages: what is asked for here is what NCCL does, which the cases without Beeline say.
MESSAGES = """
    messages_patterns messages_ahead messages_ahead_grouped messages_awaited messages_mixed messages_mixed_first messages_mixed_nonblocking
    messages_mixed_beside_capture messages_mixed_polled messages_mixed_abandoned messages_two_communicators messages_simulated
    messages_segmented messages_between messages_beside messages_abandoned messages_behind_collective messages_captured messages_captured_idle
    gathers
""".split()
OF_THREE = ["messages_chain"]
REFUSED = ["messages_half_captured"]
# What the real NCCL does not do.
BEELINES = ["messages_segmented_freely"]
# Of a group some are Beeline's and some NCCL's; all are Beeline's, with rings as they are and the smallest; as the table has it.
MIXED = "--env 'BEELINE_SENDRECV=..4K sendrecv_ll128 | nccl'"
WAYS = {"forced": BY_BEELINE, "small_staging": f"{BY_BEELINE} --env BEELINE_STAGING=1M", "forwarded": BY_NCCL, "table": USUAL}


def messages(prefix, names, box="", attributes="", often=lambda ranks, mode: True):
    """A case for each number of ranks, by threads (mode 0) and by processes (1); those that are not often in `make soak` only."""
    for ranks in (2, 3, 4):
        those = " ".join(name for name in names if ranks > 2 or name not in OF_THREE)
        for mode, (option, by) in enumerate((("-g", ""), ("-n", "--processes "))):
            rare = not often(ranks, mode)
            if those:
                case(f"{'soak/' * rare}{prefix}/{ranks}/{MODES[mode]}", f"{option} {ranks} {box}".rstrip(), f"programs --ranks {ranks} {by}{SIZES} {those}",
                     attributes + "soak timeout=600 " * rare)


def in_turn(number):
    """One mode of each number of ranks."""
    return lambda ranks, mode: (ranks + mode + number) % 2 == 0


messages("messages-alone", MESSAGES + OF_THREE + REFUSED, often=in_turn(0))
for number, name in enumerate(MESSAGES + OF_THREE):
    messages(name, [name], f"--beeline {MIXED}", often=in_turn(number))
for name, box in (("alone", ""), ("beeline", f"--beeline {MIXED}")):
    for ranks, mode, option, by in zip((3, 2), MODES, ("-g", "-n"), ("", "--processes ")):
        if name == "beeline" or mode == "threads":
            case(f"messages_captured_at_once/{name}/{mode}", f"{option} {ranks} {box}".rstrip(), f"programs --ranks {ranks} {by}{SIZES} --limit 15 messages_captured_at_once")
# Streams share one queue, in which what waits holds up what is behind it; of a program that needs two streams NCCL alone does not come to an end.
ONE_QUEUE, BESIDE = "--env CUDA_DEVICE_MAX_CONNECTIONS=1", [name for name in MESSAGES + OF_THREE if name != "messages_awaited"]
messages("messages-one_queue-alone", BESIDE, ONE_QUEUE, often=in_turn(0))
messages("messages-one_queue", BESIDE, f"--beeline {MIXED} {ONE_QUEUE}", often=lambda ranks, mode: (ranks, mode) == (3, 0))
# What Beeline has of such a group leaves NCCL's part its room, but for one place, among few multiprocessors.
MIXED_WIDE = "--env 'BEELINE_SENDRECV=..256K sendrecv_ll128 | nccl'"
for name, box in (("alone", ""), ("beeline", f"--beeline {MIXED_WIDE}")):
    case(f"messages_mixed_green/{name}", f"-g 2 --sms 32 --nccl-sms 7 {box}", f"programs --repeat 3 {SIZES} --small 64K --middle 96K --large 512K messages_mixed_green")
# Beeline's collectives of such a group are ahead of NCCL's part; and a first call of NCCL's is behind no messages.
for name, box in (("alone", ""), ("beeline", "--beeline --env 'BEELINE_ALLREDUCE=..512K twoshot_ll128 | nccl' --env BEELINE_SENDRECV=nccl")):
    case(f"messages_mixed_collectives/{name}", f"-g 3 --sms 8 {box}", f"programs --ranks 3 {SIZES} --middle 512K --large 1M --limit 15 messages_mixed_collectives")
for name, box in (("alone", ""), ("beeline", f"--beeline {MIXED} --env BEELINE_ALLREDUCE=nccl")):
    case(f"messages_mixed_empty/{name}", f"-g 3 {box}".rstrip(), f"programs --ranks 3 {SIZES} --limit 15 messages_mixed_empty")
    for mode, option, by in zip(MODES, ("-g", "-n"), ("", "--processes ")):
        for program in ("messages_mixed_first_collective", "messages_mixed_known_collective"):
            case(f"{program}/{name}/{mode}", f"{option} 3 {box}".rstrip(), f"programs --ranks 3 {by}{SIZES} --limit 15 {program}")
    case(f"messages_mixed_in_order/{name}", f"-g 2 {box} --env NCCL_LAUNCH_ORDER_IMPLICIT=1", f"programs {SIZES} --limit 15 messages_mixed_in_order")
# Collectives of both in a group, on several communicators: NCCL's kernels may fill a GPU, and Beeline's another.
BOTH = "--beeline --env 'BEELINE_ALLREDUCE=..64K twoshot_ll128 | nccl' --env BEELINE_SENDRECV=nccl"
for box, sms in (("few", "--sms 8"), ("many", "--sms 132 --nccl-sms 32")):
    for name in ("both_many", "both_many_at_once", "both_on_streams"):
        if (box, name) != ("many", "both_many_at_once"):  # which NCCL alone does not come to the end of
            case(f"{name}/{box}", f"-g 3 {sms} {BOTH}", f"programs --ranks 3 {SIZES} --middle 64K --limit 15 {name}")
for seed in range(4):
    case(f"both_first/{seed}", f"-g 3 --sms 8 {BOTH}", f"programs --ranks 3 {SIZES} --seed $((4 * SEED + {seed})) --limit 15 both_first")
for name, box in (("alone", ""), ("beeline", BOTH), ("mixed", "--beeline --env 'BEELINE_SENDRECV=..16K sendrecv_ll128 | nccl'")):
    case(f"both_made/{name}", f"-g 3 {box}".rstrip(), f"programs --ranks 3 {SIZES} --limit 15 both_made")
for name, box in (("alone", ""), ("beeline", "--beeline"), ("nccls", "--beeline --env BEELINE_ALLREDUCE=nccl")):
    case(f"nothing_waits/{name}", f"-g 2 {box}".rstrip(), f"programs {SIZES} --limit 15 nothing_waits")
case("both_captured", f"-g 2 --nccl-delay 5000 {BOTH}", f"programs {SIZES} --limit 30 both_captured")
case("both-alone", "-g 3 --sms 8", f"programs --ranks 3 {SIZES} --middle 64K --limit 15 both_many both_on_streams both_first")
# Groups that the seed draws, of which some is NCCL's, and some Beeline's.
LOW_SENT = "--beeline --env 'BEELINE_SENDRECV=..16K sendrecv_ll128 | nccl'"
DRAWN = {
    "alone": "",
    "low": "--beeline --env 'BEELINE_SENDRECV=..4K sendrecv_ll128 | nccl' --env BEELINE_TUNING_FILE=test/ranks/low.tune",
    "few": f"--sms 16 {LOW_SENT} --env 'BEELINE_ALLREDUCE=..16K twoshot_ll128 | nccl'",
    "small_staging": f"{LOW_SENT} --env BEELINE_STAGING=1M",
    "in_order": f"{LOW_SENT} --nccl new --env NCCL_LAUNCH_ORDER_IMPLICIT=1",
    "invariant": f"{LOW_SENT} --nccl old --env BEELINE_BATCH_INVARIANT=1",
}
for ranks in (2, 3, 4):
    for number, (name, box) in enumerate(DRAWN.items()):
        mode, option, by = list(zip(MODES, ("-g", "-n"), ("", "--processes ")))[(ranks + number) % 2]
        if (ranks + number) % 3:
            case(f"drawn/{ranks}/{name}/{mode}", f"{option} {ranks} {box}".rstrip(), f"programs --ranks {ranks} {by}--seed $SEED --repeat 2 --limit 60 drawn_groups", "timeout=100 ")
        case(f"soak/drawn/{ranks}/{name}", f"-g {ranks} {box}".rstrip(), f"programs --ranks {ranks} --seed $SEED --repeat 100 --limit 500 drawn_groups", "soak timeout=600 ")
# (The emulated NCCL's own destroy waits for its calls.)
case("destroyed_first", "-g 3 --beeline", f"programs --ranks 3 {SIZES} --limit 15 destroyed_first")
for name, box in (("alone", ""), ("beeline", BEELINE)):
    for program in ("failed_communicator", "failed_nonblocking"):
        case(f"{program}/{name}", f"-g 2 {box} --fault ncclCommRegister@0=async:ncclRemoteError".replace("  ", " "), f"programs {SIZES} --limit 15 {program}",
             "warn-ok leak-ok " if (program, name) == ("failed_nonblocking", "beeline") else "leak-ok ")
# Of a group that NCCL refuses nothing is launched, whoever would have it.
for name, box, attributes in (("alone", "", ""), ("beeline", "--beeline --env 'BEELINE_ALLREDUCE=..64K twoshot_ll128 | nccl' --env 'BEELINE_SENDRECV=..64K sendrecv_ll128 | nccl'", "warn-ok ")):
    for mode, option, by in zip(MODES, ("-g", "-n"), ("", "--processes ")):
        case(f"refused/{name}/{mode}", f"{option} 3 {box}".rstrip(), f"programs --ranks 3 {by}{SIZES} --limit 15 refused_groups refused_and_again refused_messages", attributes)
for name, box in (("alone", ""), ("beeline", f"{BEELINE} {BY_BEELINE}")):
    case(f"receive_ahead_of_first/{name}", f"-g 2 --sms 32 {box}", f"programs {SIZES} --middle 64K --limit 15 receive_ahead_of_first")
# Messages that are wide by themselves are not beside other communicators.
for name in ("large_receives_posted", "large_receives_captured"):
    for mode, option, by in zip(MODES, ("-g", "-n"), ("", "--processes ")):
        case(f"{name}/{mode}", f"{option} 2 --sms 132 --beeline {BY_BEELINE}", f"programs {by}{SIZES} --large 512K --limit 15 {name}")
# What the sender has ahead of its receivers: as much as NCCL takes of each size, up to the largest that rows may have (the emulated NCCL takes
# less); also with less memory, of a communicator's first messages.
LONG = "--beeline --env BEELINE_TUNING_FILE=test/programs/long.tune"
for ranks, least, most in ((2, "1K", "1M"), (3, "1K", "1M"), (4, "2K", "512K")):
    case(f"messages_unreceived/{ranks}", f"-g {ranks} {LONG} {USUAL}", f"programs --ranks {ranks} --seed $SEED --small {least} --middle {most} --large 2M --limit 40 messages_unreceived")
for ranks, megabytes, most in ((2, 1, 4320), (2, 2, 17280), (2, 4, 34560), (2, 8, 69120), (3, 1, 1920), (3, 4, 17280), (4, 4, 8640)):
    case(f"messages_unreceived_first/{ranks}/{megabytes}M", f"-g {ranks} {LONG} --env BEELINE_STAGING={megabytes}M", f"programs --ranks {ranks} --seed $SEED --small {most} --limit 40 messages_unreceived_first")
for ranks, most in ((2, "4M"), (3, "1M"), (4, "1M")):
    case(f"one_way_unreceived/{ranks}", f"-g {ranks} {LONG} {USUAL}", f"programs --ranks {ranks} --seed $SEED --small 64K --middle {most} --limit 40 one_way_unreceived", "soak " * (ranks == 4))
for name, box in (("alone", ""), ("beeline", "--beeline")):
    for ranks in (2, 3, 4):
        case(f"one_way_mixed/{name}/{ranks}", f"-g {ranks} {box}".rstrip(), f"programs --ranks {ranks} {SIZES} --limit 15 one_way_mixed")
    case(f"one_way_behind/{name}", f"-g 4 --sms 32 {box}".rstrip(), "programs --ranks 4 --seed $SEED --small 48K --middle 96K --large 256K --limit 15 one_way_behind")
# Rings of all channels, streams of more than half as many warps, and captured launches as wide as beside others.
case("messages_many_warps", f"-g 2 --sms 132 --block 256 --beeline {BY_BEELINE}",
     "programs --ranks 2 --seed $SEED --small 60K --middle 64K --large 120K --late 1 --limit 60 messages_captured messages_captured_idle messages_patterns", "timeout=120 ")
# Blocks of 512 threads, where these give each quad a warp: with messages to oneself, and without.
case("messages_wide", f"-g 2 --block 512 --beeline {BY_BEELINE}", "programs --ranks 2 --seed $SEED --small 1K --middle 3K --large 100K --limit 40 messages_patterns gathers messages_captured")
print(f"messages_wide/ring | scripts/emu-box -g 2 --block 512 --beeline {BY_BEELINE} -- $BUILD/beeline-perf -t 2 -c sendrecv -b 2K -e 32K -i 2K --check")
# Gathers and scatters of which NCCL alone can heed some, whoever has those of their size.
case("gathers_configured/alone", "-g 3", f"programs --ranks 3 {SIZES} gathers_configured")
for ranks, mode, option, by in zip((3, 2), MODES, ("-g", "-n"), ("", "--processes ")):
    case(f"gathers_configured/{mode}", f"{option} {ranks} --beeline {MIXED}", f"programs --ranks {ranks} {by}{SIZES} gathers_configured")
# On memory that NCCL gave, or was told of: small ones by Beeline, and large ones by NCCL.
for name, box in (("alone", ""), ("beeline", f"{BEELINE} {LINES}")):
    for ranks, mode, option, by in zip((3, 2), MODES, ("-g", "-n"), ("", "--processes ")):
        if name == "beeline" or mode == "threads":
            case(f"registered/{name}/{mode}", f"{option} {ranks} {box}".rstrip(), f"programs --ranks {ranks} {by}{SIZES} --middle 6K --large 68K registered")
# On memory of the host's: by NCCL, by lines, and the large ones in pieces.
PIECES = " ".join(f"--env 'BEELINE_{name.upper()}=..16K {kernel}_ll128 | {kernel}_bulk'" for name, kernel in
                  (("allreduce", "twoshot"), ("allgather", "allgather"), ("reducescatter", "reducescatter"), ("alltoall", "alltoall")))
for name, box in (("alone", ""), ("beeline", f"--block 256 --beeline {PIECES}")):
    case(f"host_memory/{name}", f"-g 2 {box}".rstrip(), f"programs {SIZES} --middle 6K --large 68K host_memory")
case("unreceived-alone", "-g 2", "programs --seed $SEED --small 1K --middle 4K --large 256K messages_unreceived one_way_unreceived")
for name in REFUSED:
    messages(name, [name], f"--beeline {MIXED}", "warn-ok ")
OFTEN = {"forced": (3, 1), "small_staging": (3, 0), "forwarded": (2, 0), "table": (2, 1)}
for name, way in WAYS.items():
    messages(f"messages-{name}", MESSAGES + OF_THREE + (BEELINES if way.startswith(BY_BEELINE) else []), f"--beeline {way}",
             often=lambda ranks, mode, name=name: (ranks, mode) == OFTEN[name])

print("early_in_graphs | test/programs/early_in_graphs")

# Random collectives.  The emulated NCCL keeps no order between graphs and other calls.
SOAK = "--threads 2 --seed $SEED"
case("soak-alone", "-g 4", f"soak --ranks 4 {SOAK} --no-graphs --calls 2000 --most 64K --no-shrink")
case("soak", f"-g 2 --beeline {USUAL}", f"soak --ranks 2 {SOAK} --calls 10000 --most 64K --no-shrink")
# Calls of NCCL's are between Beeline's: all messages; the large ones.
case("soak-ordered", f"-g 2 --beeline {USUAL} {BY_NCCL} --env NCCL_LAUNCH_ORDER_IMPLICIT=1", f"soak --ranks 2 {SOAK} --calls 3000 --most 64K --no-shrink")
case("soak-messages", f"-g 3 --beeline {USUAL} {MIXED}", f"soak --ranks 3 {SOAK} --calls 3000 --most 64K --no-shrink")
# Calls of up to a megabyte in many launches each, and messages many times as long as their rings.
case("soak-small_staging", f"-g 2 --sms 132 --beeline {BY_BEELINE} --env BEELINE_STAGING=1M", f"soak --ranks 2 {SOAK} --calls 2500 --most 1M --no-shrink")
case("soak-4", f"-g 4 --beeline {USUAL}", f"soak --ranks 4 {SOAK} --calls 800 --most 16K --no-shrink")
case("soak-long", f"-g 4 --beeline {USUAL}", f"soak --ranks 4 {SOAK} --seconds 120 --most 64K", "soak timeout=300 ")
