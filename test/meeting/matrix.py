#!/usr/bin/env python3
"""Prints the cases of test/meeting: how ranks find each other, or that some are not there; see test/run for the form."""

NRANKS = 4
ELSEWHERE = "--preload $BUILD/test/meeting/elsewhere.so"
INFO = "--env BEELINE_DEBUG=INFO"


def case(name, command, attributes=""):
    print(f"{name} {attributes} | {command}".replace("  ", " "))


def box(program, *options, ranks=(), does=""):
    """A process a rank; those of `ranks` do something first."""
    if does:
        program = f"sh -c 'case $RANK in {'|'.join(map(str, ranks))}) {does};; esac; exec {program}'"
    return f"scripts/emu-box -n {NRANKS} --seed $SEED --beeline --env BEELINE_STAGING=16M {' '.join(options)} -- {program}"


def collectives(route=""):
    return f"$BUILD/test/ranks/collectives -m processes -n {NRANKS} -c 17,1000" + (f" -a {route}" if route else "")


def expect(command, *options):
    return "test/faults/expect " + " ".join(options) + " -- " + command


def unreachable(ranks):
    return f"is left to NCCL: rank{'s' if len(ranks) > 1 else ''} {' '.join(map(str, ranks))} cannot be reached: "


def split_up(name, ranks, does, *options, before=""):
    """The ranks named cannot reach the others, nor these them: all is right, and each rank says why it is NCCL's."""
    others = [rank for rank in range(NRANKS) if rank not in ranks]
    case(name, before + expect(box(collectives("nccl"), INFO, *options, ranks=ranks, does=does),
                      f"--lines {len(others)} '{unreachable(ranks)}'", f"--lines {len(ranks)} '{unreachable(others)}'"))


def missing():
    """Every set of ranks without the preload, or switched off."""
    for bits in range(1, 2**NRANKS - 1):
        ranks = [rank for rank in range(NRANKS) if bits >> rank & 1]
        does = "export LD_PRELOAD=" if bits % 2 else "export BEELINE_ENABLE=0"
        case(f"missing/{''.join(map(str, ranks))}",
             expect(box(collectives(), INFO, ranks=ranks, does=does), f"--lines {NRANKS - len(ranks)} '{unreachable(ranks)}'"))


def elsewhere():
    split_up("hosts/2", (2, 3), "export TEST_HOST=b", ELSEWHERE)
    split_up("hosts/1", (1,), "export TEST_HOST=b", ELSEWHERE)
    split_up("user", (1,), "export TEST_USER=12345", ELSEWHERE)
    split_up("network", (1,), "exec unshare -n " + collectives("nccl"), before="unshare -n true || exit 77; ")
    # Each host's own: half the ranks make a communicator that is served.
    case("hosts/split", expect(box(f"$BUILD/test/ranks/scenarios -m processes -n {NRANKS} comm_split", INFO, ELSEWHERE, ranks=(2, 3), does="export TEST_HOST=b"),
                               "--lines 4 'communicator .*: rank [01] of 2 on '", "--lines 2 '1 of its 3 ranks cannot be reached'",
                               "--lines 1 '2 of its 3 ranks cannot be reached'"))


    # A child's ranks are not its parent's.
    case("missing/child", expect(box(f"$BUILD/test/ranks/scenarios -m processes -n {NRANKS} comm_split", INFO, ranks=(0,), does="export BEELINE_ENABLE=0"),
                                 "--lines 3 '1 of its 4 ranks cannot be reached'"))


OTHER_BUILD = "$TEST_TMP/libbeeline.so"
MAKE_OTHER_BUILD = f"test/meeting/other_build $BUILD/libbeeline.so {OTHER_BUILD} && "


def builds():
    for ranks in ((1,), (0,), (2, 3)):
        case(f"builds/{''.join(map(str, ranks))}",
             MAKE_OTHER_BUILD + expect(box(collectives("nccl"), ranks=ranks, does=f"export LD_PRELOAD={OTHER_BUILD}"),
                                       "--warn 'is left to NCCL: rank . runs another build of Beeline'"))


def strangers():
    linger = (ELSEWHERE, "--env TEST_LINGER_MS=500")
    case("strangers/served", "test/meeting/strangers " + box(collectives("oneshot_ll"), *linger))
    # When the last rank looks, the others have left, each with a word that waits behind the strangers.
    program = f"sh -c 'case $RANK in 0) export TEST_LATE_MS=1500;; 1) export LD_PRELOAD={OTHER_BUILD}:$BUILD/test/meeting/elsewhere.so;; esac; exec {collectives('nccl')}'"
    case("strangers/late", MAKE_OTHER_BUILD + expect("test/meeting/strangers " + box(program, *linger),
                                                     "--warn 'is left to NCCL: rank . runs another build of Beeline'"))


def calls():
    case("calls/none", "test/meeting/calls none -- " + box(collectives("oneshot_ll")))
    case("calls/same", "test/meeting/calls same -- " + box(collectives()))


missing()
elsewhere()
builds()
strangers()
calls()
