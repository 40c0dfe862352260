"""Draw what beeline-perf measured: time and bandwidth over the size, Beeline, NCCL and each algorithm.

FILE is what beeline-perf --json or a run of gpu-check wrote.  There is a picture for each collective, datatype, number of ranks
and so on; of several files the curves stand in one picture.  Without matplotlib, or with --text, it draws on the terminal.
"""
import json
import math
import os
import re
import sys

from .words import Refused, size_text

USAGE = "beeline plot [--text] [--only WORDS] [--format svg|png] [--out FOLDER] FILE..."
HEIGHT, WIDTH = 18, 64
MARKS = "abcdefghijklmopqrstuvwxyzACDEFGHIJKLMOPQRSTUVWXYZ"


def arguments(parser):
    parser.add_argument("--text", action="store_true", help="on the terminal, with letters")
    parser.add_argument("--only", metavar="WORDS", default="", help="pictures that have all of these words in their title: \"all_reduce graph\"")
    parser.add_argument("--format", choices=("svg", "png"), default="svg", help="of the files (default: %(default)s)")
    parser.add_argument("--out", metavar="FOLDER", default=".", help="where to write them (default: here)")
    parser.add_argument("files", nargs="+", metavar="FILE")


def main(options, _parser):
    from . import chart  # here: matplotlib takes long to load
    pictures = collect(options.files)
    if not pictures:
        raise Refused(f"plot: {' '.join(options.files)}: no rows; want what beeline-perf --json writes")
    wanted = [title for title in sorted(pictures) if set(options.only.split()) <= set(re.findall(r"\w+", title))]
    if not wanted:
        raise Refused(f"plot: --only '{options.only}': no picture has these words; there are: {'; '.join(sorted(pictures))}")
    as_text = options.text
    if not as_text and chart.MISSING:
        print(f"beeline: {chart.MISSING}", file=sys.stderr)
        as_text = True
    if not as_text:
        os.makedirs(options.out, exist_ok=True)
    for title in wanted:
        panels = [("µs per call", curves(pictures[title], time_of)), ("bus bandwidth, GB/s", curves(pictures[title], bandwidth_of))]
        if as_text:
            print("\n".join(line for unit, series in panels for line in [f"{title}: {unit}", *draw_text(series), ""]))
            continue
        path = os.path.join(options.out, re.sub(r"\W+", "-", title) + "." + options.format)
        chart.write_panels(path, title, panels)
        print(path)
    return 0


# --- what was measured ---

def read_rows(path):
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"plot: {path}: {getattr(error, 'strerror', None) or 'it is not text'}") from error
    rows = []
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:  # cut off by the end of a run
            continue
        if isinstance(record, dict) and record.get("record") == "row":
            rows.append(record)
    return rows


def title_of(row):
    words = [row["collective"], row["datatype"]] + ([row["redop"]] if row.get("redop") not in (None, "none") else [])
    more = [f"groups of {row['group']}"] if row.get("group", 1) > 1 else []
    more += [f"offset {row['offset']}"] if row.get("offset") else []
    more += [str(row["stage"])] if row.get("stage") else []
    return ", ".join([" ".join(words), f"{row['ranks']} ranks", row["mode"], {"in": "in place", "out": "out of place"}.get(row["place"], row["place"]), *more])


def positive(*values):
    for value in values:
        if not value > 0:
            raise ValueError(f"{value} is not above 0")


def collect(paths):
    """{title: {source: rows}}; a source is a file, or one of its tuning files, and has a name if there are several."""
    pictures = {}
    for path in paths:
        for row in read_rows(path):
            try:
                title = title_of(row)
                names = ([os.path.basename(path)] if len(paths) > 1 else []) + ([os.path.basename(row["tuning"])] if row.get("tuning") else [])
                positive(row["bytes"], row["beeline"]["us"], row["nccl"]["us"], 1 + row["busbw"], 1 + len(row["route"]))
                pictures.setdefault(title, {}).setdefault(" ".join(names), []).append(row)
            except KeyError as error:
                raise Refused(f"plot: {path}: a row has no {error}; want what beeline-perf --json writes, without --check") from error
            except (TypeError, ValueError) as error:
                raise Refused(f"plot: {path}: a row is none of beeline-perf's: {error}") from error
    return pictures


