#!/usr/bin/env python3
"""Checks distributed_suite.py with a stand-in for its workers; and, with --gloo, with PyTorch's tests themselves over gloo."""
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import each  # noqa: E402

HERE = os.path.dirname(os.path.realpath(__file__))
STAND_IN = os.path.join(HERE, "distributed_stand_in.py")


def command(folder, *arguments):
    return [sys.executable, os.path.join(HERE, "distributed_suite.py"), "--verdicts", os.path.join(folder, "verdicts"), *arguments]


def start(folder, *arguments, **env):
    argv = command(folder, "--worker", STAND_IN, "--limit", "1", "--grace", "1", "--gpus", "4", "--workers", "4", *arguments)
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env=dict(os.environ, RUNS=os.path.join(folder, "runs"), **env))


def run(folder, *arguments, **env):
    """Exit status, the output, its record, and the tests begun."""
    runs = os.path.join(folder, "runs")
    open(runs, "w", encoding="utf-8").close()
    suite = start(folder, *arguments, **env)
    output = suite.communicate(timeout=120)[0]
    (record,) = [json.loads(line) for line in output.splitlines() if line.startswith('{"record"')] or [None]
    with open(runs, encoding="utf-8") as begun:
        return suite.returncode, output, record, [line.split() for line in begun]


def test_verdicts(folder):
    """All that can become of a test; a second command has nothing left to do, another preload has one side."""
    status, output, record, runs = run(folder, "--with", "BROKEN=1")
    assert status == 1 and "FAILED: of 9 tests" in output, output
    found = {kind: sorted(record[kind]) for kind in ("differs", "flaky", "fails", "gained")}
    assert found == dict(differs=["test_broken", "test_dies", "test_hangs", "test_lost"], flaky=["test_under_load"], fails=["test_bad"],
                         gained=["test_gained"]), output
    assert (record["tests"], record["passed"], record["skipped"], record["missing"]) == (9, 1, 1, 0), record
    assert "said by test_broken" in output and "beeline [1] WARN of test_broken" in output, output
    repeats = [r[:2] for r in runs if r[2] == "spawn"]
    repeated = set(found["differs"] + found["flaky"] + found["fails"])
    assert len(runs) == 18 + 6 * len(repeated) and all(repeats.count([name, side]) == 3 for name in repeated for side in ("without", "with")), runs
    assert {r[3] for r in runs} == {"0,1", "2,3"}, "both halves of the GPUs are used"
    status, _, again, runs = run(folder, "--with", "BROKEN=1")
    assert status == 1 and again == record and not runs, runs
    status, _, _, runs = run(folder, "--with", "BROKEN=2", "--tests", "fine|skipped")
    assert status == 0 and sorted(r[0] for r in runs) == ["test_fine", "test_skipped"] and {r[1] for r in runs} == {"with"}, runs
    status, _, _, runs = run(folder, "--with", "BROKEN=1", "--tests", "fine", "--ranks", "4")
    assert status == 0 and {r[3] for r in runs} == {"0,1,2,3"} and len(runs) == 2, runs


def test_stopped(folder):
    """Ended in the middle: says what is missing, leaves no process, and can go on."""
    suite = start(folder, "--tests", "fine|skipped", "--limit", "100", "--with", "BROKEN=1", SLOW="1")
    runs, deadline = os.path.join(folder, "runs"), time.monotonic() + 60
    while not os.path.exists(runs) and time.monotonic() < deadline:
        time.sleep(0.05)
    began = time.monotonic()
    suite.send_signal(signal.SIGTERM)
    output = suite.communicate(timeout=60)[0]  # ends when the last that has the pipe is gone
    assert suite.returncode == 2 and "INCOMPLETE" in output and "2 still to be run" in output, output
    assert time.monotonic() - began < 30, "waited for a test"
    status, output, record, _ = run(folder, "--tests", "fine|skipped", "--with", "BROKEN=1")
    assert status == 0 and record["missing"] == 0, output


def test_no_worker(folder):
    """A worker that does not start is a failure that says why."""
    broken = os.path.join(folder, "broken.py")
    with open(broken, "w", encoding="utf-8") as out:
        out.write("raise ImportError('no such torch')\n")
    status, output, _, _ = run(folder, "--worker", broken)
    assert status == 1 and "FAILED: broken.py does not start" in output and "no such torch" in output, output


def gloo():
    """Few of PyTorch's tests: alike on both sides, and all different where gloo cannot work."""
    if not importlib.util.find_spec("torch"):
        print("PyTorch is not there")
        return 77
    library = os.path.join(os.environ.get("BUILD", "build"), "libbeeline.so")
    with tempfile.TemporaryDirectory() as folder:
        common = ("--backend", "gloo", "--workers", "2", "--limit", "120")
        same = subprocess.run(command(folder, *common, "--tests", "test_(get_rank|broadcast|ddp_buffer|nccl)", "--with", f"LD_PRELOAD={library}"),
                              capture_output=True, text=True, check=False)
        print(same.stdout, same.stderr)
        differs = subprocess.run(command(folder, *common, "--tests", "test_get_rank$", "--with", "GLOO_SOCKET_IFNAME=none"), capture_output=True,
                                 text=True, check=False)
        print(differs.stdout, differs.stderr)
    return 0 if same.returncode == 0 and differs.returncode == 1 and "differs: test_get_rank: without ok, ok, ok, ok; with failed, " in differs.stdout else 1


if __name__ == "__main__":
    sys.exit(gloo() if "--gloo" in sys.argv else each.run(globals()))
