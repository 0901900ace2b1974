"""Measure ``voxcast audit`` on a generated export: time, memory, and whether it tells the truth.

``python benchmarks/audit.py [LINES]``; a million lines by default. The command runs in a
process of its own, whose CPU time counts beside its wall time, since the machine may be shared.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import accounting
from timing import machine, measured_verb

if TYPE_CHECKING:
    from collections.abc import Sequence

LINES = 1_000_000
BOUND_S, BOUND_BYTES = 30.0, 1.5e9


def audited(n_lines: int) -> dict[str, Any]:
    """Return the figures of an export of about so many lines."""
    truth = accounting.truth(n_lines // accounting.LINES_PER_JOB)
    with tempfile.TemporaryDirectory() as folder:
        export = Path(folder) / "jobs.txt"
        lines = list(accounting.lines(truth))
        export.write_text("\n".join(lines) + "\n")
        output = Path(folder) / "audit.json"
        figures: dict[str, Any] = {"lines": len(lines), "file_bytes": export.stat().st_size}
        del lines
        picture = str(Path(folder) / "jobs.svg")
        figures |= measured_verb(["audit", str(export), "--json", "--picture", picture], output)
        result = json.loads(output.read_text())
    ran = truth[truth["outcome"] != "never"]
    core_hours = float((ran["cpus"] * ran["runtime_s"]).sum() / 3600)
    figures["core_hours_off"] = result["total"]["core_hours"] / core_hours - 1
    outcomes = ran["outcome"].value_counts().to_dict()
    figures["ended_as_generated"] = outcomes == {name: result["total"][name] for name in outcomes}
    return figures


def main(arguments: Sequence[str]) -> int:
    """Print the figures; 1 if a bound is missed or a sum is wrong."""
    n_lines = int(arguments[0]) if arguments else LINES
    figures: dict[str, Any] = {"machine": machine()}
    figures["growth"] = growth = [audited(n_lines // 10), audited(n_lines)]
    figures |= {"bound_s": BOUND_S, "bound_bytes": BOUND_BYTES}
    print(json.dumps(figures, indent=2))
    right = all(abs(g["core_hours_off"]) < 1e-9 and g["ended_as_generated"] for g in growth)
    fits = growth[-1]["wall_s"] <= BOUND_S and growth[-1]["peak_bytes"] <= BOUND_BYTES
    return 0 if right and fits else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
