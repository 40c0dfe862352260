#!/usr/bin/env python3
"""Prints the cases of test/faults; see test/run for the form."""
import multicast

CALLS = "-c 17,1000"
LESS = "--env BEELINE_STAGING=16M"  # the usual one, of which most is never touched, takes as long to fill as all else together
BY_PIECES = ("--block 256", "--env BEELINE_ALLREDUCE=twoshot_bulk")
LEFT = "is left to NCCL: "


def case(name, command, attributes=""):
    print(f"{name} {attributes} | {command}".replace("  ", " "))


def expect(command, *options):
    return "test/faults/expect " + " ".join(options) + " -- " + command


def box(mode, nranks, program, *options):
    ranks = f"-n {nranks}" if mode == "processes" else f"-g {nranks}"
    return f"scripts/emu-box {ranks} --seed $SEED --beeline {' '.join(options)} -- {program}"


def allreduce(mode, nranks, *options, route="nccl", shell="", types="float"):
    """All-reduces that are right, on a communicator whose calls all go to `route`."""
    program = f"$BUILD/test/ranks/collectives -m {mode} -n {nranks} -t {types} {CALLS} -a {route}"
    if shell:
        program = f"sh -c '{shell} exec {program}'"
    return box(mode, nranks, program, LESS, *options)


def faults(scenario, mode, nranks, *options):
    return box(mode, nranks, f"$BUILD/test/faults/faults -m {mode} -n {nranks} {scenario}", LESS, *options)


# A driver call that fails on one rank, and what the warning calls it.  The number: the first call of its kind is for one
# thing, the next for another.
DRIVER = (
    ("cuModuleLoadData", 1, "CUDA_ERROR_NO_BINARY_FOR_GPU", "loading the kernels"),
    ("cuModuleGetFunction", 5, "CUDA_ERROR_INVALID_HANDLE", "kernel bl_allreduce_"),
    ("cuFuncLoad", 3, "CUDA_ERROR_OUT_OF_MEMORY", "kernel bl_allreduce_"),
    ("cuMemGetAllocationGranularity", 1, "CUDA_ERROR_INVALID_VALUE", "granularity"),
    ("cuMemCreate", 1, "CUDA_ERROR_OUT_OF_MEMORY", "allocating [0-9]+ MiB of device memory"),
    ("cuMemAddressReserve", 1, "CUDA_ERROR_OUT_OF_MEMORY", "reserving addresses"),
    ("cuMemAddressReserve", 3, "CUDA_ERROR_OUT_OF_MEMORY", "reserving addresses"),
    ("cuMemMap", 1, "CUDA_ERROR_OUT_OF_MEMORY", "mapping the staging"),
    ("cuMemMap", 2, "CUDA_ERROR_OUT_OF_MEMORY", "mapping the staging of rank"),
    ("cuMemSetAccess", 1, "CUDA_ERROR_NOT_SUPPORTED", "access to the staging"),
    ("cuMemSetAccess", 3, "CUDA_ERROR_NOT_SUPPORTED", "access to the staging of rank"),
    ("cuMemHostRegister", 1, "CUDA_ERROR_OUT_OF_MEMORY", "control words"),
    ("cuMemHostGetDevicePointer", 1, "CUDA_ERROR_INVALID_VALUE", "control words"),
    ("cuMemsetD8Async", 1, "CUDA_ERROR_INVALID_VALUE", "zeroing the staging"),
    ("cuMemExportToShareableHandle", 1, "CUDA_ERROR_NOT_PERMITTED", "exporting the staging"),
    ("cuMemImportFromShareableHandle", 2, "CUDA_ERROR_INVALID_VALUE", "importing the staging of rank"),
    ("cuMemCreate", 2, "CUDA_ERROR_OUT_OF_MEMORY", "self-test: allocating [0-9]+ MiB of device memory"),
    ("cuStreamCreate", 4, "CUDA_ERROR_OUT_OF_MEMORY", "making a stream"),
    ("cuLaunchKernelEx", 2, "CUDA_ERROR_LAUNCH_FAILED", "self-test: launching a kernel"),
    ("cuMemcpyHtoDAsync", 1, "CUDA_ERROR_INVALID_VALUE", "filling the staging"),
    ("cuMemcpyDtoDAsync", 1, "CUDA_ERROR_INVALID_VALUE", "filling the staging"),
    ("cuMemcpyHtoDAsync", 2, "CUDA_ERROR_INVALID_VALUE", "copying to the device"),
)


