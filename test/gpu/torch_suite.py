#!/usr/bin/env python3
"""Several of this folder's programs in one job: starting a job takes longer than most of them.

  torchrun --nproc_per_node 4 test/gpu/torch_suite.py --parts eager,coalesced,graphs,ddp,latency

Parts are sections of torch_allreduce.py, `ddp` and `latency`; they run in the order given, and one that fails does not
keep the next from running.
"""
import sys

import torch_allreduce
import torch_common
import torch_ddp
import torch_latency


def parts():
    return dict(torch_allreduce.sections(), ddp=torch_ddp.ddp, latency=torch_latency.latency)


def main():
    table = parts()
    p = torch_common.parser(__doc__)
    p.add_argument("--parts", default=",".join(table))
    options = p.parse_args()
    names = options.parts.split(",")
    for name in names:
        if name not in table:
            p.error(f"--parts {name}: one of {', '.join(table)}")
    run = torch_common.Run(options)
    if run.rank == 0:
        print(f"# {run.size} ranks, Beeline {'serves' if torch_common.beeline_serves() else 'is not there'}", flush=True)
    for name in names:
        run.section(name, table[name])
    run.leave(run.finish())


if __name__ == "__main__":
    sys.exit(main())
