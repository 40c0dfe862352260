"""What the PyTorch programs of this folder share: start and end of a rank, counting of checks, results of all ranks.

Results travel through the rendezvous store, never through the collectives under test, so that a wrong or hanging
collective cannot hide what was found.  `--device cpu` runs the same programs over gloo, to try them where no GPU is.
"""
import argparse
import ctypes
import datetime
import json
import os
import sys
import threading
import time
import traceback

import torch
import torch.distributed as dist

from torch_turns import Turns

WAIT = datetime.timedelta(seconds=int(os.environ.get("TORCH_CHECK_TIMEOUT", "60")))


def parser(description):
    p = argparse.ArgumentParser(description=description)
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument("--json", metavar="FILE", help="rank 0 appends one JSON record a line")
    p.add_argument("--tag", default="", help="said in every record: which run this is")
    return p


class Run:
    """One rank of a job: its device, its groups, what it found."""

    def __init__(self, options):
        self.options = options
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.cuda = options.device == "cuda"
        local = int(os.environ.get("LOCAL_RANK", self.rank))
        self.device = torch.device("cuda", local) if self.cuda else torch.device("cpu")
        if self.cuda:
            torch.cuda.set_device(self.device)
            dist.init_process_group("nccl", timeout=WAIT, device_id=self.device)
        else:
            dist.init_process_group("gloo", timeout=WAIT)
        self.store = dist.distributed_c10d._get_default_store()
        self.passed, self.failures, self.skipped, self.rounds = 0, [], {}, 0

    def check(self, good, what):
        if good:
            self.passed += 1
        else:
            self.failures.append(what)

    def check_equal(self, got, want, what):
        """Exact, except that NaN equals NaN.  The message names the first element that differs."""
        got, want = got.detach().flatten(), want.detach().flatten()
        if got.dtype.itemsize == 1:
            got, want = got.view(torch.uint8), want.view(torch.uint8)  # fp8 has no comparison
        same = (got == want) | ((got != got) & (want != want))
        if bool(same.all()):
            self.passed += 1
            return
        bad = (~same).nonzero().flatten()
        i = int(bad[0])
        self.failures.append(f"{what}: {bad.numel()} of {got.numel()} wrong, first [{i}] is {got[i].item()}, not {want[i].item()}")

    def skip(self, what, why):
        self.skipped.setdefault(what, str(why).splitlines()[0][:160])

    def everyone(self, value):
        """The value of each rank, by rank; every rank gets all of them.  Waits for every rank."""
        self.rounds += 1
        self.store.set(f"check/{self.rounds}/{self.rank}", json.dumps(value))
        keys = [f"check/{self.rounds}/{rank}" for rank in range(self.size)]
        self.store.wait(keys, WAIT)
        return [json.loads(self.store.get(key)) for key in keys]

    def synchronize(self):
        if self.cuda:
            torch.cuda.synchronize()

    def clocked(self, body):
        """Seconds of what the body does on the current stream."""
        if not self.cuda:
            start = time.perf_counter()
            body()
            return time.perf_counter() - start
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        body()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) * 1e-3

    def captured(self, step):
        """The graph of a step, and why there is none."""
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                step()
            return graph, None
        except RuntimeError as error:
            return None, str(error).splitlines()[0][:200]

    def meet(self):
        """All ranks' hosts come here with idle devices; uses no collective."""
        self.synchronize()
        self.everyone(0)

    def record(self, **fields):
        if self.rank == 0 and self.options.json:
            with open(self.options.json, "a", encoding="utf-8") as out:
                out.write(json.dumps(dict(program=os.path.basename(sys.argv[0]), tag=self.options.tag, ranks=self.size,
                                          torch=torch.__version__, **fields)) + "\n")

    def section(self, name, function):
        """Runs one part.  An exception fails that part alone; ranks meet before the next."""
        start, before = time.monotonic(), len(self.failures)
        try:
            function(self)
            self.synchronize()
        except Exception as error:  # noqa: BLE001 - whatever it is, the other parts are still worth running
            traceback.print_exc()
            self.failures.append(f"{name}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
        failed = self.everyone(len(self.failures) - before)
        if self.rank == 0:
            verdict = "ok" if not any(failed) else f"FAILED ({sum(failed)})"
            print(f"# {name:<24} {verdict:<12} {time.monotonic() - start:6.1f} s", flush=True)

    def finish(self):
        """Prints the count of all ranks on rank 0; the exit status for each."""
        results = self.everyone([self.passed, self.failures, self.skipped])
        passed, failures = sum(r[0] for r in results), [(i, f) for i, r in enumerate(results) for f in r[1]]
        if self.rank == 0:
            for what, why in results[0][2].items():
                print(f"skipped: {what}: {why}")
            for rank, failure in failures[:20]:
                print(f"FAILED: rank {rank}: {failure}")
            print(f"{passed} passed, {len(failures)} failed", flush=True)
            self.record(kind="checks", passed=passed, failed=len(failures), first=failures[0][1] if failures else None,
                        skipped=results[0][2])
        self.everyone(0)  # the store lives in rank 0: nobody leaves while another still reads
        if not failures:
            # Waits for peers and for graphs that are still alive: never let that hide the results.
            threading.Timer(30, lambda: (print("destroy_process_group did not end", flush=True), os._exit(3))).start()
            dist.destroy_process_group()
        return 1 if failures else 0

    def leave(self, status):
        """Ends the process without further teardown, which could wait for a peer that is gone."""
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(0.5 if status else 0)
        os._exit(status)


def job(name, function, options, jobs=2, cuda_only=False):
    """A program that is one section, function(run, options, turns), and takes turns with the other jobs; ends the process."""
    turns = Turns(options.turns, options.tag, jobs)
    turns.take()
    run = Run(options)
    turns.give()
    if cuda_only and not run.cuda:
        run.skip(name, "no CUDA")
    else:
        run.section(name, lambda _: function(run, options, turns))
    turns.end()
    run.leave(run.finish())


def beeline_serves(collective="ALLREDUCE"):
    """Whether Beeline is in this process and not switched off for the collective."""
    if os.environ.get("BEELINE_ENABLE", "1") != "1" or os.environ.get(f"BEELINE_{collective}") == "nccl":
        return False
    try:
        with open("/proc/self/maps", encoding="utf-8") as maps:
            return any("libbeeline" in line for line in maps)
    except OSError:
        return False


COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")  # as beelineRouteOf numbers them
NCCL_DATATYPES = {torch.int8: 0, torch.uint8: 1, torch.int32: 2, torch.int64: 4, torch.float16: 6, torch.float32: 7, torch.float64: 8,
                  torch.bfloat16: 9}


def route_of(run, collective, count, dtype):
    """What serves such a call (a sum, where there is an operation) on the default group: an algorithm or "nccl"; None where nobody can
    tell.  The count is that of NCCL's call: of one rank's part."""
    try:
        function = ctypes.CDLL(None).beelineRouteOf
        comm = dist.group.WORLD._get_backend(run.device)._comm_ptr()
    except (AttributeError, RuntimeError, TypeError):
        return None
    if not comm:
        return None
    function.restype, function.argtypes = ctypes.c_char_p, (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_int, ctypes.c_int)
    return function(comm, COLLECTIVES.index(collective), count, NCCL_DATATYPES[dtype], 0).decode()
