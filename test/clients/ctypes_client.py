#!/usr/bin/env python3
"""ctypes_client.py LIBRARY - the job of client.h from Python, as vLLM's pynccl and CuPy reach NCCL."""

import ctypes
import sys

GPUS, COUNT, OPT_OUT_COUNT = 2, 1000, 1001
STREAM_LEGACY = 1
FLOAT, SUM = 7, 0


def check(result, function, arguments):
    if result:
        sys.exit("%s: %d" % (function.__name__, result))


def functions(library, *names):
    for name in names:
        function = getattr(library, name)
        function.errcheck = check
        yield function


def main():
    cuda, nccl = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(sys.argv[1])
    void, size = ctypes.c_void_p, ctypes.c_size_t
    init, retain, current, alloc, to_device, to_host, create, wait = functions(
        cuda,
        "cuInit",
        "cuDevicePrimaryCtxRetain",
        "cuCtxSetCurrent",
        "cuMemAlloc_v2",
        "cuMemcpyHtoD_v2",
        "cuMemcpyDtoH_v2",
        "cuStreamCreate",
        "cuStreamSynchronize",
    )
    get_version, init_all, destroy = functions(nccl, "ncclGetVersion", "ncclCommInitAll", "ncclCommDestroy")
    init(0)
    version = ctypes.c_int()
    get_version(ctypes.byref(version))
    print("version", version.value)
    contexts = [void() for _ in range(GPUS)]
    streams = [void() for _ in range(GPUS)]
    buffers = [[void(), void()] for _ in range(GPUS)]
    for gpu in range(GPUS):
        retain(ctypes.byref(contexts[gpu]), gpu)
        current(contexts[gpu])
        for buffer in buffers[gpu]:
            alloc(ctypes.byref(buffer), size(4 * OPT_OUT_COUNT))
        create(ctypes.byref(streams[gpu]), 1)
    comms = (void * GPUS)()
    init_all(comms, GPUS, None)
    for prefix, count in (("nccl", COUNT), ("pnccl", OPT_OUT_COUNT)):
        start, end, all_reduce = functions(nccl, prefix + "GroupStart", prefix + "GroupEnd", prefix + "AllReduce")
        values = ctypes.c_float * count
        for gpu in range(GPUS):
            current(contexts[gpu])
            to_device(buffers[gpu][0], values(*(i * (gpu + 1) for i in range(count))), size(4 * count))
            wait(void(STREAM_LEGACY))  # a copy from pageable memory may return before it is done
        start()
        for gpu in range(GPUS):
            all_reduce(buffers[gpu][0], buffers[gpu][1], size(count), FLOAT, SUM, void(comms[gpu]), streams[gpu])
        end()
        for gpu in range(GPUS):
            current(contexts[gpu])
            wait(streams[gpu])
            host = values()
            to_host(host, buffers[gpu][1], size(4 * count))
            if list(host) != [3.0 * i for i in range(count)]:
                sys.exit("rank %d: the sum of %d is wrong" % (gpu, count))
    start, end = functions(nccl, "ncclGroupStart", "ncclGroupEnd")
    start()
    for comm in comms:
        destroy(void(comm))
    end()
    print("sums are right")


if __name__ == "__main__":
    main()
