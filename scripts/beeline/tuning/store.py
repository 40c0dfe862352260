"""What a run leaves in its folder: results.jsonl (every record, with its stage and step), logs.txt (all output) and what is made of them.

Store adds to results.jsonl as the steps end.  Steps keeps it by step, so that a step is there as a whole or not at all, and a later run
can go on: the file is written anew after each, a step's records behind its marker, a record "step" that says how it ended and how many
they are.
"""
import functools
import json
import os
import time

from . import records

LOG_BYTES = 12 << 20  # of logs.txt; what comes later is cut to its end
SHOWN = 4000


def left_by(result):
    """The records in a step's file, which goes, and those that it printed."""
    found, path = [], result.step.records
    if path and os.path.exists(path):
        found = records.read(path)
        os.unlink(path)
    return found + records.parse(line for line in result.output.splitlines() if line.startswith('{"record"'))


class Store:
    def __init__(self, folder, log_bytes=LOG_BYTES):
        self.folder, self.log_bytes, self.warnings, self.start = folder, log_bytes, {}, time.monotonic()
        self.path = self.file("results.jsonl")
        self.say = functools.partial(print, flush=True)

    def file(self, name):
        return os.path.join(self.folder, name)

    def clear(self, *more):
        os.makedirs(self.folder, exist_ok=True)
        for name in ("results.jsonl", "logs.txt", *more):
            open(self.file(name), "w", encoding="utf-8").close()

    def append(self, name, text):
        with open(self.file(name), "a", encoding="utf-8") as out:
            out.write(text)

    def put(self, name, text):
        """A whole file; who reads it meanwhile reads the one before."""
        with open(self.file(name + ".new"), "w", encoding="utf-8") as out:
            out.write(text)
        os.replace(self.file(name + ".new"), self.file(name))

    def log(self, key, result, verdict, more=""):
        path, output = self.file("logs.txt"), result.output
        if os.path.exists(path) and os.path.getsize(path) > self.log_bytes:
            output = output[-SHOWN:]
        added = " ".join(f"{name}={value}" for name, value in result.step.env.items())
        self.append("logs.txt", f"===== {key}: {verdict} ({result.seconds:.1f} s)\n$ {added} {' '.join(result.step.argv)}\n{more}{output}\n")

    def tell(self, stage, result, more=""):
        """Says and logs how a step has ended: its verdict.  Of warnings the first place is kept."""
        key, verdict = f"{stage} / {result.step.name}", "ok" if result.good else f"FAILED: {result.reason}"
        self.log(key, result, verdict, more)
        for line in result.warnings:
            self.warnings.setdefault(line.split(" WARN", 1)[-1].strip()[:240], key)
        self.say(f"  {key}: {verdict[:400]} ({result.seconds:.1f} s)")
        return verdict

    def step(self, stage, result):
        """Keeps all that a step has left."""
        self.append("results.jsonl", lines_of(dict(stage=stage, step=result.step.name, **r) for r in left_by(result)))
        return self.tell(stage, result)

    def records(self):
        return records.read(self.path)

    def warning_lines(self, most=8):
        return [f"warning at {where}: {text}" for text, where in list(self.warnings.items())[:most]]


def lines_of(found):
    return "".join(json.dumps(r) + "\n" for r in found)


def figures(make, *arguments):
    """The lines that are made of the records; one that says why there are none, where a run has ended in the middle of something."""
    try:
        return list(make(*arguments))
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        return [f"no figures: {type(error).__name__} {error}"]


class Different(Exception):
    """The folder holds measurements of something else."""


class Steps(Store):
    """identity: what must be the same for measurements to belong together; steps: {key: (marker, records)}."""

    def __init__(self, folder, identity):
        super().__init__(folder)
        self.identity, self.steps = identity, {}

    def load(self, path, merged=False):
        """Adds the steps of a file that this one lacks; how many.  merged: it is of another folder."""
        found = records.read(path)
        head = next((r for r in found if r.get("record") == "sweep"), None)
        if not head:
            raise Different("is no result of sweep-ranks")
        for name, value in self.identity.items():
            if head.get(name) != value:
                raise Different(f"is of another {name}: {short(head.get(name))} there, {short(value)} here")
        added, by = 0, {}
        for r in found:
            by.setdefault((r.get("stage"), r.get("step"), r.get("record") == "step"), []).append(r)
        for (stage, step, is_marker), (marker, *_) in by.items():
            if not is_marker:
                continue
            key, of_step = f"{stage} / {step}", by.get((stage, step, False), [])
            mine = self.steps.get(key)
            if len(of_step) != marker["records"] or mine and (mine[0]["good"] or not marker["good"]):
                continue
            self.steps[key] = (dict(marker, merged=True) if merged else marker, of_step)
            added += 1
        return added

    def done(self, key, arguments, tuning):
        """Whether the step has run well, with these arguments."""
        marker = self.steps.get(key, ({},))[0]
        return bool(marker.get("good")) and (marker["arguments"], marker["tuning"]) == (arguments, tuning)

    def add(self, marker, found):
        key = f"{marker['stage']} / {marker['step']}"
        self.steps[key] = (dict(marker, record="step", records=len(found)), found)

    def records(self):
        return [r for marker, found in self.steps.values() for r in (marker, *found)]

    def markers(self):
        return {key: marker for key, (marker, _) in self.steps.items()}

    def write(self):
        self.put("results.jsonl", lines_of([dict(record="sweep", **self.identity), *self.records()]))


def short(value):
    """As a person compares it."""
    if isinstance(value, list):
        return " and ".join(f"{value.count(name)} x {name}" for name in dict.fromkeys(value))
    return str(value)[:16]
