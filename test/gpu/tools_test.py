#!/usr/bin/env python3
"""Checks what turns measurements into summaries, pages and tuning files, with made-up records; needs no GPU and no PyTorch."""
import ast
import glob
import itertools
import json
import os
import re
import subprocess
import sys
import threading
import time
import unittest.mock

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "scripts"), os.path.join(ROOT, "test/gpu")]
from beeline import chart  # noqa: E402
from beeline.tuning import process, records  # noqa: E402
from beeline.tuning.box import algorithms  # noqa: E402
from gpu import floors, machine, notes, tables  # noqa: E402
from gpu.box import Box  # noqa: E402
from gpu.programs import fetch_vllm  # noqa: E402
from gpu.stages import STAGES  # noqa: E402
import each  # noqa: E402
import torch_turns  # noqa: E402

KIB = 1 << 10
# bytes: NCCL, then the three algorithms; None: does not serve the size
TIMES = {256: (9.05, 3.78, 4.19, None), 16 * KIB: (10.55, 4.50, 4.97, 6.07), 64 * KIB: (10.94, 5.60, 5.30, 6.66),
         128 * KIB: (11.1, 7.20, 6.00, 6.80), 256 * KIB: (11.42, 8.96, 7.05, 7.03), 512 * KIB: (14.44, 13.55, 9.43, 7.55),
         4096 * KIB: (39.79, None, 45.61, 25.75), 16384 * KIB: (97.75, None, None, 97.0)}
NAMES = ("oneshot_ll", "oneshot_ll128", "twoshot_ll128")


def row(stage, step, size, mine, nccl, route, mode="graph", **more):
    def side(us):
        return dict(us=us, p99_us=us, wrong=0, host_us=3.0, host_min_us=2.5, event_us=us)
    return dict(dict(stage=stage, step=step, record="row", collective="all_reduce", datatype="bfloat16", redop="sum", mode=mode, place="out",
                     route=route, bytes=size, count=size // 2, offset=0, group=1, ranks=4, samples=11, calls=20, beeline=side(mine),
                     nccl=side(nccl), ratio=nccl / mine, algbw=1, busbw=1), **more)


def made_up_tables():
    """What the stages beyond the plain sweep leave."""
    out = [row("perf-groups", "4 ranks", 4 * KIB, 256.0, 192.0, NAMES[0], group=64), row("latency", "4 processes", 256, 8.0, 12.0, NAMES[0], "eager"),
           row("latency", "4 processes", KIB, 9.0, 12.0, NAMES[0], "eager"),
           dict(stage="perf-eager", step="4 processes", record="launch", what="empty kernel", ranks=4, host_us=2.0),
           row("perf-types", "types", 64 * KIB, 4.0, 10.0, NAMES[1]), row("perf-types", "types", 64 * KIB, 5.0, 10.0, NAMES[1], datatype="double"),
           row("perf-types", "odd", 64 * KIB, 4.0, 10.0, NAMES[1]), row("perf-types", "odd", 64 * KIB - 2, 6.0, 12.0, NAMES[1], offset=2),
           row("perf-types", "operations", 64 * KIB, 12.0, 12.0, "nccl", redop="avg")]
    for beeline, us, tokens in ((True, 10.0, 600.0), (False, 20.0, 400.0)):
        out += [dict(kind="load", ranks=4, bytes=64 * KIB, beeline=beeline, side=8192, products=32, idle_us=us / 2, loaded_us=us, loaded_us_all=[us, us / 2, us * 3],
                     product_alone_ms=40.0,
                     product_loaded_ms=40 + us, inside=beeline, covered=True),
                dict(kind="decode", ranks=4, batch=8, beeline=beeline, message=64 * KIB, layers=32, steps=64, context=256, tokens_s=tokens,
                     step_us=8e6 / tokens, graph=True),
                dict(kind="prefill", ranks=4, tokens=512, beeline=beeline, message=4 * KIB * KIB, layers=32, graph=True, step_ms=us, step_ms_all=[us, us / 2, us * 3])]
    return out + [dict(kind="decode-compare", ranks=4, batch=8, error=0.002, error_without=0.003, rough=0.0021, deviation=1.25, choices=32, choices_differ=1,
                       tokens=512, tokens_differ=9),
                  dict(kind="prefill-compare", ranks=4, tokens=512, error=0.002, error_without=0.003, rough=0.0021, deviation=1.25)]


