"""Show this box as Beeline sees it: GPUs, links, versions, routes."""
import json
import re
import textwrap

from . import box as boxes
from .words import Refused, columns

USAGE = "beeline info [--json] [--from FILE]"
WIDTH = 80
SHORT = {"self": ".", "nvswitch": "NVS", "nvlink": "NV", "pcie": "PCI", "pcie-switch": "PIX", "pcie-host": "PHB", "pcie-socket": "SYS", "none": "-", "unknown": "?"}
MEANING = {"NVS": "NVSwitch", "NV": "NVLink", "PCI": "PCIe", "PIX": "one PCIe switch", "PHB": "PCIe host bridge", "SYS": "PCIe and the link between processors", "-": "no peer access", "?": "not known"}
UNSAID = "?"


def arguments(parser):
    parser.add_argument("--json", action="store_true", help="as JSON, to be stored or attached to a report")
    parser.add_argument("--from", dest="stored", metavar="FILE", help="draw what --json printed on another box; - is standard input")


def main(options, _parser):
    box = boxes.load(options.stored) if options.stored else boxes.here()
    try:
        text = json.dumps(box, indent=1, ensure_ascii=False) if options.json else "\n".join(draw(box))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise Refused(f"{options.stored or 'beelineBox'} is no box: {error}; want what `beeline info --json` prints") from error
    print(text)
    return 0


def known(value):
    return UNSAID if value is None else str(value)


def wrapped(head, text):
    """Behind the head, and indented by it."""
    return textwrap.wrap(text, WIDTH, initial_indent=head, subsequent_indent=" " * len(head), break_long_words=False, break_on_hyphens=False) or [head.rstrip()]


def draw(box):
    gpus, links = box["gpus"], box.get("links") or []
    parts = [versions(box), kinds(box, gpus)]
    if gpus:
        parts += [table(gpus), matrix(gpus, links)]
    parts += [routes(box.get("routes") or []), off(box.get("off") or [])]
    return "\n\n".join("\n".join(part) for part in parts if part).splitlines()


def versions(box):
    lines = [f"Beeline {known(box.get('version'))}, build {known(box.get('build'))}"]
    nccl, driver, sources = box.get("nccl"), box.get("driver"), box.get("sources") or {}
    if nccl:
        nvls = f"; NVLS {nccl['nvls']}" + (f" ({nccl['why']})" if nccl.get("why") else "") if nccl.get("nvls") else ""
        lines += wrapped("NCCL ", f"{known(nccl.get('version'))}, {known(nccl.get('path'))}{nvls}")
    else:
        lines.append("NCCL: none was found")
    if driver:
        lines.append("driver " + ", ".join(filter(None, (driver.get("version"), driver.get("cuda") and f"CUDA {driver['cuda']}"))))
    else:
        lines += wrapped("driver: ", known(sources.get("driver")))
    for name in sorted(set(sources) - {"driver"}):
        if sources[name] is not None and not re.match(r"ok$|\d", str(sources[name])):  # a version is as good
            lines += wrapped(f"{name}: ", str(sources[name]))
    return lines


