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
from voxcast.report.canvas import standalone
from voxcast.report.figures import error_panels

PROJECT = Path(__file__).resolve().parents[1]
FIGURE = PROJECT / "docs" / "images" / "error_by_model.svg"
APP = "ants_segment"


def drawn() -> str:
    """Return the figure: errors of CPU time by model, cross-validated and on unseen subjects."""
    results = PROJECT / "published"
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
    return standalone(panels[TARGETS.index("cpu_s")].svg)


def main() -> int:
    """Write the figure."""
    FIGURE.write_text(drawn(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