def driver_calls_fail():
    for i, (function, nth, error, text) in enumerate(DRIVER):
        rank = i % 3
        mode = ("processes", "groups", "processes", "threads")[i % 4]
        # In one process calls are counted for all ranks together: only the first of its kind is known by number.
        if nth > 1:
            mode = "processes"
        case(f"driver/{function}/{nth}/{mode}",
             expect(allreduce(mode, 3, f"--fault {function}@{rank}#{nth}={error}", "--env BEELINE_SETUP_TIMEOUT=12"),
                    f"--warn '{LEFT}rank {rank}: .*{text}'"))
    # By which kernels are launched that may not start early.
    case("driver/cuLaunchKernel/2/processes",
         expect(allreduce("processes", 3, "--fault cuLaunchKernel@1#2=CUDA_ERROR_LAUNCH_FAILED", "--env BEELINE_SETUP_TIMEOUT=12",
                          "--env BEELINE_EARLY_LAUNCH=0"), f"--warn '{LEFT}rank 1: .*self-test: launching a kernel'"))


def resume():
    """A rank's memory does not come back: the communicator is NCCL's then, unless graphs hold calls of Beeline's."""
    scenario = "$BUILD/test/ranks/scenarios -m processes -n 3 "
    refused = "--fault cuMemCreate@1#3=CUDA_ERROR_OUT_OF_MEMORY"
    case("resume/left", expect(box("processes", 3, scenario + "later_suspended_plain", refused),
                               f"--warn '{LEFT}resuming it: rank 1: allocating [0-9]+ MiB of device memory'"))
    case("resume/fails", expect(box("processes", 3, scenario + "later_resume_fails", refused),
                                "--warn 'could not be resumed: rank 1: allocating .*; its calls fail from now on, abort it'", "--warns 3 3"))


def configured():
    """Of calls with a configuration Beeline serves those that ask for nothing else."""
    case("configured", expect(box("groups", 2, "$BUILD/test/ranks/scenarios -m groups -n 2 later_configured", "--env BEELINE_DEBUG=INFO"),
                              "--info 'ncclAllReduce: the call.s configuration asks for a number of CTAs'",
                              "--lines 2 'all_reduce of 900 int32 sum goes to (oneshot|twoshot)'"))
    case("configured/each", expect(box("groups", 2, "$BUILD/test/ranks/scenarios -m groups -n 2 later_configured_each", "--env BEELINE_DEBUG=INFO"),
                                   "--lines 12 'of 900 int32 sum goes to .*_ll'",
                                   "--lines 12 'of 900 int32 sum goes to nccl: the call.s configuration asks for what only NCCL does'"))
    case("configured/gathers", expect(box("threads", 2, "$BUILD/test/programs/programs --small 1K --middle 32K --large 64K gathers_configured",
                                          "--env BEELINE_DEBUG=INFO"),
                                      "--info 'ncclGather: the call.s configuration asks for a number of CTAs'",
                                      "--lines 2 'goes to nccl: the call.s configuration asks for what only NCCL does'",
                                      "--lines 2 'goes to sendrecv_ll128'"))


def made_beside():
    """Set-up calls nothing that waits for kernels, which may wait for ranks that are in it, even where allocating always does."""
    for mode in ("processes", "groups", "threads"):
        case(f"made_beside/{mode}", expect(box(mode, 3, f"$BUILD/test/ranks/scenarios -m {mode} -n 3 turn_made_beside", "--implicit-sync always")))


def budget():
    """Dozens of communicators: the first has all that it can use, the last is NCCL's, all are right."""
    case("budget", expect(box("processes", 2, "$BUILD/test/ranks/scenarios -m processes -n 2 comm_budget", "--env BEELINE_DEBUG=INFO", "--env BEELINE_ALLREDUCE=oneshot_ll"),
                          "--lines 6 'staging 78.0 MiB'", "--lines 62 ' staging [0-9.]+ MiB'", "--lines 52 'BEELINE_BUDGET is used up'", "--within 100"))
    # Who asks for more than usual, and has half of the budget, is not short of it.
    case("budget/more_asked", expect(box("groups", 2, "$BUILD/test/ranks/collectives -m groups -n 2 -t int8 -c 64 -a twoshot_ll128", "--env BEELINE_STAGING=320M", "--env BEELINE_BUDGET=240M",
                                         "--env BEELINE_ALLREDUCE=twoshot_ll128", "--env BEELINE_DEBUG=INFO"), "--info 'all_reduce 0..1024G twoshot_ll128'"))
    case("budget/none", expect(allreduce("processes", 2, "--env BEELINE_BUDGET=0", "--env BEELINE_DEBUG=INFO"),
                               "--lines 2 'rank 0: its process.s BEELINE_BUDGET is used up'"))


