"""Parameters and log."""

import os
import re

from support import check, client, read, warnings


def parameters(case, expect=(), reject=(), **env):
    done = case.box(client("absent"), "libbeeline.so", beeline=False, env=env)
    for text in expect:
        check(any(text in line for line in warnings(done)), "no WARN with: %s\n%s" % (text, done.stderr))
    check(len(warnings(done)) == len(expect), done.stderr)
    for text in reject:
        check(text not in done.stderr, done.stderr)
    return done


def params_refused(case):
    """Each bad value: one line with the name, the value, what is accepted and what is used."""
    parameters(
        case,
        ["BEELINE_STAGING=12T is not accepted: want bytes, 1M to 1G; using the default, 100M"],
        BEELINE_STAGING="12T",
    )
    for text in (
        "0",
        "2G",
        "-1M",
        "+4M",
        " 4M",
        "4MM",
        "0x100000",
        "4.5M",
        "99999999999999999999",
        "17179869184G",
        "K",
    ):
        parameters(case, ["BEELINE_STAGING=%s is not accepted" % text], BEELINE_STAGING=text)
    for text in ("2", "maybe", "-1", "onn"):
        parameters(case, ["BEELINE_ENABLE=%s is not accepted" % text], BEELINE_ENABLE=text)
    for text in ("-1", "1000001", "30s", "1K"):
        parameters(
            case,
            ["BEELINE_TIMEOUT=%s is not accepted: want a whole number, 0 to 1000000" % text],
            BEELINE_TIMEOUT=text,
        )
    parameters(
        case,
        ["BEELINE_DEBUG=LOUD is not accepted: want NONE, WARN, INFO, TRACE; using the default, WARN"],
        BEELINE_DEBUG="LOUD",
    )
    parameters(case, ["BEELINE_ALLREDUCE=ring is not accepted: want nccl, "], BEELINE_ALLREDUCE="ring")
    for variable, text, accepted in (
        ("BEELINE_ALLGATHER", "twoshot_ll128", "nccl, allgather_ll128, allgather_bulk, allgather_ce"),
        ("BEELINE_ALLGATHER", "allgather_ll128_batch", "nccl, allgather_ll128, allgather_bulk, allgather_ce"),
        ("BEELINE_REDUCESCATTER", "allgather_ll128", "nccl, reducescatter_ll128, reducescatter_bulk, reducescatter_nvls"),
    ):
        parameters(case, ["%s=%s is not accepted: want %s" % (variable, text, accepted)], **{variable: text})
    for text in ("2", "invariant"):
        parameters(case, ["BEELINE_BATCH_INVARIANT=%s is not accepted: want 0, off, false, no or 1, on, true, yes; using the default, 0" % text],
                   BEELINE_BATCH_INVARIANT=text)
    for text in ("2", "ZERO"):
        parameters(case, ["BEELINE_COPY_ENGINES=%s is not accepted" % text], BEELINE_COPY_ENGINES=text)
    parameters(
        case,
        ["BEELINE_SETUP_TIMEOUT=0 is not", "BEELINE_STATS=all is not"],
        BEELINE_SETUP_TIMEOUT="0",
        BEELINE_STATS="all",
    )


def params_accepted(case):
    for name, texts in {
        "BEELINE_STAGING": ("1M", "1024k", "1048576", "1g", ""),
        "BEELINE_ENABLE": ("0", "ON", "False", "yes", ""),
        "BEELINE_TIMEOUT": ("0", "1000000"),
        "BEELINE_DEBUG": ("warn", "Warn"),
        "BEELINE_FUSE_MAX": ("0", "64K", "1G"),
        "BEELINE_ALLREDUCE": ("nccl", "oneshot_ll128", "..16K oneshot_ll | ..24M twoshot_ll128 | nccl", "0..64K oneshot_ll128 | .. nccl"),
        "BEELINE_ALLGATHER": ("nccl", "allgather_ll128", "allgather_ll128:lines", "allgather_ll128:warps", "allgather_ce"),
        "BEELINE_REDUCESCATTER": ("nccl", "reducescatter_ll128"),
        "BEELINE_COPY_ENGINES": ("0", "1", "no", "ON"),
        "BEELINE_BATCH_INVARIANT": ("0", "1", "off", "Yes"),
        "VLLM_BATCH_INVARIANT": ("0", "1", "2", "true"),
        "NCCL_CTA_POLICY": ("0", "1", "2", "ZERO", "EFFICIENCY", "-7x"),
        "NCCL_GRAPH_MIXING_SUPPORT": ("0", "1", "-2", "on"),
        "NCCL_LAUNCH_ORDER_IMPLICIT": ("0", "1", "2"),
        "NCCL_MAX_CTAS": ("4", "-1", "many"),
        "NCCL_MAX_NCHANNELS": ("4", "-2", "0"),
    }.items():
        for text in texts:
            parameters(case, **{name: text})


