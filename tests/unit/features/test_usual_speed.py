"""The training table says how fast its machine was during each run, sitting by sitting."""

import numpy as np
import pandas as pd
import pytest

from voxcast.features.rows import SPEED_DEVIATION
from voxcast.features.training_table import with_speed_deviations
from voxcast.runs.speed import KERNELS
from voxcast.runs.table import DTYPES, PHASE_DTYPES, UNKNOWN, in_schema

SITTINGS = ("1", "2")


def disturbed_runs() -> tuple[pd.DataFrame, pd.Series]:
    """Return three repeats of each cell in two sittings, and how slow the machine was in each.

    The second sitting is slower as a whole, which is no deviation from what is usual in it.
    """
    rng = np.random.default_rng(3)
    rows, slowed_by_key = [], {}
    for n, (sitting, cell, repeat) in enumerate(
        (s, c, r) for s in SITTINGS for c in range(10) for r in range(3)
    ):
        slowed = abs(rng.normal(0.0, 0.15)) + (0.3 if sitting == "2" else 0.0)
        key = f"{sitting}-{cell}-{repeat}"
        slowed_by_key[key] = slowed
        cpu_s = float(np.exp(2.0 + 0.1 * cell + slowed))
        rows.append(
            {name: UNKNOWN[dtype] for name, dtype in DTYPES.items()}
            | {"cell_key": key, "app": "segment", "volume_id": f"v{sitting}{cell}"}
            | {"subject": f"s{cell}", "repeat": repeat, "cpus": 1, "device": "cpu"}
            | {"host_id": "here", "sitting": sitting, "scale": "full_scale"}
            | {"outcome": "completed", "cpu_s": cpu_s, "runtime_s": cpu_s, "metronome_ticks": 20}
            | {"started_at": f"2026-01-01T{n // 60:02d}:{n % 60:02d}:00Z"}
            | dict.fromkeys(KERNELS, 0.004 * float(np.exp(slowed)))
        )
    return in_schema(pd.DataFrame(rows)), pd.Series(slowed_by_key)


NO_PHASES = pd.DataFrame(columns=list(PHASE_DTYPES)).astype(PHASE_DTYPES)


def test_deviations_are_from_the_usual_speed_of_the_sitting() -> None:
    runs, slowed = disturbed_runs()
    table = with_speed_deviations(runs, runs, NO_PHASES)
    deviations = table.set_index("cell_key")[SPEED_DEVIATION]
    for sitting in SITTINGS:
        of_sitting = deviations[deviations.index.str.startswith(f"{sitting}-")]
        assert of_sitting.median() == pytest.approx(0.0)
        planted = slowed[of_sitting.index]
        # Coefficients are shrunk, so a deviation is a little smaller than what was planted.
        ratio = -of_sitting / (planted - planted.median())
        assert 0.8 < ratio.median() < 1.01
    pd.testing.assert_frame_equal(table.drop(columns=SPEED_DEVIATION), runs)


def test_runs_beside_which_nothing_was_timed_deviate_by_nothing() -> None:
    runs, _ = disturbed_runs()
    bare = runs.drop(columns=[*KERNELS, "metronome_ticks"])
    assert (with_speed_deviations(bare, bare, NO_PHASES)[SPEED_DEVIATION] == 0.0).all()
    others = runs.assign(cell_key=runs["cell_key"] + "-elsewhere")
    assert (with_speed_deviations(others, runs, NO_PHASES)[SPEED_DEVIATION] == 0.0).all()
