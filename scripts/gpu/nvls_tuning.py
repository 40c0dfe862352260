"""Thresholds with NVLink multicast, for validate-nvls: of each number of ranks a section without and one with it."""
import os

from beeline.tuning import thresholds
from beeline.tuning.box import algorithms
from beeline.tuning.candidates import files_of, forced_on, rows_text
from beeline.tuning.collectives import ALGORITHMS
from beeline.tuning.jobs import NO_CANDIDATES
from beeline.tuning.records import part_bytes, read, rows

STAGE = "tune"
MARGIN = 0.03


def forced(collectives, ranks):
    """Of each tuning file {collective: rows}; and those of them that force what needs multicast."""
    plain = {c: [route for route in algorithms(c) if route not in NO_CANDIDATES] for c in collectives}
    with_nvls = {c: [name for name, algorithm in ALGORITHMS.items() if algorithm.collective == c and "BL_NVLS" in algorithm.columns] for c in collectives}
    files = files_of(plain, ranks)
    return files + files_of(with_nvls, ranks), len(files)


def write_forced(folder, collectives, ranks):
    """The paths of these files."""
    files, plain = forced(collectives, ranks)
    paths = [os.path.join(folder, f"forced-{ranks}-{i}.tune") for i in range(len(files))]
    for i, (path, of) in enumerate(zip(paths, files)):
        text = "".join(rows_text(collective, ranks, found) for collective, found in of.items())
        over = "".join(f"{collective} {ranks} max plain\n" for collective in of)  # the built-in rows for multicast
        with open(path, "w", encoding="ascii") as out:
            out.write(f"gpu any\n{text}gpu any multicast\n{over}" if i < plain else f"gpu any multicast\n{text}")
    return paths


def needs_multicast(name):
    return name != thresholds.NCCL and "BL_NVLS" in ALGORITHMS[name.split()[0]].columns


def write_tuned(path, folder, collectives, ranks):
    """From what the stage has left in the folder."""
    records = [r for r in read(os.path.join(folder, "results.jsonl")) if r.get("stage") == STAGE and r.get("ranks") == ranks]
    files, _ = forced(collectives, ranks)
    for r in rows(records):
        number = int(r["tuning"].rpartition("-")[2].partition(".")[0])
        r["forced"] = forced_on(files[number][r["collective"]], part_bytes(r))
    head, _ = thresholds.header([r for r in records if r["record"] == "run"], "beeline-perf, bf16 sum, CUDA graphs, each algorithm forced", "scripts/validate-nvls")
    section, lines = next(r["section"] for r in records if r["record"] == "box"), [[], []]
    for collective in collectives:
        table = thresholds.measurements(records, STAGE, ranks, collective)
        without = {size: {name: us for name, us in times.items() if not needs_multicast(name)} for size, times in table.items()}
        lines[0] += ["", *thresholds.row_lines(collective, ranks, thresholds.chosen_rows(without, collective, ranks, MARGIN))]
        found = [(size, name if needs_multicast(name) else "plain") for size, name in thresholds.chosen_rows(table, collective, ranks, MARGIN)]
        last = [i for i, (_, name) in enumerate(found) if name != (found[i + 1][1] if i + 1 < len(found) else "plain")]
        lines[1] += ["", *thresholds.row_lines(collective, ranks, [found[i] for i in last], "plain")]
    with open(path, "w", encoding="ascii") as out:
        out.write("\n".join([*head, "", section, *lines[0], "", f"{section} multicast", *lines[1], ""]))