def params_unknown(case):
    parameters(
        case,
        ["BEELINE_STAGNIG is not a variable of Beeline and does nothing; the nearest is BEELINE_STAGING"],
        BEELINE_STAGNIG="1M",
    )
    parameters(
        case,
        ["BEELINE_ENABLED is not a variable of Beeline and does nothing; the nearest is BEELINE_ENABLE"],
        BEELINE_ENABLED="1",
    )
    for gone, nccl in (
        ("BEELINE_GRAPH_MIXING", "NCCL_GRAPH_MIXING_SUPPORT"),
        ("BEELINE_LAUNCH_ORDER", "NCCL_LAUNCH_ORDER_IMPLICIT"),
        ("BEELINE_MAX_CTAS", "NCCL_MAX_CTAS"),
    ):
        parameters(case, ["%s is not a variable of Beeline and does nothing; the nearest is %s" % (gone, nccl)], **{gone: "1"})
    for far in ("BEELINE_XYZ", "BEELINE_RING_PROTOCOL"):
        parameters(case, ["%s is not a variable of Beeline and does nothing" % far], reject=["nearest"], **{far: "1"})
    parameters(case, BEELINE_EMU_SOMETHING="1", BEELINE_TEST_X="1", BEELINES="1")


def log_levels(case):
    check(not parameters(case, BEELINE_DEBUG="NONE", BEELINE_STAGING="bad").stderr, "NONE prints")
    check(not parameters(case).stderr, "the default prints")
    done = parameters(case, BEELINE_DEBUG="INFO")
    lines = done.stderr.splitlines()
    check(lines and all(re.match(r"beeline \[\d+\] (INFO|WARN) \S", line) for line in lines), done.stderr)


def log_file(case):
    path = case.path("log.%h.%p")
    done = parameters(case, BEELINE_DEBUG="INFO", BEELINE_DEBUG_FILE=path)
    check(not done.stderr, done.stderr)
    names = [name for name in os.listdir(case.folder) if name.startswith("log.")]
    check(len(names) == 1 and names[0].startswith("log.%s." % os.uname().nodename), names)
    process = names[0].rsplit(".", 1)[1]
    check(("beeline [%s] INFO" % process) in read(case.path(names[0])), read(case.path(names[0])))
    done = parameters(
        case,
        ["BEELINE_DEBUG_FILE=/nonexistent/log cannot be opened: No such file"],
        BEELINE_DEBUG="INFO",
        BEELINE_DEBUG_FILE="/nonexistent/log",
    )
    check("the real NCCL" in done.stderr, done.stderr)


def log_file_safe(case):
    """What lies where the file should be is not written to, nor waited for: the log goes to stderr."""
    target = case.path("target")
    with open(target, "w", encoding="utf-8") as file:
        file.write("theirs")
    os.symlink(target, case.path("link"))
    os.symlink(case.path("nothing"), case.path("dangling"))
    os.mkfifo(case.path("fifo"))
    for name, why in (
        ("link", "a symbolic link"),
        ("dangling", "a symbolic link"),
        ("fifo", "a FIFO"),
        (".", "Is a directory"),
    ):
        done = parameters(
            case,
            ["BEELINE_DEBUG_FILE=%s cannot be opened: %s" % (case.path(name), why)],
            BEELINE_DEBUG="INFO",
            BEELINE_DEBUG_FILE=case.path(name),
        )
        check("the real NCCL" in done.stderr, done.stderr)
    check(read(target) == "theirs" and not os.path.exists(case.path("nothing")), "a link was followed")
    # A FIFO that somebody reads.
    reader = os.open(case.path("fifo"), os.O_RDONLY | os.O_NONBLOCK)
    parameters(
        case,
        ["neither a regular file nor a character device"],
        BEELINE_DEBUG="INFO",
        BEELINE_DEBUG_FILE=case.path("fifo"),
    )
    check(os.read(reader, 1) == b"", "a FIFO was written to")
    os.close(reader)
    # Devices may be written to, and folders on the way may be links.
    check(not parameters(case, BEELINE_DEBUG="INFO", BEELINE_DEBUG_FILE="/dev/null").stderr, "prints")
    os.symlink(case.folder, case.path("folder"))
    check(not parameters(case, BEELINE_DEBUG="INFO", BEELINE_DEBUG_FILE=case.path("folder/log")).stderr, "prints")
    check("INFO" in read(case.path("log")), "nothing is in the file")
