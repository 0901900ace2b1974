"""A registered champion trained on planted runs, for tests of its users."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import planted
from voxcast.files import sha256_folder
from voxcast.models import point_model
from voxcast.models.calibrated_model import calibrate
from voxcast.models.families.family import FAMILIES
from voxcast.models.forecaster import Forecaster
from voxcast.models.selection.cross_validation import Validation
from voxcast.records import Configuration
from voxcast.serving.bundle import FOLDER, Bundle, BundlePart, write_bundle
from voxcast.serving.served_app import Promotion, ServedApp
from voxcast.tracking import registry, runs
from voxcast.tracking.registered_versions import (
    Version,
    bundle_of,
    required_champion,
    version_numbered,
)

PROMOTION = Promotion(
    family="ridge", params=FAMILIES["ridge"].defaults, subjects=20, runs=40, noisy_runs=0,
    reason="first", detail="the application had no champion",
    promoted_at="2026-01-01T00:00:00+00:00", calibrated=True, upper_quantile=0.95,
    cv_objective=0.01, table_sha256="0" * 64, app_version="1",
)  # fmt: skip
HEADER_ROW: dict[str, Any] = {
    "shape_i": 60.0, "shape_j": 64.0, "shape_k": 50.0, "spacing_i_mm": 2.0, "spacing_j_mm": 2.0,
    "spacing_k_mm": 2.0, "file_size_bytes": 3e5, "dtype": "int16",
}  # fmt: skip


def fit_forecaster(subjects: int, app: str = "segment") -> Forecaster:
    """Fit and calibrate ridge regressions on planted runs."""
    table, params = planted.table(subjects, apps=(app,)), FAMILIES["ridge"].defaults
    calibrated = {}
    for input_level in ("header", "volume"):
        model = point_model.fit(table, None, "ridge", params, input_level, 0)
        out_of_fold = Validation(table, None, 3, 0).out_of_fold("ridge", params, input_level)
        calibrated[input_level] = calibrate(model, table, out_of_fold, 1.5)
    return Forecaster(calibrated)


def bundle_of_apps(folder: Path, subjects: int, *apps: str) -> Bundle:
    """Write a bundle into a folder ``bundle``; each application has a ridge of planted runs."""
    configurations = [Configuration("cpu", n) for n in (1, 2)]
    parts = []
    for app in apps:
        forecaster = folder / "models" / app
        fit_forecaster(subjects, app).save(forecaster)
        served = ServedApp(
            app, planted.PARAMETERS, configurations, 64, 16, sha256_folder(forecaster), PROMOTION,
            ("here",), (("cpu", 1, 0), ("cpu", 2, 0)),
        )  # fmt: skip
        table = planted.table(subjects, apps=(app,))
        keys, labels = table["cell_key"].tolist(), table["subject"].tolist()
        parts.append(BundlePart(served, forecaster, keys, labels))
    return write_bundle(folder / FOLDER, parts)


def registered_bundle(project: Path, number: str) -> Bundle:
    """Open the bundle of a version in the registry of a project."""
    uri = runs.tracking_uri(project)
    return bundle_of(uri, version_numbered(uri, number))


def champion_version(project: Path) -> Version:
    """Return the champion in the registry of a project."""
    return required_champion(runs.tracking_uri(project))


def register_champion(folder: Path, subjects: int, *apps: str) -> None:
    """Register a champion in the registry of a project folder, of ``segment`` if not told."""
    names = apps or ("segment",)
    session = runs.connect(folder)
    with runs.run(session, "final", "ridge final") as run_id:
        pass
    with TemporaryDirectory() as work:
        bundle = bundle_of_apps(Path(work), subjects, *names)
        registry.register(run_id, bundle.folder, names[-1])
