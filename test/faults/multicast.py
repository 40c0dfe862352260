"""Cases of multicast objects, for matrix.py: how they are made, given up and given back."""

ON = ("-t nvls", "--env BEELINE_MULTICAST=1", "--env BEELINE_TUNING_FILE=test/faults/multicast.tune")
INFO = "--env BEELINE_DEBUG=INFO"
LOST = "BEELINE_MULTICAST=1, and multicast cannot be had: "

# Of communicators of three ranks, one after another, a driver call of each that fails on one rank, and what the warning
# calls it.  The number counts that rank's calls of this kind in the communicators so far.
CALLS = (
    ("cuMulticastGetGranularity@0#1", "NOT_SUPPORTED", "rank 0: the granularity of a multicast object"),
    ("cuMulticastCreate@0#1", "OUT_OF_MEMORY", "rank 0: creating a multicast object"),
    ("cuMemExportToShareableHandle@0#4", "INVALID_VALUE", "rank 0: exporting a multicast object"),
    ("cuMulticastGetGranularity@1#1", "INVALID_VALUE", "rank 1: the granularity of a multicast object"),
    ("cuMemImportFromShareableHandle@2#12", "INVALID_VALUE", "rank 2: importing the multicast object"),
    ("cuMulticastAddDevice@1#1", "SYSTEM_NOT_READY", "rank 1: joining the multicast object"),
    ("cuMemCreate@2#16", "OUT_OF_MEMORY", "rank 2: allocating memory for multicast"),
    ("cuMulticastBindMem@0#1", "OUT_OF_MEMORY", "rank 0: binding memory to the multicast object"),
    ("cuMulticastBindMem@2#2", "INVALID_VALUE", "rank 2: binding memory to the multicast object"),
    ("cuMemMap@1#45", "OUT_OF_MEMORY", "rank 1: mapping the multicast object"),
    ("cuMemSetAccess@0#52", "NOT_SUPPORTED", "rank 0: access to the multicast object"),
)


# What a rank may lack, or forbid, and what the communicator's line says then.
def refusals():
    # Also in spellings that only their own libraries know, or nobody.
    for variable in ("NCCL_NVLS_ENABLE=0", "NCCL_NVLS_ENABLE=0x0", "NCCL_NVLS_ENABLE=-0", "NCCL_NVLS_ENABLE=true", "NCCL_NVLS_ENABLE=08",
                     "TORCH_SYMM_MEM_DISABLE_MULTICAST=1", "TORCH_SYMM_MEM_DISABLE_MULTICAST=maybe",
                     "NVSHMEM_DISABLE_NVLS=1", "NVSHMEM_DISABLE_NVLS=T"):
        yield variable, (), f"[ $RANK = 1 ] && export {variable};", f"rank 1: {variable}"
    yield "misspelt", (), "[ $RANK = 1 ] && export BEELINE_MULTICAST=2;", "rank 1: BEELINE_MULTICAST=0"
    yield "switch", (), "[ $RANK = 1 ] && export BEELINE_MULTICAST=0;", "rank 1: BEELINE_MULTICAST=0"
    yield "unset", ("--env BEELINE_MULTICAST=",), "", "BEELINE_MULTICAST=0"
    yield "lacks", ("--lacks cuMulticastUnbind",), "", "rank 0: the driver has no cuMulticastUnbind"
    yield "nvlink", ("-t nvlink",), "", "rank 0: the GPU has no multicast"
    yield "sm_80", ("--arch 80",), "", "rank 0: the GPU is sm_80, multicast needs sm_90"


