"""A small writer of line charts: logarithmic axes, sizes in powers of two below, a legend; nothing but SVG text.

Each chart has a ground of its own, and a second set of colours for viewers that prefer a dark one.
"""
import math
from xml.sax.saxutils import escape

from .records import size_text

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 470, 70, 20, 44, 76
# Of curves: on a light ground and on a dark one.
COLOURS = (("#0b6e4f", "#3fb68b"), ("#c8553d", "#f0876e"), ("#2d5d9f", "#79aef0"), ("#8a6d00", "#d9b53a"), ("#7a3e9d", "#c48ae6"), ("#555555", "#aaaaaa"))
LIGHT, DARK = dict(ground="#ffffff", ink="#222222", rule="#dddddd"), dict(ground="#0d1117", ink="#e6edf3", rule="#30363d")


class Axis:
    """A logarithmic scale from values to pixels."""

    def __init__(self, low, high, start, end):
        self.low, self.high, self.start, self.end = math.log(low), math.log(high), start, end

    def at(self, value):
        return self.start + (math.log(value) - self.low) / (self.high - self.low or 1) * (self.end - self.start)


def decades(low, high):
    """1, 2, 5, 10, ... that lie in low..high."""
    exponent = math.floor(math.log10(low))
    while 10 ** exponent <= high:
        yield from (m * 10 ** exponent for m in (1, 2, 5) if low <= m * 10 ** exponent <= high)
        exponent += 1


def style(ground, ink, rule, colours):
    rules = [f".ground{{fill:{ground}}}", f"text{{fill:{ink}}}", f".rule{{stroke:{rule}}}"]
    for i, colour in enumerate(colours):
        rules += [f".line{i}{{stroke:{colour};fill:none;stroke-width:2}}", f".mark{i}{{fill:{colour}}}"]
    return "".join(rules)


def text(x, y, content, anchor="middle", size=12, more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" {more}>{escape(content)}</text>'


def grid(x_axis, y_axis, sizes, low, high):
    parts = []
    for size in sizes:
        x = x_axis.at(size)
        parts.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}" class="rule" stroke-opacity="0.5"/>')
        if math.log2(size) % 2 == 0:
            parts.append(text(x, HEIGHT - BOTTOM + 16, size_text(size), size=11))
    for value in decades(low, high):
        y = y_axis.at(value)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" class="rule"/>')
        parts.append(text(LEFT - 8, y + 4, f"{value:g}", "end", 11))
    return parts


def curve(points, x_axis, y_axis, colour, dashed):
    path = " ".join(f"{x_axis.at(x):.1f},{y_axis.at(y):.1f}" for x, y in points)
    dashes = ' stroke-dasharray="6 4"' if dashed else ""
    parts = [f'<polyline points="{path}" class="line{colour}"{dashes}/>']
    if not dashed:
        parts += [f'<circle cx="{x_axis.at(x):.1f}" cy="{y_axis.at(y):.1f}" r="2.5" class="mark{colour}"/>' for x, y in points]
    return parts


def write(path, title, unit, series):
    """An SVG file.  series: [(name, [(size, value)...], dashed)]."""
    series = [(name, sorted(points), dashed) for name, points, dashed in series if points]
    sizes = sorted({x for _, points, dashed in series if not dashed for x, _ in points})
    values = [y for _, points, _ in series for _, y in points]
    low, high = min(values) / 1.15, max(values) * 1.15
    x_axis, y_axis = Axis(sizes[0], sizes[-1], LEFT + 8, WIDTH - RIGHT - 8), Axis(low, high, HEIGHT - BOTTOM, TOP)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
             f"<style>{style(**LIGHT, colours=[light for light, _ in COLOURS])}"
             f"@media(prefers-color-scheme:dark){{{style(**DARK, colours=[dark for _, dark in COLOURS])}}}</style>",
             f'<rect width="{WIDTH}" height="{HEIGHT}" class="ground"/>', text(WIDTH / 2, 24, title, size=15)]
    parts += grid(x_axis, y_axis, sizes, low, high)
    parts.append(text(WIDTH / 2, HEIGHT - BOTTOM + 36, "message size in bytes"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(text(18, middle, unit, more=f'transform="rotate(-90 18 {middle:.1f})"'))
    for i, (name, points, dashed) in enumerate(series):
        colour = i % len(COLOURS)
        parts += curve(points, x_axis, y_axis, colour, dashed)
        x = LEFT + 10 + i * (WIDTH - LEFT - RIGHT) / len(series)
        parts.append(f'<rect x="{x:.1f}" y="{HEIGHT - 24}" width="14" height="4" class="mark{colour}"/>')
        parts.append(text(x + 20, HEIGHT - 18, name, "start"))
    with open(path, "w", encoding="utf-8") as out:
        out.write("\n".join(parts) + "\n</svg>\n")