def made_up_gathers():
    """What the stages of all-gather and reduce-scatter leave: 1 MiB a rank of 4, and 256 bytes."""
    def part(stage, step, size, mine, nccl, route, collective="all_gather", **more):
        redop = "none" if collective == "all_gather" else "sum"
        return row(stage, step, 4 * size, mine, nccl, route, **dict(dict(collective=collective, redop=redop, count=size // 2), **more))

    out = [part("perf-gather", "4 ranks", KIB * KIB, 12.0, 16.0, "allgather_ll128", place="in"),
           part("perf-gather", "4 ranks", KIB * KIB, 11.0, 16.5, "allgather_ll128"), part("perf-gather", "4 ranks", 256, 2.5, 10.0, "allgather_ll128"),
           part("perf-gather", "4 processes", 256, 8.0, 12.0, "nccl", "reduce_scatter", mode="eager"),
           part("perf-gather-routes", "4 ranks allgather_ll128", KIB * KIB, 12.0, 16.0, "allgather_ll128", place="in"),
           part("perf-gather-routes", "4 ranks allgather_ce", KIB * KIB, 14.0, 15.0, "allgather_ce", place="in"),
           part("perf-gather-routes", "4 ranks allgather_ll128", 64 * KIB * KIB, 600.0, 600.0, "nccl", place="in"),
           part("perf-gather-routes", "4 ranks allgather_ce", 64 * KIB * KIB, 540.0, 600.0, "allgather_ce", place="in"),
           part("perf-gather-groups", "4 ranks", 4 * KIB, 256.0, 512.0, "nccl", "reduce_scatter", group=64),
           part("perf-gather-groups", "4 ranks", 4 * KIB, 192.0, 384.0, "alltoall_ll128", "all_to_all", group=64, redop="none"),
           part("perf-gather-types", "types", KIB, 4.0, 8.0, "allgather_ll128"), part("perf-gather-types", "odd", KIB, 4.0, 8.0, "allgather_ll128"),
           part("perf-gather-types", "odd", KIB - 2, 5.0, 8.0, "allgather_ll128", offset=2)]
    for route, us in (("nccl", 180.0), ("allgather_ce", 120.0)):
        out.append(dict(kind="overlap", ranks=4, bytes=64 * KIB * KIB, route=route, rows=640, side=8192, samples=20, product_us=100.0, collective_us=130.0,
                        sequential_us=240.0, sequential_us_all=[230.0, 240.0, 260.0],
                        beside={way: dict(both_us=us + add, both_us_all=[us, us + add], product_us=us - 15, collective_us=us)
                                for way, add in (("collective first", 0.0), ("product first", 6.0))}))
    for beeline, ms in ((True, 40.0), (False, 50.0)):
        out.append(dict(kind="fsdp", ranks=4, batch=1, length=2048, parameters=1056000000, layers=18, block_bytes=102700000, reduce="bfloat16", rounds=5,
                        steps=30, step_ms=ms, wall_ms=ms + 1, step_ms_all=[ms, ms + 2], tokens_s=round(8192e3 / ms), beeline=beeline,
                        routes=["allgather_ce", "reducescatter_ll128"] if beeline else [None, None]))
    return out + [dict(kind="fsdp-compare", ranks=4, reduce="bfloat16", first_equal=True, same_bits=False, loss_error=2e-5, error=3e-3, error_without=4e-3, rough=2.5e-3)]


def made_up_others():
    """What the stage of all-to-all, broadcast, reduce and sends leaves."""
    def other(collective, size, mine, nccl, route, mode="graph", **more):
        rooted = dict(redop="sum" if collective == "reduce" else "none", root=0 if collective in ("broadcast", "reduce") else -1)
        return row("perf-others", "4 ranks", size, mine, nccl, route, mode, collective=collective, **rooted, **more)

    return [other("all_to_all", KIB * KIB, 8.0, 16.0, "alltoall_ll128"), other("all_to_all", KIB, 3.0, 12.0, "alltoall_ll128"),
            other("broadcast", KIB, 2.5, 10.0, "broadcast_ll128", place="in"), other("broadcast", 16 * KIB * KIB, 90.0, 90.0, "nccl"),
            other("reduce", 64, 6.0, 12.0, "reduce_ll128", "eager"), other("sendrecv", KIB, 2.0, 7.0, "sendrecv_ll128")]


def made_up_errors():
    """What the stage `truth` leaves."""
    out = []
    for size, mean in ((4 * KIB, 0.2), (12 * KIB, 0.24)):
        out += [dict(kind="truth", ranks=4, collective="all_reduce", redop="sum", datatype="bfloat16", case="cancel", bytes=size, count=size // 2, beeline=beeline,
                     mean_ulp=mean if beeline else 80.0, max_ulp=mean + 0.26 if beeline else 3968.0, right=0.875 if beeline else 0.3125,
                     route="oneshot_ll128" if beeline else "nccl") for beeline in (True, False)]
    return out


def made_up():
    run = dict(record="run", date="2026-01-02T03:04:05Z", host="box", machine="x86_64", driver=13000, nccl=22809, ranks=4,
               devices=[dict(name="NVIDIA H200", arch=90, sms=132, bus="")] * 4)
    out = [dict(stage="perf-routes", step="4 ranks oneshot_ll", **run)]
    for size, (nccl, *times) in TIMES.items():
        best = min((us, name) for us, name in zip(times, NAMES) if us)
        out += [row("perf-graph", "4 ranks", size, best[0], nccl, best[1]), row("perf-eager", "4 processes", size, 8, 30, best[1], "eager"),
                row("host-time", "own routes", size, 8, 30, best[1], "eager")]
        out += [row("perf-routes", f"4 ranks {name}", size, us or nccl, nccl, name if us else "nccl") for us, name in zip(times, NAMES)]
    for which, more in (("with", 0.1), ("without", 0.0)):
        out.append(dict(stage="setup-time", step=f"4 ranks {which}", record="setup", ranks=4, first_s=1.0, init_s=0.5 + more, destroy_s=0.1,
                        bytes=1 << 28, one_mib=400.0, kept=20, kept_mib=1234.0 + 1000 * more))
        out += [dict(stage="torch", step=f"4 {which}", kind="latency", mode=mode, bytes=1024, us=5.0, host_us=4.0, ranks=4, torch="2",
                     beeline=which == "with") for mode in ("graph", "eager")]
    out += made_up_tables() + made_up_gathers() + made_up_others() + made_up_errors()
    return out + [dict(stage="neutrality", step="/bin/true", record="neutrality", added_us=80, plain_us=500, runs=1, said=[])]


def run_tool(*argv):
    return subprocess.run([sys.executable, *argv], cwd=ROOT, capture_output=True, text=True, check=False)


def test_floor(_):
    for ranks, size, want in ((4, 1 << 20, 7.74), (4, 16 << 20, 73.3), (2, 1 << 20, 4.96), (8, 256, 2.06)):
        got = floors.floor_us(size, ranks)
        assert abs(got - want) < 0.01 * want, f"floor of {size} bytes on {ranks} ranks is {got}, not {want}"


def test_part_floor(_):
    """0.73 + 1.32 + (n-1) c/B; a part is the n-th of the message where there are parts."""
    for ranks, part, want in ((4, 1 << 20, 10.79), (2, 16 << 20, 48.65), (4, 256, 2.052)):
        got = floors.part_floor_us(part, ranks)
        assert abs(got - want) < 0.001 * want, f"floor of {part} bytes a rank on {ranks} ranks is {got}, not {want}"
    parts = dict(all_reduce=4096, all_gather=1024, reduce_scatter=1024, all_to_all=1024, broadcast=4096, reduce=4096, sendrecv=4096)
    assert {name: records.part_bytes(dict(collective=name, bytes=4096, ranks=4)) for name in parts} == parts


def test_report(results):
    folder = os.path.dirname(results)
    done = run_tool("scripts/report", results, "--out", folder, "--name", "page")
    assert done.returncode == 0, done.stderr
    with open(os.path.join(folder, "page.md"), encoding="utf-8") as page:
        content = page.read()
    assert "| 512K | 7.55 | 14.44 | 1.91 | 5.55 | 1.36 |" in content, content
    assert "F(S, n) = 0.73 + min(1.32 + (n-1) S/B, 2.64 + 2 (n-1)/n S/B)" in content and "B = 360 GB/s" in content, content
    assert "One launch (empty kernel), in the same processes: 2.00" in content and "host Beeline / launch" in content, content
    for table in tables.tables(made_up()):
        assert f"## {table.title}" in content and f"| {' | '.join(table.lines[0])} |" in content, content
    if chart.MISSING:
        assert done.stderr == f"report: {chart.MISSING}\n" and ".svg" not in content, done.stderr
        print(f"charts are not looked at: {chart.MISSING}")
        return
    for name in ("graph-4", "latency-4", "all-gather-graph-4", "reduce-scatter-eager-4"):
        assert f"page-{name}.svg" in content, content
        with open(os.path.join(folder, f"page-{name}.svg"), encoding="utf-8") as drawn:
            text = drawn.read()
        assert text.rstrip().endswith("</svg>") and all(f">{label}" in text for label in ("Beeline", "NCCL", "floor")), text
        assert all(f'="stroke: {light}"]{{stroke:{dark}!important}}' in text for light, dark in chart.CURVES) and f"stroke: {chart.CURVES[0][0]}" in text, text


def test_report_of_perf(results):
    """The records of beeline-perf alone make a page, too; what is no such file is said in one line."""
    folder = os.path.dirname(results)

    def report(*lines, name="perf.json"):
        path = os.path.join(folder, name)
        if lines:
            with open(path, "w", encoding="utf-8") as out:
                out.write("\n".join(lines))
        return run_tool("scripts/report", path, "--out", folder, "--name", "perf")

    def unstaged(record):
        return json.dumps({name: value for name, value in record.items() if name not in ("stage", "step")})
    run = dict(made_up()[0], arguments="-e 1M --json perf.json", build="0.1.0-0123456789ab", kernel_driver="580.159.04")
    found = [row("", "", 256 << shift, 4.0, 8.0, NAMES[0], place=place, root=-1) for shift in (0, 2) for place in ("out", "in")]
    done = report(unstaged(run), *map(unstaged, found), '{"record": "row", "coll')
    assert done.returncode == 0, done.stderr
    with open(os.path.join(folder, "perf.md"), encoding="utf-8") as page:
        content = page.read()
    for text in ("## All-reduce in CUDA graphs, bfloat16 sum, 4 ranks", "| 1K | in place | 4.00 | 8.00 | 2.00 |", "- Command: `beeline-perf -e 1M --json perf.json`",
                 "- Driver: 580.159.04, CUDA 13.0", "- Beeline: 0.1.0-0123456789ab", "4 rows, 1 combinations"):
        assert text in content, (text, content)
    assert "Floor" not in content and (chart.MISSING or "perf-0-all_reduce-graph-bfloat16-4.svg" in content), content
    for text, done in (("No such file", report(name="nowhere.json")), ("line 1 is no record", report("no record")), ("has no records", report("")),
                       ("line 2 is no record", report(unstaged(run), "]", unstaged(found[0]))), ("a record lacks", report('{"record": "row"}'))):
        assert done.returncode == 2 and text in done.stderr and done.stderr.count("\n") == 1, (text, done.stderr)


def test_tables(_):
    def name(title):
        return title.split(",")[0] + (" of all-gather" if "of all-gather," in title and title.startswith("Datatypes") else "")

    found = {name(table.title): [" | ".join(line) for line in table.lines] for table in tables.tables(made_up())}
    want = {"Groups of 64 all-reduces": ["4K | graph | 256.00 | 192.00 | 0.750 | 4.00 | 3.00 | oneshot_ll | 0"],
            "Datatypes": ["bfloat16 | sum |  | 0 | 1.00 (2.50)", "double | sum |  | 0 | 1.25 (2.00)", "bfloat16 | sum |  | 0 | 1.00 (2.50)",
                          "bfloat16 | sum | odd | 2 | 1.50 (2.00)", "bfloat16 | avg |  | 0 | 3.00 (1.00, to NCCL)"],
            "Latency of one eager call": ["256 | 8.00 | 12.00 | 1.50 | 8.00 | 12.00 | oneshot_ll | 0",
                                          "1K | 9.00 | 12.00 | 1.33 | 9.00 | 12.00 | oneshot_ll | 0"],
            "Beside a matrix product": ["64K | 5.00 | 10.00 | 10.00 (5-30) | 20.00 (10-60) | 2.000 | 1.250 | 1.500 | without: calls outlasted the product"],
            "Tensor-parallel decoding": ["4 | 8 | 64K | 600 | 400 | 1.500 | 13333 | 20000 | graph | 0.00200, 0.00300, 0.00210 of 1.25 | 1 of 32 | 9 of 512"],
            "Tensor-parallel prefill": ["4 | 512 | 4M | 10.00 (5-30) | 20.00 (10-60) | 2.000 | 0.00200, 0.00300, 0.00210 of 1.25"],
            "Groups of 64 reduce-scatters": ["4K | graph | 256.00 | 512.00 | 2.000 | 4.00 | 8.00 | nccl | 0"],
            "Groups of 64 all-to-alls": ["4K | graph | 192.00 | 384.00 | 2.000 | 3.00 | 6.00 | alltoall_ll128 | 0"],
            "Datatypes of all-gather": ["bfloat16 | none |  | 0 | 1.00 (2.00)", "bfloat16 | none |  | 0 | 1.00 (2.00)", "bfloat16 | none | odd | 2 | 1.25 (1.60)"],
            "All-gather in CUDA graphs": ["256 | out of place | 2.50 | 10.00 | 4.00 | 2.05 | 1.22 | 2.50 | 10.00 | allgather_ll128 | 0",
                                          "1M | out of place | 11.00 | 16.50 | 1.50 | 10.79 | 1.02 | 11.00 | 16.50 | allgather_ll128 | 0",
                                          "1M | in place | 12.00 | 16.00 | 1.33 | 10.79 | 1.11 | 12.00 | 16.00 | allgather_ll128 | 0"],
            "Reduce-scatter": ["256 | out of place | 8.00 | 12.00 | 1.50 | 3.00 | 3.00 | 8.00 | 12.00 | nccl | 0"],
            "Algorithms of all-gather in CUDA graphs": ["1M | 12.00 | 14.00 | 15.00 | 1.25 | 10.79 | 1.11", "64M |  | 540.00 | 600.00 | 1.11 | 561.29 | 0.96"],
            "All-gather beside a matrix product": [
                "64M | one after the other, nccl | 100.0 | 130.0 | 240.00 (230-260) | 1.000 |  |  |  | ",
                "64M | beside, nccl | 100.0 | 130.0 | 180.00 (180-180) | 1.333 | 1.650 | 186.00 (180-186) | 1.290 | 1.650",
                "64M | beside, allgather_ce | 100.0 | 130.0 | 120.00 (120-120) | 2.000 | 1.050 | 126.00 (120-126) | 1.905 | 1.050"],
            "All-to-all in CUDA graphs": ["1K | out of place | 3.00 | 12.00 | 4.00 | alltoall_ll128 | 0",
                                          "1M | out of place | 8.00 | 16.00 | 2.00 | alltoall_ll128 | 0"],
            "Broadcast in CUDA graphs": ["16M | out of place | 90.00 | 90.00 | 1.00 | nccl | 0", "1K | in place | 2.50 | 10.00 | 4.00 | broadcast_ll128 | 0"],
            "Reduce": ["64 | out of place | 6.00 | 12.00 | 2.00 | reduce_ll128 | 0"],
            "Send and receive in CUDA graphs": ["1K | out of place | 2.00 | 7.00 | 3.50 | sendrecv_ll128 | 0"],
            "Errors of sums": ["4 | cancelling | bfloat16 | all-reduce, sum | 0.230 | 0.50 | 87.5% | 80.0 | 3968.00 | 31.2% | oneshot_ll128"],
            "Training steps with FSDP2": ["4 | 2048 | bfloat16 | 40.00 (40-42) | 50.00 (50-52) | 1.250 | 41.00 | 51.00 | 204800 | 163840 | "
                                          "allgather_ce, reducescatter_ll128 | equal | 2.0e-05 | 3.00e-03, 4.00e-03, 2.50e-03"]}
    assert found == want, found


def test_turns(results):
    """Two jobs alternate; one that dies in its turn holds nobody up; the last to end takes the folders away."""
    around = os.path.join(os.path.dirname(results), "turns")
    folder = os.path.join(around, "4")
    order = os.path.join(os.path.dirname(results), "order")
    program = ("import os, sys, time, torch_turns; t = torch_turns.Turns(sys.argv[1], sys.argv[3]); assert t.arrive('start')\n"
               "for i in range(5):\n"
               "    t.take(); open(sys.argv[2], 'a').write(sys.argv[3]); time.sleep(0.05)\n"
               "    if sys.argv[3] == 'b' and i == 3: os._exit(0)\n"
               "    t.give()\n"
               "t.end()\n")
    environment = dict(os.environ, RANK="0", PYTHONPATH=os.path.join(ROOT, "test/gpu"))
    jobs = [subprocess.Popen([sys.executable, "-c", program, folder, order, name], env=environment) for name in "ab"]
    assert [job.wait(60) for job in jobs] == [0, 0]
    with open(order, encoding="utf-8") as written:
        turns = written.read()
    assert turns.count("a") == 5 and turns.count("b") == 4 and ("abab" in turns or "baba" in turns), turns
    assert os.path.exists(folder), "b has not ended well"
    os.environ["RANK"] = "0"
    torch_turns.Turns(folder, "b").end()
    assert not os.path.exists(around)
    gone, left = (torch_turns.Turns(folder, name) for name in "ab")
    gone.end()
    start = time.monotonic()
    assert not left.arrive("start") and time.monotonic() - start < torch_turns.COMING / 2, "waits for a job that has ended"
    one, two, three = (torch_turns.Turns(folder + "-three", name, 3) for name in "abc")
    came = []
    waiting = [threading.Thread(target=lambda t=t: came.append(t.arrive("ready"))) for t in (one, two)]
    for thread in waiting:
        thread.start()
    time.sleep(0.2)
    assert not came, "does not wait for the third"
    came.append(three.arrive("ready"))
    for thread in waiting:
        thread.join()
    assert came == [True] * 3, came
    one.end()
    two.end()
    assert os.path.exists(one.folder), "one of three has not ended"
    assert not three.arrive("start")
    three.end()
    assert not os.path.exists(one.folder)
    alone = torch_turns.Turns(None, "alone")
    alone.take()
    alone.give()
    assert not alone.arrive("start")


def test_turn_jobs(_):
    """Both jobs of a pair share folder and GPUs, and differ in the preload; pairs share the folder around theirs."""
    box = Box("build", 4, [4, 2], "/tmp")
    for name, ranks in (("load", [4]), ("decode", [4, 2]), ("prefill", [4, 2]), ("fsdp", [4])):
        (step,) = STAGES[name].steps(box)
        jobs = [step, *step.beside]
        folders = [job.argv[job.argv.index("--turns") + 1] for job in jobs]
        assert len(jobs) == 2 * len(ranks) == len({job.records for job in jobs})
        assert len({os.path.dirname(folder) for folder in folders}) == 1 and len(set(folders)) == len(ranks)
        for i, number in enumerate(ranks):
            one, other = jobs[2 * i:2 * i + 2]
            assert folders[2 * i] == folders[2 * i + 1]
            assert ("LD_PRELOAD" in one.env, "LD_PRELOAD" in other.env) == (True, False)
            assert one.env["CUDA_VISIBLE_DEVICES"] == other.env["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"[:2 * number - 1]
    (step,) = STAGES["overlap"].steps(box)
    jobs, names = [step, *step.beside], {"nccl": "nccl", **algorithms("all_gather")}
    assert len({job.argv[job.argv.index("--turns") + 1] for job in jobs}) == 1 and len({job.records for job in jobs}) == len(names)
    assert [job.env.get("BEELINE_ALLGATHER", "nccl") for job in jobs] == list(names.values())
    assert [job.argv[job.argv.index("--route") + 1] if "--route" in job.argv else "nccl" for job in jobs] == list(names)
    assert ["LD_PRELOAD" in job.env for job in jobs] == [False] + [True] * (len(names) - 1)
    assert all(job.argv[job.argv.index("--jobs") + 1] == str(len(names)) for job in jobs)


def test_torch_distributed(_):
    """The fewest ranks first; Beeline on one side alone, which waits as long as it takes; verdicts of all in one file that stays."""
    steps = STAGES["torch-distributed"].steps(Box("build", 4, [4, 2], "/tmp", "/nccl"))
    assert [step.argv[step.argv.index("--ranks") + 1] for step in steps] == ["2", "4"]
    for step in steps:
        sides = [word for before, word in zip(step.argv, step.argv[1:]) if before == "--with"]
        assert sides == ["BEELINE_TUNE=0", "LD_PRELOAD=" + ":".join(filter(None, ("build/libbeeline.so", os.environ.get("LD_PRELOAD"))))], sides
        assert "LD_PRELOAD" not in step.env and step.env["LD_LIBRARY_PATH"].startswith("/nccl"), step.env
        assert step.argv[step.argv.index("--verdicts") + 1] == "/tmp/torch-distributed.verdicts"


def test_others(_):
    """Every number of ranks has a run in graphs and an eager one."""
    box = Box("build", 4, [4, 2], "/tmp")
    steps = STAGES["perf-others"].steps(box)
    runs = [(step.argv[step.argv.index("--mode") + 1], next(how for how in ("-t", "--spawn") if how in step.argv)) for step in steps]
    assert runs == [("graph", "-t")] * 2 + [("eager", "--spawn")] * 2 and len({step.name for step in steps}) == 4, runs
    assert all(step.argv[step.argv.index("-c") + 1] == "all_to_all,broadcast,reduce,sendrecv" for step in steps)


def test_jax(_):
    """Three ways, each with Beeline, which must have served something, and without; a process for each rank where that is said."""
    steps = STAGES["jax"].steps(Box("build", 4, [4, 2], "/tmp"))
    ways = [("--command-buffers" in step.argv, "--processes" in step.argv, "LD_PRELOAD" in step.env, "_ll128" in step.want) for step in steps]
    assert ways == [(graphs, processes, preload, preload) for graphs, processes in ((False, False), (True, False), (False, True))
                    for preload in (True, False)], ways
    assert all(step.argv[step.argv.index("--gpus") + 1] == "4" for step in steps) and STAGES["jax"].by_name
    assert re.search(steps[0].want, "jax 1, 2 ranks: 3 passed, 0 failed\nstats: rank 0 of 2: sendrecv_ll128 5 calls") and not re.search(
        steps[0].want, "jax 1, 2 ranks: 3 passed, 0 failed\nstats: rank 0 of 2: nccl 5 calls")


def test_vllm(results):
    """Without vLLM's files nothing but the attempt to fetch them, which says what to do; with them each number of ranks three ways, and times two."""
    folder = os.path.dirname(results)
    box = Box("build", 4, [4, 2], folder, vllm=folder)
    (fetch,) = STAGES["vllm"].steps(box)
    failed = subprocess.run(fetch.argv, capture_output=True, text=True, check=False, env={**os.environ, "PIP_INDEX_URL": f"file://{folder}/none"})
    assert failed.returncode == 1 and "FAILED: cannot fetch vLLM" in failed.stderr and "--vllm" in failed.stderr, failed
    with unittest.mock.patch.object(fetch_vllm, "complete", return_value=True):
        steps = list(STAGES["vllm"].steps(box))[1:]
    ways = [(step.argv[step.argv.index("--ranks") + 1], "--times" in step.argv, "--served" in step.argv, "LD_PRELOAD" in step.env,
             "VLLM_NCCL_SO_PATH" in step.env) for step in steps]
    alone, preloaded, named = (False, False, False), (True, True, False), (True, False, True)
    assert ways == [(n, times, *way) for n in "42" for times, way in ((False, alone), (False, preloaded), (False, named), (True, alone), (True, preloaded))], ways
    assert not any({"PYTHONPATH", "BEELINE_TUNING_FILE"} & set(step.env) or {"--sizes", "--hidden"} & set(step.argv) for step in steps)


def test_notes(results):
    text = "\n".join(notes.notes(records.read(results)))
    assert "slower than 1.05 x NCCL: nowhere" in text and "(+0.100;" in text and "oneshot_ll" in text, text
    assert "20 that each did a call 1334 / 1234 MiB" in text, text


def test_cut_line(results):
    with open(results, encoding="utf-8") as whole:
        text = whole.read()
    cut = results + ".cut"
    with open(cut, "w", encoding="utf-8") as out:
        out.write(text[:-20])
    assert len(records.read(cut)) == len(records.read(results)) - 1


def test_time_limit(results):
    """A step that hangs ends with all that it started, also what moved to a session of its own."""
    step = process.Step("hangs", ["sh", "-c", "setsid sleep 300 & sleep 300"], limit=1)
    start = time.monotonic()
    (result,) = process.run(step, 60, os.path.dirname(results))
    assert not result.good and "no end after" in result.reason, result.reason
    assert time.monotonic() - start < 20
    assert not list(process.tagged(f"{os.getpid()}-{process.Running.count}"))


def test_reasons(results):
    folder = os.path.dirname(results)
    (result,) = process.run(process.Step("fails", ["sh", "-c", "echo fine; echo 'FAILED: this'; exit 3"]), 60, folder)
    assert result.reason == "status 3: FAILED: this", result.reason
    (result,) = process.run(process.Step("lacks", ["echo", "nothing"], want="passed"), 60, folder)
    assert not result.good
    (result,) = process.run(process.Step("absent", ["/no/such/program"]), 60, folder)
    assert not result.good


def test_truth(results):
    """Both sides are judged by what is exact: being far from the other side is no fault, being farther from the truth is."""
    def write(name, offset, exact=2.0, ulp=0.25):
        path = os.path.join(os.path.dirname(results), name)
        common = dict(tag="t", ranks=4)
        losses = dict(common, kind="losses", dtype="float32", losses=[[4.0, 2.0 + offset]], exact=[[4.0, exact]], rough=[[[4.0, exact + 1e-6]]])
        sums = dict(common, kind="truth", collective="all_reduce", redop="sum", datatype="bfloat16", case="normal", bytes=4096, mean_ulp=ulp, max_ulp=1,
                    right=0.9)
        with open(path, "w", encoding="utf-8") as out:
            out.writelines(json.dumps(record) + "\n" for record in (losses, sums))
        return path

    def compare(without, with_, *more):
        return run_tool("test/gpu/compare_truth.py", without, with_, *more)
    right, near, far, wild = write("a", 0), write("b", 1e-6), write("c", 3e-6), write("d", 1e-3)
    for without, with_, want in ((right, near, 0), (right, far, 1), (far, far, 0), (far, right, 0), (wild, wild, 1), (right, write("e", 0, 2.1), 1),
                                 (right, write("f", 0, ulp=0.26), 0), (right, write("g", 0, ulp=0.27), 1), (write("h", 0, ulp=0.4), right, 0)):
        done = compare(without, with_)
        assert done.returncode == want and ("2 compared: ok" in done.stdout) == (not want), done.stdout + done.stderr
    assert compare(right, near, "--ranks", "2").returncode == 1, "nothing to compare is a failure"


def test_algorithms(_):
    assert set(NAMES) <= set(algorithms())


PROGRAM = """#!/bin/sh
[ $# = 0 ] && { echo a b c d; exit; }
[ $# = 1 ] || [ -z "$FRESH" ] || exit 2
for n; do
    case $n in
        a) echo "a: ok" ;;
        b) echo "b: ok (took 0.5 s)" ;;
        c) [ -z "$LD_PRELOAD" ] || { echo "FAIL wrong"; exit 1; }; echo "c: ok" ;;
        d) exit 77 ;;
    esac
done
"""


def test_both_ways(results):
    """Where both sides share GPUs NCCL alone runs what failed with Beeline, was skipped, or says how long an end took."""
    program = os.path.join(os.path.dirname(results), "program")
    with open(program, "w", encoding="utf-8") as out:
        out.write(PROGRAM)
    os.chmod(program, 0o755)
    for apart, fresh in itertools.product(([], ["--other-gpus", "1"]), ([], ["--fresh"])):
        argv = [sys.executable, os.path.join(ROOT, "scripts/gpu/programs/both_ways.py"), "--library", "/none.so", "--gpus", "0", *apart, *fresh, program]
        done = subprocess.run(argv, env={**os.environ, "FRESH": "1" if fresh else ""}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
        found = {r["name"]: (r["beeline"], r["alone"]) for r in map(json.loads, filter(lambda line: line.startswith("{"), done.stdout.splitlines()))}
        assert done.returncode == 1 and done.stdout.endswith("4 programs, 1 that NCCL alone runs and Beeline does not\n"), done.stdout
        assert found == {"a": ("ok", "ok" if apart else "not run"), "b": ("ok", "ok"), "c": ("status 1: FAIL wrong", "ok"), "d": ("skipped", "skipped")}, found


def test_build_for_tests(results):
    """It is refused on GPUs."""
    folder = os.path.dirname(results)
    os.makedirs(os.path.join(folder, "kernels"), exist_ok=True)
    with unittest.mock.patch.object(machine, "EMULATED", ""):
        assert machine.lacking(folder) is None
        with open(os.path.join(folder, "kernels/sampled"), "w", encoding="utf-8"):
            pass
        assert f"--build {folder} lacks most of the device code" in machine.lacking(folder)
        try:
            machine.built(folder)
        except SystemExit as refused:
            assert str(refused) == machine.lacking(folder), refused
            return
    raise AssertionError("it was taken")


def test_syntax(_):
    for path in glob.glob(os.path.join(ROOT, "test/gpu/*.py")):
        with open(path, encoding="utf-8") as source:
            ast.parse(source.read(), path)


def made_up_results(folder):
    results = os.path.join(folder, "results.jsonl")
    with open(results, "w", encoding="utf-8") as out:
        out.writelines(json.dumps(record) + "\n" for record in made_up())
    return results


if __name__ == "__main__":
    sys.exit(each.run(globals(), made_up_results))
