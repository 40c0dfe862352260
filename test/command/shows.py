"""What the command shows: help, completion, the man page, boxes."""
import glob
import json
import os
import pty
import re
import select
import shutil
import subprocess
import time

import boxes
from support import BEELINE, LIBRARY, ROOT, Skip, beeline, box, check, environment, refused, run

COMMANDS = ("run", "info", "check", "tune", "perf", "plot", "completion")


def usage(_):
    """Help without a library and without a box; what is not accepted in one line."""
    shown = beeline("--help").stdout
    check(all(re.search(f"^    {name}", shown, re.M) for name in COMMANDS) and beeline().stdout == shown, shown)
    with open(os.path.join(ROOT, "VERSION"), encoding="utf-8") as file:
        check(beeline("--version").stdout == f"beeline {file.read()}", "the version")
    for name in COMMANDS:
        done = beeline(name, "--help")
        check(f"usage: beeline{'-perf' if name == 'perf' else ' ' + name} " in done.stdout, done.stdout)
    refused("inof is no command; the nearest is info", "inof")
    refused("check: unrecognized arguments: --no-such", "check", "--no-such")
    refused("--nope", "--nope")
    refused("fish", "completion", "fish")
    module = run("python3", "-m", "beeline", "--version", cwd="/", env={"PYTHONPATH": os.path.join(ROOT, "scripts")})
    check(module.stdout.startswith("beeline "), module.stdout)


def man(_):
    """The page has every option of every command."""
    from beeline import __main__, completion  # pylint: disable=import-outside-toplevel
    with open(os.path.join(ROOT, "docs", "man", "beeline.1"), encoding="utf-8") as file:
        page = file.read().replace("\\-", "-")
    for name, parser in __main__.make_parser().commands.items():
        lacking = [option for option in completion.options_of(parser) if not re.search(rf"(?<![\w-]){re.escape(option)}\b", page)]
        check(f".B {name}" in page and not lacking, f"{name}: not in the man page: {lacking}")


def completes(*words):
    """What bash would offer for the last word."""
    script = 'eval "$("$0" completion bash)"; COMP_WORDS=(beeline "$@"); COMP_CWORD=$#; _beeline; printf "%s\\n" "${COMPREPLY[@]}"'
    return run("bash", "-c", script, BEELINE, *words).stdout.split()


def completion(_):
    check(completes("in") == ["info"] and set(COMMANDS) <= set(completes("")), completes(""))
    check(completes("info", "--f") == ["--from"] and completes("plot", "--fo") == ["--format"], "options")
    check(completes("perf", "--coll") == ["--collectives"] and completes("completion", "z") == ["zsh"], "beeline-perf's options")
    check("true" in completes("run", "tru") and completes("run", "--r") == ["--report"] and "true" in completes("run", "--report", "tru"), "commands")
    check(not completes("run", "true", "--r") and not completes("run", "--", "true", "in"), "run's options are offered for the words of its command")


def completion_zsh(folder):
    """As somebody types it."""
    if not shutil.which("zsh"):
        raise Skip("no zsh here")
    ours, theirs = pty.openpty()
    where = {"TERM": "dumb", "PATH": f"{os.path.dirname(BEELINE)}:{os.environ['PATH']}"}
    shell = subprocess.Popen(["zsh", "-f", "-i"], stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=environment(where), start_new_session=True)
    os.close(theirs)

    def typed(keys, want):
        """Until it is there, or for 30 s."""
        os.write(ours, keys.encode())
        said, deadline = "", time.monotonic() + 30
        while want not in said and time.monotonic() < deadline and select.select([ours], [], [], 30)[0]:
            said += os.read(ours, 4096).decode(errors="replace").replace("\r", "")
        check(want in said, f"{keys!r}: want {want!r} in {said!r}")
    try:
        typed('bindkey -e; PS1= PS2=; unsetopt promptsp; autoload -U compinit; compinit -D -u; eval "$(beeline completion zsh)"; echo all""there\n', "allthere")
        for line, want in (("beeline inf", "beeline info"), ("beeline tune --coll", "beeline tune --collectives"), ("beeline perf --coll", "beeline perf --collectives"),
                           ("beeline run --rep", "beeline run --report"), ("beeline run --report /bin/ech", "beeline run --report /bin/echo"),
                           ("beeline run echo --rep", "beeline run echo --rep"), ("beeline completion z", "beeline completion zsh")):
            typed(f"{line}\t\x01print -r -- '[\x05]'\n", f"\n[{want}]")  # what the line has become, as an argument
    finally:
        shell.kill()
        shell.wait()
        os.close(ours)


