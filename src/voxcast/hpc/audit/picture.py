"""Requested against used time and memory, as a picture on logarithmic axes.

Like the first figure of the publication on the runs of SLANT, for any number of jobs: cells of a
histogram in place of points. The picture is text written here, since matplotlib is no part of
what a login node has.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

import numpy as np

from voxcast.hpc.audit.groups import requested_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

BINS_PER_DECADE = 12
SIDE, LEFT, TOP, GAP = 330, 62, 44, 84  # in units of the picture
STYLE = (
    "svg{font:12px system-ui,sans-serif;color:#1f2328;--cell:#0072b2;--killed:#d55e00;"
    "--faint:#d0d4d9}@media(prefers-color-scheme:dark){svg{color:#e6edf3;--cell:#56b4e9;"
    "--killed:#ff8a3d;--faint:#3d444d}}text{fill:currentColor}.g{stroke:var(--faint)}"
    ".d{stroke:currentColor;stroke-dasharray:4 3}.c{fill:var(--cell)}.k{fill:var(--killed)}"
)
_TIMES = ((1, "1 s"), (60, "1 min"), (600, "10 min"), (3600, "1 h"), (36_000, "10 h"),
          (86_400 * 4, "4 d"), (86_400 * 30, "30 d"))  # fmt: skip
_SIZES = ((1e6, "1 MB"), (1e7, "10 MB"), (1e8, "100 MB"), (1e9, "1 GB"), (1e10, "10 GB"),
          (1e11, "100 GB"), (1e12, "1 TB"), (1e13, "10 TB"))  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Panel:
    title: str
    requested: Floats
    used: Floats
    killed: NDArray[np.bool_]
    ticks: tuple[tuple[float, str], ...]
    cause: str


def picture(jobs: pd.DataFrame, title: str = "") -> str:
    """Return an SVG of the jobs that completed or were killed at a limit, but for short ones.

    Parameters
    ----------
    jobs : DataFrame
        Of `voxcast.hpc.audit.jobs`.
    """
    outcome = jobs["outcome"].to_numpy(dtype=object)
    long = jobs["long"].to_numpy()
    completed = (outcome == "completed") & long
    timed_out, out = (outcome == "timeout") & long, (outcome == "out_of_memory") & long
    panels = [
        _panel("time", jobs["limit_s"], jobs["runtime_s"], completed, timed_out, _TIMES,
               "at the time limit"),
        _panel("memory", requested_memory(jobs), jobs["peak_rss_bytes"], completed, out, _SIZES,
               "for memory"),
    ]  # fmt: skip
    width = LEFT + 2 * SIDE + GAP + 20
    height = TOP + SIDE + 62
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="Requested against used time and memory of jobs">',
        f"<style>{STYLE}</style>",
    ]
    if title:
        parts.append(f'<text x="{LEFT}" y="16" font-weight="bold">{escape(title)}</text>')
    for n, panel in enumerate(panels):
        parts += _drawn(panel, LEFT + n * (SIDE + GAP), TOP)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(
    title: str,
    requested: pd.Series | Floats,
    used: pd.Series,
    completed: NDArray[np.bool_],
    killed: NDArray[np.bool_],
    ticks: tuple[tuple[float, str], ...],
    cause: str,
) -> _Panel:
    x, y = np.asarray(requested, dtype=np.float64), used.to_numpy()
    stated = (x > 0) & (y > 0) & (completed | killed)
    return _Panel(title, x[stated], y[stated], killed[stated], ticks, cause)


def _drawn(panel: _Panel, left: int, top: int) -> list[str]:
    n_killed = int(panel.killed.sum())
    heading = f"{panel.title}: {len(panel.requested) - n_killed:,} jobs completed"
    parts = [f'<text x="{left}" y="{top - 10}">{heading}</text>']
    if not len(panel.requested):
        middle = f'x="{left + SIDE / 2}" y="{top + SIDE / 2}" text-anchor="middle"'
        return [*parts, f"<text {middle}>the export does not state both</text>"]
    both = np.log10(np.concatenate([panel.requested, panel.used]))
    low = math.floor(both.min() * BINS_PER_DECADE) / BINS_PER_DECADE
    high = math.ceil(both.max() * BINS_PER_DECADE + 1e-6) / BINS_PER_DECADE
    scale = SIDE / (high - low)

    def x_of(value: float) -> float:
        return float(left + (value - low) * scale)

    def y_of(value: float) -> float:
        return float(top + SIDE - (value - low) * scale)

    parts += _axes(panel, left, top, (low, high), x_of, y_of)
    n_bins = round((high - low) * BINS_PER_DECADE)
    edges = np.linspace(low, high, n_bins + 1)
    for css, mask in (("c", ~panel.killed), ("k", panel.killed)):
        x, y = np.log10(panel.requested[mask]), np.log10(panel.used[mask])
        counts, _, _ = np.histogram2d(x, y, bins=[edges, edges])
        parts += _cells(counts, edges, css, x_of, y_of)
    if n_killed:
        parts.append(
            f'<text x="{left + 8}" y="{top + 16}" class="k" style="fill:var(--killed)">'
            f"{n_killed:,} killed {panel.cause}</text>"
        )
    return parts


def _axes(
    panel: _Panel,
    left: int,
    top: int,
    limits: tuple[float, float],
    x_of: Callable[[float], float],
    y_of: Callable[[float], float],
) -> list[str]:
    low, high = limits
    right, bottom = left + SIDE, top + SIDE
    parts = []
    for value, label in panel.ticks:
        place = math.log10(value)
        if not low <= place <= high:
            continue
        x, y = x_of(place), y_of(place)
        parts += [
            f'<path class="g" d="M{x:.1f} {top}V{bottom}M{left} {y:.1f}H{right}"/>',
            f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{label}</text>',
            f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>',
        ]
    middle = left + SIDE / 2
    return [
        *parts,
        f'<path class="d" d="M{left} {bottom}L{right} {top}"/>',
        f'<text x="{middle}" y="{bottom + 36}" text-anchor="middle">requested</text>',
        f'<text x="{left}" y="{bottom + 52}" font-size="11">'
        "on the dashed line all that was requested was used</text>",
        f'<text transform="translate({left - 48} {top + SIDE / 2}) rotate(-90)" '
        'text-anchor="middle">used</text>',
    ]


def _cells(
    counts: Floats,
    edges: Floats,
    css: str,
    x_of: Callable[[float], float],
    y_of: Callable[[float], float],
) -> list[str]:
    """Return a square for each cell with jobs, darker with the logarithm of their number."""
    most = math.log1p(counts.max()) if counts.size else 0.0
    parts = []
    for i, j in np.argwhere(counts > 0):
        x, y = x_of(edges[i]), y_of(edges[j + 1])
        side = x_of(edges[i + 1]) - x
        opacity = 0.2 + 0.8 * math.log1p(counts[i, j]) / most
        parts.append(
            f'<rect class="{css}" x="{x:.1f}" y="{y:.1f}" width="{side:.1f}" '
            f'height="{side:.1f}" fill-opacity="{opacity:.2f}">'
            f"<title>{int(counts[i, j]):,} jobs</title></rect>"
        )
    return parts
