"""A forecaster fitted to planted runs, and a project whose registry has it as champion."""

from pathlib import Path

import pytest

from champions import bundle_of_apps, register_champion
from small_head import write_head
from voxcast.models.forecaster import Forecaster
from voxcast.serving.bundle import Bundle
from voxcast.serving.prediction_service import PredictionService


@pytest.fixture(scope="session")
def forecaster(bundle: Bundle) -> Forecaster:
    return bundle.forecaster("segment")


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return bundle_of_apps(tmp_path_factory.mktemp("bundle"), 20, "segment")


@pytest.fixture(scope="session")
def service(bundle: Bundle) -> PredictionService:
    return PredictionService(bundle)


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
