"""The time that Beeline has saved a job: an estimate, by the times of NCCL and Beeline in the tuning files that the job used."""
import os

from .report import key_of
from .words import columns


def interpolated(curve, size):
    """NCCL's us and Beeline's for a size: straight between two that were measured, below the least as there; None above the largest."""
    if curve and size <= curve[0][0]:
        return curve[0][1:]
    for low, high in zip(curve, curve[1:]):
        if size <= high[0]:
            share = (size - low[0]) / (high[0] - low[0])
            return tuple(one + share * (other - one) for one, other in zip(low[1:], high[1:]))
    return None


def is_timed(part):
    """Whether the tuning file's times are of such calls: of what its rows chose, alone in a launch."""
    from .tuning.collectives import variable  # pylint: disable=import-outside-toplevel
    route = part["route"]
    return not ("_nvls" in route or route.endswith("_batch") or route == "allgather_ce" or os.environ.get(variable(part["collective"])))


def estimate(records, texts):
    """{collective: [seconds saved, NCCL's seconds]} of calls that Beeline served, each counted once for all ranks; and the (collective,
    ranks) of which some times are not known.  texts: of the tuning files in their order.  Where a call is one end of a message, a time is
    of both ends of all ranks at once."""
    from .tuning.collectives import having  # pylint: disable=import-outside-toplevel
    from .tuning.file import times_used  # pylint: disable=import-outside-toplevel
    paired = having("BL_PAIRED")
    made = {key_of(r): r for r in records if r["record"] == "communicator" and r.get("section")}
    ended = [r for r in records if r["record"] == "calls" and key_of(r) in made]
    ranks_of = {}
    for record in ended:
        ranks_of[record["communicator"]] = ranks_of.get(record["communicator"], 0) + 1
    saved, unknown, curves = {}, set(), {}
    for record in ended:
        section = made[key_of(record)]["section"]
        for part in record["calls"]:
            key = part["collective"], record["ranks"]
            if part["route"] == "nccl" or not part["bytes"]:
                continue
            if (section, key) not in curves:
                curves[section, key] = times_used(texts, section, key) or []
            us = interpolated(curves[section, key], part["bytes"] / part["calls"]) if is_timed(part) else None
            if not us:
                unknown.add(key)
                continue
            at_once = ranks_of[record["communicator"]] * (2 if part["collective"] in paired else 1)
            total, calls = saved.setdefault(part["collective"], [0, 0]), part["calls"] / at_once
            total[0] += calls * (us[0] - us[1]) / 1e6
            total[1] += calls * us[0] / 1e6
    return saved, unknown


def seconds(value):
    return f"{value:.3g} s" if abs(value) >= 1 else f"{value * 1e3:.3g} ms" if abs(value) >= 1e-3 else f"{value * 1e6:.3g} us"


def lines(records):
    """For a person; none where Beeline served no call."""
    from .tuning import file  # pylint: disable=import-outside-toplevel
    texts = []
    for path in filter(None, file.places()):
        try:
            texts.append(file.read(path))
        except OSError:
            continue  # as the library does, which has warned
    saved, unknown = estimate(records, texts)
    said = []
    if saved:
        rows = [(f"    {name}", seconds(mine), f"of {seconds(nccl)} by NCCL") for name, (mine, nccl) in sorted(saved.items())]
        said = ["  estimated time saved, by the times in graphs in the tuning file; a call counts once, not for each rank", *columns(rows, right=(1,))]
    if unknown:
        names = ", ".join(f"{name} of {ranks} ranks" for name, ranks in sorted(unknown))
        said.append(f"  time saved not known: {names}: the tuning file has no times for {'all of ' if saved else ''}these; beeline tune measures them, but "
                    "for calls that share launches or whose routes are forced")
    return said