def kinds(box, gpus):
    if not gpus:
        return ["no GPU"]
    names = [known(gpu.get("name")) for gpu in gpus]
    lines = [", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names)) + (f": {box['class_text']}" if box.get("class_text") else "")]
    if box.get("not_served"):
        lines += wrapped("left to NCCL: ", box["not_served"])
    return lines + (wrapped("fingerprint: ", box["fingerprint"]) if box.get("fingerprint") else [])


def nvlink(gpu):
    if gpu.get("nvlinks") is None:
        return UNSAID
    if not gpu["nvlinks"]:
        return "none"
    return f"{gpu['nvlinks']} x v{known(gpu.get('nvlink_version'))}" + (", switch" if gpu.get("nvswitch") else "")


def notes(gpu):
    words = {"mig": "MIG", "confidential": "confidential", "fabric": "fabric"}
    return ", ".join(words[name] for name in words if gpu.get(name))


def table(gpus):
    """One line a GPU; columns that do not fit are left out, the last first."""
    shown = [("GPU", lambda gpu: known(gpu.get("ordinal"))), ("PCI", lambda gpu: known(gpu.get("pci"))), ("NUMA", lambda gpu: known(gpu.get("numa"))),
             ("GiB", lambda gpu: f"{gpu['memory'] / 2**30:.0f}" if gpu.get("memory") else UNSAID)]
    if any(map(notes, gpus)):
        shown.append(("", notes))
    if len({gpu.get("name") for gpu in gpus}) > 1:
        shown.append(("name", lambda gpu: known(gpu.get("name"))))
    shown += [("arch", lambda gpu: f"sm_{known(gpu.get('arch'))}"), ("NVLink", nvlink), ("SMs", lambda gpu: known(gpu.get("sms"))),
              ("copy engines", lambda gpu: known(gpu.get("copy_engines"))), ("PCIe switch", lambda gpu: known(gpu.get("switch")))]
    shown = [(name, value) for name, value in shown if any(value(gpu) != UNSAID for gpu in gpus)]
    while True:
        lines = columns([[name for name, _ in shown], *([value(gpu) for _, value in shown] for gpu in gpus)],
                        right=[i for i, (name, _) in enumerate(shown) if name in ("GPU", "NUMA", "GiB", "SMs", "copy engines")])
        if max(map(len, lines)) <= WIDTH or len(shown) == 1:
            return lines
        shown.pop()


def matrix(gpus, links):
    """Who reaches whom how; bars between NUMA nodes."""
    if len(gpus) < 2 or len(links) != len(gpus):
        return []
    nodes = [gpu.get("numa") for gpu in gpus]
    starts = {i for i in range(1, len(gpus)) if nodes[i] != nodes[i - 1]}
    if 7 + 4 * len(gpus) + 2 * len(starts) > WIDTH:
        starts = set()

    def line(head, cells):
        return (head.ljust(7) + "".join((" |" if i in starts else "") + cell.rjust(4) for i, cell in enumerate(cells))).rstrip()
    words = [[SHORT.get(link, UNSAID) for link in row] for row in links]
    lines = [line("NUMA", [known(node) if i in {0, *starts} else "" for i, node in enumerate(nodes)])] if set(nodes) != {None} else []
    lines.append(line("to GPU", [known(gpu.get("ordinal")) for gpu in gpus]))
    lines += [line(f"GPU {known(gpu.get('ordinal'))}", row) for gpu, row in zip(gpus, words)]
    used = [word for word in MEANING if any(word in row for row in words)]
    return [*lines, *wrapped("", "; ".join(f"{word} {MEANING[word]}" for word in used))]


def routes(rows):
    """By collective, and where they come from."""
    if not rows:
        return []
    lines = ["routes, by the bytes of a rank's count"]
    alike = {}
    for collective in dict.fromkeys(row["collective"] for row in rows):
        said = by_ranks((row["ranks"], known(row.get("ranges"))) for row in rows if row["collective"] == collective)
        alike.setdefault(tuple(said), []).append(collective)
    for said, collectives in alike.items():
        lines += [*wrapped("  ", ", ".join(collectives)), *said]
    sources = {(row["ranks"], re.sub(f", {row['ranks']} ranks$", "", row["source"])) for row in rows if row.get("source")}
    return lines + (["  thresholds", *by_ranks(sorted(sources))] if sources else [])


def by_ranks(pairs):
    """Numbers of ranks that have the same text stand together."""
    alike = {}
    for ranks, text in pairs:
        alike.setdefault(text, []).append(ranks)
    return [line for text, ranks in alike.items() for line in wrapped(f"    {spans(ranks):>5} ranks  ", text)]


def spans(numbers):
    """2-4, 8"""
    parts, numbers = [], sorted(set(numbers))
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


def off(reasons):
    return ["off"] + [line for reason in reasons for line in wrapped("  ", str(reason))] if reasons else []
