#!/usr/bin/env python3
"""Checks the plan, the thresholds, the targets and the store of sweep-ranks, with made-up records; needs no GPU."""
import contextlib
import io
import json
import os
import sys
from types import SimpleNamespace

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "scripts"), os.path.join(ROOT, "test/gpu")]
from beeline.tuning import candidates, jobs, process, store, thresholds as tuning  # noqa: E402
from beeline.tuning.box import algorithms  # noqa: E402
from beeline.tuning.jobs import option as option_of  # noqa: E402
from gpu import machine, nvls_tuning  # noqa: E402
from gpu.box import Box  # noqa: E402
from gpu.sweep import plan, run as sweep_run, tables, targets  # noqa: E402
import each  # noqa: E402
from tools_test import row  # noqa: E402

KIB, MIB = 1 << 10, 1 << 20
ALL = (8, 7, 6, 5, 4, 3, 2)
LIMIT = 460  # of sweep-ranks


def a_box(gpus, ranks, folder="/tmp"):
    return Box("build", gpus, list(ranks), folder)


def a_sweep(folder, gpus=8, ranks=ALL):
    options = SimpleNamespace(out=folder, limit=LIMIT, margin=0.03, gpus=[(str(i), "NVIDIA H200") for i in range(gpus)], stages=list(plan.STAGES))
    return sweep_run.Sweep(a_box(gpus, ranks, folder), store.Steps(folder, {}), options, [], "command", host="host")


def test_shared(_):
    for gpus, ranks, want in ((8, ALL, [(8,), (7,), (6, 2), (5, 3), (4,)]), (4, (4, 3, 2), [(4,), (3,), (2,)]), (2, (2,), [(2,)]),
                              (8, (6, 4, 2), [(6, 2), (4,)]), (16, (16, 8, 4), [(16,), (8, 4)])):
        assert plan.shared(ranks, gpus) == want, (gpus, ranks)


