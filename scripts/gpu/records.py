"""Records of beeline-perf and of the stages of gpu-check: reading them, and the physical floors of the collectives."""
import json

from beeline.words import size_of, size_text  # noqa: F401  (of this module for its users)

from .collectives import having

LINK_GBS = 360.0  # kernel stores or loads over NVLink 4, one GPU to the others, measured on H200
PARTS = having("BL_GATHERS", "BL_SCATTERS")  # whose bytes are counted by a rank's part
LAUNCH_US, ONE_WAY_US = 0.73, 1.32  # an empty kernel in a graph; a signal from GPU to GPU


def parse(lines):
    """All records of JSON lines; a line cut off by the end of a run is left out, and what is none."""
    records = []
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            records.append(record)
    return records


def read(path):
    """Those of a file."""
    with open(path, encoding="utf-8", errors="replace") as lines:
        return parse(lines)


def rows(records, stage=None, **fields):
    """beeline-perf's rows, of one stage and with these fields."""
    return [r for r in records if r.get("record") == "row" and stage in (None, r.get("stage")) and
            all(r.get(name) == value for name, value in fields.items())]


def launches(records, stage, ranks):
    """What a launch was measured with, and its microseconds on the host, in runs of a stage."""
    return [(r["what"], r["host_us"]) for r in records if r.get("record") == "launch" and r.get("stage") == stage and r["ranks"] == ranks]


def floor_us(size, ranks):
    """Microseconds that no all-reduce in a graph can beat: one launch, and the better of one phase and two."""
    bytes_per_us = LINK_GBS * 1e3
    one = ONE_WAY_US + (ranks - 1) * size / bytes_per_us
    two = 2 * ONE_WAY_US + 2 * (ranks - 1) / ranks * size / bytes_per_us
    return LAUNCH_US + min(one, two)


def part_bytes(row):
    """Bytes of one rank's part, of those in PARTS; else of the message."""
    return row["bytes"] // row["ranks"] if row["collective"] in PARTS else row["bytes"]


def part_floor_us(part, ranks):
    """Microseconds that no all-gather or reduce-scatter of so many bytes a rank can beat in a graph: one launch, one trip, and what goes
    from one GPU to the others."""
    return LAUNCH_US + ONE_WAY_US + (ranks - 1) * part / (LINK_GBS * 1e3)