def switches():
    """Some communicators only; and none any more, while a job runs."""
    for selection, route in (("ranks=3", "oneshot_ll"), ("tp*", "nccl"), ("!ranks=2-3", "nccl"), ("!ranks=2", "oneshot_ll")):
        case(f"comms/{selection}", expect(allreduce("processes", 3, f"--env 'BEELINE_COMMS={selection}'", "--env BEELINE_DEBUG=INFO", route=route),
                                          *[f"--lines 3 'BEELINE_COMMS=.* leaves it out .3 ranks.'"] if route == "nccl" else []))
    for selection, lines in (("tp?", "3 'communicator .*: rank . of 3 on '"), ("!tp*", "3 'leaves it out .tp0, 3 ranks.'")):
        case(f"comms/{selection}", expect(box("processes", 3, "$BUILD/test/ranks/scenarios -m processes -n 3 comm_config",
                                              f"--env 'BEELINE_COMMS={selection}'", "--env BEELINE_DEBUG=INFO"), f"--lines {lines}"))
    case("comms/one", expect(allreduce("processes", 3, "--env BEELINE_DEBUG=INFO", shell="[ $RANK = 1 ] && export BEELINE_COMMS=tp;"),
                             "--lines 3 'BEELINE_COMMS=tp leaves it out .3 ranks.'"))
    case("comms/bad", expect(allreduce("processes", 2, "--env BEELINE_COMMS=ranks=x", route="oneshot_ll"),
                             "--warn 'BEELINE_COMMS=ranks=x is not accepted: want patterns of names and ranks=N'", "--warns 2 2"))
    for mode in ("processes", "groups", "threads"):
        case(f"switch/{mode}", expect(box(mode, 3, f"$BUILD/test/ranks/scenarios -m {mode} -n 3 turn_switched", "--env BEELINE_SWITCH=$TEST_TMP/off",
                                          "--env BEELINE_DEBUG=INFO"),
                                      "--warn 'from call [0-9]+ on all are NCCL.s: BEELINE_SWITCH='", "--warn 'from call [0-9]+ on Beeline serves: '",
                                      "--warn 'from call [0-9]+ on all are NCCL.s: BEELINE_SWITCH='", "--warn 'from call [0-9]+ on Beeline serves: '"))


def told():
    """INFO: what a communicator is by rank 0, a line of it by each other, and which Beeline first."""
    case("info", expect(allreduce("processes", 3, "--env BEELINE_DEBUG=INFO", route="oneshot_ll"), "--lines 1 ': rank 0 of 3 on .*, link nvswitch, staging '",
                        "--lines 2 ': rank [12] of 3 on [0-9a-f:.]+, as rank 0 says'", "--lines 1 ': all_reduce 0[.][.].* nccl .built-in: .* 3 ranks.'",
                        "--lines 7 ': [a-z_]+ 0[.][.].* nccl .built-in: '", "--lines 3 'INFO Beeline [0-9.]+-[0-9a-f]+, the real NCCL: '"))


def hardware():
    case("topology/none", expect(allreduce("processes", 3, "-t none", "--env BEELINE_DEBUG=INFO"),
                                 f"--info '{LEFT}rank 0: its GPU .* has no P2P access to GPU .* of rank 1'"))
    case("topology/pcie", expect(allreduce("groups", 3, "-t pcie", "--env BEELINE_DEBUG=INFO"),
                                 f"--info '{LEFT}no call would be Beeline.s: no NVLink'"))
    for mode in ("processes", "groups", "threads"):  # rank 0's own links are all NVLink
        case(f"topology/mixed/{mode}", expect(allreduce(mode, 3, "-t mixed", "--env BEELINE_DEBUG=INFO"),
                                              f"--info '{LEFT}no call would be Beeline.s: NVLink joins only some'"))
    case("topology/mixed/pair", expect(box("groups", 3, "$BUILD/test/ranks/collectives -n 2 -c 17,1000 -a oneshot_ll", "-t mixed")))
    for mode in ("processes", "groups", "threads"):
        case(f"topology/broken/{mode}", expect(allreduce(mode, 3, "-t broken"), f"--warn '{LEFT}rank 0: self-test: .* wrong data'"))
    # Only what one rank sends another through their ring, or the credit for it.
    for m, (fault, options, text) in enumerate((("pairs-ring-of-one", (), "rank 1: self-test: sendrecv_ll128 delivered wrong data"),
                                                ("pairs-credit-of-one", (), "self-test: rank 0 waited 1 s for the data of rank 1,"),
                                                ("bulk-ring-of-one", BY_PIECES, "rank 0: self-test: twoshot_bulk delivered wrong data"),
                                                ("bulk-credit-of-one", BY_PIECES, "self-test: rank 0 waited 1 s for the data of rank 1,"))):
        case(f"topology/{fault}",
             expect(allreduce(("processes", "groups")[m % 2], 3, f"--env BEELINE_TEST_FAULT={fault}", "--env BEELINE_SETUP_TIMEOUT=4", *options,
                              "--env BEELINE_EMU_KERNELS=$PWD/$BUILD/test/planted/libbeeline-kernels.so"), f"--warn '{LEFT}{text}'"))


