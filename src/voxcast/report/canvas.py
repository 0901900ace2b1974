"""Figures as inline SVG with the font and the colours of the page, light and dark."""

from __future__ import annotations

import contextlib
import io
import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup, escape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike

# Placeholders that are replaced by the colours of the page, so that one figure serves both themes.
INK, FAINT = "#010101", "#020202"
# Colours of Okabe and Ito, distinct for colour-blind readers; defined in the style of the page.
SERIES = ("#010110", "#010120", "#010130", "#010140", "#010150", "#010160")
_PAGE_COLOURS = {INK: "currentColor", FAINT: "var(--faint)"}
_PAGE_COLOURS |= {colour: f"var(--series-{n})" for n, colour in enumerate(SERIES)}

_FILE_STYLE = """<style>
svg { color: #1f2328; --faint: #9a9fa5; --series-0: #0072b2; --series-1: #d55e00;
  --series-2: #009e73; font-family: system-ui, sans-serif; }
@media (prefers-color-scheme: dark) {
  svg { color: #e6edf3; --faint: #6e7681; --series-0: #56b4e9; --series-1: #ff8a3d;
    --series-2: #2fc79a; }
}
</style>"""

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: scalable, searchable, readable by screen readers
    "text.parse_math": False,  # a name may contain a dollar sign
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.alpha": 0.35,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "legend.frameon": False,
}


@contextlib.contextmanager
def panel(width_in: float = 4.2, height_in: float = 3.5) -> Iterator[tuple[Figure, Axes]]:
    """Yield a figure with one pair of axes in the report's style; call `inline_svg` inside."""
    with grid(1, 1, (width_in, height_in)) as (figure, axes):
        yield figure, axes[0, 0]


@contextlib.contextmanager
def grid(rows: int, columns: int, size_in: tuple[float, float]) -> Iterator[tuple[Figure, Any]]:
    """Yield a figure and an array (rows, columns) of axes, of a width and a height in inches."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=size_in, layout="constrained")
        yield figure, figure.subplots(rows, columns, squeeze=False)


def inline_svg(figure: Figure, name: str, alt: str) -> Markup:
    """Return a figure as an ``svg`` element.

    Parameters
    ----------
    figure : Figure
        Drawn with the colours of this module.
    name : str
        Unique on the page; becomes part of the element's ids.
    alt : str
        Text alternative for screen readers.
    """
    import matplotlib

    buffer = io.StringIO()
    # Ids are hashes salted by the name, so that the same data give the same bytes.
    with matplotlib.rc_context({"svg.hashsalt": name}):
        no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=no_metadata)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    prefix = "f-" + re.sub(r"[^a-z0-9]+", "-", name.lower()) + "-"
    text = re.sub(r'(?<=\bid=")', prefix, text)
    text = re.sub(r'(?<=url\(#)|(?<=href="#)', prefix, text)
    for placeholder, colour in _PAGE_COLOURS.items():
        text = text.replace(placeholder, colour)
    view = re.search(r'viewBox="([^"]+)"', text)
    box = view.group(1) if view else "0 0 100 100"
    opening = (
        f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="{box}" role="img" '
        f'aria-label="{escape(alt)}">'
    )
    # Text in the figure was escaped by matplotlib, which writes XML.
    return Markup(opening + text[text.index(">") + 1 :].strip())  # noqa: S704


def standalone(svg: Markup) -> str:
    """Return an ``svg`` element as a file, which brings its own colours, light and dark."""
    text = str(svg)
    end = text.index(">") + 1
    opening = text[:end].replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return f"{opening}{_FILE_STYLE}{text[end:]}\n"


def interval(
    axes: Axes,
    y: float,
    ends: tuple[float, float],
    limits: tuple[float, float],
    colour: str,
) -> None:
    """Draw a horizontal interval; an arrow at the edge marks an end beyond the axis.

    Parameters
    ----------
    y : float
        Position of the line.
    ends : tuple of float
        Lower and upper end.
    limits : tuple of float
        Limits of the horizontal axis.
    """
    low, high = max(ends[0], limits[0]), min(ends[1], limits[1])
    if low <= high:
        axes.plot([low, high], [y] * 2, color=colour, linewidth=1.3)
    for beyond, edge, marker in (
        (ends[0] < limits[0], limits[0], "<"), (ends[1] > limits[1], limits[1], ">"),
    ):  # fmt: skip
        if beyond:
            axes.plot(edge, y, marker, color=colour, markersize=5, clip_on=False)


def log_axes(axes: Axes, x: ArrayLike, y: ArrayLike) -> None:
    """Make both axes logarithmic, with limits that show all points."""
    log_axis(axes, "x", float(np.min(x)), float(np.max(x)))
    log_axis(axes, "y", float(np.min(y)), float(np.max(y)))


def log_axis(axes: Axes, direction: str, low: float, high: float) -> None:
    """Make an axis logarithmic, with a few round ticks written as plain numbers."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    margin = (high / low) ** 0.06 if high > low else 1.2
    low, high = low / margin, high * margin
    (axes.set_xscale if direction == "x" else axes.set_yscale)("log")
    (axes.set_xlim if direction == "x" else axes.set_ylim)(low, high)
    axis = axes.xaxis if direction == "x" else axes.yaxis
    axis.set_major_locator(FixedLocator(_ticks(low, high)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _ticks(low: float, high: float) -> list[float]:
    from matplotlib.ticker import MaxNLocator

    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    for steps in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)):
        ticks = [s * 10.0**d for d in decades for s in steps if low <= s * 10.0**d <= high]
        if len(ticks) > 2:
            return ticks
    # Too narrow for ticks by decade: use the round numbers of a linear axis.
    linear_ticks = MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    return [float(t) for t in linear_ticks if low <= t <= high]
