"""The emulated driver, by ctypes: calls that raise, and the devices' primary contexts."""
import contextlib
import ctypes

CUDA = ctypes.CDLL("libcuda.so.1")
contexts = {}


def call(name, *arguments):
    result = getattr(CUDA, name)(*arguments)
    if result:
        raise RuntimeError(f"{name}: error {result}")


def made(name, *arguments, kind=ctypes.c_void_p):
    """What the call leaves behind its first argument."""
    out = kind()
    call(name, ctypes.byref(out), *arguments)
    return out


def context(index):
    if index not in contexts:
        call("cuInit", 0)
        contexts[index] = made("cuDevicePrimaryCtxRetain", index)
    return contexts[index]


@contextlib.contextmanager
def current(index):
    call("cuCtxPushCurrent_v2", context(index))
    try:
        yield
    finally:
        made("cuCtxPopCurrent_v2")


class Memory:
    """Device memory, or none for no bytes."""

    def __init__(self, index, size):
        self.index, self.address = index, ctypes.c_uint64()
        if size:
            with current(index):
                self.address = made("cuMemAlloc_v2", ctypes.c_size_t(size), kind=ctypes.c_uint64)

    def __del__(self):
        if self.address:
            with current(self.index):
                call("cuMemFree_v2", self.address)
