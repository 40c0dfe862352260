#!/usr/bin/env python3
"""vLLM's NCCL wrapper as vLLM uses it, a process a rank: every result is compared exactly, eager, in CUDA graphs and after a suspend.

  vllm_wrapper.py --vllm DIR --ranks 4 --served      with Beeline preloaded, or VLLM_NCCL_SO_PATH naming it
  vllm_wrapper.py --vllm DIR --ranks 4               with NCCL alone
  vllm_wrapper.py --vllm DIR --ranks 4 --times       how long its uneven gathers and scatters take (vllm_times.py); with --served or not, too

DIR has what scripts/gpu/programs/fetch_vllm.py fetches.  With --served each rank also counts its calls, and compares with Beeline's own count
of what it served: all that are small, and none of the large ones (with --times not).  The last line is `N passed, N failed`; exit status 0 if none failed.
"""
import argparse
import collections
import multiprocessing
import multiprocessing.connection
import os
import re
import sys
import tempfile

sys.dont_write_bytecode = True
REPLAYS = 4
LEAST_SUSPEND = 22907  # the first NCCL with ncclCommSuspend
ALGORITHMS = dict(all_reduce=("oneshot_", "twoshot_"), all_gather=("allgather_",), reduce_scatter=("reducescatter_",), broadcast=("broadcast_",), reduce=("reduce_",),
                  sendrecv=("sendrecv_",))


