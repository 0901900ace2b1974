"""Draw ``docs/images/error_by_model.svg``: errors of wall time on a day that no model has seen.

``python docs/figure.py`` (``make docs`` does it) reads ``published/headline/headline.csv``.
"""

from __future__ import annotations

import sys

from headline_tables import CONTENDERS, MEANINGS, NEW, VOXCAST, row_of
from table_text import PROJECT, percent
from voxcast.report.canvas import INK, SERIES, inline_svg, interval, panel, standalone

FIGURE = PROJECT / "docs" / "images" / "error_by_model.svg"
APP = "ants_segment"


def figure() -> str:
    """Return the figure: errors without a run of the day, and after two local runs."""
    rows = {
        name: [row_of(APP, "runtime_s", protocol, name) for protocol in NEW] for name in CONTENDERS
    }
    errors = {name: [float(row["mape"]) for row in pair] for name, pair in rows.items()}
    limits = 0.0, 1.05 * max(float(row["high"]) for pair in rows.values() for row in pair)
    with panel(4.8, 1.2 + 0.34 * len(rows)) as (drawing, axes):
        for y, (name, pair) in enumerate(rows.items()):
            for row, shift, mark, color in zip(pair, (-0.17, 0.17), "oD", SERIES, strict=False):
                ends = float(row["low"]), float(row["high"])
                interval(axes, y + shift, ends, limits, color)
                axes.plot(float(row["mape"]), y + shift, mark, color=color, markersize=5)
            text = ", ".join(map(percent, errors[name]))
            axes.text(1.03, y, text, va="center", transform=axes.get_yaxis_transform())
        floor = float(row_of(APP, "runtime_s", "known", VOXCAST)["floor"])
        axes.axvline(floor, color=INK, linewidth=1, linestyle=(0, (2, 2)))
        axes.set_xlim(*limits)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.grid(axis="y", visible=False)
        axes.set_yticks(range(len(rows)), [MEANINGS.get(name, name) for name in rows])
        axes.get_yticklabels()[0].set_fontweight("bold")
        axes.set(xlabel="mean absolute error (%)", title=f"Wall time of {APP}")
        alt = "Error of wall time by model, on a new day and after two local runs: " + ", ".join(
            f"{MEANINGS.get(name, name)} {' and '.join(map(percent, pair))}"
            for name, pair in errors.items()
        )
        return standalone(inline_svg(drawing, "error by model", alt))


def main() -> int:
    """Write the figure."""
    FIGURE.write_text(figure(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
