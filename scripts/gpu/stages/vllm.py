"""The stage of gpu-check that runs vLLM's own NCCL wrapper: preloaded, with Beeline named as the library, and with NCCL alone;
and times what its data parallelism calls."""
import os
import sys

from beeline.tuning.process import Step

from ..programs import fetch_vllm

PASSED = r"(?m)^[1-9]\d* passed, 0 failed"
SMALL = dict(all_reduce="oneshot_ll128", all_gather="allgather_ll128", reduce_scatter="reducescatter_ll128", broadcast="broadcast_ll128", reduce="reduce_ll128",
             sendrecv="sendrecv_ll128")


def emulated_box(box):
    """PyTorch does not run there; and what Beeline leaves to NCCL must be smaller."""
    thresholds = os.path.join(box.folder, "vllm.tune")
    with open(thresholds, "w", encoding="utf-8") as out:
        out.write("gpu any\n")
        for n in box.ranks:
            out.writelines(f"{collective} {n} 16K {name}\n{collective} {n} max nccl\n" for collective, name in SMALL.items())
    return dict(BEELINE_TUNING_FILE=thresholds, PYTHONPATH=os.path.join(box.root, "test/gpu/stand_in"))


def vllm(box):
    """Fetches the wrapper where it is not there yet; without it nothing else can run."""
    folder = box.vllm or os.path.join(box.build, "vllm")
    yield Step("fetch", box.script("fetch_vllm.py", folder), limit=120)
    if not fetch_vllm.complete(folder):
        return
    more = emulated_box(box) if box.emulated else {}
    python, sizes, hidden = (sys.executable, ["--sizes", "2500,40000"], ["--hidden", 34]) if box.emulated else ("python3", [], [])
    named = dict(VLLM_NCCL_SO_PATH=box.library, BEELINE_TIMEOUT=20)
    for n in box.ranks:
        argv = [python, os.path.join(box.root, "test/gpu/vllm_wrapper.py"), "--vllm", folder, "--ranks", n]
        yield Step(f"{n} NCCL alone", [*argv, *sizes], box.env(False, **more), 120, PASSED)
        yield Step(f"{n} preloaded", [*argv, *sizes, "--served"], box.env(True, **more), 120, PASSED)
        yield Step(f"{n} named", [*argv, *sizes, "--served"], box.env(False, **more, **named), 120, PASSED)
        yield Step(f"{n} times, NCCL alone", [*argv, *hidden, "--times"], box.env(False, **more), 120, PASSED)
        yield Step(f"{n} times, preloaded", [*argv, *hidden, "--times", "--served"], box.env(True, **more), 120, PASSED)