def driver_lacks():
    """A call that is needed is not in the driver: everything is NCCL's, and the line says which."""
    for mode in ("processes", "threads"):
        case(f"driver_lacks/{mode}", expect(allreduce(mode, 2, "--lacks cuMemExportToShareableHandle"),
                                            "--warn 'has no cuMemExportToShareableHandle of CUDA 10.2'"))


def older_driver():
    """A driver of CUDA 12.4 has all that is needed, one of 12.2 has not: docs/limits.md."""
    for mode in ("processes", "groups", "threads"):
        case(f"older_driver/{mode}", expect(allreduce(mode, 3, "--driver 12.4", route="oneshot_ll")))
    for scenario in ("graph_chain", "graph_forked", "later_suspended_plain"):
        case(f"older_driver/{scenario}", expect(box("processes", 3, f"$BUILD/test/ranks/scenarios -m processes -n 3 {scenario}", "--driver 12.4")))
    case("older_driver/lacking", expect(allreduce("processes", 2, "--driver 12.2"), "--warn 'has no cuStreamGetCaptureInfo of CUDA 12.3'"))


def settings():
    one = "[ $RANK = 1 ] && export"
    case("settings/one_disabled", expect(allreduce("processes", 3, "--env BEELINE_DEBUG=INFO", shell=f"{one} BEELINE_ENABLE=0;"),
                                         f"--lines 2 '{LEFT}rank 1 cannot be reached: .*BEELINE_ENABLE=0'"))
    case("settings/all_disabled", expect(allreduce("processes", 3, "--env BEELINE_ENABLE=0", "--env BEELINE_DEBUG=INFO"),
                                         "--lines 0 ' communicator '"))
    case("settings/different", expect(allreduce("processes", 3, shell=f"{one} BEELINE_ALLREDUCE=nccl;", route="oneshot_ll"),
                                      "--warn 'rank 1 has other settings than rank 0'"))
    case("settings/rank_0_holds", expect(allreduce("processes", 3, shell=f"{one} BEELINE_STAGING=2M;", route="oneshot_ll"),
                                         "--warn 'rank 1 has other settings than rank 0'"))
    for variable in ("NCCL_P2P_DISABLE=1", "NCCL_P2P_LEVEL=LOC", "NCCL_P2P_LEVEL=0"):
        case(f"settings/{variable}", expect(allreduce("processes", 2, "--env BEELINE_DEBUG=INFO", shell=f"{one} {variable};"),
                                            f"--lines 2 '{LEFT}rank 1: {variable}$'"))
    for variable in ("NCCL_P2P_DISABLE=0", "NCCL_P2P_LEVEL=NVL", "NCCL_P2P_LEVEL=3"):
        case(f"settings/{variable}", expect(allreduce("processes", 2, f"--env {variable}", route="oneshot_ll")))
    forced = [f"--env BEELINE_{name}=nccl" for name in ("ALLREDUCE", "ALLGATHER", "REDUCESCATTER", "ALLTOALL", "BROADCAST", "REDUCE", "SENDRECV")]
    case("settings/forced_to_nccl", expect(allreduce("processes", 2, *forced, "--env BEELINE_DEBUG=INFO"),
                                           f"--info '{LEFT}no call would be Beeline.s'"))
    # The self-test has few of its kernels left, or none.
    for name, left in (("scatter", ("ALLREDUCE", "ALLGATHER")), ("none", ("ALLREDUCE", "ALLGATHER", "REDUCESCATTER"))):
        options = [f"--env BEELINE_{other}=nccl" for other in left]
        case(f"settings/selftest_of_{name}", expect(allreduce("processes", 4, *options, "--env BEELINE_DEBUG=INFO", route="nccl"),
                                                    "--lines 4 'communicator .*: rank . of 4 on '"))
    case("settings/null", expect(box("processes", 2, "$BUILD/test/ranks/scenarios -m processes -n 2 argument_errors", "--env BEELINE_DEBUG=INFO"),
                                 "--lines 2 'all_reduce of 16 float sum goes to nccl: a buffer that the call needs is NULL$'"))
    # A rank that cannot begin what goes on beside NCCL's calls ends that communicator, and no other of the group.
    case("settings/beside_fails", expect(
        "scripts/emu-box -n 2 --seed $SEED --beeline --env 'BEELINE_SENDRECV=..4K sendrecv_ll128 | nccl' --fault cuStreamCreateWithPriority@1#1=CUDA_ERROR_OUT_OF_MEMORY -- "
        "$BUILD/test/programs/programs --processes --small 1K --middle 2K --large 64K --limit 8 messages_two_communicators",
        "--status 1 --leaks --warn \"a stream beside NCCL's calls: CUDA_ERROR_OUT_OF_MEMORY\" --warn \"what goes on beside NCCL's calls of a group failed on rank 1 of 2\""))
    # Each gather or scatter of NCCL's counts once, of Beeline's each of its messages.
    for route, lines in (("nccl", "nccl 36 calls"), ("sendrecv_ll128", "sendrecv_ll128 [0-9]+ calls")):
        case(f"settings/stats_gathers/{route}", expect(
            f"scripts/emu-box -g 2 --seed $SEED --beeline --env BEELINE_STATS=1 --env BEELINE_SENDRECV={route} -- $BUILD/test/programs/programs --small 1K --middle 2K --large 4K gathers",
            f"--lines 2 'stats: communicator .* {lines}'"))
    case("settings/stats", expect(allreduce("groups", 2, "--env BEELINE_STATS=1", route="oneshot_ll"),
                                  "--lines 2 'stats: communicator .* oneshot_ll 2 calls 4068 bytes$'"))
    case("settings/fused", expect(box("groups", 2, "$BUILD/test/ranks/scenarios -m groups -n 2 -c 64,1 -k 11 fused_launches",
                                      "--env BEELINE_STATS=1", "--env BEELINE_DEBUG=INFO"),
                                  "--info 'rank 1: the 64 calls of a group are fused into 1 launch$'",
                                  "--lines 2 'stats: .* oneshot_ll 1 calls.* oneshot_ll128_batch 64 calls.*; batches launched: 1'"))


