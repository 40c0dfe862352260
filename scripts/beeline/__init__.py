"""Beeline, as Python sees it: where the library is, and which version."""
import os

_HERE = os.path.dirname(os.path.realpath(__file__))
_BUILT = os.path.join(os.path.dirname(os.path.dirname(_HERE)), os.environ.get("BUILD") or "build")


def _first(*paths):
    return next((path for path in paths if os.path.exists(path)), None)


def library():
    """The path of libbeeline.so: what BEELINE_LIBRARY says, else that of this wheel, installation or tree; None if there is none."""
    said = os.environ.get("BEELINE_LIBRARY")
    if said:
        return os.path.abspath(said)
    return _first(os.path.join(_HERE, "libbeeline.so"), os.path.join(os.path.dirname(_HERE), "libbeeline.so"), os.path.join(_BUILT, "libbeeline.so"))


def version():
    """As in "0.1.0"."""
    path = _first(os.path.join(_HERE, "VERSION"), os.path.join(os.path.dirname(os.path.dirname(_HERE)), "VERSION"))
    if not path:
        return "unknown"
    with open(path, encoding="utf-8") as file:
        return file.read().strip()
