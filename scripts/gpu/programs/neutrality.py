#!/usr/bin/env python3
"""What preloading a library costs a process that never calls NCCL: /bin/true, with and without in turn.

  neutrality.py LIBRARY [--runs 200] [--limit MICROSECONDS]      one JSON record on stdout
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

SILENT = (["/bin/true"], ["bash", "-c", "ls / >/dev/null"], [sys.executable, "-c", "import socket, threading"])


def time_of(environment):
    start = time.perf_counter()
    _, status = os.waitpid(os.posix_spawn("/bin/true", ["/bin/true"], environment), 0)
    if status:
        raise RuntimeError(f"/bin/true ended with status {status}")
    return time.perf_counter() - start


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("library")
    p.add_argument("--runs", type=int, default=200)
    p.add_argument("--limit", type=float, default=1000)
    options = p.parse_args()
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    loaded = dict(plain, LD_PRELOAD=os.path.abspath(options.library))
    pairs = [(time_of(plain), time_of(loaded)) for _ in range(options.runs)]
    added = (statistics.median(b for _, b in pairs) - statistics.median(a for a, _ in pairs)) * 1e6
    said = [" ".join(command) for command in SILENT
            if subprocess.run(command, env=loaded, capture_output=True, check=True).stderr]
    print(json.dumps(dict(record="neutrality", runs=options.runs, added_us=round(added, 1), said=said,
                          plain_us=round(statistics.median(a for a, _ in pairs) * 1e6, 1))))
    if added > options.limit:
        print(f"FAILED: preloading adds {added:.0f} us to a process; {options.limit:.0f} are accepted")
    for command in said:
        print(f"FAILED: {command} wrote to stderr")
    return 1 if added > options.limit or said else 0


if __name__ == "__main__":
    sys.exit(main())
