"""A registered champion trained on planted runs, for tests of its users."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import planted
from voxcast.models import point_model
from voxcast.models.calibrated_model import calibrate
from voxcast.models.families.family import FAMILIES
from voxcast.models.forecaster import Forecaster
from voxcast.models.selection.cross_validation import Validation
from voxcast.tracking import registry, runs

CATALOGUE: dict[str, Any] = {
    "apps": {"segment": planted.PARAMETERS},
    "configurations": [{"device": "cpu", "cpus": n, "gpus": 0} for n in (1, 2)],
    "coarse_points": 64,
    "network_points": 16,
}
HEADER_ROW: dict[str, Any] = {
    "shape_i": 60.0, "shape_j": 64.0, "shape_k": 50.0, "spacing_i_mm": 2.0, "spacing_j_mm": 2.0,
    "spacing_k_mm": 2.0, "file_size_bytes": 3e5, "dtype": "int16",
}  # fmt: skip


def fit_forecaster(subjects: int) -> Forecaster:
    """Fit and calibrate ridge regressions on planted runs."""
    table, params = planted.table(subjects), FAMILIES["ridge"].defaults
    calibrated = {}
    for input_level in ("header", "volume"):
        model = point_model.fit(table, None, "ridge", params, input_level, 0)
        out_of_fold = Validation(table, None, 3, 0).out_of_fold("ridge", params, input_level)
        calibrated[input_level] = calibrate(model, table, out_of_fold, 1.5)
    return Forecaster(calibrated)


def register_champion(folder: Path, subjects: int) -> None:
    """Register a champion in the registry of a project folder."""
    fit_forecaster(subjects).save(folder / "model")
    session = runs.connect(folder)
    with runs.run(session, "final", "ridge final") as run_id:
        pass
    registry.register(run_id, folder / "model", CATALOGUE, folder, {"family": "ridge"})
