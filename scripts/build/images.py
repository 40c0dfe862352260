"""What a fatbin holds: PTX and cubins by architecture, and the code of a cubin's kernels."""
import ctypes
import struct

FATBIN_MAGIC = 0xBA55ED50
PTX, ELF = 1, 2  # kinds of entries
# Of an entry: kind, its header's bytes, bytes of the payload with padding, of the compressed payload, architecture, flags, of
# the payload when decompressed.
ENTRY = struct.Struct("<H2xIQI8xI8xQ8xQ")
LZ4 = 0x2000  # a flag: as nvFatbin compresses PTX; nvcc does by zstd
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
INSTRUCTION = 16  # bytes, of sm_70 and later


class Unreadable(Exception):
    """A file that is not what it should be."""


def decompress(data, size):
    name = "libzstd.so.1" if data.startswith(ZSTD_MAGIC) else "liblz4.so.1"  # gcc and apt use them, too
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise Unreadable(f"this compressed fatbin needs {name}: {error}") from error
    out = ctypes.create_string_buffer(size)
    if data.startswith(ZSTD_MAGIC):
        library.ZSTD_decompress.restype = ctypes.c_size_t
        done = library.ZSTD_decompress(out, ctypes.c_size_t(size), data, ctypes.c_size_t(len(data)))
    else:
        done = library.LZ4_decompress_safe(data, out, len(data), size)
    if done != size:
        raise Unreadable(f"{name} gave {done} of {size} bytes")
    return out.raw


def entries(path):
    """(kind, architecture, bytes) of each entry of a fatbin."""
    with open(path, "rb") as file:
        data = file.read()
    at = 0
    while at + 16 <= len(data):
        magic, _, header, size = struct.unpack_from("<IHHQ", data, at)
        if magic != FATBIN_MAGIC:
            raise Unreadable(f"{path}: no fatbin at byte {at}")
        at += header
        end = at + size
        while at < end:
            kind, header, padded, compressed, arch, flags, whole = ENTRY.unpack_from(data, at)
            body = data[at + header:at + header + padded]
            if body.startswith(ZSTD_MAGIC) or flags & LZ4:
                body = decompress(body[:compressed], whole)
            yield kind, arch, body
            at += header + padded


def kernels(cubin):
    """Of each kernel of a cubin its instructions, as pairs of 64-bit words."""
    if not cubin.startswith(b"\x7fELF"):
        raise Unreadable("not an ELF file")
    table, = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", cubin, table + i * size) for i in range(count)]
    strings = sections[names][4]
    found = {}
    for name, _, _, _, offset, length in sections:
        title = cubin[strings + name:cubin.index(b"\0", strings + name)].decode()
        if title.startswith(".text."):
            found[title[6:]] = [struct.unpack_from("<QQ", cubin, offset + at) for at in range(0, length, INSTRUCTION)]
    return found