def bits():
    """Every size is to have the same bits: sums that are NCCL's nevertheless are warned of, once a communicator and reason."""
    invariant, told = "--env BEELINE_BATCH_INVARIANT=1", "BEELINE_BATCH_INVARIANT=1, but {} goes to nccl, whose bits may depend on the size: {}$"
    first = "all_reduce of 17 {} sum"

    def left(name, why, *options, mode="processes", datatype="float", speaks=1, shell=""):
        case(f"bits/{name}", expect(allreduce(mode, 3, invariant, *options, shell=shell, types=datatype),
                                    f"--warn '{told.format(first.format(datatype), why)}'", f"--warns {speaks} {speaks}"))

    for mode, datatype in (("processes", "half"), ("groups", "double"), ("threads", "f8e5m2")):
        left(f"forced/{mode}", "NCCL forced by the user.s setting", "--env BEELINE_ALLREDUCE=nccl", mode=mode, datatype=datatype)
    case("bits/forced/exact", expect(allreduce("processes", 3, invariant, "--env BEELINE_ALLREDUCE=nccl", types="int8,uint64")))
    case("bits/forced/moves", expect(box("processes", 3, "$BUILD/test/ranks/collectives -m processes -n 3 -C all_gather,broadcast -c 17,1000 -a nccl", invariant,
                                         "--env BEELINE_ALLGATHER=nccl", "--env BEELINE_BROADCAST=nccl")))
    # The ranks have agreed that it is NCCL's; have not met, and each knows of itself alone; or one knows that.
    left("link", "no call would be Beeline.s: no NVLink.*", "-t pcie")
    left("missing", "rank 1 cannot be reached: .*", shell="[ $RANK = 1 ] && export BEELINE_ENABLE=0;", speaks=2)
    left("comms", "BEELINE_COMMS=tp. leaves it out .*", "--env 'BEELINE_COMMS=tp*'", speaks=3)
    case("bits/one_rank", expect(box("groups", 2, "$BUILD/test/ranks/scenarios -m groups -n 2 other_one_rank", invariant)))
    case("bits/custom", expect(box("groups", 2, "$BUILD/test/ranks/scenarios -m groups -n 2 other_premulsum", invariant),
                               f"--warn '{told.format('all_reduce of 50 float .', 'custom reduction operator')}'"))
    case("bits/configured", expect(box("groups", 2, "$BUILD/test/ranks/scenarios -m groups -n 2 later_configured", invariant),
                                   f"--warn '{told.format('all_reduce of 900 float sum', 'the call.s configuration asks for what only NCCL does')}'"))
    case("bits/switch", expect(box("processes", 2, "$BUILD/test/ranks/scenarios -m processes -n 2 bits_switched", invariant, "--env BEELINE_SWITCH=$TEST_TMP/off"),
                               "--warn 'from call [0-9]+ on all are NCCL.s: BEELINE_SWITCH='",
                               f"--warn '{told.format('all_reduce of 50 float sum', 'the file of BEELINE_SWITCH is there')}'"))
    # Large calls: in pieces also where there is little memory; rank 0's word; vLLM's, with all else that it sets then.
    large = "$BUILD/test/ranks/collectives -m processes -n 3 -t bfloat16 -c 1000003 -b 1 -a "
    small = "--env BEELINE_TUNING_FILE=test/ranks/bits.tune"
    for name, options, shell, route, expected in (
            ("little_memory", ("--env BEELINE_BUDGET=10M", invariant), "", "twoshot_ll128", ()),
            ("little_memory/without", ("--env BEELINE_BUDGET=10M", "--env BEELINE_DEBUG=INFO"), "", "nccl", ("--lines 3 'goes to nccl: more than the staging carries at once'",)),
            ("rank_0", (small,), "[ $RANK = 0 ] && export BEELINE_BATCH_INVARIANT=1;", "twoshot_ll128", ("--warn 'rank [12] has other settings than rank 0'", "--warns 2 2")),
            ("rank_1", (small,), "[ $RANK = 1 ] && export BEELINE_BATCH_INVARIANT=1;", "nccl", ("--warn 'rank 1 has other settings than rank 0'",)),
            ("vllm", (*VLLM, small), "", "twoshot_ll128", ("--lines 0 'blocks a launch'", "--lines 3 'BEELINE_BATCH_INVARIANT=1 .environment: VLLM_BATCH_INVARIANT.'",
                                                 "--lines 3 'goes to twoshot_ll128: every size is to have the same bits: BEELINE_BATCH_INVARIANT=1$'")),
            ("vllm/number", ("--env 'VLLM_BATCH_INVARIANT= -01 '", small), "", "twoshot_ll128", ()), ("vllm/off", ("--env VLLM_BATCH_INVARIANT=0", small), "", "nccl", ()),
            ("vllm/word", ("--env VLLM_BATCH_INVARIANT=1st", small), "", "nccl", ()), ("vllm/ours", (*VLLM, small, "--env BEELINE_BATCH_INVARIANT=0"), "", "nccl", ())):
        program = f"sh -c '{shell} exec {large}{route}'" if shell else large + route
        case(f"bits/{name}", expect(box("processes", 3, program, *options), *expected))


