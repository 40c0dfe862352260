#!/usr/bin/env python3
"""Judges two runs by the truth: the errors that torch_ddp.py and torch_truth.py wrote, with Beeline and without; exit status 0 if Beeline's are as small.

  compare_truth.py WITHOUT.jsonl WITH.jsonl        one file may be given twice: runs are told apart by their tag

Both sides are compared with sums in fp64, not with each other.  Sums: Beeline's mean error is at most SUMS times that without it.  Losses of a
training: their root mean square distance from those with exact gradients is at most LOSSES times the larger one of that without Beeline and of
trainings whose gradients had one rounding more than exact ones; and at most LOSSES times the latter for each of the ranks - 1 additions.
"""
import argparse
import json
import sys

SUMS, LOSSES = 1.05, 1.5
KEYS = dict(truth=("ranks", "collective", "redop", "datatype", "case", "bytes"), losses=("ranks", "dtype"))


def read(path, tag):
    runs = {}
    with open(path, encoding="utf-8") as lines:
        for line in filter(str.strip, lines):
            record = json.loads(line)
            kind = record.get("kind")
            if kind in KEYS and tag in (None, record["tag"]):
                runs[kind, *(record[key] for key in KEYS[kind])] = record
    return runs


def distance(losses, exact):
    """Root mean square of the relative differences of all ranks' losses."""
    parts = [(a - b) / max(abs(b), 0.1) for x, y in zip(losses, exact) for a, b in zip(x, y)]
    return (sum(part * part for part in parts) / len(parts)) ** 0.5


def judge_truth(without, with_):
    """Errors of both sides, the largest allowed, and what else to say."""
    one, other = without["mean_ulp"], with_["mean_ulp"]
    return one, other, SUMS * one, f"mean, in units of the last place; at most {with_['max_ulp']:.2f} and {without['max_ulp']:.2f}; " \
        f"correctly rounded {with_['right']:.2%} and {without['right']:.2%}"


def judge_losses(without, with_):
    if without["exact"] != with_["exact"]:
        return 0, 0, -1, "trainings with exact gradients differ: something else than sums is wrong"
    one, other = (distance(r["losses"], r["exact"]) for r in (without, with_))
    rough = max(distance(losses, r["exact"]) for r in (without, with_) for losses in r["rough"])
    return one, other, LOSSES * min(max(one, rough), (with_["ranks"] - 1) * rough), f"of the loss; with one rounding more {rough:.2e}"


JUDGES = dict(truth=judge_truth, losses=judge_losses)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("without")
    p.add_argument("with_", metavar="with")
    p.add_argument("--tags", nargs=2, metavar=("WITHOUT", "WITH"), default=(None, None))
    p.add_argument("--ranks", type=int, help="only runs of this many ranks")
    options = p.parse_args()
    without, with_ = read(options.without, options.tags[0]), read(options.with_, options.tags[1])
    both = [key for key in without if key in with_ and options.ranks in (None, key[1])]
    if not both:
        print("no run is in both files: nothing was compared")
        return 1
    failed = 0
    for key in both:
        one, other, allowed, more = JUDGES[key[0]](without[key], with_[key])
        good = other <= allowed
        failed += not good
        print(f"{key[1]} ranks {' '.join(map(str, key[2:]))} {key[0]}: error with Beeline {other:.3g}, without {one:.3g}, allowed {allowed:.3g}: "
              f"{'good' if good else 'FAILED'}; {more}")
    print(f"{len(both)} compared: {'ok' if not failed else f'{failed} FAILED'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
