#!/usr/bin/env python3
"""Runs the programs of test/programs with NCCL alone and with Beeline in front of it, and says which differ.

  both_ways.py --library libbeeline.so --gpus 0,1 [--other-gpus 2,3] [--names a,b] [--fresh] PROGRAM [ARGUMENT...]

PROGRAM ARGUMENT... NAME... runs the named programs one after another and prints `NAME: ok` for each; after one that fails,
the rest are run in a new process; with --fresh each is in one of its own.  NCCL alone gets --gpus, Beeline --other-gpus at the same time.  Without those both get --gpus, Beeline
first, and NCCL alone runs what failed with Beeline, and what says how long an end took.
As they end, a line each with the seconds that they took; then a JSON record and a line for each.  Exit status: 1 if one fails with Beeline that NCCL alone runs, or takes more
than a second longer to end.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import threading
import time

OK = re.compile(r"^(\w+): ok(.*)$", re.MULTILINE)
TOOK = re.compile(r"\(took ([\d.]+) s")
SKIPPED = 77
UNASKED = ("not run", None)
LONGER = 1.0  # seconds that ending a communicator may take with Beeline beyond what NCCL takes


class Side:
    """One way to run them: its environment, and by name what came of each: ("ok" | "skipped" | what was wrong, seconds that an end took)."""

    def __init__(self, name, env, fresh):
        self.name, self.env, self.outcomes, self.thread, self.since = name, {**os.environ, **env}, {}, None, None
        self.most = 1 if fresh else None

    def run(self, command, names):
        left = list(names)
        while left:
            said = []
            self.since = time.monotonic()
            with subprocess.Popen([*command, *left[:self.most]], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as job:
                for line in job.stdout:
                    said.append(line)
                    for name, more in OK.findall(line):
                        seconds = TOOK.search(more)
                        self.note(name, "ok", float(seconds[1]) if seconds else None)
            before, left = left, [name for name in left if name not in self.outcomes]
            if left and job.returncode:
                self.note(left.pop(0), "skipped" if job.returncode == SKIPPED else self.reason(job.returncode, said))
            elif left == before:
                self.note(left.pop(0), "said nothing")

    def note(self, name, outcome, seconds=None):
        self.outcomes[name] = (outcome, seconds)
        now = time.monotonic()
        print(f"# {self.name}: {name}: {outcome} ({now - self.since:.1f} s)", flush=True)
        self.since = now

    @staticmethod
    def reason(status, said):
        how = f"signal {-status}" if status < 0 else f"status {status}"
        lines = [line.rstrip() for line in said if line.strip() and not OK.match(line)]
        told = [line for line in lines if "no end after" in line or line.startswith("FAIL")] or lines[-1:]
        return f"{how}: {'; '.join(told[:4])[:600]}"

    def start(self, command, names):
        self.thread = threading.Thread(target=self.run, args=(command, names))
        self.thread.start()

    def settles(self, name):
        """Whether the other side need not run it."""
        outcome, seconds = self.outcomes[name]
        return outcome == "ok" and seconds is None


def judge(alone, beeline):
    """None, or what is wrong."""
    if alone[0] != "ok":
        return None
    if beeline[0] != "ok":
        return beeline[0]
    if alone[1] is not None and beeline[1] is not None and beeline[1] > alone[1] + LONGER:
        return f"took {beeline[1]} s, {alone[1]} s with NCCL alone"
    return None


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--library", required=True)
    p.add_argument("--gpus", required=True)
    p.add_argument("--other-gpus")
    p.add_argument("--names", help="default: all")
    p.add_argument("--fresh", action="store_true", help="a process for each program")
    p.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="for Beeline's side")
    p.add_argument("command", nargs=argparse.REMAINDER)
    options = p.parse_args()
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    names = (options.names.split(",") if options.names else
             subprocess.run(command[:1], stdout=subprocess.PIPE, text=True, check=True).stdout.split())
    preload = ":".join(filter(None, (options.library, os.environ.get("LD_PRELOAD"))))
    alone = Side("alone", dict(CUDA_VISIBLE_DEVICES=options.gpus), options.fresh)
    beeline = Side("beeline", dict(CUDA_VISIBLE_DEVICES=options.other_gpus or options.gpus, LD_PRELOAD=preload,
                                   **dict(item.split("=", 1) for item in options.env)), options.fresh)
    beeline.start(command, names)
    if options.other_gpus:
        alone.start(command, names)
    beeline.thread.join()
    if options.other_gpus:
        alone.thread.join()
    else:
        alone.run(command, [name for name in names if not beeline.settles(name)])
    wrong = 0
    for name in names:
        mine, theirs = beeline.outcomes[name], alone.outcomes.get(name, UNASKED)
        problem = judge(theirs, mine)
        wrong += problem is not None
        print(json.dumps(dict(record="program", name=name, alone=theirs[0], beeline=mine[0], alone_s=theirs[1], beeline_s=mine[1])))
        same = mine[0] in ("ok", "skipped") and theirs[0] in (mine[0], UNASKED[0])
        verdict = f"FAILED: {problem}" if problem else mine[0] if same else f"{mine[0]}; with NCCL alone: {theirs[0]}"
        print(f"{name:<32} {verdict}", flush=True)
    print(f"{len(names)} programs, {wrong} that NCCL alone runs and Beeline does not")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