def test_plan(_):
    """Every algorithm for every number of ranks; what is important first and in time; no two jobs of one name."""
    sweep = a_sweep("/tmp")
    batches, lines = sweep.batches, sweep.plan_lines()
    jobs = [job for batch in batches for job in batch]
    keys = [job.key for job in jobs]
    assert len(set(keys)) == len(keys)
    assert all(sum(job.ranks for job in batch) <= 8 for batch in batches) and any(len(batch) > 1 for batch in batches)
    for ranks in ALL:
        for collective in (*plan.ALL_REDUCE, *plan.OTHERS):
            forced = {name for job in jobs if job.ranks == ranks for rows in job.forced for _, name in rows.get(collective, ()) if name != "nccl"}
            names = {name for name in algorithms(collective) if name != "allgather_ce"}
            assert {tuning.route_of(name) for name in forced} == names, (ranks, collective, forced)
            assert all(tuning.is_pieces(name) or tuning.words_of(name, "threads=256") in forced for name in names), (ranks, collective, forced)
            pieces = {name for name in forced if tuning.is_pieces(name)}
            assert all("threads" not in name and " blocks=" in name for name in pieces) and bool(pieces) == any(map(tuning.is_pieces, names)), pieces
    order = [f"smoke / {n} ranks all" for n in ALL[:5]] + ["sweep / 8 ranks all_reduce", "candidates / 8 ranks all_reduce", "tuned / 8 ranks all_reduce",
             "sweep / 8 ranks others", "candidates / 8 ranks others", "sweep / 7 ranks all_reduce", "candidates / 6 ranks others",
             "candidates / 5 ranks others", "eager / 8 ranks all", "types / 8 ranks all", "types / 5 ranks all", "tuned / 5 ranks others",
             "types / 8 ranks other operations", "groups / 8 ranks all"]
    places = [keys.index(key) for key in order]
    assert places == sorted(places), places
    need = next(i for i, job in enumerate(jobs) if job.stage == "groups")
    start = float(next(line for line in lines if "groups / 8" in line).split()[1])
    assert {(job.stage, job.ranks) for job in jobs[:need]} >= {(stage, n) for n in ALL for stage in ("smoke", "sweep", "candidates", "tuned", "eager")}
    assert max(job.seconds for job in jobs) < 30 and start + jobs[need].seconds < LIMIT, lines
    assert not any(job.stage == "types" and job.ranks == 4 for job in jobs)
    four = plan.Plan(a_box(4, (4, 3, 2))).batches()
    assert {job.ranks for batch in four for job in batch if job.stage == "types"} == {4, 3, 2}
    ends = {job.key: int(option_of(job.arguments, "-e", "0")) for found in (batches, four) for batch in found for job in batch if job.forced}
    assert [ends[f"candidates / {n} ranks {of}"] // MIB for n in (8, 4) for of in ("all_reduce", "others")] == [64, 16 * 8, 1024, 256 * 4], ends
    for found in (batches, four, plan.Plan(a_box(8, (2,))).batches()):
        number = {job.key: i for i, batch in enumerate(found) for job in batch}
        assert all(number[key.replace("tuned", "candidates")] < i for key, i in number.items() if key.startswith("tuned")), number


def test_files(_):
    """Every candidate has its range in one file, and no size two in a file; blocks that a kernel cannot have are none."""
    for ranks in (2, 3, 8, 16):
        names = {c: found for c, found in jobs.tables_of().items()}
        files = candidates.files_of(names, ranks)
        for collective, of in names.items():
            wanted = candidates.candidates_of(of, ranks)
            assert not any("threads=64 spread=warps" in name for *_, name in wanted) or ranks <= 4
            for size in (8 << i for i in range(24)):
                seen = [name for name in (candidates.forced_on(file[collective], size) for file in files) if name]
                assert sorted(seen) == sorted(name for least, most, name in wanted if least <= size <= most), (ranks, collective, size, seen)
            assert all(len(file[collective]) < tuning.MOST_ROWS for file in files)
        count = [len([1 for least, most, _ in candidates.candidates_of(names["all_reduce"], ranks) if least <= size <= most]) for size in (8 << i for i in range(24))]
        assert len(files) == max(count), (len(files), count)
    spread = [name for *_, name in candidates.candidates_of(["oneshot_ll128:warps"], 16)]
    assert spread == ["oneshot_ll128 threads=256 spread=warps"], spread
    assert candidates.rows_for([(1, 64, "a"), (128, 256, "b"), (16, 32, "c")]) == [[(64, "a"), (127, "nccl"), (256, "b")], [(15, "nccl"), (32, "c")]]
    assert candidates.rows_text("reduce", 2, [(15, "nccl"), (32 * KIB, "c threads=64")]) == "reduce 2 15 nccl\nreduce 2 32K c threads=64\nreduce 2 max nccl\n"


def test_rows_of(_):
    """As beeline-perf counts them."""
    for arguments, want in (("-c all_reduce --mode graph --place both -b 8 -e 64 -f 2", (8, 2 * 120)), ("-c all_to_all,broadcast,sendrecv -b 1K -e 1K", (8, 8 * KIB)),
                            ("-c all_reduce -d all -o all --odd --offset 0,1 --mode eager -b 3 -e 3", (480, 1440))):
        assert jobs.rows_of(2, arguments.split()) == want, arguments
    arguments = "-c all_reduce,all_gather --mode graph --place both -b 8 -e 64 -f 2".split()
    forced = [dict(all_reduce=[(16, "a")], all_gather=[(4, "nccl"), (32, "b")]), dict(all_reduce=[], all_gather=[(8, "c")])]
    assert jobs.rows_of(2, arguments, forced) == (2 * (2 + 3 + 2), 2 * (24 + 112 + 24))
    assert jobs.estimate(8, arguments, forced) > jobs.estimate(8, arguments, forced[:1]) + 1
    assert 2 < jobs.estimate(8, "-c all_reduce".split()) < 30


def test_devices(folder):
    """Jobs of a batch have GPUs of their own, a tuning file each where they force something, and know of each other."""
    sweep, seen = a_sweep(folder), []

    def run(step, left, *_):
        steps = [step, *step.beside]
        seen.append(steps)
        for s in steps:
            with open(s.records, "w", encoding="utf-8") as out:
                for path in s.argv[s.argv.index("--tunings") + 1].split(","):
                    out.write(json.dumps(dict(record="row", collective=s.argv[s.argv.index("-c") + 1].split(",")[0], bytes=8192, ranks=8, tuning=path)) + "\n")
        return [process.Result(s, 0, "| allgather_ll128 0", 1.0, False) for s in steps]
    original, process.run = process.run, run
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            for batch in sweep.batches:
                if all(job.stage == "candidates" for job in batch):
                    sweep.run_batch(batch, 100)
    finally:
        process.run = original
    for steps in seen:
        given = [device for step in steps for device in step.env["CUDA_VISIBLE_DEVICES"].split(",")]
        assert len(given) == len(set(given)) <= 8 and set(given) <= {str(i) for i in range(8)}, given
        for step in steps:
            ranks = int(step.argv[step.argv.index("-t") + 1])
            assert len(step.env["CUDA_VISIBLE_DEVICES"].split(",")) == ranks
            files = step.argv[step.argv.index("--tunings") + 1].split(",")
            assert len(files) > 4 and "--served" in step.argv and not os.path.exists(step.env["BEELINE_TUNING_FILE"])
            for path in files:
                with open(path, encoding="ascii") as file:
                    lines = file.read().splitlines()
                assert lines[0] == "gpu any" and all(line.split()[1] == str(ranks) and any(option in line for option in ("threads=", "blocks=", " nccl")) for line in lines[1:])
                collectives = step.argv[step.argv.index("-c") + 1].split(",")
                assert [line.split()[0] for line in lines if " max nccl" in line] == collectives, lines
        assert len({step.records for step in steps}) == len(steps)
    assert sum(map(len, seen)) == len(sweep.results.markers())
    marker, found = sweep.results.steps["candidates / 6 ranks all_reduce"]
    assert marker["beside"] == ["candidates / 2 ranks all_reduce"]
    assert [r["tuning"] for r in found] == list(range(len(found))) and {"oneshot_ll128 threads=128", "twoshot_ll128 threads=256 spread=warps"} < {r["forced"] for r in found}


def test_cut_off(folder):
    """What the end of the sweep's time cuts off has not failed; what hangs has, and then its number of ranks is left alone."""
    sweep, seconds = a_sweep(folder, 2, (2,)), []

    def run(step, left, *_):
        seconds.append(left)
        return [process.Result(step, 1, "", left if len(seconds) == 1 else 30.0, True)]
    original, process.run = process.run, run
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            (smoke,), (first,) = sweep.batches[0], sweep.batches[1]
            sweep.run_batch([smoke], 100)
            assert not sweep.results.steps and sweep.may_run(first) and sweep.left_out == {smoke.key: "cut off: no time"}
            sweep.run_batch([smoke], 100)
    finally:
        process.run = original
    assert not sweep.results.markers()[smoke.key]["good"] and not sweep.may_run(first) and not sweep.is_done(smoke)


def forced(size, name, us, nccl=20.0, place="out", ranks=4, collective="all_gather", **more):
    blocks = ranks if collective == "all_gather" else 1
    return row("candidates", f"{ranks} ranks x", size * blocks, us, nccl, more.pop("route", tuning.route_of(name)), place=place, ranks=ranks, collective=collective,
               redop="none" if collective == "all_gather" else "sum", count=size // 2, forced=name, **more)


def test_tuning_places(_):
    """The mean of both places decides, block sizes are candidates, bytes are a rank's block; what does not serve or was wrong is none."""
    small, large = "allgather_ll128 threads=128", "allgather_ll128 threads=256"
    found = []
    for size, one, other in ((KIB, (3.0, 3.0), (3.5, 3.5)), (MIB, (9.0, 12.0), (10.0, 10.0)), (4 * MIB, (15.0, 15.0), (12.0, 12.0)),
                             (64 * MIB, (30.0, 30.0), (25.0, 25.0))):
        for name, times in ((small, one), (large, other)):
            found += [forced(size, name, us, place=place) for place, us in zip(("out", "in"), times)]
    found += [forced(KIB, "allgather_ce threads=64", 1.0, place=place, route="nccl") for place in ("out", "in")]
    bad = [forced(KIB, "allgather_ll128 threads=64", 1.0, place=place) for place in ("out", "in")]
    for r in bad:
        r["beeline"]["wrong"] = 1
    found += bad + [forced(KIB, "allgather_nvls threads=32", 1.0)]  # in place it was not measured
    table = tuning.measurements(found, "candidates", 4, "all_gather")
    assert table[MIB] == {small: 10.5, large: 10.0, "nccl": 20.0} and set(table[KIB]) == {small, large, "nccl"}, table
    rows = tuning.tuning_rows(found, "candidates", 4, "all_gather", 0.03)
    assert [name for _, name in rows] == [small, large] and KIB < rows[0][0] < MIB and 4 * MIB <= rows[1][0] < 64 * MIB, rows
    lines = tuning.row_lines("all_gather", 4, rows)
    assert lines[-1].split() == ["all_gather", "4", "max", "nccl"] and lines[0].split()[-2:] == ["allgather_ll128", "threads=128"], lines


def test_tuning_room(_):
    """A section has room for 12 rows: noise does not make more."""
    found = [forced(8 << i, name, 5.0 + (1.0 if (i % 2) == (name[-1] == "8") else 0.0), collective="all_reduce", place=place)
             for i in range(24) for name in ("oneshot_ll128 threads=128", "oneshot_ll128 threads=256") for place in ("out", "in")]
    rows = tuning.tuning_rows(found, "candidates", 4, "all_reduce", 0.001)
    assert 0 < len(rows) < tuning.MOST_ROWS and rows[-1][0] == 8 << 23, rows


def test_tuning_ends(_):
    """A candidate ends where it gains less than the margin over NCCL, whether or not it is still the faster at the next size; a
    long one that runs beside compute earlier."""
    def last(us, nccl, collective="broadcast", name="broadcast_ll128 threads=256"):
        found = [forced(size, name, us * size / MIB, nccl_us * size / MIB, collective=collective, place=place)
                 for size, nccl_us in ((16 * MIB, nccl), (64 * MIB, 10.0)) for place in ("out", "in")]
        return [end for end, _ in tuning.tuning_rows(found, "candidates", 4, collective, 0.03)]
    lines = "allgather_ll128 threads=256"
    assert last(10.2, 12.0) == [32 * MIB]  # their times meet above 48M
    assert last(9.8, 12.0) == [48 * MIB]  # they do not meet
    assert last(9.8, 12.0, "all_gather", lines) == [] and last(9.8, 14.0, "all_gather", lines) == [24 * MIB]
    assert last(9.8, 12.0, "all_gather", "allgather_bulk blocks=32") == [48 * MIB]  # few blocks: as any other


def test_tuning_pieces(_):
    """Pieces have what they carry about as fast as lines do, where they are faster than NCCL."""
    def winner(pieces, lines, collective="all_reduce"):
        found = [forced(64 * MIB, name, us, 100.0, collective=collective, place=place)
                 for name, us in (("twoshot_bulk blocks=48", pieces), ("twoshot_ll128 threads=256", lines)) for place in ("out", "in")]
        return [name.split()[0] for _, name in tuning.tuning_rows(found, "candidates", 4, collective, 0.03)]
    assert winner(80.0, 76.0) == winner(80.0, 90.0) == ["twoshot_bulk"] and winner(80.0, 75.0) == ["twoshot_ll128"]
    assert winner(98.0, 96.0) == ["twoshot_ll128"] and winner(98.0, 97.5) == []
    assert winner(76.0, 66.0, "all_gather") == ["twoshot_bulk"]


def test_tuning_pieces_begin(_):
    """Between sizes they begin where they win, not above the last one at which they lose (times of 4 and 2 H200); between two ranks lines need gain no more over
    them where both are beside compute."""
    def rows(collective, ranks, times):
        found = [forced(size, name, us, nccl, place=place, ranks=ranks, collective=collective)
                 for size, (lines, pieces, nccl) in times.items() for name, us in (("x_ll128 threads=256", lines), ("x_bulk blocks=32", pieces)) for place in ("out", "in")]
        return [(end // MIB, name.split()[0]) for end, name in tuning.tuning_rows(found, "candidates", ranks, collective, 0.03)]
    four = {4 * MIB: (39.7, 68.0, 57.7), 16 * MIB: (153.8, 177.5, 188.0), 64 * MIB: (611.6, 609.6, 670.0)}
    two = {4 * MIB: (14.8, 25.0, 33.6), 16 * MIB: (51.8, 61.8, 87.0), 64 * MIB: (201.0, 200.2, 281.7)}
    assert rows("all_gather", 4, four) == [(12, "x_ll128"), (64, "x_bulk")], rows("all_gather", 4, four)
    assert rows("all_gather", 2, two) == [(32, "x_ll128"), (64, "x_bulk")], rows("all_gather", 2, two)
    assert candidates.pieces_of("allgather_bulk", 2)[0] == 4 * MIB  # where it loses


def test_multicast(folder):
    """What needs an object has rows in the section for multicast alone, and only where it is the fastest of all."""
    paths = nvls_tuning.write_forced(folder, ["all_reduce"], 4)
    us = {"oneshot_ll": {KIB: 3.0, MIB: 90.0}, "twoshot_ll128": {KIB: 6.0, MIB: 12.0}, "oneshot_nvls": {KIB: 4.0, MIB: 60.0}, "twoshot_nvls": {KIB: 8.0, MIB: 9.0}}
    box = 'gpu "NVIDIA H200" arch 90 nccl nvls'
    found = [dict(record="run", stage="tune", ranks=4, host="h", machine="m", devices=[dict(name="NVIDIA H200", arch=90)], driver=13000, nccl=22809, date="2026-01-02"),
             dict(record="box", stage="tune", ranks=4, section=box)]
    files, plain = nvls_tuning.forced(["all_reduce"], 4)
    for path, file in zip(paths, files):
        for size in (KIB, MIB):
            name = candidates.forced_on(file["all_reduce"], size)
            if name and name.endswith("threads=256") and name.split()[0] in us:
                found.append(row("tune", "4 ranks", size, us[name.split()[0]][size], 20.0, tuning.route_of(name), tuning=path))
    with open(os.path.join(folder, "results.jsonl"), "w", encoding="utf-8") as out:
        out.write(store.lines_of(found))
    nvls_tuning.write_tuned(os.path.join(folder, "tuned"), folder, ["all_reduce"], 4)
    with open(os.path.join(folder, "tuned"), encoding="ascii") as text:
        lines = [line.split() for line in text if line.strip() and not line.startswith("#")]
    at = lines.index([*box.split(), "multicast"])
    assert [line[3] for line in lines[1:at]] == ["oneshot_ll", "twoshot_ll128", "nccl"] and [line[3] for line in lines[at + 1:]] == ["plain", "twoshot_nvls", "plain"], lines
    for i, path in enumerate(paths):
        with open(path, encoding="ascii") as text:
            assert ("max plain" in text.read()) == (i < plain), path


def test_targets(_):
    best = targets.peers()
    assert best[8, KIB] == (4.47, "nccl-sym") and best[8, 4 * MIB] == (34.80, "vllm2") and best[6, 16 * MIB] == (110.0, "best") and best[2, 64 * MIB][1] == "nccl-sym"

    def lines(us, nccl):
        sizes = [size for ranks, size in best if ranks == 8]
        return targets.targets([row("sweep", "8", size, us(size), nccl(size), "x", ranks=8) for size in sizes], "sweep", 8)
    fast = lines(lambda size: best[8, size][0] * 0.9, lambda size: best[8, size][0] * 0.9 * 2.6)
    assert len(fast) == 5 and all(line.startswith("held:") for line in fast), fast
    slow = lines(lambda size: best[8, size][0] * (1.1 if size == 64 * KIB else 0.9), lambda size: best[8, size][0] * 0.891)
    assert "MISSED: faster than the best peer, at 1 of 9 sizes, most by 10.0 %: 64K 7.35 us, vllm1 6.68" in slow[0], slow
    assert slow[1].startswith("MISSED") and slow[4].startswith("MISSED"), slow
    noise = lines(lambda size: best[8, size][0] * 0.9, lambda size: best[8, size][0] * 0.9 * 0.995)
    assert noise[4].startswith("held:") and noise[2].startswith("MISSED"), noise
    assert targets.targets([], "sweep", 7) == [] and len(targets.targets([], "sweep", 8)) == 5


def test_tables(_):
    """A line a size: both places, what the built-in thresholds gave, the best peer on its kind of GPU only, and who ran beside."""
    run = dict(record="run", stage="sweep", step="s", devices=[dict(name="NVIDIA H200", arch=90)] * 8)
    rows = [row("sweep", "s", KIB, 4.4, 15.0, "oneshot_ll128", ranks=8, beside=[]),
            row("tuned", "t", KIB, 4.0, 16.0, "oneshot_ll", ranks=8, beside=["tuned / 2 ranks x"]),
            row("tuned", "t", KIB, 5.0, 15.0, "oneshot_ll", ranks=8, place="in", beside=["tuned / 2 ranks x"]),
            row("tuned", "t", 2 * KIB, 4.5, 16.0, "oneshot_ll", ranks=8, beside=["tuned / 2 ranks x"]),
            row("eager", "e", KIB, 8.0, 30.0, "oneshot_ll", "eager", ranks=8, beside=[])]
    rows[2]["nccl"]["wrong"] = 3
    graph, eager = tables.sweeps([run, *rows])
    assert graph.header == ["bytes", "Beeline", "NCCL", "NCCL / Beeline", "x floor", "best peer", "/ best peer", "in place: Beeline", "NCCL", "NCCL / Beeline",
                            "built in: Beeline", "route", "wrong"], graph.header
    assert graph.lines[0] == ["1K", "4.00", "16.00", "4.00", "1.93", "4.47 nccl-sym", "0.89", "5.00", "15.00", "3.00", "4.40 oneshot_ll128",
                              "oneshot_ll", "3"], graph.lines
    assert graph.lines[1] == ["2K", "4.50", "16.00", "3.56", "2.15", "", "", "", "", "", "", "oneshot_ll", "0"], graph.lines
    assert "meanwhile: tuned / 2 ranks x" in graph.about and "by the thresholds of this sweep" in graph.title and "meanwhile" not in eager.about
    assert eager.lines == [["1K", "8.00", "30.00", "3.75", "3.00", "3.00", "oneshot_ll", "0"]], eager.lines
    (elsewhere, _) = tables.sweeps([dict(run, devices=[dict(name="NVIDIA B200", arch=100)] * 8), *rows])
    assert elsewhere.lines[0] == [*graph.lines[0][:5], *graph.lines[0][7:]] and "best peer" not in elsewhere.header, elsewhere


def test_results(folder):
    """A step whose records are not all there does not count, nor one of another identity; a good run takes the place of a failed one."""
    def marker(step, good=True):
        return dict(stage="sweep", step=step, good=good, reason=None, arguments="a", tuning="")
    one = store.Steps(folder, dict(library="x", gpus=["g"] * 2))
    tag = dict(stage="sweep", record="row")
    one.add(marker("a"), [dict(tag, step="a", n=1), dict(tag, step="a", n=2)])
    one.add(marker("b", False), [])
    one.write()
    other = store.Steps(folder, dict(library="x", gpus=["g"] * 2))
    assert other.load(one.path) == 2 and other.done("sweep / a", "a", "") and not other.done("sweep / a", "b", "") and not other.done("sweep / b", "a", "")
    assert len(other.records()) == 4
    one.add(marker("b"), [dict(tag, step="b", n=3)])
    one.write()
    assert other.load(one.path, merged=True) == 1 and other.done("sweep / b", "a", "") and other.markers()["sweep / b"]["merged"]
    try:
        store.Steps(folder, dict(library="x", gpus=["g"] * 4)).load(one.path)
        raise AssertionError("other GPUs are taken for the same")
    except store.Different as why:
        assert "2 x g there, 4 x g here" in str(why), why
    with open(one.path, encoding="utf-8") as whole:
        lines = whole.read().splitlines()
    with open(one.path, "w", encoding="utf-8") as cut:
        cut.write("\n".join(line for line in lines if json.loads(line).get("n") != 2))
    less = store.Steps(folder, {})
    assert less.load(one.path) == 1 and not less.done("sweep / a", "a", "")


def test_tuned_waits(folder):
    """Nothing runs with thresholds that are not all measured; and none are written."""
    sweep = a_sweep(folder, 2, (2,))
    job = next(job for batch in sweep.batches for job in batch if job.stage == "tuned" and job.collectives == plan.ALL_REDUCE)
    needed = sweep.plan.needed(2, "all_reduce")
    assert not sweep.may_run(job) and sweep.thresholds(2, "all_reduce") == []
    found = [forced(8 << k, "oneshot_ll128 threads=64", 3.0, collective="all_reduce", ranks=2) for k in range(8)]
    marker = dict(stage=needed.stage, step=needed.name, good=True, reason=None, arguments=needed.line, tuning="other")
    sweep.results.add(marker, [dict(r, step=needed.name) for r in found])
    assert not sweep.may_run(job)
    sweep.results.add(dict(marker, tuning="".join(needed.tunings())), [dict(r, step=needed.name) for r in found])
    assert sweep.may_run(job) and [text.split() for text in sweep.tunings_of(job)] == [
        "gpu any all_reduce 2 1K oneshot_ll128 threads=64 all_reduce 2 max nccl".split()]
    assert not sweep.is_done(job)


def test_visible(folder):
    """GPUs are those that CUDA would show."""
    with open(os.path.join(folder, "nvidia-smi"), "w", encoding="utf-8") as out:
        out.write("#!/bin/sh\nfor i in 0 1 2 3; do echo \"$i, GPU-a$i, NVIDIA H200\"; done\n")
    os.chmod(out.name, 0o755)
    before, machine.EMULATED = dict(os.environ), None
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    try:
        assert machine.gpus() == [(str(i), "NVIDIA H200") for i in range(4)]
        for text, want in (("3,1", ["3", "1"]), ("GPU-a2", ["GPU-a2"]), ("1,7,2", ["1"]), ("", [])):
            os.environ["CUDA_VISIBLE_DEVICES"] = text
            assert [device for device, _ in machine.gpus()] == want, text
    finally:
        os.environ.clear()
        os.environ.update(before)
        machine.EMULATED = os.environ.get("BEELINE_EMU_GPUS")


if __name__ == "__main__":
    sys.exit(each.run(globals()))
