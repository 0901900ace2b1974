"""Predictions by phase against predictions of the run: results/phases/per_phase.json.

The runs are those that studies learn from: reserved batches and the subjects of the test side are
not opened. See `phase_models`.
"""

import voxcast.interruptions  # noqa: F401, before imports that take time

# isort: split
import sys
from pathlib import Path

import phase_models
from study import HISTORY, table_to_learn_from
from voxcast.errors import exits_cleanly
from voxcast.files import write_json
from voxcast.runs.series import with_peaks
from voxcast.runs.store import open_history

OUT = Path("results/phases/per_phase.json")


@exits_cleanly
def main() -> int:
    """Compare the two ways on the recorded campaigns."""
    table = table_to_learn_from()
    history = open_history([HISTORY / name for name in sorted(table["batch"].unique())])
    keys = set(table["cell_key"])
    phases, traces = (
        records[records["cell_key"].isin(keys)] for records in (history.phases, history.traces)
    )
    results = phase_models.study(
        table, with_peaks(phases, traces),
        on_step=lambda step: print(f"per phase: {step}", file=sys.stderr, flush=True),
    )  # fmt: skip
    write_json(OUT, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
