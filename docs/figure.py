"""Draw ``docs/images/error_by_model.svg``: the report's figure of errors on the recorded runs.

``python docs/figure.py`` (``make docs`` does it). The same code draws the report of every project.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from voxcast.laws.intervals import Interval
from voxcast.records import TARGETS
from voxcast.report.figures import error_panels

PROJECT = Path(__file__).resolve().parents[1]
FIGURE = PROJECT / "docs" / "images" / "error_by_model.svg"
APP = "ants_segment"
# Inside an <img> a figure knows nothing of the page: it brings its own colours, light and dark.
STYLE = """<style>
svg { color: #1f2328; --faint: #9a9fa5; --series-0: #0072b2; --series-1: #d55e00;
  font-family: system-ui, sans-serif; }
@media (prefers-color-scheme: dark) {
  svg { color: #e6edf3; --faint: #6e7681; --series-0: #56b4e9; --series-1: #ff8a3d; }
}
</style>"""


def drawn() -> str:
    """Return the figure: errors of CPU time by model, cross-validated and on unseen subjects."""
    results = PROJECT / "results"
    by_app = json.loads((results / "recorded" / "families.json").read_text(encoding="utf-8"))
    tested = by_app[APP]
    history = json.loads((results / "history" / "reference.json").read_text(encoding="utf-8"))
    receipt = json.loads((results / "recorded" / "receipt.json").read_text(encoding="utf-8"))
    with (results / "recorded" / "leaderboard.csv").open(encoding="utf-8", newline="") as lines:
        rows = [
            row
            for row in csv.DictReader(lines)
            if row["app"] == APP and row["family"] in tested and row["family"] != "grid"
        ]
    nowhere = float("nan")
    verdict = SimpleNamespace(
        winner=receipt["apps"][APP]["champion"],
        cross_validated={
            row["family"]: {target: float(row[f"cv_{target}_mape"]) for target in TARGETS}
            for row in rows
        },
        tested={
            row["family"]: {
                target: Interval(
                    tested[row["family"]][target]["mape"], nowhere, nowhere, tested["subjects"]
                )
                for target in TARGETS
            }
            for row in rows
        },
    )
    noise = next(row for row in history["noise"] if row["app"] == APP)
    panels = error_panels(cast("Any", verdict), noise["error_percent"])
    svg = str(panels[TARGETS.index("cpu_s")].svg)
    end = svg.index(">") + 1
    opening = svg[:end].replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return f"{opening}{STYLE}{svg[end:]}\n"


def main() -> int:
    """Write the figure."""
    FIGURE.write_text(drawn(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
