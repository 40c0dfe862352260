#!/usr/bin/env python3
"""kernel-times on an emulated box, 4 ranks on 2 GPUs: every kernel has right results at every size and a record of each time, of
buffers that are not aligned, too, and of a launch of several collectives; of kernels with a planted fault a wrong result is seen, and a wait in vain, and both
end it with 1.  With -E the errors of sums."""
import json
import os
import re
import subprocess
import sys

BUILD, TMP = os.environ["BUILD"], os.environ["TEST_TMP"]
PLANTED = os.path.abspath(f"{BUILD}/test/planted/libbeeline-kernels.so")
SIZES = (8, 128, 2048)
COLLECTIVES = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "sendrecv"}


def run(*options, fault=None, wait=30):
    """Exit status, output and records."""
    path = f"{TMP}/records"
    env = dict(os.environ)
    if fault:
        env.update(BEELINE_TEST_FAULT=fault, BEELINE_EMU_KERNELS=PLANTED)
    command = ["scripts/emu-box", "-g", "2", "--sms", "16", "--block", "128", "--seed", os.environ["SEED"], "--", f"{BUILD}/test/gpu/kernel-times",
               "-n", "4", "-g", "2", "-b", "8", "-e", "2K", "-f", "16", "-G", "2", "-r", "2", "-w", str(wait), "--json", path, *options]
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    print(done.stdout, flush=True)
    with open(path, encoding="utf-8") as file:
        return done.returncode, done.stdout, [json.loads(line) for line in file]


def check(condition, *words):
    if not condition:
        sys.exit(" ".join(map(str, words)))


def all_kernels():
    status, output, records = run("-t", "64,128")
    check(status == 0, "status", status)
    check({r["collective"] for r in records} == COLLECTIVES, records)
    runs = {(r["kernel"], r["threads"]) for r in records}
    check(("oneshot_ll128", 64) in runs and all((kernel, 128) in runs for kernel, _ in runs), runs)
    check(len(records) == len(runs) * len(SIZES), len(records), "records of", runs)
    check({r["bytes"] for r in records} == set(SIZES), records)
    check(all(r["wrong"] == 0 and 0 < r["us_least"] <= r["us"] <= r["us_most"] and 1 <= r["blocks"] <= 4 for r in records), records)
    rows = [line.split() for line in output.splitlines() if "/" in line.split(" ")[0]]
    check({row[0] for row in rows} == {f"{kernel}/{threads}" for kernel, threads in runs} and len(rows) == len(runs), rows)
    check(all(len(row) == len(SIZES) + 2 and row[-1] == "0" for row in rows), rows)


def several():
    """One launch of broadcasts, reduces and all-reduces; of an all-reduce that nobody reduces, each rank's result is wrong."""
    status, output, records = run("-m", "5", "-t", "64,128")
    check(status == 0, "status", status)
    check([(r["bytes"], r["threads"], r["collective"], r["messages"], r["wrong"]) for r in records] ==
          [(size, threads, "several", 5, 0) for size in SIZES for threads in (64, 128)], records)
    check("several, 5 messages" in output, "should say of how many messages")
    status, output, records = run("-m", "5", "-t", "64", fault="mixed-reduces-all")
    check(status == 1 and all(r["wrong"] > 0 for r in records), "status", status, records)


def not_aligned():
    status, output, records = run("-k", "twoshot_ll128,sendrecv_ll128", "-t", "64", "-o", "6")
    check(status == 0, "status", status)
    check(len(records) == 2 * len(SIZES) and all(r["wrong"] == 0 and r["offset"] == 6 for r in records), records)
    check("# buffers 6 bytes off" in output, "should say how far off buffers are")
    status, output, records = run("-o", "3")
    check(status == 2 and not records and '-o: "3"; accepted: even numbers to 14' in output, "should refuse odd offsets")


def wrong_result():
    """The root of a broadcast does not store its own result."""
    status, output, records = run("-k", "allgather_ll128,broadcast_ll128", "-t", "64", fault="own-result")
    check(status == 1, "status", status)
    count = {"allgather_ll128": 0, "broadcast_ll128": 2}  # before the timing, and after it
    check(len(records) == 2 * len(SIZES), records)
    check(all(r["wrong"] == count[r["kernel"]] * r["count"] for r in records), records)
    check(f"\n{2 * sum(SIZES) // 2} wrong elements" in output, "should say how many are wrong")


def wait_in_vain():
    """Packets that no reader takes for new."""
    status, output, records = run("-k", "oneshot_ll", "-t", "64", fault="ll-flag", wait=1)
    check(status == 1 and not records, "status", status, records)
    check(re.search(r"oneshot_ll, 64 threads, 8 bytes: rank \d waited for rank \d", output), "should say who waited")


def errors():
    """Kernels that add in fp32 and round once are within half a unit of the exact sum, but for the additions' share; chains of roundings are not."""
    status, output, records = run("-E", "-t", "128", "-n", "8")
    check(status == 0, "status", status)
    check({(r["record"], r["ranks"], r["datatype"], r["redop"]) for r in records} ==
          {("error", 8, datatype, redop) for datatype in ("bfloat16", "half") for redop in ("sum", "avg")}, records)
    check({r["collective"] for r in records} == {"all_reduce", "reduce_scatter"} and {r["bytes"] for r in records} == set(SIZES), records)
    check(all(0 < r["mean_ulp"] <= 0.5 and r["max_ulp"] < 0.6 and r["right"] >= 0.99 for r in records), records)
    check(all(r["chain_max_ulp"] > 1 and r["chain_right"] < 0.9 for r in records if r["bytes"] == 2048), records)
    check(sum(line.startswith("twoshot_ll128 ") for line in output.splitlines()) == 4 * len(SIZES), output)


all_kernels()
several()
not_aligned()
errors()
wrong_result()
wait_in_vain()
