"""beeline tune: what it measures, writes, keeps and refuses; an interruption; and what it makes of measurements."""
import os
import re
import signal
import subprocess
import time

from support import BEELINE, BUILD, ROOT, box, check, environment, refused, run

HERE = 'gpu "Beeline Emulated GPU" arch 90 link nvswitch nvlinks 18 nccl plain'
OTHER = """# Mine: do not touch.\r
gpu "NVIDIA H100" arch 90\r
  all_reduce 2 max nccl # NCCL\tis better
"""
MINE = """
gpu "Beeline Emulated GPU" arch 90 nccl plain nvlinks 18 link nvswitch # this box
# all_gather is good
all_gather 2 1K allgather_ll128
all_reduce 4 max nccl
# tuned all_reduce 2: long ago
# time all_reduce 2 1K 5 4
all_reduce 2 1K oneshot_ll
all_reduce 2 max nccl
# and what follows is of another

gpu any multicast
all_reduce 2 max plain"""


def homes(folder):
    """Settings by which it reads and writes below the folder alone."""
    return {"XDG_CONFIG_HOME": os.path.join(folder, "config"), "XDG_CACHE_HOME": os.path.join(folder, "cache")}


def read(path):
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)


def tuned_file(folder):
    return os.path.join(folder, "config", "beeline", "beeline.tune")


def command(*arguments, gpus=2):
    """On an emulated box whose NCCL is slow, so that algorithms win."""
    return [os.path.join(ROOT, "scripts", "emu-box"), "--build", BUILD, "-t", "nvlink", "-g", str(gpus), "--nccl-delay", "5000", "--", *arguments]


def whole(folder):
    """The rows of this box are replaced for what was measured, every other byte stays, Beeline takes the file, and nothing else is left."""
    path = tuned_file(folder)
    write(path, OTHER + MINE)
    os.chmod(path, 0o640)
    done = run(*command(BEELINE, "tune", "--collectives", "all_reduce,reduce_scatter"), env=homes(folder))
    check(re.search(r"^all_reduce +2 ", done.stdout, re.M) and f"Written: {path}" in done.stdout and "100 %" in done.stdout, done.stdout)
    text = read(path)
    before, _, after = MINE.partition("# tuned all_reduce 2")
    kept = after.partition("all_reduce 2 max nccl\n")[2]
    check(text.startswith(OTHER + before) and "\n" + kept in text and text.count("\r") == 2 and "long ago" not in text, text)
    block = text[len(OTHER + before):text.index(kept)]
    for name in ("all_reduce", "reduce_scatter"):
        rows = re.findall(rf"^{name} 2 +(\S+) +(\S+)", block, re.M)
        check(len(rows) > 1 and rows[-1] == ("max", "nccl"), block)
        check(len(re.findall(rf"^# time {name} 2 +\d+K?(?: +[\d.]+){{2,4}}$", block, re.M)) == 2 and f"# tuned {name} 2: 20" in block, block)
    check(os.stat(path).st_mode & 0o777 == 0o640 and os.listdir(os.path.dirname(path)) == ["beeline.tune"] and
          sorted(name for _, _, names in os.walk(os.path.join(folder, "cache")) for name in names) == ["beeline.tune.lock", "lock"], "something is left beside the file")
    used = box(2, BEELINE, "info", env=homes(folder))
    check("WARN" not in used.stderr and f"file {folder}/c" in used.stdout, used.stdout + used.stderr)


def environments():
    """Of all processes that may be looked at."""
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/environ", encoding="utf-8", errors="replace") as file:
                yield file.read()
        except OSError:
            continue


