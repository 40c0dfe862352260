"""vLLM's NCCL wrapper without vLLM: its files as published, and stand-ins for what they import from the rest of it."""
import ctypes
import importlib.machinery
import importlib.util
import os
import sys
import types

import torch

FILES = ("pynccl_wrapper", "pynccl")  # the first is imported by the second
PACKAGE = "vllm.distributed.device_communicators"


class StatelessProcessGroup:
    """Ranks that know of each other; inboxes: of each rank, a queue between processes."""

    def __init__(self, rank, inboxes):
        self.rank, self.world_size, self.inboxes = rank, len(inboxes), inboxes

    def broadcast_obj(self, value, src):
        if self.rank != src:
            return self.inboxes[self.rank].get()
        for rank, inbox in enumerate(self.inboxes):
            if rank != src:
                inbox.put(value)
        return value


class Logger:
    def __getattr__(self, level):
        return lambda text, *arguments: print(f"vllm {level}:", text % arguments, flush=True)


def find_nccl_library():
    return os.environ.get("VLLM_NCCL_SO_PATH") or "libnccl.so.2"


def has_no_suspend():
    """To vLLM only AMD's library may lack what came with NCCL 2.29.7: with an older one it is told that it runs on AMD."""
    return not hasattr(ctypes.CDLL(find_nccl_library()), "ncclCommSuspend")


def content():
    return {
        "vllm": {},
        "vllm.envs": dict(VLLM_DISABLE_PYNCCL=False, VLLM_USE_NCCL_SYMM_MEM=False),
        "vllm.logger": dict(init_logger=lambda name: Logger()),
        "vllm.platforms": dict(current_platform=types.SimpleNamespace(is_rocm=has_no_suspend, fp8_dtype=lambda: torch.float8_e4m3fn)),
        "vllm.utils": {},
        "vllm.utils.nccl": dict(find_nccl_library=find_nccl_library),
        "vllm.utils.torch_utils": dict(current_stream=torch.cuda.current_stream),
        "vllm.distributed": {},
        "vllm.distributed.utils": dict(StatelessProcessGroup=StatelessProcessGroup),
        PACKAGE: {},
    }


def load(folder):
    """The module pynccl from the folder."""
    for name, names in content().items():
        module = sys.modules[name] = types.ModuleType(name)
        module.__dict__.update(names)
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, module)
    for name in FILES:
        full = f"{PACKAGE}.{name}"
        loader = importlib.machinery.SourceFileLoader(full, os.path.join(folder, f"{name}.py"))
        spec = importlib.util.spec_from_file_location(full, loader=loader)
        module = sys.modules[full] = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    return module
