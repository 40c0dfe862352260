"""What BEELINE_STATS_FILE has of all processes of a job, added up."""
import glob
import json
import os

from .words import amount, columns, size_text


def read(folder):
    """All records of the files in a folder; a line that a dying process cut off is left out."""
    records = []
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "*"))):
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    records.append(json.loads(line))
                except ValueError:
                    continue
    return records


def add_up(records):
    """{(collective, largest size, route, why): [calls, bytes]}; a size of None is behind all others."""
    sums = {}
    for record in records:
        for part in record["calls"] if record["record"] == "calls" else []:
            total = sums.setdefault((part["collective"], part["up_to"] or float("inf"), part["route"], part["why"]), [0, 0])
            total[0] += part["calls"]
            total[1] += part["bytes"]
    return sums


def key_of(record):
    return record["pid"], record["communicator"], record["rank"]


def communicators(records):
    """Lines about who was served, who was not and why, and of whom nothing is known."""
    made = [r for r in records if r["record"] == "communicator"]
    ended = {key_of(r) for r in records if r["record"] == "calls"}
    served = [r for r in made if r["left"] is None]
    names = {r["communicator"]: r["ranks"] for r in served}
    sizes = ", ".join(f"{n} of {ranks} ranks" for ranks, n in sorted(count(names.values()).items()))
    lines = [f"Beeline served {len(names)} communicator{'s' if len(names) != 1 else ''}" + (f": {sizes}" if names else "")]
    for (ranks, why), n in sorted(count({(r["communicator"], r["ranks"], r["left"]) for r in made if r["left"] is not None}, lambda c: c[1:]).items()):
        lines.append(f"left to NCCL: {n} of {ranks} rank{'s' if ranks != 1 else ''}: {why}")
    silent = [r for r in made if key_of(r) not in ended]
    if silent:
        pids = sorted({r["pid"] for r in silent})
        lines.append(f"{len(silent)} rank{'s' if len(silent) != 1 else ''} ended without saying what they did (killed, or by _exit): process {', '.join(map(str, pids))}")
    return lines


def count(items, key=lambda item: item):
    counts = {}
    for item in items:
        counts[key(item)] = counts.get(key(item), 0) + 1
    return counts


def lines(records):
    """For a person."""
    if not records:
        return ["beeline: no process made an NCCL communicator, or BEELINE_ENABLE=0 is set"]
    said = [f"beeline: {communicators(records)[0]}", *(f"  {line}" for line in communicators(records)[1:])]
    sums = add_up(records)
    if not sums:
        return [*said, "  no calls"]
    rows = [("collective", "size", "route", "calls", "bytes", "")]
    before = None
    for (collective, up_to, route, why), (calls, size) in sorted(sums.items(), key=lambda item: (item[0][0], item[0][1], item[0][2], item[0][3] or "")):
        limit = f"..{size_text(up_to)}" if up_to != float("inf") else "above"
        rows.append((collective if collective != before else "", limit, route, str(calls), amount(size), f"({why})" if why else ""))
        before = collective
    calls, size = (sum(total[i] for total in sums.values()) for i in (0, 1))
    mine, mine_size = (sum(total[i] for key, total in sums.items() if key[2] != "nccl") for i in (0, 1))
    return [*said, *(f"  {line}" for line in columns(rows, right=(3, 4))),
            f"  Beeline served {percent(mine, calls)} of {calls} calls on all ranks, and {percent(mine_size, size)} of {byte_text(size)}",
            "  A call in a CUDA graph counts when it is captured; a size is of a rank's count, as in the routes."]


def byte_text(size):
    return f"{amount(size)}B" if size >= 1000 else f"{size} bytes"


def percent(part, whole):
    return f"{100 * part / whole:.1f} %" if whole else "-"
