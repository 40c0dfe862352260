"""What people get: make install and uninstall, the wheel, and a build on a machine without a CUDA toolkit."""

import base64
import glob
import hashlib
import importlib.util
import os
import platform
import re
import stat
import sys
import zipfile

from support import BEELINE, BUILD, HERE, ROOT, Skip, check, client, emulated_only, read

FAKE_NVCC = '#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho fake >"$2"\n'
FAKE_ID = "#!/bin/sh\necho 1000\n"  # nobody who may install packages
WITHOUT_PIP = '#!/bin/sh\nexec %s -S "$@"\n' % sys.executable


def write(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, mode)


def files_below(folder):
    return {os.path.relpath(os.path.join(path, name), folder) for path, _, names in os.walk(folder) for name in names}


def make(case, *arguments, env=(), **options):
    """As a user types it: what stands around this test says nothing."""
    clean = [word for name in ("MAKEFLAGS", "MFLAGS", "CUDA_HOME", "NVCC", "NCCL_HOME", "PYTHON", "FOR_TESTS", "ARCHS", "NVCCFLAGS", "SAMPLE") for word in ("-u", name)]
    return case.run(["env", *clean, "make", "--no-print-directory", *arguments], env, cwd=ROOT, **options)


def need_pip():
    if not importlib.util.find_spec("pip"):
        raise Skip("no pip")


# --- make install ---

def installed(case):
    """make install puts all of it below DESTDIR and PREFIX, where it works; make uninstall takes away that alone."""
    stage = case.path("stage")
    prefix = stage + "/opt/beeline"
    where = ["-o", "all", "-o", "whole", "BUILD=" + BUILD, "DESTDIR=" + stage, "PREFIX=/opt/beeline"]
    make(case, "install", *where)
    pages = [page[len(ROOT) + 1:] for folder in ("docs", "docs/benchmarks") for page in glob.glob("%s/%s/*.*" % (ROOT, folder))]
    pages += ["README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md"]
    modules = [path[len(ROOT + "/scripts/beeline/"):] for folder in ("", "tuning/") for path in glob.glob("%s/scripts/beeline/%s*.py" % (ROOT, folder))]
    modules += ["tuning/" + os.path.basename(path) for path in glob.glob(ROOT + "/kernels/*.def")]
    want = {"lib/libbeeline.so", "bin/beeline-perf", "bin/beeline", "share/man/man1/beeline.1", "share/bash-completion/completions/beeline",
            "share/zsh/site-functions/_beeline"}
    want |= {"share/doc/beeline/" + page for page in pages} | {"lib/beeline/" + name for name in [*modules, "VERSION"]}
    have = files_below(prefix)
    check(want <= have, "not installed: %s" % sorted(want - have))
    check(files_below(stage) == {"opt/beeline/" + name for name in have}, "installed elsewhere: %s" % sorted(files_below(stage)))

    case.job(prefix + "/bin/beeline", "run", client("linked"), beeline=False)
    asked = case.run([sys.executable, "-c", "import beeline; print(beeline.library(), beeline.version())"], {"PYTHONPATH": prefix + "/lib"})
    check(asked.stdout.split() == [os.path.realpath(prefix + "/lib/libbeeline.so"), read(ROOT + "/VERSION").strip()], asked.stdout)

    strangers = {"lib/libother.so", "share/doc/beeline/notes"}
    for name in strangers:
        write(os.path.join(prefix, name), "")
    make(case, "uninstall", *where)
    check(files_below(prefix) == strangers, "left, or taken: %s" % sorted(files_below(prefix) ^ strangers))
    check(not os.path.exists(prefix + "/lib/beeline"), "an empty folder is left")


def sampled(case):
    """A build for tests, whose library lacks kernels, is not installed, packed or measured."""
    write(case.path("kernels/sampled"), "")
    for goal in ("install", "wheel", "demo", "kernel-times", "gpu-programs"):
        said = make(case, goal, "BUILD=" + case.folder, status=2).stderr
        check("%s lacks most of the device code" % case.folder in said, said)
        said = make(case, "check", goal, status=2).stderr
        check("make %s needs a whole build" % goal in said, said)
    said = make(case, "-n", "mutations", "SAMPLE=7", "BUILD=" + case.folder).stdout
    check("sample --sample 7 " in said, "SAMPLE is another number: %s" % said)


# --- the wheel ---

