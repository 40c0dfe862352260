"""Tables of all-to-all, broadcast, reduce, and of sends and receives."""
from beeline.words import size_text

from ..table import HOW, MODES, NAMES, PLACES, Table, in_order, series_of, wrong

WHAT = dict(all_to_all="bf16, bytes in all, of which each rank gets its share", broadcast="bf16", reduce="bf16 sum",
            sendrecv="bf16, in one group to the next rank and from the one before, bytes of a message")


def sweep(records):
    """Every size, in place and not."""
    for collective, mode, ranks, series in series_of(records, "perf-others"):
        lines = [[size_text(r["bytes"]), PLACES[r["place"]], f"{r['beeline']['us']:.2f}", f"{r['nccl']['us']:.2f}",
                  f"{r['nccl']['us'] / r['beeline']['us']:.2f}", r["route"], wrong(r)] for r in in_order(series)]
        root = f", root {series[0]['root']}" if series[0]["root"] >= 0 else ""
        yield Table(f"{NAMES[collective].capitalize()}{MODES[mode]}, {ranks} ranks",
                    f"{WHAT[collective]}{root}; {HOW[mode]}; Beeline and NCCL in turn in the same run.",
                    ["bytes", "", "Beeline", "NCCL", "NCCL / Beeline", "route", "wrong"], lines)


PARTS = (sweep,)