# vllm/model_executor/layers/batch_invariant.py
VLLM = tuple(f"--env {setting}" for setting in """VLLM_BATCH_INVARIANT=1 NCCL_LAUNCH_MODE=GROUP NCCL_COLLNET_ENABLE=0 NCCL_NVLS_ENABLE=0 NCCL_P2P_NET_DISABLE=1
    NCCL_MIN_NCHANNELS=1 NCCL_MAX_NCHANNELS=1 NCCL_PROTO=Simple NCCL_ALGO=allreduce:tree NCCL_NTHREADS=1 NCCL_SOCKET_NTHREADS=1 BEELINE_DEBUG=INFO""".split())


BEYOND, LONG = "140001,200000", "8388609"  # what kernels keep from NCCL's copy engines, and from Beeline's


def gathers(mode, nranks, *options, route, shell="", count=BEYOND):
    """All-gathers that are right, above what kernels keep from copy engines."""
    program = f"$BUILD/test/ranks/collectives -m {mode} -n {nranks} -C all_gather -t int8 -c {count} -a {route}"
    if shell:
        program = f"sh -c '{shell} exec {program}'"
    return box(mode, nranks, program, *options)


def copy_engines():
    """Who may ask for copy engines, and what comes of it."""
    asked = "--env BEELINE_COPY_ENGINES=1"
    for variable in ("BEELINE_COPY_ENGINES=1", "BEELINE_ALLGATHER=allgather_ce"):
        case(f"copy_engines/{variable}", expect(gathers("processes", 2, f"--env {variable}", route="allgather_ce", count=LONG)))
    for text, route in (("0", "allgather_ll128"), ("1", "allgather_ll128"), ("EFFICIENCY", "allgather_ll128"), ("-7x", "allgather_ll128"),
                        ("ZEROS|", "allgather_ll128"), ("2", "nccl"), ("zero", "nccl"), ("EFFICIENCY|ZERO", "nccl")):
        case(f"zero_ctas/{text.replace('|', '_')}", expect(gathers("groups", 2, f"--env NCCL_CTA_POLICY='{text}'", route=route)))
    case("zero_ctas/only_rank_1", expect(gathers("processes", 2, shell="[ $RANK = 1 ] && export NCCL_CTA_POLICY=ZERO;", route="nccl")))
    case("zero_ctas/rooted", expect(box("threads", 2, "$BUILD/test/programs/programs --small 1K --middle 32K --large 256K gathers", "--env NCCL_CTA_POLICY=2",
                                        "--env BEELINE_DEBUG=INFO", "--env BEELINE_TUNING_FILE=test/programs/long.tune"), "--info 'goes to nccl: the zero-CTA policy'"))
    # Of one block a launch carries 128K a rank; all sizes are not to have the same bits by that.
    for text, route in (("NCCL_MAX_CTAS=1", "nccl"), ("NCCL_MAX_NCHANNELS=1", "nccl"), ("NCCL_MAX_NCHANNELS=1 NCCL_MAX_CTAS=60", "nccl"), ("NCCL_MAX_NCHANNELS=60 NCCL_MAX_CTAS=1", "nccl"),
                        ("NCCL_MAX_NCHANNELS=60", "allgather_ll128"), ("NCCL_MAX_NCHANNELS=-1", "allgather_ll128"), ("NCCL_MAX_NCHANNELS=1 BEELINE_BATCH_INVARIANT=1", "allgather_ll128")):
        case(f"narrow/{text.replace(' ', '/')}", expect(gathers("groups", 2, *(f"--env {setting}" for setting in text.split()), "--sms 120", route=route)))
    # Rank 0's setting is the communicator's.
    for rank, route in ((0, "allgather_ce"), (1, "allgather_ll128")):
        case(f"copy_engines/only_rank_{rank}",
             expect(gathers("processes", 2, shell=f"[ $RANK = {rank} ] && export BEELINE_COPY_ENGINES=1;", route=route, count=LONG),
                    "--warn 'rank 1 has other settings than rank 0'"))
    # A driver without the calls, or too little staging.
    for m, mode in enumerate(("processes", "groups", "threads")):
        lacks = "--lacks cuStreamBatchMemOp"
        case(f"copy_engines/lacking/{mode}",
             expect(gathers(mode, 2, lacks, asked, "--env BEELINE_DEBUG=INFO", route="allgather_ll128", count=BEYOND if m else LONG),
                    "--info 'no copy engines for its all-gathers: rank 0: its driver has no stream memory operations'"))
        case(f"copy_engines/lacking_forced/{mode}",
             expect(gathers(mode, 2, lacks, "--env BEELINE_ALLGATHER=allgather_ce", route="allgather_ll128"),
                    "--warn 'all_gather: .allgather_ce. cannot serve this communicator .no staging for the copy engines'"))
    # A driver call that fails in the midst of an all-gather; copies that fill the staging are 21 (plugin/cuda/memory.c).
    for nth, call in enumerate(("cuMemcpyDtoDAsync@0#22", "cuMemcpyDtoDAsync@0#23", "cuStreamBatchMemOp@0#4", "cuStreamBatchMemOp@0#6")):
        for m, scenario in enumerate(("copy_half_eager", "copy_half_captured")):
            case(f"{scenario}/{call}",
                 expect(faults(scenario, ("processes", "threads")[(nth + m) % 2], 3, f"--env BEELINE_STAGING=100M --env BEELINE_ALLGATHER=allgather_ce --fault {call}=CUDA_ERROR_UNKNOWN"),
                        "--leaks --warn 'an all-gather by the copy engines on rank 0 of 3 failed half way'"))
    for connections in (1, 2):
        case(f"copy_engines/connections/{connections}",
             expect(gathers("processes", 2, asked, f"--env CUDA_DEVICE_MAX_CONNECTIONS={connections}", "--env BEELINE_DEBUG=INFO", route="allgather_ll128"),
                    f"--info 'no copy engines for its all-gathers: rank 0: CUDA_DEVICE_MAX_CONNECTIONS={connections}: at least 3 are needed'"))
    case("copy_engines/small_staging",
         expect(box("groups", 16, "$BUILD/test/ranks/collectives -n 16 -C all_gather -t int8 -c 140001 -a allgather_ll128 -b 1", asked,
                    "--env BEELINE_STAGING=1M", "--env BEELINE_DEBUG=INFO", "--env BEELINE_SETUP_TIMEOUT=120"),
                "--info 'no copy engines for its all-gathers: BEELINE_STAGING is too small'"))
    case("copy_faults", "test/faults/copy_faults", "soak timeout=600")  # takes minutes