def cases(case, expect, allreduce, faults, sockets):
    """These are functions of matrix.py."""
    every = " ".join(f"--fault {fault}=CUDA_ERROR_{error}" for fault, error, _ in CALLS)
    warnings = [f"--warn '{LOST}{text}.*CUDA_ERROR_{error}'" for _, error, text in CALLS]
    for mode in ("processes", "groups"):
        case(f"multicast/calls/{mode}", expect(faults(f"-k {len(CALLS)} multicast_lost", mode, 3, *ON, every), *warnings))

    case("multicast/every_other_call", "test/faults/every_multicast_call --half", "timeout=400")
    case("multicast/every_call", "test/faults/every_multicast_call", "soak timeout=400")

    # Nothing forbidden is tried: no multicast call is made on any rank, not even to ask.
    for name, options, shell, text in refusals():
        options = (*ON, *options, INFO, "--env BEELINE_EMU_TRACE=$TEST_TMP/trace")
        others = {"switch": "--warn 'rank 1 has other settings'",
                  "misspelt": "--warn 'BEELINE_MULTICAST=2 is not accepted' --warn 'rank 1 has other settings'"}.get(name, "")
        case(f"multicast/refused/{name}",
             expect(allreduce("processes", 2, *options, route="oneshot_ll", shell=shell), others,
                    f"--lines 1 'multicast off .{text}.,'") + " && grep -q cuMemCreate $TEST_TMP/trace && ! grep cuMulticast $TEST_TMP/trace")
    case("multicast/served", expect(faults("multicast_lost", "threads", 3, *ON, INFO, "--arch 100", "--env BEELINE_STAGING=100M"), "--lines 1 'multicast 18.0 MiB,'"))
    case("multicast/allowed", expect(faults("multicast_lost", "processes", 2, *ON, "--env NCCL_NVLS_ENABLE=2",
                                            "--env TORCH_SYMM_MEM_DISABLE_MULTICAST=0", "--env NVSHMEM_DISABLE_NVLS=0")))
    case("multicast/setenv/processes", expect(faults("multicast_setenv", "processes", 2, *ON)))
    case("multicast/setenv/groups", expect(faults("multicast_setenv", "groups", 2, *ON)))

    # Slots of the switches: those that NCCL takes come first, and what Beeline takes it gives back.
    case("multicast/slots/none", expect(allreduce("processes", 2, *ON, "--multicast-slots 1 --nccl-multicast 1", route="oneshot_ll"),
                                        f"--warn '{LOST}rank .: binding memory.*OUT_OF_MEMORY'"))
    case("multicast/slots/churn", expect(faults("multicast_churn", "groups", 2, *ON, "--multicast-slots 1")))
    case("multicast/slots/beside_nccl", expect(faults("multicast_churn", "processes", 2, *ON, "--multicast-slots 2 --nccl-multicast 1")))

    # Where file descriptors are refused, fabric handles do; if they are what they claim to be.
    refused = "--fault cuMulticastCreate@0#1=CUDA_ERROR_NOT_SUPPORTED"
    case("multicast/fabric/works", expect(faults("multicast_lost", "processes", 2, *ON, refused, "--fabric", INFO),
                                          "--info 'as a file descriptor failed: CUDA_ERROR_NOT_SUPPORTED .801.; trying a fabric handle'"))
    case("multicast/fabric/denied", expect(faults("-k 1 multicast_lost", "processes", 2, *ON, refused, "--fabric=denied"),
                                           f"--warn '{LOST}rank 0: .* as a fabric handle failed: CUDA_ERROR_NOT_PERMITTED'"))
    case("multicast/fabric/none", expect(faults("-k 1 multicast_lost", "groups", 2, *ON, refused),
                                         f"--warn '{LOST}rank 0: .* as a file descriptor failed: CUDA_ERROR_NOT_SUPPORTED'"))

    # The self-test: of a launch, of data, of what does not come.  What serves then is as if nothing had been.
    case("multicast/selftest/launch", expect(faults("-k 1 multicast_lost", "processes", 3, *ON, "--env BEELINE_SETUP_TIMEOUT=8",
                                                    "--fault cuLaunchKernelEx@1#14=CUDA_ERROR_LAUNCH_FAILED"),
                                             f"--warn '{LOST}rank 1: self-test: launching a kernel'"))
    for fault, text in (("nvls-share", "rank 0: self-test: twoshot_nvls delivered wrong data"),
                        ("nvls-flag", "self-test: rank . waited 1 s for the data of rank")):
        case(f"multicast/selftest/{fault}",
             expect(allreduce("processes", 3, *ON, f"--env BEELINE_TEST_FAULT={fault}", "--env BEELINE_SETUP_TIMEOUT=4",
                              "--env BEELINE_EMU_KERNELS=$PWD/$BUILD/test/planted/libbeeline-kernels.so", route="oneshot_ll"),
                    f"--warn '{LOST}{text}'"))

    # Rank 1 meets its end between two steps: then the communicator is NCCL's, and nobody waits.
    for nth in (17, 20, 21, 24, 25, 28):
        case(f"multicast/killed/{nth}",
             expect(faults("survive", "processes", 3, *ON, *sockets(f"recvmsg@1#{nth}=kill")), "--status 137 --leaks --within 40",
                    "--warn 'is left to NCCL: (rank 1 is gone|self-test: )|did not hear whether its peers did'",
                    "--lines 2 'survived: route nccl'"))
    case("multicast/hanging", expect(faults("survive", "processes", 3, *ON, *sockets("recvmsg@1#24=hang")), "--leaks --within 40",
                                     "--warn 'is left to NCCL: rank 1 did not answer in time'", "--lines 2 'survived: route nccl'"),
         "timeout=90")

    case("multicast/died", expect(faults("multicast_died", "processes", 3, *ON, "--env BEELINE_TIMEOUT=1 --keep-going"), "--status 137 --leaks --within 40",
                                  "--warn 'has waited 1 s for rank 2' --warn 'has waited 1 s for rank 2'", "--lines 2 'rank . survived'"))
    for mode in ("processes", "groups", "threads"):
        case(f"multicast/leave/{mode}", expect(faults("multicast_leave", mode, 3, *ON)))
    for s, scenario in enumerate(("revoke", "shrink_abort", "stale", "crossed", "crossed_nonblocking", "capturing")):
        mode = ("processes", "groups", "threads")[s % 3]
        case(f"multicast/{scenario}/{mode}", expect(faults(scenario, mode, 3, *ON)))
