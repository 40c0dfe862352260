"""What sweep-ranks has measured: kept by step, so that a step is there as a whole or not at all, and a later run can go on.

results.jsonl is written anew after each step, beside itself, and renamed.  A step's records follow its marker, a record "step" that
says how it ended and how many they are.
"""
import json
import os

from .records import read


def write_atomically(path, text):
    with open(path + ".new", "w", encoding="utf-8") as out:
        out.write(text)
    os.replace(path + ".new", path)


class Different(Exception):
    """The folder holds measurements of something else."""


class Results:
    """identity: what must be the same for measurements to belong together; steps: {key: (marker, records)}."""

    def __init__(self, folder, identity):
        self.path, self.identity, self.steps = os.path.join(folder, "results.jsonl"), identity, {}

    def load(self, path, merged=False):
        """Adds the steps of a file that this one lacks; how many.  merged: it is of another folder."""
        found = read(path)
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
            key, records = f"{stage} / {step}", by.get((stage, step, False), [])
            mine = self.steps.get(key)
            if len(records) != marker["records"] or mine and (mine[0]["good"] or not marker["good"]):
                continue
            self.steps[key] = (dict(marker, merged=True) if merged else marker, records)
            added += 1
        return added

    def done(self, key, arguments, tuning):
        """Whether the step has run well, with these arguments."""
        marker = self.steps.get(key, ({},))[0]
        return bool(marker.get("good")) and (marker["arguments"], marker["tuning"]) == (arguments, tuning)

    def add(self, marker, records):
        key = f"{marker['stage']} / {marker['step']}"
        self.steps[key] = (dict(marker, record="step", records=len(records)), records)

    def records(self):
        return [r for marker, found in self.steps.values() for r in (marker, *found)]

    def markers(self):
        return {key: marker for key, (marker, _) in self.steps.items()}

    def write(self):
        lines = [dict(record="sweep", **self.identity), *self.records()]
        write_atomically(self.path, "".join(json.dumps(r) + "\n" for r in lines))


def checked(found):
    """Of rows that were run for their values alone: how many there are of each collective and datatype, and those that were wrong."""
    kept, count = [], {}
    for r in found:
        if r.get("record") != "row":
            kept.append(r)
            continue
        wrong = r["beeline"]["wrong"] + r["nccl"]["wrong"]
        one = count.setdefault((r["collective"], r["datatype"]), dict(record="checked", collective=r["collective"], datatype=r["datatype"],
                                                                      ranks=r["ranks"], rows=0, wrong=0, routes=[]))
        one["rows"] += 1
        one["wrong"] += wrong
        one["routes"] = sorted({*one["routes"], r["route"]})
        kept += [r] if wrong else []
    return kept + list(count.values())


def short(value):
    """As a person compares it."""
    if isinstance(value, list):
        return " and ".join(f"{value.count(name)} x {name}" for name in dict.fromkeys(value))
    return str(value)[:16]
