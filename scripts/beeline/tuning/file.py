"""Tuning files (docs/tuning.md): where they may be, and what `beeline tune` writes into them and reads from them.

It writes a block for a collective and a number of ranks: the rows, and before them comment lines that begin with one of MARKS.  A block
takes the place of the one before it; every other byte of a file stays.
"""
import os
import re

from ..words import size_of
from .collectives import COLLECTIVES

MARKS = ("tuned", "time", "slower")
BLOCK = re.compile(rf"[ \t]*(?:# (?:{'|'.join(MARKS)}) )?({'|'.join(COLLECTIVES)})[ \t]+(\d+)\b")
TIME = re.compile(rf"# time ({'|'.join(COLLECTIVES)}) +(\d+) +(\d+[KMG]?) +([\d.]+) +([\d.]+)( |$)")
NAME = "beeline/beeline.tune"


def folder(variable, otherwise):
    """Of XDG's; None where neither it nor HOME says one."""
    said, home = os.environ.get(variable, ""), os.environ.get("HOME", "")
    return said if said.startswith("/") else os.path.join(home, otherwise) if home.startswith("/") else None


def places():
    """Paths in the order in which they are read; some may be None."""
    asked = os.environ.get("BEELINE_TUNING_FILE")
    if asked == "built-in":
        return []
    config, cache = folder("XDG_CONFIG_HOME", ".config"), folder("XDG_CACHE_HOME", ".cache")
    return [asked or None, config and os.path.join(config, NAME), f"/etc/{NAME}", cache and os.path.join(cache, NAME)]


def read(path):
    """Its text, each byte of it; "" where there is none."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def section_of(line):
    """What a gpu line says, whatever the order of its words; None of another line."""
    words = re.findall(r'"[^"]*"|[^\s"#]+', re.sub(r'("[^"]*")|#.*', r"\1", line))
    if words[:1] != ["gpu"] or len(words) < 2:
        return None
    rest = words[2:]
    return words[1], frozenset(zip(rest[::2], rest[1::2])), rest[-1:] == ["multicast"]


def sections(text):
    """[(what the gpu line says, or None of what comes before the first, its lines)]"""
    found = [(None, [])]
    for line in text.split("\n"):
        section = section_of(line)
        if section:
            found.append((section, []))
        found[-1][1].append(line)
    return found


def block_of(line):
    """(collective, ranks) of a line of a block."""
    words = BLOCK.match(line)
    return (words[1], int(words[2])) if words else None


def with_blocks(lines, blocks):
    """A section's lines, with these blocks in place of its own."""
    out, left, last = [], dict(blocks), 1
    for line in lines:
        key = block_of(line)
        if key not in blocks:
            out.append(line)
        elif key in left:
            out += left.pop(key)
        last = len(out) if key else last
    more = [line for block in left.values() for line in ("", *block)]
    return out[:last] + more + out[last:]


def merged(text, section, blocks):
    """The text with blocks {(collective, ranks): lines} in the last section of this gpu line; in a new one at the end if there is none."""
    found = sections(text)
    at = max((i for i, (of, _) in enumerate(found) if of == section_of(section)), default=None)
    if at is None:
        new = [section] + [line for block in blocks.values() for line in ("", *block)]
        return text + ("\n" if text and not text.endswith("\n") else "") + ("\n" if text else "") + "\n".join(new) + "\n"
    found[at] = section, with_blocks(found[at][1], blocks)
    return "\n".join(line for _, lines in found for line in lines)


def before(text, gpu_line, keys):
    """The gpu line of a later section than this line's that fits the box as well and has rows for some (collective, ranks): those would
    hold in place of what is merged.  None: there is none."""
    found, box = sections(text), section_of(gpu_line)
    at = max((i for i, (of, _) in enumerate(found) if of == box), default=len(found))
    return next((lines[0] for of, lines in found[at + 1:] if match(of, box) == match(box, box) and any(block_of(line) in keys for line in lines)), None)


def times(text):
    """Of each section {(collective, ranks): [(bytes, NCCL's us, Beeline's)]}, in their order; empty where a block has rows and no times."""
    found = []
    for section, lines in sections(text):
        of = {}
        for line in lines:
            key, time = block_of(line), TIME.match(line)
            if key:
                of.setdefault(key, [])
            if time:
                of[key].append((size_of(time[3]), float(time[4]), float(time[5])))
        found.append((section, of))
    return found


def match(section, box):
    """How well a section fits a box, both as gpu lines say them; 0: not at all.  As dispatch/pick.c has it."""
    if not section or section[2] or not {pair for pair in section[1] if pair[0] != "arch"} <= box[1]:
        return 0
    return 3 if section[0] == box[0] else 1 if section[0] == "any" else 2 * (dict(section[1]).get("arch") == dict(box[1]).get("arch"))


def times_used(texts, gpu_line, key):
    """The times for a collective and number of ranks by the rows that hold on this box, of files in their order; empty where these rows
    have none, None where there are no rows."""
    box = section_of(gpu_line)
    for text in texts:
        fitting = [(match(section, box), i, section, of[key]) for i, (section, of) in enumerate(times(text)) if key in of and match(section, box)]
        if fitting:
            _, _, section, found = max(fitting, key=lambda one: one[:2])
            return sorted(found) if section == box else []
    return None