def wheel(case):
    """make wheel's package, installed by pip into an environment of its own, has a library that serves."""
    emulated_only()
    need_pip()
    # Two that are there already, in a folder of the test's own, since others may run beside it.
    for name in ("libbeeline.so", "beeline-perf"):
        os.symlink(os.path.join(BUILD, name), case.path(name))
    made = make(case, "-s", "wheel", "-o", "all", "BUILD=" + case.folder, "PYTHON=" + sys.executable).stdout.strip()
    check(re.search(r"/beeline_nccl-[\d.]+-py3-none-manylinux_2_28_\w+\.whl$", made), made)
    python = case.path("venv/bin/python")
    case.run([sys.executable, "-m", "venv", "--without-pip", case.path("venv")])
    case.run([sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-index", "--disable-pip-version-check", made])
    asked = case.run([python, "-c", "import beeline; print(beeline.library(), beeline.version())"], {"PYTHONPATH": ""})
    library, version = asked.stdout.split()
    check(library.startswith(case.path("venv/lib")) and version == read(ROOT + "/VERSION").strip(), asked.stdout)
    case.job(client("linked"), beeline=False, env={"LD_PRELOAD": library})
    perf = os.path.join(os.path.dirname(library), "beeline-perf")
    check(os.stat(perf).st_mode & stat.S_IXUSR, "beeline-perf cannot be executed")
    check("usage" in case.run([perf, "--help"]).stdout.lower(), "beeline-perf does not start")
    case.box(case.path("venv/bin/beeline"), "tune", "--collectives", "reduce", "--out", case.path("box.tune"), beeline=False)
    check("\nreduce 2 " in read(case.path("box.tune")), "nothing was tuned")
    recorded(made)


def recorded(wheel):
    """RECORD has the right hash and size of every other file."""
    with zipfile.ZipFile(wheel) as package:
        record, = (name for name in package.namelist() if name.endswith("/RECORD"))
        want = {record: ",,"}
        for name in set(package.namelist()) - {record}:
            data = package.read(name)
            want[name] = ",sha256=%s,%d" % (base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode(), len(data))
        lines = package.read(record).decode().splitlines()
    check(sorted(lines) == sorted(name + rest for name, rest in want.items()), "RECORD: %s" % lines)


# --- without a toolkit ---

def fake_wheel(folder, name, files):
    """A package that pip installs; the line that pins it."""
    path = os.path.join(folder, "%s-1-py3-none-any.whl" % name.replace("-", "_"))
    about = "%s-1.dist-info/" % name.replace("-", "_")
    files = {
        **files,
        about + "METADATA": "Metadata-Version: 2.1\nName: %s\nVersion: 1\n" % name,
        about + "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    os.makedirs(folder, exist_ok=True)
    with zipfile.ZipFile(path, "w") as out:
        for member, text in {**files, about + "RECORD": "".join("%s,,\n" % member for member in files)}.items():
            info = zipfile.ZipInfo(member)
            info.external_attr = (0o100755 if "/bin/" in member else 0o100644) << 16
            out.writestr(info, text)
    with open(path, "rb") as file:
        return "%s==1 --hash=sha256:%s\n" % (name, hashlib.sha256(file.read()).hexdigest())


class Bare:
    """A machine without a toolkit, whose index is a folder with packages of stand-ins."""

    def __init__(self, case):
        self.case, self.index, self.wheels = case, case.path("index"), case.path("wheels.txt")
        header = read(os.path.join(HERE, "headers", "newest.h"))
        compiler = fake_wheel(self.index, "fake-compiler", {"nvidia/cu13/bin/nvcc": FAKE_NVCC, "nvidia/cu13/include/cuda.h": "", "nvidia/cu13/lib/l": ""})
        nccl = fake_wheel(self.index, "fake-nccl", {"nvidia/nccl/include/nccl.h": header, "nvidia/nccl/lib/libnccl.so.2": "large"})
        write(self.wheels, "# compiler: a compiler, 1 MB\n%s\n# header: a header, 2 MB\n%s" % (compiler, nccl))
        self.kernel, self.table = case.path("build/kernels/allgather_ce.fatbin"), case.path("build/gen/abi_table.h")

    def make(self, *arguments, index=None, env=(), **options):
        pip = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": index or self.index, "PIP_NO_CACHE_DIR": "1"}
        return make(self.case, "PYTHON=" + sys.executable, "FETCHED=" + self.case.path("fetched"), "WHEELS=" + self.wheels, "TOOLKITS=",
                    "HEADERS=", "BUILD=" + self.case.path("build"), *arguments, env={**pip, **dict(env)}, **options)


def without_toolkit(case):
    """Compiler and header come from the index, by their hashes, once; what is lacking is said in a line."""
    need_pip()
    bare = Bare(case)

    said = bare.make(bare.kernel, index=case.path("nowhere"), status=2).stderr
    check(re.search(r"^no CUDA compiler, and PyPI gave none \(ERROR: .*\): install the CUDA toolkit, .* CUDA_HOME=", said, re.M), said)
    said = bare.make(bare.table, "TOOLKIT=", index=case.path("nowhere"), status=2).stderr
    check(re.search(r"^no nccl.h, and PyPI gave none \(.*\): install NCCL's .* NCCL_HOME=", said, re.M), said)
    good = read(bare.wheels)
    write(bare.wheels, re.sub(r"sha256:.", "sha256:0", good.replace("sha256:0", "sha256:1")))
    said = bare.make(bare.kernel, status=2).stderr
    check("no CUDA compiler" in said and "HASHES" in said, said)
    check(not files_below(case.path("fetched")), "something of what failed is left")

    write(bare.wheels, good)
    said = bare.make(bare.kernel, bare.table).stdout
    for line in ("fetching a compiler, 1 MB, from PyPI into %s", "fetching a header, 2 MB, from PyPI into %s"):
        check(line % case.path("fetched/") in said, said)
    check(read(bare.kernel) == "fake\n" and "ncclWaitSignal" in read(bare.table), "not made of what was fetched")
    targets = {"aarch64": "sbsa-linux"}.get(platform.machine(), platform.machine() + "-linux")
    check(os.path.exists(case.path("fetched/cuda/targets/%s/include/cuda.h" % targets)), "headers are not where nvcc looks")
    check(files_below(case.path("fetched/nccl")) == {"include/nccl.h"}, "more than the header is kept")
    os.unlink(bare.kernel)
    check("fetching" not in bare.make(bare.kernel).stdout, "fetched twice")


def with_toolkit(case):
    """What is there is used; what is named and not there is refused."""
    bare = Bare(case)
    toolkit = case.path("toolkit")
    write(toolkit + "/bin/nvcc", FAKE_NVCC, 0o755)
    write(toolkit + "/include/nccl.h", read(os.path.join(HERE, "headers", "oldest.h")))
    for found in (["TOOLKITS=" + toolkit], ["CUDA_HOME=" + toolkit], ["NVCC=%s/bin/nvcc" % toolkit]):
        said = bare.make(*found, "print-CUDA_HOME", "print-NCCL_H", "print-NVCC", bare.kernel).stdout
        check(said.split("\n")[:3] == [toolkit, toolkit + "/include/nccl.h", toolkit + "/bin/nvcc"], said)
        os.unlink(bare.kernel)
    check(not os.path.exists(case.path("fetched")), "fetched beside a toolkit")
    said = bare.make("CUDA_HOME=/nonexistent", bare.kernel, status=2).stderr
    check(said.startswith("no CUDA compiler at /nonexistent/bin/nvcc: "), said)


def without_pip(case):
    """Who may not install packages is told which one to install."""
    bare = Bare(case)
    for name in ("gcc", "g++", "make", "readelf", "sh", "env", "sed", "dirname"):
        os.makedirs(case.path("bin"), exist_ok=True)
        os.symlink(case.run(["sh", "-c", "command -v " + name]).stdout.strip(), case.path("bin/" + name))
    write(case.path("bin/id"), FAKE_ID, 0o755)
    write(case.path("bin/python3"), WITHOUT_PIP, 0o755)
    said = case.run(["sh", "scripts/build/fetch-cuda", "compiler", bare.wheels, case.path("cuda")], {"PATH": case.path("bin"), "CI": "", "PYTHON": "python3"},
                    status=1, cwd=ROOT)
    check(said.stderr == "missing: python3-pip.  Type:  sudo apt-get install python3-pip\n", said.stderr)


def glibc(case):
    """The library and beeline-perf run with glibc 2.28; the check notices what asks for more."""
    tool = os.path.join(ROOT, "scripts/build/check-glibc")
    case.run([tool, BEELINE, os.path.join(BUILD, "beeline-perf")])
    said = case.run([tool, "--most", "2.2", BEELINE], status=1).stdout
    check(re.search(r"libbeeline.so needs \w+ of glibc 2\.\d+, 2.2 at most", said), said)
