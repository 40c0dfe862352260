#!/usr/bin/env python3
"""Times ncclCommInitRank and ncclCommDestroy, one process a rank, and the device memory that a communicator takes.

  setup_time.py --ranks 4 [--rounds 4]     one JSON record on stdout; run it with and without LD_PRELOAD
"""
import argparse
import ctypes
import json
import multiprocessing
import os
import statistics
import sys
import time


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


def checked(library, name, *arguments):
    result = getattr(library, name)(*arguments)
    if result:
        raise RuntimeError(f"{name}: error {result}")


def free_bytes(cuda):
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    checked(cuda, "cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value


def open_device(cuda, rank):
    checked(cuda, "cuInit", 0)
    device, context = ctypes.c_int(), ctypes.c_void_p()
    checked(cuda, "cuDeviceGet", ctypes.byref(device), rank)
    checked(cuda, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    checked(cuda, "cuCtxSetCurrent", context)


def one_rank(rank, ranks, rounds, barrier, raw_id, results):
    cuda, nccl = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnccl.so.2")
    open_device(cuda, rank)
    for number in range(rounds):
        if rank == 0:
            made = UniqueId()
            checked(nccl, "ncclGetUniqueId", ctypes.byref(made))
            raw_id[:] = bytes(made)
        barrier.wait()
        unique, comm = UniqueId.from_buffer_copy(bytes(raw_id)), ctypes.c_void_p()
        before = free_bytes(cuda)
        barrier.wait()
        start = time.perf_counter()
        checked(nccl, "ncclCommInitRank", ctypes.byref(comm), ranks, unique, rank)
        made_in = time.perf_counter() - start
        barrier.wait()
        taken = before - free_bytes(cuda)
        barrier.wait()
        start = time.perf_counter()
        checked(nccl, "ncclCommDestroy", comm)
        results.put((number, made_in, time.perf_counter() - start, taken))
        barrier.wait()
    results.close()
    results.join_thread()


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--ranks", type=int, required=True)
    p.add_argument("--rounds", type=int, default=4)
    options = p.parse_args()
    context = multiprocessing.get_context("fork")
    barrier, raw_id, results = context.Barrier(options.ranks), context.Array("B", 128, lock=False), context.Queue()
    ranks = [context.Process(target=one_rank, args=(r, options.ranks, options.rounds, barrier, raw_id, results))
             for r in range(options.ranks)]
    for process in ranks:
        process.start()
    rounds, wanted = [], options.rounds * options.ranks
    while len(rounds) < wanted:
        try:
            rounds.append(results.get(timeout=0.5))
        except Exception:  # noqa: BLE001 - queue.Empty: look whether a rank has failed
            if any(process.exitcode for process in ranks):
                barrier.abort()
                return 1
    for process in ranks:
        process.join()
    # A round ends with its slowest rank; the first also loads the libraries' kernels.
    slowest = [max(r[1] for r in rounds if r[0] == number) for number in range(options.rounds)]
    print(json.dumps(dict(record="setup", ranks=options.ranks, preload=os.environ.get("LD_PRELOAD", ""),
                          first_s=round(slowest[0], 4), init_s=round(statistics.median(slowest[1:] or slowest), 4),
                          destroy_s=round(statistics.median(r[2] for r in rounds), 4), bytes=max(r[3] for r in rounds))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
