#!/usr/bin/env python3
"""Answers as distributed_worker.py does, without PyTorch: what becomes of a test is a table; for distributed_test.py.

BROKEN in the environment says that this is the side with Beeline.  Each test that is begun is a line in the file RUNS.
"""
import json
import os
import sys
import time

SPAWN, BROKEN = "--spawn" in sys.argv, "BROKEN" in os.environ
# test: verdicts without and with, among others and repeated
TESTS = dict(test_fine=("ok", "ok", "ok", "ok"), test_skipped=("skipped", "skipped", "skipped", "skipped"),
             test_broken=("ok", "failed", "ok", "failed"), test_dies=("ok", "died", "ok", "died"), test_hangs=("ok", "hangs", "ok", "hangs"),
             test_lost=("ok", "skipped", "ok", "skipped"), test_under_load=("ok", "failed", "ok", "ok"),
             test_bad=("failed", "failed", "failed", "failed"), test_gained=("failed", "ok", "failed", "ok"))


def main():
    slow = os.environ.get("SLOW")
    print(json.dumps(dict(torch="0", tests=list(TESTS), start="no ranks")), flush=True)
    for line in sys.stdin:
        name, log = line.split()
        with open(os.environ["RUNS"], "a", encoding="utf-8") as runs:
            runs.write(f"{name} {'with' if BROKEN else 'without'} {'spawn' if SPAWN else 'fork'} {os.environ.get('CUDA_VISIBLE_DEVICES', '')}\n")
        with open(log, "w", encoding="utf-8") as out:
            out.write(f"said by {name}\nbeeline [1] WARN of {name}\n" if name == "test_broken" else f"said by {name}\n")
        verdict = TESTS[name][2 * SPAWN + BROKEN]
        if verdict == "died":
            os._exit(1)
        if verdict == "hangs" or slow:
            time.sleep(300)
        print(json.dumps(dict(verdict=verdict, seconds=0.01)), flush=True)


if __name__ == "__main__":
    main()