def interrupted(folder):
    """One line, no file, no half step; one at a time; and the same command does the rest."""
    out = os.path.join(folder, "my.tune")
    arguments = ("tune", "--collectives", "all_reduce,broadcast", "--ranks", "2", "--out", out)
    with open(os.path.join(folder, "pid"), "w+", encoding="utf-8") as pid:
        first = subprocess.Popen(command("sh", "-c", f"echo $$ >{pid.name}; exec {BEELINE} {' '.join(arguments)}", gpus=4), env=environment(homes(folder)),
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        lines = []
        while not lines or "candidates / " not in lines[-1]:
            lines.append(first.stdout.readline())
            check(lines[-1], f"it has ended: {lines}")
        refused("somebody else measures this box: ", *arguments, status=1, by=box_of(folder))
        number = int(pid.read())
        os.kill(number, signal.SIGINT)
        rest, said = first.communicate()
    check(not any(f"GPU_CHECK_STEP={number}-" in text for text in environments()), "a step goes on")
    ended = re.fullmatch(r"beeline: interrupted; (\d) of 9 steps are done, and the same command goes on\n", said)
    check(first.returncode == 130 and ended and not os.path.exists(out), f"{lines}{rest}{said}")
    done = box(4, BEELINE, *arguments, env=homes(folder))
    steps = re.findall(r"% .* left  (.*): ok", done.stdout)
    check(f"9 steps, {ended[1]} of them done before" in done.stdout and len(steps) == 9 - int(ended[1]) and not any(step in "".join(lines) + rest for step in steps), f"{lines}{rest}{done.stdout}")
    check(len(re.findall(r"^# tuned \w+ 2: 20", read(out), re.M)) == 2, read(out))


def box_of(folder):
    return lambda *words, **options: box(2, BEELINE, *words, env=homes(folder), **options)


def limited(folder):
    """Where there is no time, what is missing is named and kept; another library's measurements are not used."""
    done = box(2, BEELINE, "tune", "--collectives", "reduce", "--limit", "3s", env=homes(folder), status=1)
    check("not done: candidates / 2 ranks reduce: no time" in done.stderr and "5 of 5 steps are missing" in done.stderr and not os.path.exists(tuned_file(folder)), done.stderr)


def tune_refused(folder):
    """Before anything is measured, in one line."""
    here, path = box_of(folder), tuned_file(folder)
    for text, *arguments in (("--ranks 2,3 is not accepted: numbers from 2 to 2", "--ranks", "2,3"), ("--limit soon is not accepted", "--limit", "soon"), ("--limit 0m", "--limit", "0m"),
                             ("all_sum is none of all_reduce, all_gather", "--collectives", "all_sum"), (f"{folder}: Is a directory", "--out", folder)):
        refused(text, "tune", *arguments, by=here)
    refused("1 GPU is visible", "tune", by=lambda *words, **options: box(1, BEELINE, *words, env=homes(folder), **options))
    refused("left to NCCL: no NVLink", "tune", by=lambda *words, **options: box(2, BEELINE, *words, env=homes(folder), topology="pcie", **options))
    for name, value in (("BEELINE_ALLREDUCE", "nccl"), ("BEELINE_BATCH_INVARIANT", "1"), ("VLLM_BATCH_INVARIANT", "1")):
        refused(f"{name}={value} is set", "tune", by=lambda *words, set={name: value}, **options: box(2, BEELINE, *words, env={**homes(folder), **set}, **options))
    wrong = OTHER + "all_reduce 2 1X nccl\n"
    write(path, wrong)
    refused("has a mistake, and stays as it is: line 4: '1X' is not accepted here: the most bytes", "tune", by=here)
    check(read(path) == wrong and not os.path.exists(os.path.join(folder, "cache", "beeline", "tune-" + os.uname().nodename)), "it was changed")
    old = os.path.join(folder, "alltoall")
    done = box(2, "sh", "-c", f"export LD_LIBRARY_PATH={BUILD}/emu/old:{BUILD}/emu; exec {BEELINE} tune --collectives all_to_all --out {old}", env=homes(folder), status=2)
    check("has no such call; 2.28 has" in done.stderr, done.stderr)


def merging(_):
    """Blocks in files of all kinds."""
    from beeline.tuning import file  # pylint: disable=import-outside-toplevel
    block = {("all_reduce", 2): ["# tuned all_reduce 2: now", "# time all_reduce 2 1K 3.00 2.00", "all_reduce 2 max nccl"]}
    new = "\n".join([HERE, "", *block["all_reduce", 2]]) + "\n"
    check(file.merged("", HERE, block) == new and file.merged(new, HERE, block) == new, "a new file")
    check(file.merged(OTHER, HERE, block) == OTHER + "\n" + new, "a new section")
    check(file.merged("gpu any # the end", HERE, block) == "gpu any # the end\n\n" + new, "a file without its last line break")
    check(file.merged(f"{HERE}\n\n# next\ngpu any\n", HERE, block) == f"{HERE}\n" + "\n".join(["", *block["all_reduce", 2]]) + "\n\n# next\ngpu any\n", "an empty section")
    twice = f"{HERE}\nall_reduce 2 1K oneshot_ll\n{HERE} # later\nall_reduce 2 2K oneshot_ll\n"
    check(file.merged(twice, HERE, block) == "\n".join([HERE, "all_reduce 2 1K oneshot_ll", HERE + " # later", *block["all_reduce", 2], ""]), "two alike: the later holds")
    loose = 'gpu "Beeline Emulated GPU" arch 90\nall_reduce 2 max nccl\n'
    check(file.before(new + loose, HERE, block) == 'gpu "Beeline Emulated GPU" arch 90', "a later section that fits, too")
    check(not any(file.before(text, HERE, keys) for text, keys in ((loose + new, block), (loose, block), (new + loose, {("reduce", 2)}), (new + "gpu any\nall_reduce 2 max nccl\n", block))), "no such")
    for line in ('gpu "A # B" arch 90', 'gpu any nccl plain link nvlink#x', "gpu any multicast", "gpu any"):
        check(file.section_of(line) and file.section_of(line) not in map(file.section_of, ("gpu any nccl nvls", "# gpu any", 'gpu "A" arch 90')), line)
    known = file.times(new)
    check([of for section, of in known if section] == [{("all_reduce", 2): [(1024, 3.0, 2.0)]}], known)
    for texts, want in (([new], [(1024, 3.0, 2.0)]), ([], None), ([loose, new], []), (["gpu any\nreduce 2 max nccl\n", new], [(1024, 3.0, 2.0)]), ([new + loose], []), ([loose + new], [(1024, 3.0, 2.0)]),
                        (['gpu "NVIDIA H100" arch 90\nall_reduce 2 max nccl\n', new], []), (['gpu "NVIDIA B200" arch 100\nall_reduce 2 max nccl\n' + new], [(1024, 3.0, 2.0)]),
                        (["gpu any nccl nvls\nall_reduce 2 max nccl\ngpu any multicast\nall_reduce 2 max plain\n", new], [(1024, 3.0, 2.0)])):
        check(file.times_used(texts, HERE, ("all_reduce", 2)) == want, f"{texts}: {file.times_used(texts, HERE, ('all_reduce', 2))}")


def judged_eager(_):
    """Rows are what wins in graphs; where eager calls lose the size is NCCL's; the block says so, has both times, of sizes that only candidates have theirs, and what is slower."""
    from beeline.tuning import jobs, session, store, thresholds  # pylint: disable=import-outside-toplevel
    from beeline.tuning.box import Box  # pylint: disable=import-outside-toplevel
    name, sizes, longest = "broadcast_ll128", [1 << 10, 1 << 12, 1 << 14], 1 << 16

    class Told:
        """What a Teller is told."""
        def progress(self, *_):
            pass

        def say(self, _):
            pass

    results = store.Steps("/tmp", {})
    tuning = session.Session(Box("", "", 2, [2], "/tmp"), results, session.Plan(Box("", "", 2, [2], "/tmp"), {"broadcast": jobs.tables_of()["broadcast"]}, False), ["0", "1"], Told())

    def add(job, us, **more):
        """us: {bytes: (Beeline's, NCCL's)}"""
        row = dict(record="row", stage=job.stage, collective="broadcast", ranks=2, datatype="bfloat16", redop="none", offset=0, group=1, route=name)
        found = [dict(row, bytes=size, place=place, mode="eager" if job.stage == "eager" else "graph", beeline=dict(us=mine, wrong=0), nccl=dict(us=nccl, wrong=0), ratio=nccl / mine, **more)
                 for size, (mine, nccl) in us.items() for place in (("out",) if job.stage == "eager" else ("out", "in"))]
        run = dict(record="run", date="2026-01-02T00", host="h", devices=[dict(name="G")], nccl=22809, kernel_driver="580", build="1-2")
        results.add(dict(stage=job.stage, step=job.name, good=True, reason=None, arguments=job.line, tuning="".join(tuning.tunings_of(job)), seconds=1, expected=1),
                    [run, dict(record="box", section=HERE), *found])
    group = ("broadcast",)
    check(tuning.tuned() == [] and tuning.tunings_of(tuning.plan.eager(2, group)) is None, "nothing is measured")
    add(tuning.plan.before(2)[0], {size: (20.0, 10.0) for size in sizes})
    add(tuning.plan.candidates(2, "broadcast"), {size: (5.0, 10.0) for size in (*sizes, longest)}, forced=f"{name} threads=256")
    check(tuning.tunings_of(tuning.plan.tuned(2, group)) is None, "eager calls come first")
    add(tuning.plan.eager(2, group), {sizes[0]: (11.0, 10.0), sizes[1]: (8.0, 10.0), sizes[2]: (10.2, 10.0)})
    add(tuning.plan.tuned(2, group), {size: (5.0 if size > 1024 else 10.0, 10.0) for size in sizes})
    section, lines = tuning.block(2, "broadcast")
    check(section == HERE and [line.split()[2:4] for line in lines if line[0] != "#"] == [["1K", "nccl"], ["64K", name], ["max", "nccl"]], lines)
    check("# tuned broadcast 2: eager calls are NCCL's at 1K, where they lose" in lines and "2026-01-02, h, G, driver 580, NCCL 2.28.9, Beeline 1-2" in lines[0], lines)
    check([line.split()[4:] for line in lines if line.startswith("# time")] == [["1K", "10.00", "10.00"], ["4K", "10.00", "5.00", "10.00", "8.00"], ["16K", "10.00", "5.00", "10.00", "10.20"], ["64K", "10.00", "5.00"]], lines)
    check(list(tuning.gains())[1] == ("broadcast", "2", "0.50", "0.50", "1.59", "1.00", "1K", "3.17"), list(tuning.gains()))
    check(tuning.complete() and thresholds.NCCL in lines[-1], tuning.missing())
    add(tuning.plan.tuned(2, group), {size: (11.0, 10.0) for size in sizes})
    check([line for line in tuning.block(2, "broadcast")[1] if line.startswith("# slower broadcast 2    4K bfloat16 in: 10.00 11.00")], tuning.block(2, "broadcast"))
    plan = session.Plan(Box("", "", 8, [8, 2], "/tmp"), jobs.tables_of(), False)
    keys = [job.key for job in plan.jobs()]
    check(len(set(keys)) == len(keys) == 2 * (2 + len(jobs.tables_of()) + 2 + 2 + 2) and all(key.startswith("before") for key in keys[:4]), keys)
    check(all(f"candidates / {ranks} ranks {collective}" in keys for ranks in (8, 2) for collective in jobs.tables_of()), keys)
    mib, ends = 1 << 20, {job.key: int(jobs.option(job.arguments, "-e", "0")) for job in plan.jobs()}
    wanted = {"candidates / 8 ranks all_gather": 16 * 8, "candidates / 2 ranks all_gather": 256 * 2, "tuned / 2 ranks others": 64 * 2, "tuned / 8 ranks others": 16 * 8,
              "candidates / 8 ranks all_reduce": 256, "candidates / 2 ranks all_reduce": 1024, "eager / 2 ranks all_reduce": 1024}
    check(all(ends[key] == most * mib for key, most in wanted.items()), ends)


def bar(folder):
    """On a terminal a bar, and no lines of steps."""
    import pty  # pylint: disable=import-outside-toplevel
    ours, theirs = pty.openpty()
    child = subprocess.Popen(command(BEELINE, "tune", "--collectives", "reduce", "--quick"), env=environment(homes(folder)), stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            said += os.read(ours, 4096)
        except OSError:
            break
    check(child.wait() == 0 and re.search(rb"\[#+ +\] +\d+ % +\d+ s left  candidates, 2 ranks reduce", said) and b": ok" not in said, said)
