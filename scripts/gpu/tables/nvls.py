"""Tables of validate-nvls: what was checked, and times."""
from beeline.tuning.records import rows
from beeline.words import size_text

from ..stages.nvls import ALGORITHMS
from ..table import Table, columns


def checked(records):
    """How many rows each algorithm served when it was forced, and what was wrong."""
    lines = []
    for _, name, _ in ALGORITHMS:
        found = rows(records, "check", route=name)
        for ranks in sorted({row["ranks"] for row in found}):
            mine = [row for row in found if row["ranks"] == ranks]
            lines.append([name, ranks, len(mine), sum(row["beeline"]["wrong"] for row in mine), " ".join(sorted({row["datatype"] for row in mine}))])
    return Table("Checked: rows that the algorithm served, every element of each; wrong elements", "", ["algorithm", "ranks", "rows", "wrong", "datatypes"], lines)


def times(records):
    """Microseconds in graphs: each algorithm, NCCL beside it, NCCL without multicast, Beeline with the new thresholds."""
    found = [row for row in rows(records, mode="graph") if row["stage"] in ("measure", "tuned")]
    for collective in dict.fromkeys(of for of, _, _ in ALGORITHMS):
        names = [name for of, *both in ALGORITHMS if of == collective for name in both]
        for ranks in sorted({row["ranks"] for row in found}):
            mine, lines = [row for row in found if row["collective"] == collective and row["ranks"] == ranks], []
            for size in sorted({row["bytes"] for row in mine}):
                at, after = ([row for row in mine if row["bytes"] == size and row["stage"] == stage] for stage in ("measure", "tuned"))
                of = [best([row["beeline"]["us"] for row in at if row["route"] == name]) for name in names]
                nccl = [row["nccl"]["us"] for row in at if row["step"].startswith(tuple(names))]
                plain = [row["nccl"]["us"] for row in at if row["step"].startswith("NCCL without")]
                lines.append([size_text(size), *of, middle(nccl), best(plain), best([row["beeline"]["us"] for row in after]), after[0]["route"] if after else "-"])
            if lines:
                yield Table(f"{collective}, {ranks} ranks", "", ["bytes", *names, "NCCL", "NCCL, no NVLS", "tuned", "route"], lines)


def best(values):
    return f"{min(values):.2f}" if values else "-"


def middle(values):
    return f"{sorted(values)[len(values) // 2]:.2f}" if values else "-"


def text(records):
    one = checked(records)
    lines = [one.title, *columns(one.header, one.lines, "{:<20} {:>5} {:>6} {:>6}  {}"), "",
             "Microseconds a call in graphs, bf16 sum; bytes of the whole message"]
    for table in times(records):
        form = " ".join(["{:>8}", *["{:>19}"] * (len(table.header) - 5), "{:>10} {:>14} {:>10}  {}"])
        lines += ["", table.title, *columns(table.header, table.lines, form)]
    return lines
