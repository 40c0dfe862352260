"""The generator of the ABI, and the check of the layout."""

import os
import re
import shutil
import sys

from support import HERE, ROOT, check, read


def headers(case):
    """The generator on headers of other years: there is all that later ones have, and what they add is forwarded."""
    for name in ("oldest.h", "newest.h"):
        out = case.path(name)
        os.mkdir(out)
        shutil.copy(os.path.join(HERE, "headers", name), os.path.join(out, "nccl.h"))
        case.run([sys.executable, "plugin/real/abi.py", os.path.join(out, "nccl.h"), "plugin/real/nccl_later.h", "plugin/real/abi_own.txt", out], cwd=ROOT)
        case.run(
            [
                os.environ.get("CC", "cc"),
                "-std=gnu11",
                "-Wall",
                "-Wextra",
                "-Wno-unused-parameter",
                "-Werror",
                "-Wstrict-prototypes",
                "-Wmissing-prototypes",
                "-isystem",
                out,
                "-I" + out,
                "-iquote",
                "plugin",
                "-c",
                os.path.join(out, "abi_stubs.c"),
                "-o",
                os.path.join(out, "abi_stubs.o"),
            ],
            cwd=ROOT,
        )
        table, stubs = read(os.path.join(out, "abi_table.h")), read(os.path.join(out, "abi_stubs.c"))
        check(all(" *%s;" % function in table for function in ("ncclCommShrink", "pncclAllReduceConfig")), table)
        check(
            "ncclAllReduce(" not in re.sub(r"pncclAllReduce\(|lacks_ncclAllReduce\(", "", stubs),
            "a stub for an own function",
        )
        if name == "newest.h":
            check(re.search(r"ncclWaitSignal\(int nDesc.*?bl_forward_before", stubs, re.S), stubs)


def layout_catches(case):
    """check-layout finds each breach that it is there for."""
    breaches = {
        "dispatch/a.c": '#include "base/log.h"\n',
        "dispatch/b.c": "#include <cuda.h>\n",
        "dispatch/c.c": "int f(void) { return printf(1); }\n",
        "kernels/a.cu": '#include "dispatch.h"\n',
        "kernels/b.c": "void f(void) { abort(); }\n",
        "kernels/core/up.cuh": '#include "carriers/line.cuh"\n',
        "kernels/carriers/up.cuh": '#include "a.cu"\n',
        "kernels/carriers/one.cuh": '#include "carriers/two.cuh"\n',
        "kernels/astray.cuh": '#include "core/words.cuh"\n',
        "kernels/c.cu": '__device__ void f() { asm volatile("nop;"); }\n',
        "plugin/nccl/a.c": 'char *f(void) { return getenv("X"); }\n',
        "plugin/nccl/b.c": 'void *f(void) { return dlopen("libnccl.so.2", 1); }\n',
        "plugin/nccl/c.c": "int f(void) { return cuInit(0); }\n",
        "plugin/nccl/d.c": "int f(void) { return bl_driver()->cuMulticastCreate(0, 0); }\n",
        "plugin/nccl/d1.c": 'void *f(void) { return look_up("cuMulticastBindMem"); }\n',
        "plugin/nccl/d2.c": 'void *f(void) { return look_up("cu" "MulticastBindMem"); }\n',
        "plugin/nccl/d3.c": "void *f(const char *name) { return bl_driver_symbol(name, 12010); }\n",
        "plugin/cuda/driver.def": "BL_DRIVER_OPTIONAL(cuMulticastUnbind, 12010)\n",
        "plugin/nccl/e.c": '#include "../test/harness/box.h"\n',
        "scripts/perf/a.c": '#include "test/harness/box.h"\n',
        "plugin/nccl/f.c": "extern char **environ;\n",
        "plugin/nccl/g.c": 'void *f(void *h) { return dlsym(h, "x"); }\n',
        "plugin/base/up.c": '#include "comm/comm.h"\n',
        "plugin/round.c": '#include "base/log.h"\n',
        "plugin/comm/one.h": '#include "two.h"\n',
    }
    fine = {
        "plugin/nccl/fine.c": '/* getenv("X"), abort() */\n#include "dispatch.h"\n#include <stdio.h>\n'
        "int f(void) { return bl_driver()->cuInit(0); } // exit(1)\n",
        "dispatch/dispatch.h": '#include "kernels.h"\n',
        "kernels/kernels.h": "#include <stdint.h>\n",
        "kernels/fine.cu": '#include <core/words.cuh>\n#include "carriers/line.cuh"\n#include "kernels.h"\n',
        "kernels/carriers/line.cuh": '#include "core/words.cuh"\n',
        "kernels/carriers/two.cuh": '#include "carriers/one.cuh"\n',
        "kernels/core/words.cuh": '#include "kernels.h"\n',
        "plugin/base/log.h": "",
        "plugin/comm/comm.h": '#include "base/log.h"\n',
        "plugin/comm/two.h": "",
        "plugin/comm/two.c": '#include "comm/one.h"\n#include "two.h"\n',
        "test/harness/box.h": "#include <cuda.h>\n",
        "plugin/cuda/multicast.c": 'void *f(void) { return bl_driver_symbol("cuMulticastCreate", 12010); }\n',
        "plugin/base/params.c": 'char *f(void) { return getenv("X"); }\n',
    }
    for name, text in {**breaches, **fine}.items():
        os.makedirs(os.path.dirname(case.path(name)), exist_ok=True)
        with open(case.path(name), "w", encoding="utf-8") as file:
            file.write(text)
    done = case.run([os.path.join(ROOT, "scripts/build/check-layout"), case.folder], status=1)
    caught = {line.split(":")[0] for line in done.stdout.splitlines()}
    check(caught == set(breaches), "missed %s, wrongly %s" % (set(breaches) - caught, caught - set(breaches)))
