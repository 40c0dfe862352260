"""Boxes as `beeline info --json` prints them: of NVSwitch, bridges, PCIe, none; for the cases of this folder.

  boxes.py NAME     prints one
"""
import json
import sys

RANGES = {"all_reduce": "0..16K oneshot_ll | ..64K oneshot_ll128 | ..24M twoshot_ll128 | .. nccl", "all_gather": "0..8M allgather_ll128 | .. nccl",
          "reduce_scatter": "0..4M reducescatter_ll128 | .. nccl", "all_to_all": "0..8M alltoall_ll128 | .. nccl", "broadcast": "0..1M broadcast_ll128 | .. nccl",
          "reduce": "0..1M reduce_ll128 | .. nccl", "sendrecv": "0..1M sendrecv_ll128 | .. nccl"}


def gpu(i, name, nvlinks, numa, **more):
    return {"ordinal": i, "name": name, "uuid": f"GPU-{i:08x}", "pci": f"0000:{8 * (i + 1):02x}:00.0", "arch": 90, "sms": 132, "copy_engines": 3,
            "memory": 150754820096, "nvlinks": nvlinks, "nvlink_version": 4 if nvlinks else None, "nvswitch": nvlinks > 0, "mig": False, "confidential": False,
            "multicast": True, "fabric": False, "numa": numa, "package": numa, "switch": f"0000:{8 * (i + 1) - 1:02x}:00.0", **more}


def box(gpus, links, kind, text, source="built-in: NVIDIA H200, 2 ranks"):
    most = len(gpus)
    return {"version": "0.1.0", "build": "1a2b3c4d5e6f", "driver": {"cuda": "13.0", "version": "580.159.04"},
            "nccl": {"version": "2.28.9", "path": "/usr/lib/libnccl.so.2", "nvls": "off", "why": "NCCL_NVLS_ENABLE=0"},
            "sources": {"driver": "ok", "nvml": "ok", "hwloc": "2.9.0"}, "gpus": gpus, "links": links, "class": kind, "class_text": text,
            "fingerprint": f"{gpus[0]['name']}, sm_90, {kind} 18x4, nvls off" if gpus else None,
            "routes": [{"ranks": n, "collective": c, "ranges": ranges if n <= 4 else ranges.replace("..24M", "..2M"), "source": source}
                       for n in range(2, most + 1) for c, ranges in RANGES.items()],
            "off": ["multicast: BEELINE_MULTICAST is not set"]}


def nvswitch(n):
    links = [["self" if a == b else "nvlink" for b in range(n)] for a in range(n)]
    return box([gpu(i, "NVIDIA H200", 18, 2 * i // n) for i in range(n)], links, "nvswitch", "NVSwitch, all to all")


def pcie():
    """Four of two kinds; one does not say where it is."""
    kinds = [["self", "pcie-switch", "pcie-socket", "none"], ["pcie-switch", "self", "pcie-host", "pcie"],
             ["pcie-socket", "pcie-host", "self", "unknown"], ["none", "pcie", "unknown", "self"]]
    gpus = [gpu(i, "NVIDIA L40S" if i < 2 else "NVIDIA RTX PRO 6000 Blackwell Server Edition", 0, i // 2) for i in range(4)]
    gpus[3].update(numa=None, memory=None, mig=True, confidential=True, switch=None, lacks="a MIG instance, which has no P2P")
    return {**box(gpus, kinds, "pcie", "PCIe", None), "not_served": "no NVLink with peer access between all ranks"}


def none():
    empty = box([], [], None, None)
    return {**empty, "driver": None, "nccl": None, "sources": {"driver": "libcuda.so.1 cannot be opened", "nvml": "libnvidia-ml.so.1 cannot be opened", "hwloc": None}, "off": []}


BOXES = {"h200-2": lambda: nvswitch(2), "h200-4": lambda: nvswitch(4), "h200-8": lambda: nvswitch(8), "h200-16": lambda: nvswitch(16), "pcie": pcie, "none": none}

if __name__ == "__main__":
    print(json.dumps(BOXES[sys.argv[1]]()))
