"""Figures as inline SVG with the font and the colours of the page, light and dark."""

from __future__ import annotations

import hashlib
import io
import re
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from voxcast.report.sections import Drawing

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes

# Colours of Okabe and Ito, distinct for colour-blind readers. In an SVG they become variables, so
# that the style of the page can replace them in its dark theme.
INK, FAINT = "#1f2328", "#9a9fa5"
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b88600", "#56b4e9")
_VARIABLES = {INK: "currentColor", FAINT: "var(--faint)"}
_VARIABLES |= {colour: f"var(--series-{n})" for n, colour in enumerate(SERIES)}

# An SVG file knows nothing of the page around it: it brings its own colours.
_FILE_STYLE = """<style>
svg { color: #1f2328; --faint: #9a9fa5; --series-0: #0072b2; --series-1: #d55e00;
  --series-2: #009e73; --series-3: #cc79a7; --series-4: #b88600; --series-5: #56b4e9;
  font-family: system-ui, sans-serif; }
@media (prefers-color-scheme: dark) {
  svg { color: #e6edf3; --faint: #6e7681; --series-0: #56b4e9; --series-1: #ff8a3d;
    --series-2: #2fc79a; --series-3: #e39cc5; --series-4: #e6b422; --series-5: #9ad3f5; }
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


def drawing(
    draw: Callable[..., object],
    alt: str,
    caption: str = "",
    *,
    size_in: tuple[float, float] = (4.2, 3.5),
    columns: int = 1,
) -> Drawing:
    """Draw a figure in the style of the page.

    Parameters
    ----------
    draw : callable
        Called with each of the `columns` axes.
    alt : str
        Text alternative for screen readers, different for each figure of a page: the ids in the
        figure are made of it.
    """
    import matplotlib
    from matplotlib.figure import Figure

    name = f"f-{hashlib.sha256(alt.encode()).hexdigest()[:10]}"
    buffer = io.StringIO()
    # Ids are hashes salted by the name, so that the same data give the same bytes.
    with matplotlib.rc_context(_STYLE | {"svg.hashsalt": name}):
        figure = Figure(figsize=size_in, layout="constrained")
        draw(*figure.subplots(1, columns, squeeze=False)[0])
        no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=no_metadata)
    text = buffer.getvalue().partition("<svg")[2]
    text = re.sub(r'(?<=\bid=")|(?<=url\(#)|(?<=href="#)', f"{name}-", text)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, variable)
    box = text.partition('viewBox="')[2].partition('"')[0]
    opening = (
        f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="{box}" role="img" '
        f'aria-label="{escape(alt)}">'
    )
    # Text in the figure was escaped by matplotlib, which writes XML.
    svg = Markup(opening + text.partition(">")[2].strip())  # noqa: S704
    return Drawing(svg, caption)


def standalone(picture: Drawing) -> str:
    """Return a figure as an SVG file, which brings its own colours, light and dark."""
    opening, bracket, rest = str(picture.svg).partition(">")
    opening = opening.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return f"{opening}{bracket}{_FILE_STYLE}{rest}\n"


def log_scale(axes: Axes, directions: str = "xy") -> None:
    """Make axes logarithmic, with a few round ticks written as plain numbers."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    for name in directions:
        axes.set(**{f"{name}scale": "log"})
        axis = getattr(axes, f"{name}axis")
        low, high = axis.get_view_interval()
        steps = (1.0, 2.0, 5.0) if high < 200 * low else (1.0,)
        # A narrow range has too few ticks by decade: it gets those of a linear axis.
        axis.set_major_locator(LogLocator(subs=steps) if high > 5 * low else MaxNLocator(4))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter("{x:g}")