class Job:
    """One rank: its communicator, what it called and what it found."""

    def __init__(self, options, rank, links):
        import torch
        import vllm_stand_in
        self.torch, self.rank, self.size, self.meet = torch, rank, options.ranks, links.barrier.wait
        self.passed, self.failures, self.issued = 0, [], collections.Counter()
        self.device = torch.device("cuda", rank)
        torch.cuda.set_device(self.device)
        pynccl = vllm_stand_in.load(options.vllm)
        self.comm = pynccl.PyNcclCommunicator(vllm_stand_in.StatelessProcessGroup(rank, links.inboxes), self.device)
        if not self.comm.available:
            raise RuntimeError("vLLM found no NCCL that it can use")
        with open("/proc/self/maps", encoding="utf-8") as maps:
            self.check(("libbeeline" in maps.read()) == options.served, f"Beeline is {'not ' if options.served else ''}in the process")
        self.issued["all_reduce"] += 1  # by which it warms up

    def check(self, good, what):
        if good:
            self.passed += 1
        else:
            self.failures.append(what)

    def issue(self, call, large):
        call.issue()
        for collective, count in call.served.items():
            self.issued["nccl" if large else collective] += count

    def eager(self, calls, seeds, where):
        for large, call in calls:
            for seed in seeds:
                call.load(seed)
                self.issue(call, large)
                call.verify(seed, f"{where}, seed {seed}")

    def capture(self, calls):
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph, stream=self.torch.cuda.current_stream()):
            for large, call in calls:
                self.issue(call, large)
        return graph

    def replay(self, graph, calls, seeds, where):
        for seed in seeds:
            for _, call in calls:
                call.load(seed)
            graph.replay()
            for _, call in calls:
                call.verify(seed, f"{where}, replay {seed}")

    def idle(self):
        """All GPUs, as suspend and resume want it."""
        self.torch.cuda.synchronize()
        self.meet()

    def suspend(self):
        if self.comm.nccl_version < LEAST_SUSPEND:
            if self.rank == 0:
                print(f"skipped: suspend and resume: NCCL {self.comm.nccl_version} has none", flush=True)
            return False
        self.idle()
        self.comm.suspend()
        self.check(self.comm._suspended, "suspend did nothing")
        self.comm.resume()
        self.idle()
        return True

    def run(self, options):
        import vllm_calls
        small, large = options.sizes
        sizes = (("float32", small, False), ("bfloat16", small, False), ("bfloat16", large, True))
        dtypes = [(getattr(self.torch, name), size, is_large) for name, size, is_large in sizes]
        calls = [(is_large, kind(self, dtype, size // dtype.itemsize + 1)) for dtype, size, is_large in dtypes for kind in vllm_calls.KINDS]
        with self.torch.cuda.stream(self.torch.cuda.Stream()):
            self.eager(calls, (1, 2), "eager")
            graph = self.capture(calls)
            self.replay(graph, calls, range(3, 3 + REPLAYS), "graph")
            self.eager(calls, (7,), "eager after a graph")
            if self.suspend():
                self.replay(graph, calls, (8, 9), "graph after a suspend")
                self.eager(calls, (10,), "eager after a suspend")
            self.idle()
            graph.reset()
        self.comm.destroy()

    def judge(self, log):
        """Beeline's line at the end of the communicator, against what was called."""
        told = re.findall(rf"stats: communicator \w+ rank {self.rank} of {self.size}: (.*)", log)
        routes = {name: int(count) for name, count in re.findall(r"(\S+) (\d+) calls", told[-1] if told else "")}
        served = {collective: sum(count for name, count in routes.items() if name.startswith(prefixes))
                  for collective, prefixes in ALGORITHMS.items()}
        served["nccl"] = routes.get("nccl", 0)
        # What several collectives of a group have in one launch is not counted by collective.
        mixed = sum(count for name, count in routes.items() if name.startswith("mixed_"))
        left = {name: count - served[name] for name, count in self.issued.items() if count != served[name]}
        good = set(served) == set(self.issued) and min(left.values(), default=0) >= 0 and sum(left.values()) == mixed
        self.check(good, f"calls by who served them: {served}, and {mixed} with others, not {dict(self.issued)}")


Links = collections.namedtuple("Links", "inboxes results barrier")


def rank_main(options, rank, links):
    log = os.path.join(options.folder, str(rank))
    if options.served:
        os.environ.update(BEELINE_STATS="1", BEELINE_DEBUG="INFO", BEELINE_DEBUG_FILE=log)
    try:
        import vllm_times
        job = Job(options, rank, links)
        vllm_times.run(job, options.hidden) if options.times else job.run(options)
    finally:
        said = ""
        if os.path.exists(log):
            with open(log, encoding="utf-8") as file:
                said = file.read()
            sys.stderr.write(said)
    if options.served and not options.times:
        job.judge(said)
    links.results.put((rank, job.passed, job.failures))


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--vllm", required=True, metavar="DIR")
    p.add_argument("--ranks", type=int, required=True)
    p.add_argument("--served", action="store_true", help="Beeline has to serve the small calls")
    p.add_argument("--times", action="store_true", help="no more than times; what was timed is checked")
    p.add_argument("--hidden", type=int, default=7168, help="bf16 of a row, with --times (default: %(default)s)")
    p.add_argument("--sizes", type=lambda text: [int(size) for size in text.split(",")], default=[4 << 10, 68 << 20], metavar="SMALL,LARGE",
                   help="bytes a rank: what Beeline serves of every collective, and what it serves of none (default: 4 KiB, 68 MiB)")
    return p.parse_args()


def main():
    options = parse_arguments()
    with tempfile.TemporaryDirectory() as options.folder:
        new = multiprocessing.get_context("spawn")
        links = Links([new.SimpleQueue() for _ in range(options.ranks)], new.SimpleQueue(), new.Barrier(options.ranks))
        ranks = [new.Process(target=rank_main, args=(options, rank, links), daemon=True) for rank in range(options.ranks)]
        for process in ranks:
            process.start()
        running, results = dict(enumerate(ranks)), []
        while running:
            multiprocessing.connection.wait([process.sentinel for process in running.values()] + [links.results._reader])
            for rank, process in list(running.items()):
                status = process.exitcode
                if status:
                    print(f"FAILED: rank {rank} ended with {status}", flush=True)
                    return 1  # the others, which may wait for it, are ended
                if status is not None:
                    del running[rank]
            while not links.results.empty():  # also those of ranks that have just ended
                results.append(links.results.get())
    failures = [f"FAILED: rank {rank}: {failure}" for rank, _, found in sorted(results) for failure in found]
    print("\n".join(failures[:20]))
    print(f"{sum(passed for _, passed, _ in results)} passed, {len(failures)} failed", flush=True)
    return 1 if failures or len(results) < options.ranks else 0


if __name__ == "__main__":
    sys.exit(main())
