"""Line charts by matplotlib: logarithmic axes, sizes in powers of two below, a legend; as SVG with colours for viewers that prefer a dark ground, too."""
import io
import re

from .words import size_text

try:
    from matplotlib import figure, rc_context, ticker
    MISSING = None
except ImportError:
    MISSING = "no charts, since matplotlib is not installed: apt-get install python3-matplotlib, or scripts/setup-deps --plots"

# Of curves: on a light ground and on a dark one; then ground, ink and rules.
CURVES = (("#0b6e4f", "#3fb68b"), ("#c8553d", "#f0876e"), ("#2d5d9f", "#79aef0"), ("#8a6d00", "#d9b53a"), ("#7a3e9d", "#c48ae6"), ("#555555", "#aaaaaa"))
GROUND, INK, RULE = ("#fefefe", "#0d1117"), ("#222222", "#e6edf3"), ("#dddddd", "#30363d")
STYLE = {"svg.fonttype": "none", "svg.hashsalt": "beeline", "font.sans-serif": ["DejaVu Sans"], "figure.facecolor": GROUND[0], "axes.facecolor": GROUND[0],
         "axes.edgecolor": RULE[0], "axes.grid": True, "axes.labelcolor": INK[0], "grid.color": RULE[0], "text.color": INK[0], "xtick.color": INK[0],
         "ytick.color": INK[0], "lines.markersize": 4, "legend.frameon": False}


def write(path, title, unit, series):
    """One diagram.  series: [(name, [(size, value)...], dashed)].  Not where MISSING says why."""
    write_panels(path, title, [(unit, series)])


def write_panels(path, title, panels):
    """Diagrams side by side, [(unit, series)...]; the path ends in .svg or .png."""
    with rc_context(STYLE):
        drawn = figure.Figure(figsize=(7.6 * len(panels), 4.7), layout="constrained")
        for axes, (unit, series) in zip(drawn.subplots(1, len(panels), squeeze=False)[0], panels):
            draw(axes, unit, series)
        if len(panels) > 1:
            drawn.suptitle(title)
        else:
            drawn.axes[0].set_title(title)
        if path.endswith(".svg"):
            write_svg(path, drawn)
        else:
            drawn.savefig(path, dpi=150)


def draw(axes, unit, series):
    for i, (name, points, dashed) in enumerate((name, sorted(points), dashed) for name, points, dashed in series if points):
        axes.plot(*zip(*points), "--" if dashed else "o-", color=CURVES[i % len(CURVES)][0], label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set(xlabel="message size in bytes", ylabel=unit)
    axes.xaxis.set_major_locator(ticker.LogLocator(base=4, numticks=20))
    axes.xaxis.set_major_formatter(lambda size, _: size_text(int(size)))
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.legend()


def write_svg(path, drawn):
    text = io.StringIO()
    drawn.savefig(text, format="svg", metadata={"Date": None})
    with open(path, "w", encoding="utf-8") as out:
        out.write(re.sub(r"(?=<style)", f"<style>@media(prefers-color-scheme:dark){{{dark()}}}</style>\n  ", text.getvalue(), count=1))


def dark():
    """matplotlib writes every colour into the element; these rules put the other in its place."""
    return "".join(f'[style*="{what}: {light}"]{{{what}:{other}!important}}' for light, other in (*CURVES, GROUND, INK, RULE) for what in ("fill", "stroke"))
