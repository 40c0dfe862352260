"""Stages of gpu-check that run the programs of `make gpu-programs`: what NCCL runs, a soak, and what kernels rest on."""
import os

from beeline.tuning.process import Step

from .. import machine


def built(box, name):
    return os.path.join(box.build, "test", name)


def both_ways(box, name, n, gpus, arguments, limit, names=None, beeline_env=(), fresh=False):
    """Programs of n ranks with NCCL alone and with Beeline, at the same time where there are GPUs for both."""
    argv = box.script("both_ways.py", "--library", box.library, "--gpus", ",".join(gpus[:n]))
    argv += ["--other-gpus", ",".join(gpus[n:2 * n])] if len(gpus) >= 2 * n else []
    argv += ["--names", ",".join(names)] if names else []
    argv += ["--fresh"] if fresh else []
    for item in beeline_env:
        argv += ["--env", item]
    return Step(name, [*argv, built(box, "programs/programs"), "--ranks", n, *arguments], box.env(preload=False), limit,
                r", 0 that NCCL alone runs and Beeline does not")


SMALL = "--small 1K --middle 32K --large 256K"  # for the emulated box
LATE = ["late_peer", "late_peer_graph"]
MIXED = ["messages_mixed", "messages_mixed_first", "messages_mixed_collectives", "messages_mixed_nonblocking", "messages_mixed_polled", "messages_two_communicators"]


def programs(box):
    """Programs that NCCL runs, on both sides, with 2 ranks 20 times each, or 8 where they share GPUs; then a peer that is late by seconds, without a limit and with one that is too short."""
    gpus = [name for name, _ in machine.gpus()]
    steps = []
    for n in box.ranks:
        repeat = (40 if 2 * n <= len(gpus) else 16) // n
        often = box.pick(f"--repeat {repeat} --late 0.2 --limit 120", f"--repeat 2 --late 0.2 --limit 25 {SMALL}")
        steps.append(both_ways(box, f"{n} ranks", n, gpus, often, 360))
    for n in box.ranks:  # what comes first in a process differs from what comes later
        once = box.pick("--late 0.2 --limit 60", f"--late 0.2 --limit 25 {SMALL}")
        steps.append(both_ways(box, f"{n} ranks, first in a process", n, gpus, once, 240, MIXED, fresh=True))
    seconds = box.pick("--late 8 --limit 60", f"--late 3 --limit 60 {SMALL}")
    late = both_ways(box, "late", 2, gpus[:2], seconds, 150, LATE)
    late.beside = [both_ways(box, "late, limited", 2, gpus[-2:], [*seconds, "--may-fail"], 150, LATE, ["BEELINE_TIMEOUT=2"])]
    return [*steps, late]


def early(box):
    """Kernels that start early ahead of a collective; on one GPU alone, who waits for whom, also where the stream is destroyed."""
    path = built(box, "gpu/early")
    return [Step("alone", [path, "--only", "chain"], box.env(preload=False), 40, "early: ok"),
            Step("stream destroyed", [path, "--only", "gone"], box.env(preload=False), 40, "early: ok"),
            Step("with Beeline", [path, "--only", "collective", "--tries", 300], box.env(), 40, "early: ok")]


def nested(box):
    """Calls in the bodies of conditional nodes, and in graphs for launches by a device: by NCCL alone, then by Beeline."""
    path = built(box, "gpu/nested")
    return [Step("NCCL alone", [path], box.env(preload=False, NCCL_GRAPH_MIXING_SUPPORT=0), 60, "nested: ok"),
            Step("with Beeline", [path], box.env(NCCL_GRAPH_MIXING_SUPPORT=0), 60, "nested: ok")]


def soak(box):
    """Random collectives from one seed, every byte checked; a little with NCCL alone, so that a failure is Beeline's."""
    path, (seconds, alone) = built(box, "programs/soak"), box.pick(("100", "10"), ("10", "5"))
    common = ["--ranks", box.most, *box.pick("", "--most 4K")]
    return [Step("NCCL alone", [path, *common, "--seconds", alone, "--no-shrink"], box.env(preload=False), 60, "soak: ok"),
            Step("Beeline", [path, *common, "--seconds", seconds, "--shrink", 60], box.env(BEELINE_TIMEOUT=60), 200, "soak: ok")]


def lines(box):
    """Whole lines and packets, loaded while peers overwrite them."""
    return [Step(f"{n} GPUs", [built(box, "gpu/lines"), "--gpus", n, "--seconds", 60 // len(box.ranks)], limit=120, want="lines: ok")
            for n in box.ranks]


def clusters(box):
    """Whether blocks like NCCL's find room beside as many of Beeline's as a launch has then."""
    return [Step("all GPUs", [built(box, "gpu/clusters"), "--all"], limit=60, want="clusters: ok")]
