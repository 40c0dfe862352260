#!/usr/bin/env python3
"""boxes_test.py - what Beeline makes of each machine in test/emu/boxes: links, class, whether it serves, by which thresholds."""
import ctypes
import json
import os
import subprocess
import sys

BUILD, TMP = os.environ["BUILD"], os.environ["TEST_TMP"]
MEASURED, CAREFUL = "NVIDIA H200", "any GPU"

# Class, NVLinks of a GPU, how GPUs 0 and 1, and 0 and the last, are joined, NUMA nodes of the first and the last, and the thresholds
# of all GPUs together (or why NCCL serves them).
EXPECTED = {
    "bridge-2": ("nvlink", 4, "nvlink", "nvlink", 0, 0, CAREFUL),
    "dgx-1v": ("none", 6, "nvlink", "none", 0, 1, "the GPU is sm_70"),
    "dgx-a100": ("nvswitch", 12, "nvswitch", "nvswitch", 3, 5, CAREFUL),
    "dgx-h100": ("nvswitch", 18, "nvswitch", "nvswitch", 0, 1, CAREFUL),
    "gb200": ("nvswitch", 18, "nvswitch", "nvswitch", 0, 1, CAREFUL),
    "hgx-a100-4": ("nvlink", 12, "nvlink", "nvlink", 0, 1, CAREFUL),
    "hgx-b200-8": ("nvswitch", 18, "nvswitch", "nvswitch", 0, 1, CAREFUL),
    "hgx-h200-4": ("nvlink", 18, "nvlink", "nvlink", 0, 1, CAREFUL),
    "hgx-h200-8": ("nvswitch", 18, "nvswitch", "nvswitch", 0, 1, CAREFUL),
    "mig": ("none", 0, "none", "none", 0, 0, "MIG instance"),
    "nvl-pairs": ("partial", 12, "nvlink", "pcie-socket", 0, 1, "NVLink joins only some"),
    "pcie-sockets": ("pcie-socket", 0, "pcie-host", "pcie-socket", 0, 1, "no NVLink"),
    "pcie-switch": ("pcie-switch", 0, "pcie-switch", "pcie-switch", 0, 0, "no NVLink"),
}


