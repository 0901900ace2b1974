"""Requested against used time and memory, as an SVG on logarithmic axes.

Squares of a histogram instead of points, so that a million jobs can be drawn. The SVG is written
here because a login node has no matplotlib.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from voxcast.audit.groups import requested_memory

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]

BINS_PER_DECADE = 12
SIDE, LEFT, TOP, GAP = 330, 62, 44, 84
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


def picture(jobs: pd.DataFrame) -> str:
    """Return an SVG of the jobs that completed or were killed at a limit, without short ones."""
    outcome, long = jobs["outcome"].to_numpy(dtype=object), jobs["long"].to_numpy()
    width, height = LEFT + 2 * SIDE + GAP + 20, TOP + SIDE + 62
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'aria-label="Requested against used time and memory of jobs">',
        f"<style>{STYLE}</style>",
    ]
    panels = (
        ("time", jobs["limit_s"].to_numpy(), "runtime_s", "timeout", _TIMES, "at the time limit"),
        (
            "memory",
            requested_memory(jobs),
            "peak_rss_bytes",
            "out_of_memory",
            _SIZES,
            "for memory",
        ),
    )
    for n, (title, requested, used_name, cause, ticks, where) in enumerate(panels):
        used = jobs[used_name].to_numpy()
        drawn = long & (requested > 0) & (used > 0) & np.isin(outcome, ["completed", cause])
        killed = (outcome == cause)[drawn]
        left = LEFT + n * (SIDE + GAP)
        count = f"{title}: {int((~killed).sum()):,} jobs completed"
        parts.append(f'<text x="{left}" y="{TOP - 10}">{count}</text>')
        if drawn.any():
            parts += _panel(requested[drawn], used[drawn], killed, ticks, left)
        else:
            middle = f'x="{left + SIDE / 2}" y="{TOP + SIDE / 2}" text-anchor="middle"'
            parts.append(f"<text {middle}>the export does not state both</text>")
        if killed.any():
            parts.append(
                f'<text x="{left + 8}" y="{TOP + 16}" style="fill:var(--killed)">'
                f"{int(killed.sum()):,} killed {where}</text>"
            )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(
    requested: Floats, used: Floats, killed: Mask, ticks: tuple[tuple[float, str], ...], left: int
) -> list[str]:
    x, y = np.log10(requested), np.log10(used)
    low = math.floor(min(x.min(), y.min()) * BINS_PER_DECADE)
    high = math.ceil(max(x.max(), y.max()) * BINS_PER_DECADE + 1e-6)
    step, bottom = SIDE / (high - low), TOP + SIDE
    middle = left + SIDE / 2
    parts = [
        f'<path class="d" d="M{left} {bottom}L{left + SIDE} {TOP}"/>',
        f'<text x="{middle}" y="{bottom + 36}" text-anchor="middle">requested</text>',
        f'<text x="{left}" y="{bottom + 52}" font-size="11">'
        "jobs on the dashed line used all they requested</text>",
        f'<text transform="translate({left - 48} {TOP + SIDE / 2}) rotate(-90)" '
        'text-anchor="middle">used</text>',
    ]
    for value, label in ticks:
        place = (math.log10(value) * BINS_PER_DECADE - low) * step
        if 0 <= place <= SIDE:
            across, down = left + place, bottom - place
            parts += [
                f'<path class="g" d="M{across:.1f} {TOP}V{bottom}M{left} {down:.1f}h{SIDE}"/>',
                f'<text x="{across:.1f}" y="{bottom + 16}" text-anchor="middle">{label}</text>',
                f'<text x="{left - 6}" y="{down + 4:.1f}" text-anchor="end">{label}</text>',
            ]
    edges = np.arange(low, high + 1) / BINS_PER_DECADE
    for css, mask in (("c", ~killed), ("k", killed)):
        counts, _, _ = np.histogram2d(x[mask], y[mask], bins=[edges, edges])
        darkest = math.log1p(counts.max())
        for i, j in np.argwhere(counts > 0):
            opacity = 0.2 + 0.8 * math.log1p(counts[i, j]) / darkest
            parts.append(
                f'<rect class="{css}" x="{left + i * step:.1f}" y="{bottom - (j + 1) * step:.1f}" '
                f'width="{step:.1f}" height="{step:.1f}" fill-opacity="{opacity:.2f}">'
                f"<title>{int(counts[i, j]):,} jobs</title></rect>"
            )
    return parts
