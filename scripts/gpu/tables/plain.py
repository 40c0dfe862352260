"""Tables of beeline-perf's own records, which belong to no stage."""
from itertools import groupby

from beeline.tuning.records import rows
from beeline.words import size_text

from ..table import MODES, NAMES, PLACES, Table, in_order, wrong


def kind(row):
    """What a table is of."""
    return row["collective"], row["mode"], row["ranks"], row["datatype"], row["redop"], row["offset"], row["group"], row.get("tuning", "")


def sweep(records):
    """Every size, in place and not; those whose results alone were looked at are counted elsewhere."""
    found = [r for r in rows(records) if "stage" not in r and "us" in r["beeline"]]
    for number, ((collective, mode, ranks, datatype, redop, offset, group, tuning), series) in enumerate(groupby(sorted(found, key=kind), kind)):
        series = in_order(series)
        lines = [[size_text(r["bytes"]), PLACES[r["place"]], f"{r['beeline']['us']:.2f}", f"{r['nccl']['us']:.2f}", f"{r['nccl']['us'] / r['beeline']['us']:.2f}",
                  f"{r['beeline']['p99_us']:.2f}", f"{r['nccl']['p99_us']:.2f}", f"{r['busbw']:.2f}", r["route"], wrong(r)] for r in series]
        more = [f"root {series[0]['root']}"] * (series[0]["root"] >= 0) + [f"{offset} bytes past an aligned address"] * bool(offset) + [
            f"groups of {group}"] * (group > 1) + [f"with the tuning file {tuning}"] * bool(tuning)
        what = f"{datatype} {redop}" if redop != "none" else datatype
        curves = [(f"{name}, {PLACES[place]}", [(r["bytes"], r[side]["us"]) for r in series if r["place"] == place], False)
                  for name, side in (("Beeline", "beeline"), ("NCCL", "nccl")) for place in PLACES if any(r["place"] == place for r in series)]
        yield Table(f"{NAMES[collective].capitalize()}{MODES[mode]}, {what}, {ranks} ranks", "; ".join([*more, "Beeline and NCCL in turn in the same run."]),
                    ["bytes", "", "Beeline", "NCCL", "NCCL / Beeline", "p99 Beeline", "p99 NCCL", "busbw, GB/s", "route", "wrong"], lines,
                    (f"{number}-{collective}-{mode}-{datatype}-{ranks}", curves))


PARTS = (sweep,)
