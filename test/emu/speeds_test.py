#!/usr/bin/env python3
"""speeds_test.py - events tell the made-up times of BEELINE_EMU_SPEEDS, of kernels and of the reference NCCL, and no others."""
import json
import os
import subprocess
import sys

SPEEDS = """bl_allreduce_oneshot_ll128_ 3 10    # the first that fits
bl_allreduce_ 2 100
ncclAllReduce 12 3
"""
EXPECTED = {("oneshot_ll128", 1 << 18): 3 + 10 / 4, ("oneshot_ll", 1 << 10): 2 + 100 / 1024}


def main():
    scratch, build = os.environ["TEST_TMP"], os.environ["BUILD"]
    speeds = os.path.join(scratch, "speeds")
    with open(speeds, "w", encoding="ascii") as file:
        file.write(SPEEDS)
    for (route, size), expected in EXPECTED.items():
        results = os.path.join(scratch, route)
        command = ["scripts/emu-box", "-g", "2", "--build", build, "--beeline", "--env", f"BEELINE_EMU_SPEEDS={speeds}", "--env", f"BEELINE_ALLREDUCE={route}",
                   "--", f"{build}/beeline-perf", "--mode", "graph", "--place", "out", "-d", "bfloat16", "-b", str(size), "-e", str(size), "--json", results]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with open(results, encoding="ascii") as file:
            row, = (r for r in map(json.loads, file) if "route" in r)
        found, wanted = (row["beeline"]["us"], row["nccl"]["us"]), (expected, 12 + 3 * size / (1 << 20))
        if any(abs(a - b) > 0.01 for a, b in zip(found, wanted)):
            sys.exit(f"FAIL {route} {size}: {found} us, expected {wanted}")


main()
