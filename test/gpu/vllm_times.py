"""Times of vLLM's all_gatherv and reduce_scatterv, between whose ranks data parallelism shares out a step's tokens.

A row is a token: so many bf16, DeepSeek-V3's 7168 unless something else is said.  In a graph: CALLS calls, and a replay that follows another one directly; eager: so many calls behind as many.
Both by the clock of rank 0's GPU, median over SAMPLES; host: how long that rank's thread is in a call meanwhile.  What was timed is checked.
"""
import statistics
import time

import vllm_calls

ROWS = 1, 4, 16, 64, 256
CALLS, SAMPLES = 10, 9


def shares(size, rows, even):
    """Rows of each rank; of uneven ones the last has them all."""
    return [rows if even else max(1, rows * (rank + 1) // size) for rank in range(size)]


class Rows:
    def __init__(self, job, rows, hidden):
        self.rows, self.hidden = rows, hidden
        super().__init__(job, job.torch.bfloat16, hidden * max(rows))

    def sizes(self):
        return [self.hidden * rows for rows in self.rows]


class AllGatherRows(Rows, vllm_calls.AllGatherV):
    name = "all_gatherv"


class ReduceScatterRows(Rows, vllm_calls.ReduceScatterV):
    name = "reduce_scatterv"


def timed(job, many):
    """us on the GPU and of the host, of one of the calls that `many` makes."""
    start, end = (job.torch.cuda.Event(enable_timing=True) for _ in range(2))
    job.idle()
    many()
    start.record()
    began = time.perf_counter()
    many()
    host = time.perf_counter() - began
    end.record()
    job.torch.cuda.synchronize()
    return start.elapsed_time(end) * 1e3 / CALLS, host * 1e6 / CALLS


def median(job, call, many, seed, where):
    call.load(seed)
    found = [timed(job, many) for _ in range(SAMPLES)]
    call.verify(seed, where)
    return [statistics.median(column) for column in zip(*found)]


def one(job, call, even):
    def calls():
        for _ in range(CALLS):
            call.issue()

    eager, host = median(job, call, calls, 1, "eager")
    graph = job.capture([(False, call)] * CALLS)
    captured, _ = median(job, call, graph.replay, 2, "graph")
    graph.reset()
    if job.rank == 0:
        shape = f"{call.rows[-1]} rows" if even else ":".join(map(str, call.rows)) + " rows"
        print(f"{call.name:<15} {shape:<22} graph {captured:8.2f} us, eager {eager:8.2f} us, host {host:8.2f} us", flush=True)


def run(job, hidden):
    with job.torch.cuda.stream(job.torch.cuda.Stream()):
        for kind in (AllGatherRows, ReduceScatterRows):
            for even in (True, False):
                for rows in ROWS if even else ROWS[1:]:
                    one(job, kind(job, shares(job.size, rows, even), hidden), even)
    job.idle()
    job.comm.destroy()
