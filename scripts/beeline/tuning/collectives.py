"""The rows of kernels/collectives.def and kernels/algorithms.def: the one list of the collectives, and that of their algorithms."""
import os
import re
from collections import namedtuple

HERE = os.path.dirname(os.path.realpath(__file__))
KERNELS = HERE if os.path.exists(os.path.join(HERE, "collectives.def")) else os.path.join(HERE, "../../../kernels")  # installed; of the tree

Collective = namedtuple("Collective", "key words traits")  # BEELINE_<key> says its routes; all-reduce; BL_REDUCES and the like
Algorithm = namedtuple("Algorithm", "collective columns")  # its name; the rest of the row


def _rows(file, macro, columns):
    with open(os.path.join(KERNELS, file), encoding="ascii") as rows:
        return re.findall(rf"^{macro}\({columns}\)$", rows.read(), re.M)


COLLECTIVES = {name: Collective(key, words, set(traits.split(" | ")))
               for key, name, words, traits in _rows("collectives.def", "BL_COLLECTIVE", r'(\w+), (\w+), "(.+)", (.*)')}
_NAMES = {collective.key: name for name, collective in COLLECTIVES.items()}
ALGORITHMS = {name: Algorithm(_NAMES[key], columns)
              for name, key, columns in _rows("algorithms.def", "BL_ALGORITHM", r"\w+, \w+, (\w+), (\w+), (.*)")}


def having(*traits):
    """Those with any of these traits."""
    return tuple(name for name, collective in COLLECTIVES.items() if collective.traits & set(traits))


def variable(collective):
    return f"BEELINE_{COLLECTIVES[collective].key}"


def routes(algorithm):
    """What spreads over warps is a route of its own."""
    return [algorithm, *[f"{algorithm}:warps"] * ("WARPS" in ALGORITHMS[algorithm].columns)]