def drawn(name):
    from beeline import info as infos  # pylint: disable=import-outside-toplevel
    return "\n".join(infos.draw(boxes.BOXES[name]()))


def info(folder):
    """Boxes of every kind within 80 columns."""
    for name in boxes.BOXES:
        text = drawn(name)
        check(max(map(len, text.splitlines())) <= 80 and "None" not in text, text)
    eight = drawn("h200-8")
    for line in ("8 x NVIDIA H200: NVSwitch, all to all", "NUMA      0             |   1", "GPU 4    NV  NV  NV  NV |   .  NV  NV  NV", "  7  0000:40:00.0     1  140  sm_90  18 x v4, switch  132             3",
                 "      2-4 ranks  0..16K oneshot_ll | ..64K oneshot_ll128 | ..24M twoshot_ll128 |", "  multicast: BEELINE_MULTICAST is not set", "NCCL 2.28.9, /usr/lib/libnccl.so.2; NVLS off (NCCL_NVLS_ENABLE=0)"):
        check(line in eight.splitlines(), f"no line {line!r}\n{eight}")
    check(drawn("h200-16").count("GPU ") >= 17 and "GPU 15   NV" in drawn("h200-16"), drawn("h200-16"))
    mixed = drawn("pcie")
    for line in ("2 x NVIDIA L40S, 2 x NVIDIA RTX PRO 6000 Blackwell Server Edition: PCIe", "left to NCCL: no NVLink with peer access between all ranks", "GPU 2   SYS PHB |   . |   ?", "  3  0000:20:00.0     ?    ?  MIG, confidential"):
        check(line in mixed.splitlines(), f"no line {line!r}\n{mixed}")
    empty = drawn("none")
    check("no GPU" in empty and "driver: libcuda.so.1 cannot be opened" in empty and "NCCL: none was found" in empty, empty)
    stored = os.path.join(folder, "box.json")
    with open(stored, "w", encoding="utf-8") as file:
        json.dump(boxes.BOXES["h200-2"](), file)
    check(beeline("info", "--from", stored).stdout == drawn("h200-2") + "\n", "another drawing")
    check(json.loads(beeline("info", "--json", "--from", stored).stdout) == boxes.BOXES["h200-2"](), "--json changes what it is given")
    # Whatever is not known is null.
    bare = {"gpus": [{"ordinal": 0}, {"ordinal": 1}], "links": [["self", "unknown"], ["unknown", "self"]], "routes": [{"collective": "reduce", "ranks": 2}]}
    check("GPU 0     .   ?" in beeline("info", "--from", "-", input=json.dumps(bare)).stdout, "a box of which little is known")
    refused("/nonexistent: No such file", "info", "--from", "/nonexistent")
    refused("is not JSON", "info", "--from", "/etc/hostname")
    refused("standard input is no box", "info", "--from", "-", input="[]")
    for odd in ({"gpus": [1]}, {"gpus": [{"name": "x", "memory": "much"}]}, {"gpus": [], "routes": 3}, {"gpus": [], "routes": [{"ranks": "2"}]}, {"gpus": [], "nccl": "2.28"}, {"gpus": [], "off": 7}):
        refused("- is no box: ", "info", "--from", "-", input=json.dumps(odd))


def info_here(_):
    """The library's own answer, with GPUs and without; of each stored machine a drawing within 80 columns."""
    here = json.loads(box(3, BEELINE, "info", "--json").stdout)
    check(len(here["gpus"]) == 3 and len(here["links"]) == 3 and "version" in here, here)
    check("to GPU    0   1   2" in box(3, BEELINE, "info").stdout, "it is not drawn")
    here = json.loads(box(2, BEELINE, "info", "--json", env={"BEELINE_BATCH_INVARIANT": "1"}).stdout)
    for route in here["routes"]:
        reduces = "reduce" in route["collective"]
        check(("1024G" in route["ranges"]) == reduces == route["source"].endswith("; BEELINE_BATCH_INVARIANT=1"), route)
    for path in sorted(glob.glob(os.path.join(ROOT, "test", "emu", "boxes", "*.box"))):
        text = box(1, BEELINE, "info", path=path).stdout
        here = json.loads(box(1, BEELINE, "info", "--json", path=path).stdout)
        check(max(map(len, text.splitlines())) <= 80 and f": {here['class_text']}\n" in text and "?" not in text, f"{path}\n{text}")
    done = beeline("info", env={"BEELINE_LIBRARY": LIBRARY})
    check("Beeline " in done.stdout, done.stdout)
