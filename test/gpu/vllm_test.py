#!/usr/bin/env python3
"""Runs the stage `vllm` of gpu-check on an emulated box, and plants mistakes that it has to find.

vLLM's files are in the folder that BEELINE_TEST_VLLM names, else BUILD/vllm; without them: status 77.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
from gpu.programs import fetch_vllm  # noqa: E402

BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))
FILES = os.environ.get("BEELINE_TEST_VLLM") or os.path.join(BUILD, "vllm")
WAYS = ("NCCL alone", "preloaded", "named")
TIMES = tuple(f"times, {way}" for way in WAYS[:2])
LEAK = re.compile(r"LEAK (?!context)")  # as test/run has it


def box(*command, options=(), **env):
    """Status and output of a command on the emulated box."""
    argv = [os.path.join(ROOT, "scripts/emu-box"), "--build", BUILD, "-g", "4", "--timeout", "200", "--seed", os.environ.get("SEED", "1"), *options, "--", *command]
    done = subprocess.run(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env={**os.environ, **env})
    return done.returncode, done.stdout


def stage(folder, ranks, options=(), **env):
    """Status, verdict of each step, and the log."""
    out = os.path.join(folder, "out")
    status, said = box(os.path.join(ROOT, "scripts/gpu-check"), "--build", BUILD, "--out", out, "--ranks", ranks, "--stages", "vllm", "--vllm", FILES,
                       "--limit", "190", options=options, **env)
    with open(os.path.join(out, "logs.txt"), encoding="utf-8") as file:
        log = file.read()
    return status, dict(re.findall(r"^  vllm / (.*?): (.*) \(", said, re.M)), log


def test_stage(folder):
    status, verdicts, log = stage(folder, "4,2")
    steps = [f"{n} {way}" for n in (4, 2) for way in WAYS + TIMES]
    assert status == 0 and verdicts == dict.fromkeys(["fetch", *steps], "ok"), log[-4000:]
    assert "skipped" not in log and not LEAK.search(log), log[-4000:]
    assert len(re.findall(r"all_gatherv  .* graph +[\d.]+ us, eager +[\d.]+ us", log)) == 4 * 9, log[-4000:]


def test_old_nccl(folder):
    """Without suspend and resume, which vLLM would not do without."""
    status, verdicts, log = stage(folder, "2", ["--nccl", "old"])
    assert status == 0 and log.count("skipped: suspend and resume: NCCL 22005 has none") == 3, (verdicts, log[-4000:])


def test_not_served(folder):
    """Right results are not enough."""
    status, verdicts, log = stage(folder, "2", BEELINE_ENABLE="0")
    assert status == 1 and verdicts["2 NCCL alone"] == "ok", verdicts
    assert all("calls by who served them: {'all_reduce': 0," in verdicts[f"2 {way}"] for way in WAYS[1:]), (verdicts, log[-4000:])


# In which file of vLLM what is replaced by what, and what then is said to be wrong; of a text that is there twice, the first.
PLANTED = (
    ("pynccl.py", "split_offset += split_size", "pass", "AllGatherV of"),
    ("pynccl.py", "buffer_type(chunk.data_ptr())", "buffer_type(input_tensor.data_ptr())", "ReduceScatterV of"),
    ("pynccl.py", "        self.nccl.ncclCommSuspend(self.comm, _NCCL_SUSPEND_MEM)\n", "        return\n", "suspend did nothing"),
    ("pynccl_wrapper.py", "ncclSum = 0", "ncclSum = 2", "AllReduce of"),
    ("pynccl_wrapper.py", "ncclSend\"](sendbuff", "ncclSend\"](sendbuff.value + 2", "Ring of"),
)


def wrapper(files, ranks, *options):
    return box(sys.executable, "test/gpu/vllm_wrapper.py", "--vllm", files, "--ranks", ranks, "--sizes", "2500,40000", options=options,
               PYTHONPATH=os.path.join(ROOT, "test/gpu/stand_in"))


def test_planted(folder):
    for number, (name, old, new, told) in enumerate(PLANTED):
        files = os.path.join(folder, str(number))
        shutil.copytree(FILES, files)
        path = os.path.join(files, name)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        assert old in text, old
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace(old, new, 1))
        status, said = wrapper(files, "2")
        assert status == 1 and f": {told}" in said and re.search(r"passed, [1-9]\d* failed\s*$", said), (old, said[-4000:])


def test_broken_rank(_):
    """A rank that fails ends the job at once, with what it was."""
    began = time.monotonic()
    status, said = wrapper(FILES, "4", "--fault", "ncclAllGather@2=ncclSystemError")
    assert status == 1 and "FAILED: rank 2 ended" in said and "NCCL error: unhandled system error" in said and time.monotonic() - began < 60, said[-4000:]


def main():
    if not fetch_vllm.complete(FILES):
        print(f"vLLM {fetch_vllm.VERSION} is not in {FILES}: scripts/gpu/programs/fetch_vllm.py {FILES} fetches it")
        return 77
    for name, test in [(name, function) for name, function in globals().items() if name.startswith("test_")]:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            test(folder)
        print(f"{name}: ok ({time.monotonic() - began:.1f} s)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
