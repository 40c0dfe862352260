#!/usr/bin/env python3
"""Compares the losses that torch_ddp.py wrote in two runs; exit status 0 if they agree within rounding.

  compare_losses.py WITHOUT.jsonl WITH.jsonl        one file may be given twice: runs are told apart by their tag
"""
import argparse
import json
import sys

# Largest relative difference of a loss over 30 steps: gradients differ in the last bit of the sum's type.
TOLERANCE = dict(float32=1e-4, bfloat16=2e-2)


def read(path, tag):
    runs = {}
    with open(path, encoding="utf-8") as lines:
        for line in filter(str.strip, lines):
            record = json.loads(line)
            if record.get("kind") == "losses" and tag in (None, record["tag"]):
                runs[record["ranks"], record["dtype"]] = record
    return runs


def difference(one, other):
    pairs = [(a, b) for x, y in zip(one["losses"], other["losses"]) for a, b in zip(x, y)]
    return max(abs(a - b) / max(abs(a), 0.1) for a, b in pairs)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("without")
    p.add_argument("with_", metavar="with")
    p.add_argument("--tags", nargs=2, metavar=("WITHOUT", "WITH"), default=(None, None))
    p.add_argument("--ranks", type=int, help="only runs of this many ranks")
    options = p.parse_args()
    without, with_ = read(options.without, options.tags[0]), read(options.with_, options.tags[1])
    both = sorted(key for key in set(without) & set(with_) if options.ranks in (None, key[0]))
    if not both:
        print("no run is in both files: nothing was compared")
        return 1
    failed = 0
    for key in both:
        worst, allowed = difference(without[key], with_[key]), TOLERANCE[key[1]]
        good = worst <= allowed
        failed += not good
        print(f"{key[0]} ranks {key[1]}: losses differ by at most {worst:.2e} of {allowed:.0e}: {'ok' if good else 'FAILED'}; "
              f"last {without[key]['losses'][0][-1]:.6f} and {with_[key]['losses'][0][-1]:.6f}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
