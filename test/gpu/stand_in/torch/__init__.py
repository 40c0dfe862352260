"""What vLLM's NCCL wrapper and test/gpu/vllm_*.py use of PyTorch, over the driver of the emulated box: tensors of one dimension."""
import ctypes
import struct

from . import accelerator, cuda, distributed, driver


class dtype:
    def __init__(self, name, itemsize, code=None):
        self.name, self.itemsize, self.code = name, itemsize, code

    def __repr__(self):
        return f"torch.{self.name}"

    def pack(self, values):
        if self.name == "bfloat16":  # the upper half of a float
            return b"".join(struct.pack("<f", v)[2:] for v in values)
        return struct.pack(f"<{len(values)}{self.code}", *values)


int8, uint8 = dtype("int8", 1, "b"), dtype("uint8", 1, "B")
int32, int64 = dtype("int32", 4, "i"), dtype("int64", 8, "q")
float16, float32, float64, bfloat16 = dtype("float16", 2, "e"), dtype("float32", 4, "f"), dtype("float64", 8, "d"), dtype("bfloat16", 2)
float8_e4m3fn, float8_e5m2 = dtype("float8_e4m3fn", 1), dtype("float8_e5m2", 1)
float8_e4m3fnuz, float8_e5m2fnuz = dtype("float8_e4m3fnuz", 1), dtype("float8_e5m2fnuz", 1)


class device:
    def __init__(self, name, index=None):
        self.type, _, number = name.partition(":")
        self.index = int(number) if number else index

    def __eq__(self, other):
        return (self.type, self.index) == (other.type, other.index)

    def __repr__(self):
        return f"{self.type}:{self.index}"


HOST = device("cpu")


class Tensor:
    """`memory` is of driver.Memory, or a bytearray on the host."""

    def __init__(self, kind, where, memory, begin, count):
        self.dtype, self.device, self.memory, self.begin, self.shape = kind, where, memory, begin, (count,)

    def numel(self):
        return self.shape[0]

    def element_size(self):
        return self.dtype.itemsize

    def size(self):
        return self.numel() * self.dtype.itemsize

    def data_ptr(self):
        if not self.numel():
            return 0
        if self.device == HOST:
            return ctypes.addressof(ctypes.c_char.from_buffer(self.memory)) + self.begin
        return self.memory.address.value + self.begin

    def __getitem__(self, key):
        first, last, _ = (key[0] if isinstance(key, tuple) else key).indices(self.numel())
        return Tensor(self.dtype, self.device, self.memory, self.begin + first * self.dtype.itemsize, max(0, last - first))

    def repeat(self, times):
        return Tensor(self.dtype, HOST, self.to(HOST).memory * times, 0, self.numel() * times).to(self.device)

    def copy_(self, source):
        assert source.dtype is self.dtype and source.shape == self.shape
        if self.size():
            way = "".join("H" if tensor.device == HOST else "D" for tensor in (source, self))
            stream = cuda.current_stream()
            driver.call(f"cuMemcpy{way[0]}to{way[1]}Async_v2", ctypes.c_void_p(self.data_ptr()), ctypes.c_void_p(source.data_ptr()),
                        ctypes.c_size_t(self.size()), stream.handle)
            if "H" in way:
                stream.synchronize()
        return self

    def to(self, where):
        return self if where == self.device else empty(self.numel(), self.dtype, where).copy_(self)


def empty(count, dtype=float32, device=HOST):
    size = count * dtype.itemsize
    return Tensor(dtype, device, bytearray(size) if device == HOST else driver.Memory(device.index, size), 0, count)


def empty_like(tensor):
    return empty(tensor.numel(), tensor.dtype, tensor.device)


def tensor(values, dtype, device):
    return Tensor(dtype, HOST, bytearray(dtype.pack(values)), 0, len(values)).to(device)


def zeros(count, device):
    return empty(count, device=device).copy_(empty(count))


def equal(a, b):
    """Bit by bit."""
    return a.dtype is b.dtype and a.to(HOST).memory == b.to(HOST).memory