# Rank 1 or 2 of 3 meets its end at a socket call: a kill, a wait beyond the limit, or a refusal.
MEETING_DEATHS = ("accept4@0#1", "connect@2#1", "connect@2#2")
DEATHS = ("sendmsg@1#1", "sendmsg@1#3", "sendmsg@0#4", "sendmsg@2#2", "sendmsg@2#5", "recvmsg@1#2", "recvmsg@1#5",
          "recvmsg@1#7", "recvmsg@1#9", "recvmsg@2#11", "recvmsg@1#13")


def sockets(what):
    return ("--preload $BUILD/test/faults/sockets.so", f"--env TEST_SOCKETS={what}", "--env BEELINE_SETUP_TIMEOUT=6", "--keep-going")


def peers_die():
    for when in MEETING_DEATHS:  # whether it was ever there, its peers cannot tell
        rank = when[when.index("@") + 1]
        line = f"'{LEFT}rank {rank} (is gone|cannot be reached)'"
        case(f"killed/{when.replace('@', '_').replace('#', '_')}",
             expect(faults("survive", "processes", 3, *sockets(f"{when}=kill"), "--env BEELINE_DEBUG=INFO"), "--status 137 --leaks --within 40",
                    f"--warn {line} --warns 0 2 --lines 2 {line} --lines 2 'survived: route nccl'"))
    for when in DEATHS:
        rank = when[when.index("@") + 1]
        case(f"killed/{when.replace('@', '_').replace('#', '_')}",
             expect(faults("survive", "processes", 3, *sockets(f"{when}=kill")), "--status 137 --leaks --within 40",
                    f"--warn '{LEFT}(rank {rank} (is gone|did not connect)|self-test: rank . waited .* for the data of rank {rank},)"
                    "|did not hear whether its peers did'", "--warns 1 2", "--lines 2 'survived: route nccl'"))
    case("hanging", expect(faults("survive", "processes", 3, *sockets("recvmsg@1#5=hang")), "--leaks --within 40",
                           f"--warn '{LEFT}rank 1 did not answer in time'", "--lines 2 'survived: route nccl'"), "timeout=90")
    for what, text, *more in (("socket@1#1", "rank 1: making a Unix socket", "--warns 1 2"),
                              ("socket@1#2", "rank 1( is gone|: connecting to its peers)", "--warns 1 2"),
                              ("connect@2#1", "rank 2( is gone|: connecting to its peers)", "--warns 1 2"),
                              ("accept4@1#1", "rank 1( is gone|: accepting)", "--warns 1 2"),
                              *((f"sendmsg@2#{n}", "rank 2: sending to rank") for n in (6, 17, 18)),
                              ("recvmsg@1#5", "rank . is gone", "--warns 1 2")):
        case(f"refused/{what.replace('@', '_').replace('#', '_')}",
             expect(allreduce("processes", 3, *sockets(f"{what}=EPERM")), "--within 40", *more, f"--warn '{LEFT}{text}'"))


