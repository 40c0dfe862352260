#!/usr/bin/env python3
"""Runs sweep-ranks on an emulated box: killed in the middle and resumed, taken over, refused; and Beeline reads its thresholds."""
import glob
import json
import os
import re
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
from beeline.tuning import records, thresholds as tuning  # noqa: E402
from beeline.words import size_of  # noqa: E402
from gpu.sweep import plan as sweep_plan  # noqa: E402

BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))
TMP = os.path.join(os.environ.get("TEST_TMP", "/tmp"), f"sweep-{os.getpid()}")
GPUS = "3"
FAST_NCCL = 1e5  # what NCCL is made slower by, so that every algorithm wins


def emulated(*command):
    return [os.path.join(ROOT, "scripts/emu-box"), "--build", BUILD, "-g", GPUS, "--timeout", "100", "--", *command]


def sweep(folder, *options):
    return emulated(os.path.join(ROOT, "scripts/sweep-ranks"), "--build", BUILD, "--out", folder, *options)


def run(argv, status=0, **env):
    done = subprocess.run(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env={**os.environ, **env})
    assert done.returncode == status, f"{argv}: status {done.returncode}\n{done.stdout}"
    return done.stdout


def steps_run(output):
    return re.findall(r"^  (\S+ / .*?): (?:ok|FAILED)", output, re.M)


def markers(folder):
    return {f"{r['stage']} / {r['step']}": r for r in records.read(os.path.join(folder, "results.jsonl")) if r.get("record") == "step"}


def check_whole(folder):
    """Every step's records are there, no others, and the files say so."""
    path = os.path.join(folder, "results.jsonl")
    with open(path, encoding="utf-8") as lines:
        found = [json.loads(line) for line in lines]  # no line is cut
    done = markers(folder)
    for key, marker in done.items():
        own = [r for r in found if r.get("record") not in ("step", "sweep") and f"{r['stage']} / {r['step']}" == key]
        assert len(own) == marker["records"] > 0 and marker["good"], (key, marker, len(own))
    assert sum(marker["records"] for marker in done.values()) + len(done) + 1 == len(found)
    with open(os.path.join(folder, "summary.txt"), encoding="utf-8") as summary:
        text = summary.read()
    return done, text