def look(name, warned=None, **env):
    """What beelineBox says there; with a warning, or none."""
    command = ["scripts/emu-box", "--box", name, "--", sys.executable, __file__, "show"]
    done = subprocess.run(command, env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    check(done.returncode == 0 and (warned in done.stderr if warned else "WARN" not in done.stderr), done.returncode, done.stderr)
    return json.loads(done.stdout)


def check(condition, *words):
    if not condition:
        sys.exit(" ".join(map(str, words)))


def source(box, ranks):
    """Where the thresholds of the first so many GPUs come from, or why NCCL serves them."""
    rows = [row for row in box["routes"] if row["ranks"] == ranks]
    check(len(rows) == 7, ranks, "ranks have", rows)
    served = any(row["ranges"] != "0.. nccl" for row in rows)
    check(served == (not box["not_served"]) or "lacks" in str(box), box)
    return rows[0]["source"]


def each_box():
    names = {file[:-4] for file in os.listdir("test/emu/boxes")}
    check(names == set(EXPECTED), "boxes without an expectation, or without a file:", names ^ set(EXPECTED))
    if look("pcie-switch")["sources"]["hwloc"][:1] != "2":
        print("hwloc is not installed")
        sys.exit(77)
    for name, (kind, nvlinks, near, far, first, last, thresholds) in EXPECTED.items():
        box = look(name)
        gpus = box["gpus"]
        check(box["class"] == kind, name, "is", box["class"])
        check({gpu["nvlinks"] for gpu in gpus} == {nvlinks}, name, gpus)
        check(box["links"][0][1] == near and box["links"][0][-1] == far, name, box["links"])
        check(all(box["links"][a][b] == box["links"][b][a] for a in range(len(gpus)) for b in range(len(gpus))), name, box["links"])
        check((gpus[0]["numa"], gpus[-1]["numa"]) == (first, last), name, gpus)
        check(box["sources"]["nvml"] == "ok" and box["sources"]["hwloc"][0] == "2", name, box["sources"])
        check(thresholds in source(box, len(gpus)), name, source(box, len(gpus)))
        print(name, box.get("fingerprint"), source(box, len(gpus)))


def details():
    box = look("hgx-h200-8", NCCL_NVLS_ENABLE="0")
    check(source(box, 4) == "built-in: NVIDIA H200, 4 ranks", box["routes"])
    check(box["fingerprint"] == 'gpu "NVIDIA H200" arch 90 link nvswitch nvlinks 18 nccl plain', box["fingerprint"])
    check(look("hgx-h200-8")["fingerprint"].endswith("nccl nvls"), "NCCL may use NVLS")
    check(look("hgx-h200-8", NCCL_NVLS_ENABLE="off")["fingerprint"].endswith("nccl plain"), "what is no number is 0 to NCCL")
    box = look("nvl-pairs")
    check(CAREFUL in source(box, 2), "a pair with a bridge is served:", box["routes"])
    check(box["gpus"][0]["switch"] == box["gpus"][1]["switch"] != box["gpus"][2]["switch"], box["gpus"])
    check(look("pcie-sockets")["gpus"][0]["switch"] is None, "no switch")
    box = look("dgx-a100", BEELINE_EMU_NVML="0")
    check("nvmlInit" in box["sources"]["nvml"] and box["class"] == "nvlink" and box["gpus"][0]["nvlinks"] is None, box)
    check("nvlinks" not in box["fingerprint"], box["fingerprint"])
    box = look("pcie-switch", BEELINE_EMU_NVML="0")
    check(box["class"] == "pcie-switch", "hwloc alone:", box["class"])
    box = look("hgx-h200-8", CUDA_VISIBLE_DEVICES="2,3")
    check([gpu["pci"].lower() for gpu in box["gpus"]] == ["0000:52:00.0", "0000:61:00.0"] and len(box["routes"]) == 7, box)
    box = look("hgx-h200-8", CUDA_VISIBLE_DEVICES="")
    check(box["gpus"] == [] and box["routes"] == [] and box["driver"] is not None, box)


def files():
    """Tuning files are found in folders, in their order; one with a mistake is passed over with a word."""
    def put(folder, text):
        os.makedirs(f"{TMP}/{folder}/beeline", exist_ok=True)
        with open(f"{TMP}/{folder}/beeline/beeline.tune", "w", encoding="ascii") as file:
            file.write(text)

    def found(words, **env):
        for ranges, end in zip((row["ranges"] for row in look("dgx-h100", **env)["routes"]), words):
            check(ranges == end, ranges, "is not", end)

    folders = dict(XDG_CONFIG_HOME=f"{TMP}/config", XDG_CACHE_HOME=f"{TMP}/cache")
    put("cache", "gpu any\nall_reduce 2 3K oneshot_ll\nall_reduce 2 max nccl\n")
    found(["0..3K oneshot_ll | .. nccl"], **folders)
    found(["0..3K oneshot_ll | .. nccl"], HOME=f"{TMP}/home", XDG_CACHE_HOME=f"{TMP}/cache")
    put("config", "gpu any\nall_reduce 2 5K oneshot_ll\nall_reduce 2 max nccl\n")
    found(["0..5K oneshot_ll | .. nccl"], **folders)
    asked = f"{TMP}/asked.tune"
    with open(asked, "w", encoding="ascii") as file:
        file.write('gpu "NVIDIA H100 80GB HBM3" arch 90 link nvswitch nvlinks 18 nccl nvls\nall_reduce 2 7K oneshot_ll\nall_reduce 2 max nccl\n')
    found(["0..7K oneshot_ll | .. nccl"], BEELINE_TUNING_FILE=asked, **folders)
    found(["0..5K oneshot_ll | .. nccl"], BEELINE_TUNING_FILE=asked, NCCL_NVLS_ENABLE="0", warned="has no section for this box, which is: gpu", **folders)
    careful = ["0..8K oneshot_ll | ..128K oneshot_ll128 | ..512K twoshot_ll128 | .. nccl"]
    found(careful, BEELINE_TUNING_FILE="built-in", **folders)
    found(careful, BEELINE_TUNING_FILE=TMP, XDG_CONFIG_HOME="", XDG_CACHE_HOME="", HOME="", warned=f"BEELINE_TUNING_FILE={TMP} cannot be read: not a file")
    os.unlink(f"{TMP}/config/beeline/beeline.tune")
    os.mkfifo(f"{TMP}/config/beeline/beeline.tune")
    found(["0..3K oneshot_ll | .. nccl"], **folders)  # not waited for, and no word at this level
    os.unlink(f"{TMP}/config/beeline/beeline.tune")
    put("config", "gpu any\nall_reduce 2 5K oneshot_ll\nall_reduce 2 6K onshot_ll\n")
    found(["0..3K oneshot_ll | .. nccl"], warned="beeline.tune:3: 'onshot_ll' is not accepted here", **folders)


def show():
    library = ctypes.CDLL(os.path.abspath(f"{BUILD}/libbeeline.so"))
    length = library.beelineBox(None, 0)
    text = ctypes.create_string_buffer(length + 1)
    check(library.beelineBox(text, length + 1) == length and len(text.value) == length, "another length")
    short = ctypes.create_string_buffer(20)
    check(library.beelineBox(short, 20) == length and short.value == text.value[:19], "not cut")
    print(text.value.decode())


if sys.argv[1:] == ["show"]:
    show()
else:
    each_box()
    details()
    files()
