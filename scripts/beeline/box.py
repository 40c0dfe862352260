"""The box as the library sees it: what beelineBox of libbeeline.so says, or a stored answer of it."""
import ctypes
import json
import os
import sys

from . import preload
from .words import Refused


def ask(path):
    """beelineBox's answer; opens the library in this process, and makes no CUDA context."""
    folder = preload.nccl_folder()
    if folder and not os.environ.get("BEELINE_NCCL_PATH"):
        os.environ["BEELINE_NCCL_PATH"] = os.path.join(folder, "libnccl.so.2")
    try:
        function = ctypes.CDLL(path).beelineBox
    except AttributeError:
        raise Refused(f"{path} is of another version than this command: it has no beelineBox", 1) from None
    function.argtypes, function.restype = [ctypes.c_char_p, ctypes.c_size_t], ctypes.c_int
    size = 1 << 16
    while True:
        text = ctypes.create_string_buffer(size)
        length = function(text, size)
        if length < 0:
            raise Refused("the library could not look at this box", 1)
        if length < size:
            return parse(text.value.decode("utf-8", "replace"), "beelineBox")
        size = length + 1


def parse(text, where):
    try:
        box = json.loads(text)
    except ValueError as error:
        raise Refused(f"{where} is not JSON: {error}") from error
    if not isinstance(box, dict) or not isinstance(box.get("gpus"), list):
        raise Refused(f"{where} is no box: want what `beeline info --json` prints")
    return box


def load(path):
    try:
        if path == "-":
            return parse(sys.stdin.read(), "standard input")
        with open(path, encoding="utf-8") as file:
            return parse(file.read(), path)
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def here():
    return ask(preload.find_library())
