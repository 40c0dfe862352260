#!/usr/bin/env python3
"""abi.py NCCL_H NCCL_LATER ABI_OWN OUTDIR - makes abi_table.h and abi_stubs.c from a nccl.h, and from nccl_later.h what it
lacks.

abi_table.h: struct bl_real (a member a function, as declared), default visibility for every entry point.
abi_stubs.c: the forwarding entry points, the stand-ins for what the real NCCL lacks, and the rows of abi.h.
"""

import os
import re
import sys
from collections import namedtuple

Parameter = namedtuple("Parameter", "declaration name")
Function = namedtuple("Function", "name returns parameters")

KINDS = {"own", "ordered", "standin"}


def strip_source(text):
    """The text without comments, preprocessor lines and attributes."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r"//[^\n]*", " ", text)
    text = text.replace("\\\n", " ")
    text = re.sub(r"^[ \t]*#[^\n]*$", "", text, flags=re.M)
    while True:
        start = text.find("__attribute__")
        if start < 0:
            return text
        at = text.index("(", start)
        depth = 0
        while True:
            depth += {"(": 1, ")": -1}.get(text[at], 0)
            at += 1
            if depth == 0:
                break
        text = text[:start] + text[at:]


def split_parameters(text):
    """Splits at the commas outside parentheses."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += {"(": 1, ")": -1}.get(char, 0)
        if char == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    parts.append(text[start:])
    return [part.strip() for part in parts]


def parse_parameter(text, position):
    text = " ".join(text.split())
    pointer = re.search(r"\(\s*\*\s*(\w+)\s*\)\s*\(", text)
    if pointer:
        return Parameter(text, pointer.group(1))
    named = re.match(r"^(?P<type>.*[\s*])(?P<name>\w+)\s*(?P<array>(?:\[[^\]]*\]\s*)*)$", text)
    words = {"int", "char", "short", "long", "unsigned", "signed", "float", "double", "void", "const"}
    if named and named.group("name") not in words:
        return Parameter(text, named.group("name"))
    name, (kind, *array) = "argument%d" % position, re.split(r"(?=\[)", text, maxsplit=1)
    return Parameter("%s %s%s" % (kind.strip(), name, "".join(array)), name)


def parse_header(text):
    """All functions named ncclX or pncclX, in the order of the header."""
    functions = {}
    pattern = re.compile(
        r"(?P<returns>[A-Za-z_][\w\s\*]*?[\s\*])(?P<name>p?nccl[A-Z]\w*)\s*" r"\((?P<parameters>[^;{}]*)\)\s*$"
    )
    # Prototypes end in a semicolon; braces open and close types, extern "C" and inline bodies.
    for statement in re.split(r"[;{}]", strip_source(text)):
        found = pattern.search(" ".join(statement.split()))
        if not found or re.search(r"\btypedef\b|=", statement):
            continue
        returns = re.sub(r"\b(extern|static|inline)\b", "", found.group("returns")).strip()
        inside = found.group("parameters").strip()
        parameters = []
        if inside not in ("", "void"):
            parameters = [parse_parameter(part, i) for i, part in enumerate(split_parameters(inside))]
        functions.setdefault(
            found.group("name"), Function(found.group("name"), " ".join(returns.split()), parameters)
        )
    return list(functions.values())


def read_functions(header, later):
    """Those of nccl.h, then those that only later ones have, each in both its names."""
    with open(header) as file:
        functions = {function.name: function for function in parse_header(file.read())}
    if "ncclAllReduce" not in functions:
        sys.exit("%s: no ncclAllReduce in it: not a nccl.h" % header)
    with open(later) as file:
        for function in parse_header(file.read()):
            for name in (function.name, "p" + function.name):
                functions.setdefault(name, function._replace(name=name))
    return list(functions.values())


def read_kinds(path):
    kinds = {}
    with open(path) as lines:
        for number, line in enumerate(lines, 1):
            words = line.split("#")[0].split()
            if not words:
                continue
            unknown = set(words[1:]) - KINDS
            if unknown or len(words) < 2 or words[0] in kinds:
                sys.exit("%s:%d: %s: want a function, once, and of %s" % (path, number, line.strip(), sorted(KINDS)))
            kinds[words[0]] = set(words[1:])
    return kinds


def arguments(function):
    return ", ".join(parameter.name for parameter in function.parameters)


def signature(function, name):
    inside = ", ".join(parameter.declaration for parameter in function.parameters) or "void"
    return "%s%s%s(%s)" % (function.returns, "" if function.returns.endswith("*") else " ", name, inside)


