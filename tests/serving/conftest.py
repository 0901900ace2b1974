"""A forecaster fitted to planted runs, and a project whose registry has it as champion."""

from pathlib import Path

import pytest

from champions import CATALOGUE, fit_forecaster, register_champion
from small_head import write_head
from voxcast.models.forecaster import Forecaster
from voxcast.records import Configuration
from voxcast.serving.prediction_service import PredictionService, ServedCatalogue


@pytest.fixture(scope="session")
def forecaster() -> Forecaster:
    return fit_forecaster(20)


@pytest.fixture(scope="session")
def service(forecaster: Forecaster) -> PredictionService:
    configurations = [Configuration(**c) for c in CATALOGUE["configurations"]]
    return PredictionService(
        forecaster, ServedCatalogue(**{**CATALOGUE, "configurations": configurations})
    )


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID"):
            patch.delenv(name, raising=False)
        patch.chdir(folder)
        register_champion(folder, 20)
    (folder / "params.yaml").touch()
    write_head(folder / "head.nii.gz", spacing_mm=2.5, edge=80)
    return folder
