"""Table of the errors of sums, against fp64."""
from beeline.words import size_text

from ..table import NAMES, Table, pairs

CASES = dict(normal="normal", cancel="cancelling")


def errors(found):
    """Of all sizes: the mean, the largest, and how many are correctly rounded."""
    count = sum(r["count"] for r in found)
    mean, right = (sum(r[key] * r["count"] for r in found) / count for key in ("mean_ulp", "right"))
    return [f"{mean:.3f}" if mean < 1 else f"{mean:.1f}", f"{max(r['max_ulp'] for r in found):.2f}", f"{right:.1%}"]


def truth(records):
    found = pairs(records, "truth", "ranks", "case", "datatype", "collective", "redop", "bytes")
    lines, by = [], {}
    for both in found:
        by.setdefault(tuple(both[0][key] for key in ("ranks", "case", "datatype", "collective", "redop")), []).append(both)
    for (ranks, case, datatype, collective, redop), pair in by.items():
        routes = dict.fromkeys(mine["route"] or "" for mine, _ in pair)
        lines.append([str(ranks), CASES[case], datatype, f"{NAMES[collective]}, {redop}", *errors([mine for mine, _ in pair]),
                      *errors([base for _, base in pair]), ", ".join(routes)])
    if lines:
        sizes = ", ".join(size_text(size) for size in sorted({mine["bytes"] for mine, _ in found}))
        yield Table("Errors of sums", "Against the exact result, in units of its last place, with Beeline and with NCCL alone; right: correctly rounded. Random values of "
                    "a normal distribution; cancelling: the last rank takes away what the others have, to about a hundredth. Of all sizes together "
                    f"({sizes} bytes). A sum whose additions are each rounded to the type loses more with each rank, and without bound where values cancel.",
                    ["ranks", "values", "type", "", "mean, Beeline", "most", "right", "mean, NCCL", "most", "right", "routes"], lines)


PARTS = (truth,)