def emit_table(functions):
    out = [
        "/* Generated from nccl.h by plugin/real/abi.py: see real.h. */",
        "#ifndef BEELINE_ABI_TABLE_H",
        "#define BEELINE_ABI_TABLE_H",
        "",
        '#include "nccl.h"',
        '#include "real/nccl_later.h"',
        "",
        "#pragma GCC diagnostic push",
        '#pragma GCC diagnostic ignored "-Wdeprecated-declarations"',
        "",
        "/* Declared anew: nccl.h has old-style `()` and may have macros in place of functions; and whoever defines",
        " * one of these exports it, though the library is built with hidden visibility. */",
    ]
    for function in functions:
        out += [
            "#undef %s" % function.name,
            '%s __attribute__((visibility("default")));' % signature(function, function.name),
        ]
    out += ["", "struct bl_real {"]
    out += ["    __typeof__(%s) *%s;" % (function.name, function.name) for function in functions]
    out += ["};", "", "#pragma GCC diagnostic pop", "", "#endif", ""]
    return "\n".join(out)


def emit_standin(function, kinds):
    name = "bl_lacks_" + function.name
    if "standin" in kinds:
        return "%s;" % signature(function, name)
    lacks = 'bl_real_lacks("%s", &logged)' % function.name
    if function.returns == "ncclResult_t":
        body = "return %s;" % lacks
    elif function.returns == "void":
        body = "%s;" % lacks
    else:
        body = "%s;\n    %s none = {0};\n    return none;" % (lacks, function.returns)
    return "static %s\n{\n    static atomic_bool logged;\n    %s\n}" % (signature(function, name), body)


# What NCCL does at the end of a group, ahead of the group's calls, and has the group fail by.
PREPARING = ("ncclCommWindowRegister", "ncclCommGrow", "ncclDevCommCreate")


def emit_forward(function, ordered):
    call = "%s, %s" % (function.name, arguments(function)) if function.parameters else function.name
    lines = [signature(function, function.name), "{"]
    if function.returns == "void":
        lines += [
            "    bl_real_depth++;",
            "    bl_real()->%s(%s);" % (function.name, arguments(function)),
            "    bl_real_depth--;",
        ]
    elif not ordered:
        if function.name in PREPARING:
            lines += ["    bl_forward_preparing();"]
        heard = function.returns == "ncclResult_t" and not function.name.startswith("p")
        lines += ["    return %s;" % ("bl_forward_plain(BL_REAL(%s))" % call if heard else "BL_REAL(%s)" % call)]
    else:
        lines += [
            "    struct bl_forward *forward;",
            "    ncclResult_t result = bl_forward_before(&forward, comm, stream);",
            "    return result != ncclSuccess ? result : bl_forward_after(forward, BL_REAL(%s));" % call,
        ]
    return "\n".join(lines + ["}"])


def standin_for(name, names):
    """Where the header has pncclX without ncclX, pncclX has its own stand-in; else they share."""
    return name[1:] if name.startswith("p") and name[1:] in names else name


def emit_stubs(functions, kinds):
    names = {function.name for function in functions}
    out = [
        "/* Generated from nccl.h by plugin/real/abi.py: the entry points that only forward, and what stands in for those",
        " * that the real NCCL lacks. */",
        "#include <stdatomic.h>",
        "#include <stddef.h>",
        "",
        '#include "real/abi.h"',
        '#include "nccl/forward.h"',
        '#include "real/real.h"',
        "",
        '#pragma GCC diagnostic ignored "-Wdeprecated-declarations"',
    ]
    for function in functions:
        own = kinds.get(function.name, set())
        if standin_for(function.name, names) == function.name:
            out += ["", emit_standin(function, own)]
        if "own" not in own:
            out += ["", emit_forward(function, "ordered" in own)]
    out += ["", "/* In order of name. */", "const struct bl_abi_row bl_abi_rows[] = {"]
    for name in sorted(names):
        out += [
            '    {"%s", (void *)%s, (void *)bl_lacks_%s, offsetof(struct bl_real, %s)},'
            % (name, name, standin_for(name, names), name)
        ]
    out += ["};", "const int bl_abi_count = sizeof(bl_abi_rows) / sizeof(bl_abi_rows[0]);", ""]
    return "\n".join(out)


def check_ordered(functions, kinds):
    for function in functions:
        given = {parameter.name for parameter in function.parameters}
        if "ordered" in kinds.get(function.name, set()) and not {"comm", "stream"} <= given:
            sys.exit("%s is `ordered` but has no parameters comm and stream" % function.name)


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    header, later, own, outdir = sys.argv[1:]
    functions = read_functions(header, later)
    kinds = read_kinds(own)
    check_ordered(functions, kinds)
    for name, text in (("abi_table.h", emit_table(functions)), ("abi_stubs.c", emit_stubs(functions, kinds))):
        with open(os.path.join(outdir, name), "w") as file:
            file.write(text)


if __name__ == "__main__":
    main()