def time_of(row, side):
    return row[side]["us"]


def bandwidth_of(row, side):
    """In the manner of nccl-tests; the record has Beeline's."""
    return row["busbw"] * row["beeline"]["us"] / row[side]["us"]


def curves(sources, value):
    """[(name, [(size, value)...], dashed)], NCCL second, so that its colour is always the same.  Where each size has one route they
    are one curve, else one each."""
    series = []
    for name, rows in sources.items():
        head = f"{name}: " if name else ""
        base = {}
        for row in rows:
            base.setdefault(row["bytes"], []).append(value(row, "nccl"))
        nccl = (f"{head}NCCL", [(size, sorted(values)[len(values) // 2]) for size, values in sorted(base.items())], False)
        routes = {}
        for row in sorted(rows, key=lambda row: row["bytes"]):
            routes.setdefault(row["route"], {})[row["bytes"]] = value(row, "beeline")
        if sum(map(len, routes.values())) == len(base):
            points = sorted(point for of in routes.values() for point in of.items())
            mine = [(f"{head}Beeline: {spans(rows)}", points, False)]
        else:
            mine = [(f"{head}{route}", sorted(of.items()), False) for route, of in routes.items() if route != "nccl"]
        series += [*mine[:1], nccl, *mine[1:]]
    return [(name, [(size, number) for size, number in points if number > 0], dashed) for name, points, dashed in series]


def spans(rows):
    """..16K oneshot_ll, ..1M twoshot_ll128"""
    parts = []
    for row in sorted(rows, key=lambda row: row["bytes"]):
        if parts and parts[-1][1] == row["route"]:
            parts[-1][0] = row["bytes"]
        else:
            parts.append([row["bytes"], row["route"]])
    return ", ".join(f"..{size_text(size)} {route}" for size, route in parts)


# --- the terminal ---

def marks(series):
    """A letter for each curve."""
    letters, free = [], list(MARKS)
    for name, _, _ in series:
        rest = free[0] if free else "+"
        letter = "N" if name.endswith("NCCL") else "B" if "Beeline: " in name else rest
        letters.append(letter if letter not in letters else rest)
        if letters[-1] in free:
            free.remove(letters[-1])
    return letters


def draw_text(series):
    """Both axes are logarithmic; * where curves meet."""
    points = [point for _, of, _ in series for point in of]
    if not points:
        return ["  nothing above 0"]
    sizes, values = sorted({size for size, _ in points}), [number for _, number in points]
    low, high = math.floor(math.log10(min(values)) * 3) / 3, math.ceil(math.log10(max(values)) * 3) / 3
    high = max(high, low + 1 / 3)
    left, right = math.log2(sizes[0]), math.log2(sizes[-1])

    def column(size):
        return round((math.log2(size) - left) / (right - left) * (WIDTH - 1)) if right > left else WIDTH // 2
    grid = [[" "] * WIDTH for _ in range(HEIGHT)]
    for mark, (_, of, _) in zip(marks(series), series):
        for size, number in of:
            line = HEIGHT - 1 - round((math.log10(number) - low) / (high - low) * (HEIGHT - 1))
            grid[line][column(size)] = mark if grid[line][column(size)] == " " else "*"
    lines = []
    for i, row in enumerate(grid):
        value = 10 ** (high - (high - low) * i / (HEIGHT - 1))
        lines.append(f"{value:9.3g} |{''.join(row)}".rstrip() if i % 4 == 0 or i == HEIGHT - 1 else f"{'':9} |{''.join(row)}".rstrip())
    return [*lines, f"{'':10}+{'-' * WIDTH}", f"{'':11}{axis(sizes, column)}", *(f"  {mark} {name}" for mark, (name, _, _) in zip(marks(series), series))]


def axis(sizes, column):
    """Sizes under their columns, as many as have room."""
    text = ""
    for size in sizes:
        word = size_text(size)
        at = min(column(size), WIDTH + 4 - len(word))
        if at >= len(text) + (1 if text else 0):
            text = text.ljust(at) + word
    return text
