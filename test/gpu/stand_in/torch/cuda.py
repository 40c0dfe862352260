"""torch.cuda: streams, events and graphs."""
import contextlib
import ctypes
import threading

from . import driver

NON_BLOCKING, CAPTURE_GLOBAL = 1, 0
of_thread = threading.local()


class Stream:
    def __init__(self, handle=None):
        self.handle = driver.made("cuStreamCreate", NON_BLOCKING) if handle is None else ctypes.c_void_p(handle)
        self.cuda_stream = self.handle.value or 0

    def synchronize(self):
        driver.call("cuStreamSynchronize", self.handle)

    def __del__(self):
        if self.handle:
            driver.call("cuStreamDestroy_v2", self.handle)


class Event:
    def __init__(self, enable_timing):
        assert enable_timing
        self.handle = driver.made("cuEventCreate", 0)

    def record(self):
        driver.call("cuEventRecord", self.handle, current_stream().handle)

    def elapsed_time(self, end):
        return driver.made("cuEventElapsedTime_v2", self.handle, end.handle, kind=ctypes.c_float).value

    def __del__(self):
        driver.call("cuEventDestroy_v2", self.handle)


def current_stream():
    return getattr(of_thread, "stream", None) or Stream(0)


@contextlib.contextmanager
def stream(chosen):
    before, of_thread.stream = current_stream(), chosen
    try:
        yield
    finally:
        of_thread.stream = before


def set_device(device):
    driver.call("cuCtxSetCurrent", driver.context(device.index))


def synchronize():
    driver.call("cuCtxSynchronize")


class CUDAGraph:
    instance = None

    def replay(self):
        driver.call("cuGraphLaunch", self.instance, current_stream().handle)

    def reset(self):
        driver.call("cuGraphExecDestroy", self.instance)


chosen_stream = stream


@contextlib.contextmanager
def graph(to_fill, stream):
    synchronize()
    with chosen_stream(stream):
        driver.call("cuStreamBeginCapture_v2", stream.handle, CAPTURE_GLOBAL)
        yield
        captured = ctypes.c_void_p()
        driver.call("cuStreamEndCapture", stream.handle, ctypes.byref(captured))
    to_fill.instance = driver.made("cuGraphInstantiateWithFlags", captured, ctypes.c_uint64(0))
    driver.call("cuGraphDestroy", captured)