def test_killed(folder):
    """Whatever the moment: what is there is whole, nothing goes on running, and the next run does the rest and no step twice."""
    first = subprocess.Popen(sweep(folder), cwd=ROOT, stdout=subprocess.DEVNULL)
    path = os.path.join(folder, "results.jsonl")
    while first.poll() is None and not (os.path.exists(path) and len(markers(folder)) >= 6):
        time.sleep(0.02)
    first.send_signal(signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL, "it was over before it could be killed"
    deadline = time.monotonic() + 5
    while any(children()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(children()), "what it started outlived it"
    for left in glob.glob(f"/dev/shm/beeline-*-{first.pid}-*"):  # emu-box removes its own, unless it is killed
        os.unlink(left)
    before, text = check_whole(folder)
    assert 6 <= len(before) < 16 and "not begun" in text, text
    second = steps_run(run(sweep(folder)))
    after, text = check_whole(folder)
    assert not set(second) & set(before) and set(second) | set(before) == set(after), (second, before)
    assert f"{len(after)} of {len(after)} steps done" in text and " 0 wrong values" in text and "warning" not in text, text
    assert {marker["ranks"] for marker in after.values()} == {3, 2} and {key.split(" / ")[0] for key in after} == set(sweep_plan.STAGES)


def children():
    """beeline-perf and sweep-ranks that work for this test."""
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as environ:
                if b"SWEEP_TEST=%d" % os.getpid() in environ.read().split(b"\0") and int(path.split("/")[2]) != os.getpid():
                    yield path
        except OSError:
            continue


def test_taken_over(folder):
    """--from: all steps count, none is run, and the earlier folder stays as it is."""
    def content():
        return {path: (os.stat(path).st_mtime_ns, os.path.getsize(path)) for path in glob.glob(os.path.join(folder, "*"))}
    before, other = content(), folder + "-other"
    output = run(sweep(other, "--from", folder))
    assert not steps_run(output) and "steps taken over" in output and content() == before, output
    assert set(check_whole(other)[0]) == set(markers(folder))
    assert sorted(os.listdir(other)) == ["candidates.md", "results.jsonl", "summary.txt", "tables.md", "thresholds.tune"]


def rewrite(folder, other, change):
    os.makedirs(other)
    with open(os.path.join(other, "results.jsonl"), "w", encoding="utf-8") as out:
        for r in records.read(os.path.join(folder, "results.jsonl")):
            change(r)
            out.write(json.dumps(r) + "\n")


def test_another_library(folder):
    """Nothing is mixed with, or lost to, measurements of another library, unless --again says so."""
    def change(r):
        if r.get("record") == "sweep":
            r["library"] = "0123456789abcdef"
    other = folder + "-library"
    rewrite(folder, other, change)
    output = run(sweep(other, "--stages", "smoke"), 2)
    assert "another library" in output and "--again" in output and len(markers(other)) > 15, output
    output = run(sweep(folder + "-beside", "--from", other, "--stages", "smoke"))
    assert "NOT used" in output and len(steps_run(output)) == 2, output
    output = run(sweep(other, "--stages", "smoke", "--again"))
    assert len(steps_run(output)) == len(check_whole(other)[0]) == 2, output


def test_failed_step(folder):
    """A step that failed is run again; and with it the number of ranks is left alone until then."""
    other = folder + "-failed"
    output = run(sweep(other, "--stages", "smoke,eager", "--ranks", "3"), 1, BEELINE_EMU_NCCL_FAULT="ncclAllGather=ncclSystemError")
    assert steps_run(output) == ["smoke / 3 ranks all"] and "eager (too many steps with 3 ranks failed): 3 ranks all" in output, output
    assert [(m["good"], m["records"]) for m in markers(other).values()] == [(False, 0)]
    output = run(sweep(other, "--stages", "smoke,eager", "--ranks", "3"))
    assert steps_run(output) == ["smoke / 3 ranks all", "eager / 3 ranks all"] and len(check_whole(other)[0]) == 2, output


def rows_of(path):
    """{collective: [(most bytes, route)]} of 3 ranks."""
    found = {}
    with open(path, encoding="utf-8") as lines:
        for words in (line.split("#")[0].split() for line in lines):
            if len(words) > 3 and words[1] == "3" and words[0] != "gpu":
                found.setdefault(words[0], []).append((float("inf") if words[2] == "max" else size_of(words[2]), tuning.route_of(" ".join(words[3:]))))
    return found


def test_thresholds(folder):
    """Beeline takes the file without a word, and routes as it says."""
    def change(r):
        if r.get("record") == "row":
            r["nccl"]["us"] *= FAST_NCCL
    slow, other = folder + "-slow", folder + "-tuned"
    rewrite(folder, slow, change)
    run(sweep(other, "--from", slow, "--stages", "candidates"))
    path = os.path.join(other, "thresholds.tune")
    wanted = rows_of(path)
    assert set(wanted) == {*sweep_plan.ALL_REDUCE, *sweep_plan.OTHERS}, wanted
    assert all(len(found) > 1 and found[0][1] != "nccl" and found[-1] == (float("inf"), "nccl") for found in wanted.values()), wanted
    output = os.path.join(TMP, "routes.json")
    said = run(emulated(os.path.join(BUILD, "beeline-perf"), "-t", "3", "-c", ",".join(wanted), "--mode", "eager", "--place", "out", "-b", "48", "-e", "96K", "-f", "2",
                        "-n", "1", "-G", "1", "-w", "0", "--json", output),
               LD_PRELOAD=os.path.join(BUILD, "libbeeline.so"), BEELINE_TUNING_FILE=path, BEELINE_DEBUG="INFO")
    assert "WARN" not in said and path in said, said
    seen = set()
    for r in records.rows(records.read(output)):
        size = records.part_bytes(r)
        assert r["route"] == next(name for most, name in wanted[r["collective"]] if size <= most), (r["collective"], size, r["route"], wanted)
        seen.add(r["route"])
    # A range of all-reduce may lie between two of these sizes, of the others none: they are those that were measured, and more.
    assert {name for collective in sweep_plan.OTHERS for _, name in wanted[collective]} <= seen and seen & {name for _, name in wanted["all_reduce"][:-1]}, seen


def test_refusals(_):
    """Variables that would change what is measured; and multicast, where the GPUs are real."""
    os.makedirs(os.path.join(TMP, "bin"))
    with open(os.path.join(TMP, "bin/nvidia-smi"), "w", encoding="utf-8") as out:
        out.write('#!/bin/sh\nfor i in 0 1 2 3 4 5 6 7; do echo "$i, GPU-$i, NVIDIA H200"; done\n')
    os.chmod(out.name, 0o755)

    def plan(status, **env):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("BEELINE_EMU")}
        environment.update(env, PATH=f"{TMP}/bin:{os.environ['PATH']}")
        done = subprocess.run([os.path.join(ROOT, "scripts/sweep-ranks"), "--dry-run", "--build", BUILD, "--out", os.path.join(TMP, "none")],
                              cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env=environment)
        assert done.returncode == status, done.stdout
        return done.stdout
    assert "multicast" in plan(2, BEELINE_MULTICAST="1").lower()
    assert "BEELINE_ALLREDUCE" in plan(2, BEELINE_ALLREDUCE="nccl")
    text = plan(0, BEELINE_MULTICAST="0")
    assert "smoke / 8 ranks all" in text and "beside  candidates / 2 ranks" in text and not os.path.exists(os.path.join(TMP, "none")), text


def main():
    os.makedirs(TMP)
    os.environ.update(SWEEP_TEST=str(os.getpid()), TMPDIR=TMP)
    folder = os.path.join(TMP, "sweep")
    for test in (test_killed, test_taken_over, test_another_library, test_failed_step, test_thresholds, test_refusals):
        start = time.monotonic()
        test(folder)
        print(f"{test.__name__}: ok ({time.monotonic() - start:.1f} s)", flush=True)


if __name__ == "__main__":
    main()
