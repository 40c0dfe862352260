#!/usr/bin/env python3
"""Times ncclCommInitRank and ncclCommDestroy, one process a rank, and the device memory that communicators take.

  setup_time.py --ranks 4 [--rounds 4] [--keep 20]     one JSON record on stdout; run it with and without LD_PRELOAD

Each of --rounds makes a communicator and destroys it; what a rank holds more after the last than after the tenth part of
them is the record's growth.  --keep makes communicators that stay, each of which does an all-reduce of 4 KB; MiB on one
GPU beyond the context are told after the first and after the last.
"""
import argparse
import ctypes
import json
import multiprocessing
import os
import statistics
import sys
import time


NCCL_FLOAT, NCCL_SUM = 7, 0


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


def held(cuda):
    """What must not grow with the number of communicators that were made and destroyed."""
    with open("/proc/self/maps", encoding="utf-8") as maps, open("/proc/self/statm", encoding="utf-8") as statm:
        return dict(device_mib=-free_bytes(cuda) / 2**20, host_mib=int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20,
                    mappings=len(maps.readlines()), descriptors=len(os.listdir("/proc/self/fd")), threads=len(os.listdir("/proc/self/task")))


class Rank:
    def __init__(self, rank, ranks, barrier, raw_id):
        self.cuda, self.nccl = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnccl.so.2")
        self.rank, self.ranks, self.barrier, self.raw_id = rank, ranks, barrier, raw_id
        open_device(self.cuda, rank)

    def make(self):
        """A communicator, and the seconds that its making took."""
        if self.rank == 0:
            made = UniqueId()
            checked(self.nccl, "ncclGetUniqueId", ctypes.byref(made))
            self.raw_id[:] = bytes(made)
        self.barrier.wait()
        unique, comm = UniqueId.from_buffer_copy(bytes(self.raw_id)), ctypes.c_void_p()
        self.barrier.wait()
        start = time.perf_counter()
        checked(self.nccl, "ncclCommInitRank", ctypes.byref(comm), self.ranks, unique, self.rank)
        return comm, time.perf_counter() - start

    def free(self):
        """Bytes of the GPU, while no rank makes or ends anything."""
        self.barrier.wait()
        found = free_bytes(self.cuda)
        self.barrier.wait()
        return found

    def round(self):
        """(seconds to make a communicator, to destroy it, bytes that it takes)"""
        before = self.free()
        comm, made_in = self.make()
        taken = before - self.free()
        start = time.perf_counter()
        checked(self.nccl, "ncclCommDestroy", comm)
        return made_in, time.perf_counter() - start, taken

    def keep(self, count):
        """MiB beyond the context with one communicator, and with all of them."""
        message = ctypes.c_uint64()
        checked(self.cuda, "cuMemAlloc_v2", ctypes.byref(message), 4096)
        before, used = self.free(), []
        for _ in range(count):
            comm, _ = self.make()
            checked(self.nccl, "ncclAllReduce", message, message, ctypes.c_size_t(1024), NCCL_FLOAT, NCCL_SUM, comm, None)
            checked(self.cuda, "cuCtxSynchronize")
            used.append((before - self.free()) / 2**20)
        return dict(one_mib=round(used[0], 1), kept=count, kept_mib=round(used[-1], 1))


def one_rank(rank, options, barrier, raw_id, results):
    member, rounds, first, told = Rank(rank, options.ranks, barrier, raw_id), [], None, {}
    for number in range(options.rounds):
        rounds.append(member.round())
        if number + 1 == (options.rounds + 9) // 10:
            first = held(member.cuda)
    if first:
        last = held(member.cuda)
        told["growth"] = {name: round(last[name] - first[name], 1) for name in last}
    told |= member.keep(options.keep) if options.keep else {}
    results.put((rounds, told))
    barrier.wait()
    results.close()
    results.join_thread()


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--ranks", type=int, required=True)
    p.add_argument("--rounds", type=int, default=4)
    p.add_argument("--keep", type=int, default=0)
    options = p.parse_args()
    context = multiprocessing.get_context("fork")
    barrier, raw_id, results = context.Barrier(options.ranks), context.Array("B", 128, lock=False), context.Queue()
    ranks = [context.Process(target=one_rank, args=(r, options, barrier, raw_id, results)) for r in range(options.ranks)]
    for process in ranks:
        process.start()
    found = []
    while len(found) < options.ranks:
        try:
            found.append(results.get(timeout=0.5))
        except Exception:  # noqa: BLE001 - queue.Empty: look whether a rank has failed
            if any(process.exitcode for process in ranks):
                barrier.abort()
                return 1
    for process in ranks:
        process.join()
    # A round ends with its slowest rank; the first also loads the libraries' kernels.
    rounds = list(zip(*(of_rank for of_rank, _ in found)))
    slowest = [max(made_in for made_in, _, _ in of_round) for of_round in rounds]
    timed = dict(first_s=round(slowest[0], 4), init_s=round(statistics.median(slowest[1:] or slowest), 4),
                 destroy_s=round(statistics.median(r[1] for of_round in rounds for r in of_round), 4),
                 bytes=max(r[2] for of_round in rounds for r in of_round)) if rounds else {}
    print(json.dumps(dict(record="setup", ranks=options.ranks, preload=os.environ.get("LD_PRELOAD", ""), rounds=options.rounds, **timed, **found[0][1])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
