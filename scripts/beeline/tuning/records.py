"""Records of beeline-perf, and of what runs it: reading them."""
import json

from .collectives import having

PARTS = having("BL_GATHERS", "BL_SCATTERS")  # whose bytes are counted by a rank's part


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


def part_bytes(row):
    """Bytes of one rank's part, of those in PARTS; else of the message."""
    return row["bytes"] // row["ranks"] if row["collective"] in PARTS else row["bytes"]
