"""beeline check: boxes that are well, that are NCCL's, that are broken."""
import json
import os
import re
import unittest.mock

from support import BEELINE, beeline, box, check, refused

SMALL = ("-e", "16K")


def states(done):
    return {name: state for state, name in re.findall(r"^(ok|not ok|skipped) +(\S+)  ", done.stdout, re.M)}


def well(_):
    """Every algorithm but those of multicast, over all GPUs and over two."""
    done = box(3, BEELINE, "check", *SMALL)
    said = re.findall(r"^ok +data +(\d) GPUs: every element is right, \d+ rows: (.*)", done.stdout, re.M)
    check([gpus for gpus, _ in said] == ["3", "2"] and "nothing to fix" in done.stdout, done.stdout + done.stderr)
    for _, routes in said:
        for name in ("oneshot_ll", "oneshot_ll128", "allgather_ll128", "reducescatter_ll128", "alltoall_ll128", "broadcast_ll128", "reduce_ll128", "sendrecv_ll128"):
            check(name in routes.partition(";")[0].split(", "), f"{name} was not tried: {routes}")
    found = states(done)
    check(all(found[name] == "ok" for name in ("library", "settings", "shm", "limits", "sockets")), done.stdout)


def large(_):
    """What carries large messages."""
    done = box(2, BEELINE, "check", "-e", "128K")
    check("twoshot_ll128" in done.stdout and "allgather_ce" in done.stdout, done.stdout + done.stderr)


def without_nvlink(_):
    """Nothing to fix, and the reason; without peer access likewise."""
    for topology in ("pcie", "none"):
        done = box(2, BEELINE, "check", *SMALL, topology=topology)
        check(states(done)["data"] == "skipped" and re.search("data .*2 GPUs: NCCL's: .*(NVLink|P2P)", done.stdout), done.stdout + done.stderr)


def mixed(_):
    """NVLink between some only."""
    done = box(3, BEELINE, "check", *SMALL, topology="mixed")
    check(re.search(r"^skipped +data +3 GPUs: NCCL's: .*\nok +data +2 GPUs: every element", done.stdout, re.M), done.stdout + done.stderr)


def broken(_):
    """Links that deliver wrong data."""
    done = box(2, BEELINE, "check", *SMALL, topology="broken", status=1)
    check(re.search(r"^not ok +data +2 GPUs: left to NCCL: rank \d: self-test.*\n +fix: look at the IOMMU", done.stdout, re.M) and "1 to fix" in done.stdout, done.stdout + done.stderr)


def refusals(_):
    """What switches Beeline off or stands in its way; the same as JSON; no box at all."""
    done = box(2, BEELINE, "check", "--json", *SMALL, env={"BEELINE_ENABLE": "0"}, status=1)
    found = json.loads(done.stdout)
    check(not found["ok"] and next(item for item in found["checks"] if item["name"] == "settings")["fix"] == "unset BEELINE_ENABLE", done.stdout)
    done = box(2, "sh", "-c", f"ulimit -n 512; exec {BEELINE} check -e 256", status=1)
    check(states(done)["limits"] == "not ok" and "fix: ulimit -n 1024" in done.stdout, done.stdout)
    done = beeline("check", env={"BEELINE_LIBRARY": "/nonexistent"}, status=1)
    check(states(done)["library"] == "not ok" and states(done)["data"] == "skipped", done.stdout)
    for size in ("16X", "128", "-1"):
        refused(f"-e {size} is not accepted: a size from 256", "check", f"-e{size}")


def judged(_):
    """What beeline-perf and the library may say that an emulated box does not."""
    from beeline import check as checks  # pylint: disable=import-outside-toplevel

    def row(route, mine=0, base=0):
        return {"record": "row", "collective": "all_reduce", "route": route, "beeline": {"wrong": mine}, "nccl": {"wrong": base}}
    for records, status, said, state, text in (
            ([row("oneshot_ll"), row("twoshot_ll128", mine=3), row("twoshot_ll128", mine=4)], 1, "", "not ok", "all_reduce by twoshot_ll128 7"),
            ([row("nccl", base=1)], 1, "", "not ok", "all_reduce by nccl 1"),
            ([row("oneshot_ll:warps")], 0, "", "ok", "1 rows: oneshot_ll"),
            ([row("oneshot_ll")], 1, "beeline-perf: all_to_all cannot be run: ncclAlltoAll is not in X", "ok", "oneshot_ll"),
            ([row("oneshot_ll")], 3, "rank 1: CUDA error", "not ok", "beeline-perf failed: rank 1: CUDA error"),
            ([], 124, "no end after 120 s", "not ok", "no end after 120 s"),
            ([row("nccl")], 0, "", "not ok", "served nothing"),
            ([{"record": "communicator", "left": "ranks 0 and 1 share a GPU", "failed": False}, row("nccl")], 0, "", "skipped", "share a GPU"),
            ([{"record": "communicator", "left": "rank 1 is gone", "failed": True}], 0, "", "not ok", "rank 1 is gone")):
        found = checks.judge("2 GPUs: ", records, status, said)
        check(found.state == state and text in found.text, f"{records}: {found}")
    kept = checks.lines(found)
    check(len(kept) == 2 and kept[1].endswith("docs/troubleshooting.md has the reason"), kept)


def facts(_):
    """What the library's own facts say, of boxes that are not here."""
    import boxes  # pylint: disable=import-outside-toplevel
    from beeline import check as checks  # pylint: disable=import-outside-toplevel

    def of(name, **other):
        box = {**boxes.BOXES[name](), **other}
        return {result.name: result for result in (checks.driver(box), checks.nccl(box), *checks.gpus(box))}
    good = of("h200-8")
    check({result.state for result in good.values()} == {"ok"} and set(good) == {"driver", "nccl", "gpus", "links"}, good)
    old = of("h200-2", driver={"cuda": "12.2", "version": "535.1"})["driver"]
    check(old.state == "not ok" and old.fix == "update the driver", old)
    check(of("h200-2", driver={"cuda": "13.0", "version": None})["driver"].text == "CUDA 13.0", "a version that is not known")
    mixed = of("pcie")
    check(mixed["gpus"].text.startswith("GPU 3: a MIG") and "PCIe: left to NCCL" in mixed["links"].text and mixed["links"].state == mixed["gpus"].state == "skipped", mixed)
    check("6 pairs" in of("pcie", not_served=None)["links"].text, "links that are counted")
    none = of("none")
    check(none["driver"].state == none["nccl"].state == "not ok" and none["gpus"].state == "skipped", none)
    hidden = of("none", driver={"cuda": "13.0", "version": "580"})["gpus"]
    check(hidden.state == "not ok" and "CUDA_VISIBLE_DEVICES" in hidden.fix, hidden)


def no_multicast(folder):
    """Whatever the environment says, no multicast object is made."""
    from beeline import check as checks, preload  # pylint: disable=import-outside-toplevel
    trace = os.path.join(folder, "trace")
    box(2, BEELINE, "check", *SMALL, topology="nvls", env={"BEELINE_MULTICAST": "1", "BEELINE_EMU_TRACE": trace})
    with open(trace, encoding="utf-8") as lines:
        calls = lines.read()
    check("cuMemCreate" in calls and "cuMulticastCreate" not in calls, "an object was made, or there is no trace")
    with unittest.mock.patch.dict(os.environ, BEELINE_MULTICAST="1"), unittest.mock.patch.object(preload, "perf_environment", lambda: dict(os.environ)):
        check(checks.environment(folder)["BEELINE_MULTICAST"] == "0", "it is left to the environment")