def lives():
    for mode in ("groups", "threads", "processes"):
        case(f"timeout/{mode}", expect(faults("timeout", mode, 3, "--env BEELINE_TIMEOUT=1"), "--warn 'rank 0 of 3 has waited 1 s for rank'"))
        for scenario in ("revoke", "revoke_refused", "shrink_abort", "stale", "crossed", "capturing"):
            case(f"{scenario}/{mode}", expect(faults(scenario, mode, 3)))
        case(f"window_fails/{mode}", expect(faults("window_fails", mode, 3, "--fault ncclCommWindowRegister=ncclSystemError")))
        # Set up by threads that have no context: what they retained is released.
        case(f"crossed_nonblocking/{mode}", expect(faults("crossed_nonblocking", mode, 3), "--lines 0 'LEAK context'"))
    case("late_settings", expect(faults("late_settings", "processes", 2, "--sms 120")))
    case("stale_exchanged/threads", expect(faults("stale_exchanged", "threads", 3)))
    case("churn/groups", expect(faults("churn", "groups", 2)), "timeout=120")
    # The second rank's imports of the first rounds, then of the third, fail.
    case("descriptors_kept", expect(faults("descriptors_kept", "processes", 3)))
    for nth in (5, 6):
        case(f"descriptors_kept/import/{nth}",
             expect(faults("descriptors_kept", "processes", 3, f"--fault cuMemImportFromShareableHandle@1#{nth}=CUDA_ERROR_INVALID_VALUE"),
                    f"--warn '{LEFT}rank 1: importing the staging of rank .'"))
    case("churn/processes", expect(faults("churn", "processes", 2), "--within 120"), "timeout=150")


MIXED = "--env 'BEELINE_SENDRECV=..4K sendrecv_ll128 | nccl'"


def groups():
    """Of a group's messages some are Beeline's, and NCCL does not take the others."""
    for mode in ("processes", "threads"):
        for scenario in ("group_refused", "group_refused_nonblocking"):
            case(f"{scenario}/{mode}", expect(faults(scenario, mode, 2, MIXED),
                                              "--warn 'NCCL ended a group on rank 0 of 2 with an error .invalid usage.*, and a part of it runs; its calls fail from now on'"))


driver_calls_fail()
resume()
configured()
made_beside()
budget()
switches()
told()
hardware()
driver_lacks()
older_driver()
settings()
bits()
copy_engines()
peers_die()
lives()
groups()
multicast.cases(case, expect, allreduce, faults, sockets)
