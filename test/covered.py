"""What the cases cover, for test/run --coverage: read from the commands that run, so it says no more than they do.

A line is of an algorithm that is forced, or of a collective as the table routes it.  It says which values of each dimension some case has;
in brackets those that only `make soak` has; behind `not` those that none has; and how many of all pairs of two values some case has.
"""
import glob
import itertools
import os
import re
import shlex
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../scripts"))
from beeline.tuning.collectives import ALGORITHMS, COLLECTIVES, having, routes  # noqa: E402

REDUCING = having("BL_REDUCES")
WIDTH = {"int8": "1", "uint8": "1", "f8e4m3": "1", "f8e5m2": "1", "half": "2", "bfloat16": "2", "int32": "4", "uint32": "4", "float": "4",
         "int64": "8", "uint64": "8", "double": "8"}
REDOPS = ("sum", "prod", "min", "max", "avg")
DIMENSIONS = {"ranks": ("2", "3", "4", "7", "8", "16"),
              "driven by": ("groups", "threads", "processes"),
              "datatype": tuple(WIDTH),
              "bytes": ("1", "2", "4", "8"),  # of an element, where it only moves
              "operation": REDOPS,
              "issued": ("eager", "graph"),
              "buffers": ("element", "odd"),  # at multiples of an element, at any address; each case has calls in place and out of it
              "blocks": ("alike", "crews")}  # each does all, or crews have jobs of their own
# What is not asked for, by a trait of kernels/algorithms.def or by name.
CANNOT = {"BL_BY_SWITCH": {"int8", "uint8", "prod", "avg"}}
LEFT_OUT = {"allgather_ce": {"16"},  # its staging is too little for a slot a rank
            "routed": {"crews", "odd"}}  # which forced algorithms have


def algorithms():
    """{(collective, route): what it need not have}."""
    return {(row.collective, route): set().union(LEFT_OUT.get(name, ()), *(values for trait, values in CANNOT.items() if trait in row.columns))
            for name, row in ALGORITHMS.items() for route in routes(name)}


def scenarios(root):
    """{program: names}, of the arrays in which programs list what they can do."""
    found = {}
    for path in glob.glob(os.path.join(root, "test/*/*.c")):
        with open(path, encoding="utf-8") as file:
            for array in re.findall(r"(?:scenarios|programs|parts)\[\] = \{(.*?)\};", file.read(), re.S):
                found.setdefault(os.path.relpath(path, root), []).extend(re.findall(r'\{(?:\.name = )?"(\w+)"', array))
    return found


def met(command):
    """((collective, algorithm or routed), {dimension: values}) of each kind of call that a command of test/ranks/collectives makes."""
    words = re.search(r"test/ranks/collectives ([^'&|]*)", command)
    if not words or "--beeline" not in command:
        return
    words = shlex.split(words[1])
    said = dict(zip(words, words[1:]))
    collectives = said.get("-C", "all_reduce")
    types = said.get("-t", "float")
    types = tuple(WIDTH) if types == "all" else types.split(",")
    redops = said.get("-o", "sum")
    sms = re.search(r"--sms (\d+)", command)
    values = {"ranks": {said.get("-n", "2")}, "driven by": {said.get("-m", "groups")}, "issued": {"eager", *(["graph"] if "-g" in said else [])},
              "buffers": {"elements": {"element"}, "odd": {"element", "odd"}}.get(said.get("-x"), set()),
              "blocks": {"crews" if sms and int(sms[1]) > 4 else "alike"}}
    for collective in COLLECTIVES if collectives == "all" else collectives.split(","):
        what = ({"datatype": set(types), "operation": set(REDOPS if redops == "all" else redops.split(","))} if collective in REDUCING else
                {"bytes": {WIDTH[name] for name in types}})
        yield (collective, said.get("-a", "routed")), {**values, **what}


class Coverage:
    """Of one kind of call: single values and pairs of them."""
    def __init__(self):
        self.dimensions, self.cells = {}, set()

    def add(self, values):
        self.dimensions.update(dict.fromkeys(values))
        every = [(name, value) for name in DIMENSIONS for value in values.get(name, ())]
        self.cells.update((one,) for one in every)
        self.cells.update((one, other) for one, other in itertools.combinations(every, 2) if one[0] != other[0])

    def has(self, name, value):
        return ((name, value),) in self.cells

    def pairs(self, without):
        every = [(name, value) for name in DIMENSIONS if name in self.dimensions for value in DIMENSIONS[name] if value not in without]
        wanted = {(one, other) for one, other in itertools.combinations(every, 2) if one[0] != other[0]}
        return wanted & self.cells, wanted


def pairs_line(now, later, without, shows):
    met_now, wanted = now.pairs(without)
    met_later, _ = later.pairs(without)
    print(f"    {'pairs':10} {len(met_now)} of {len(wanted)}, with soak {len(met_later)}")
    for one, pairs in itertools.groupby(sorted(wanted - met_now) if shows else (), key=lambda pair: pair[0]):
        others = (" ".join(pair[1]) + " (soak)" * (pair in met_later) for pair in pairs)
        print(f"        not {' '.join(one)} with {', '.join(others)}")


def report(root, cases, filters):
    """Prints it, of algorithms that a filter names also which pairs no case has; returns how much is in no case."""
    always, soak = {}, {}
    for case in cases:
        for kind, values in met(case.command):
            soak.setdefault(kind, Coverage()).add(values)
            if "soak" not in case.flags:
                always.setdefault(kind, Coverage()).add(values)
    wanted = algorithms()
    wanted.update({(collective, "routed"): LEFT_OUT["routed"] for collective in COLLECTIVES})
    lacking = []
    for kind, without in sorted(wanted.items(), key=lambda item: list(COLLECTIVES).index(item[0][0])):
        now, later = always.get(kind, Coverage()), soak.get(kind, Coverage())
        print(f"{kind[0]}: {kind[1]}")
        if not later.cells:
            lacking.append(f"{kind[0]}: {kind[1]} is in no case")
        for name, values in DIMENSIONS.items():
            if name not in later.dimensions:
                continue
            never = [value for value in values if not later.has(name, value)]
            shown = [value if now.has(name, value) else f"[{value}]" for value in values if value not in never]
            print(f"    {name:10} {' '.join(shown)}" + (f"   not: {' '.join(never)}" if never else ""))
            lacking += [f"{kind[0]}: {kind[1]}: {name} {value} is in no case" for value in never if value not in without]
        pairs_line(now, later, without, any(word in kind[1] for word in filters))
    words = set(re.findall(r"\w+", "\n".join(case.command for case in cases)))
    print("scenarios")
    for path, names in sorted(scenarios(root).items()):
        print(f"    {path}: {len(names)}")
        lacking += [f"{path}: {name} is in no case" for name in names if name not in words]
    print("\n".join(lacking) or "no algorithm, value or scenario is left out")
    return len(lacking)
