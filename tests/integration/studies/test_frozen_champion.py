"""The registered model judged on reserved batches, by the command, as a user would get it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from champions import PROMOTION
from frozen_champion import judge
from registries import connected
from voxcast import config
from voxcast.errors import ModelError
from voxcast.evaluation.recorded_table import FULL, of_app, opened_table, recorded_table
from voxcast.features.split import side
from voxcast.files import sha256_folder
from voxcast.images.recorded import RECORDED_IMAGES
from voxcast.models import point_model
from voxcast.models.calibrated_model import calibrate
from voxcast.models.families.family import FAMILIES
from voxcast.models.forecaster import Forecaster
from voxcast.models.openings import BOOK, read_openings
from voxcast.models.selection.cross_validation import Validation
from voxcast.records import Configuration
from voxcast.serving.bundle import Bundle, BundlePart, Origin, write_bundle
from voxcast.serving.model_store import ModelStore
from voxcast.serving.prediction_service import PredictionService
from voxcast.serving.served_app import ServedApp
from voxcast.tracking import registry, runs
from voxcast.tracking.registry import FOLDER

ROOT = Path(__file__).parents[3]
HISTORY = ROOT / "data/history"
APP = "ants_segment"


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Recorded runs of the training side."""
    recorded = recorded_table([HISTORY / "reference"], lambda s: side(s, 12, 0.25) == "test")
    return of_app(recorded, APP, FULL)


@pytest.fixture(scope="module")
def bundle(table: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("bundle")
    params, models = FAMILIES["ridge"].defaults, {}
    for level in ("header", "volume"):
        model = point_model.fit(table, None, "ridge", params, level, 0)
        out_of_fold = Validation(table, None, 3, 0).out_of_fold("ridge", params, level)
        models[level] = calibrate(model, table, out_of_fold, 1.5)
    Forecaster(models).save(folder / "forecaster")
    app = config.load(ROOT / "params.yaml").apps[APP]
    served = ServedApp(
        APP, dict(app.parameters), [Configuration("cpu", 1), Configuration("cpu", 2)], 64, 16,
        sha256_folder(folder / "forecaster"), PROMOTION,
    )  # fmt: skip
    keys, subjects = table["cell_key"].tolist(), table["subject"].tolist()
    part = BundlePart(served, folder / "forecaster", keys, subjects)
    return write_bundle(folder / FOLDER, [part], origin=Origin(APP))


@pytest.fixture(scope="module")
def project(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    for name in ("reserved.txt", "real", "second"):
        copy = shutil.copy if name.endswith(".txt") else shutil.copytree
        (folder / "data/history").mkdir(parents=True, exist_ok=True)
        copy(HISTORY / name, folder / "data/history" / name)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID"):
            patch.delenv(name, raising=False)
        patch.chdir(folder)
        session = connected(folder)
        with runs.run(session, "final", "ridge final") as run_id:
            pass
        with ModelStore.of(folder).new_folder() as work:
            copied = shutil.copytree(bundle.folder, Path(work, FOLDER))
            registry.register(folder, run_id, copied)
    return folder


def run_judge(project: Path, *batches: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "studies/judge.py", *batches]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)


def test_the_command_judges_the_champion_and_enters_it_in_the_book(
    project: Path, bundle: Bundle
) -> None:
    ended = run_judge(project, "second", "real")
    assert ended.returncode == 0, ended.stderr
    openings = read_openings(project / BOOK)
    assert [opening.table for opening in openings] == ["second", "real"]
    assert "version 1" in openings[0].by
    second = json.loads((project / "results/judged/second.json").read_text())
    assert (second["batch"], second["version"]) == ("second", "1")
    assert second["openings"] == {"same_runs": 1, "any_subject": 1}
    segment = second["apps"][APP]
    assert segment["forecaster_sha256"] == bundle.apps[APP].forecaster_sha256
    assert segment["learned_from"]["subjects"] == 105
    assert segment["host_known"] == segment["answers"]["runs"]  # the same machine
    assert segment["bounds"]["joint"]["subjects"] == segment["coverage"]["cpu_s"]["subjects"]
    assert segment["answers"]["runs"] == segment["errors"]["cpu_s"]["runs"] >= 60
    assert sum(segment["input_levels"].values()) == segment["answers"]["runs"]
    assert set(segment["input_levels"]) == {"volume"}
    assert 0 < segment["errors"]["cpu_s"]["mape"] < 40
    assert 0 < segment["errors"]["cpu_s"]["normalised_mape"] < 40
    assert 0.5 < segment["coverage"]["cpu_s"]["rate"] <= 1
    assert second["apps"]["ants_register"] == {
        "not_measurable": "the registered model has not learned it"
    }
    real = json.loads((project / "results/judged/real.json").read_text())["apps"][APP]
    answers = real["answers"]
    assert answers["runs"] == 9
    assert answers["calibrated"] + answers["out_of_range"] <= 9
    assert bool(real["out_of_range"]) == (answers["out_of_range"] > 0)
    again = run_judge(project, "real")
    assert "opened 2 times until now" in again.stdout


@pytest.mark.parametrize("batches", [(), ("reference",), ("real", "other")])
def test_only_reserved_batches_are_judged_and_nothing_is_opened_before(
    project: Path, batches: tuple[str, ...]
) -> None:
    before = len(read_openings(project / BOOK))
    ended = run_judge(project, *batches)
    assert ended.returncode == 2
    assert "choose from real, second" in ended.stderr
    assert len(read_openings(project / BOOK)) == before


def test_a_model_is_not_judged_on_what_it_learned_from(
    bundle: Bundle, table: pd.DataFrame
) -> None:
    model = PredictionService(bundle)
    images = pd.read_parquet(HISTORY / "reference" / RECORDED_IMAGES)
    with pytest.raises(ModelError, match="learned from 105 of the subjects to judge on"):
        judge(model, table, images, {})


def test_the_answers_are_those_of_the_forecaster(bundle: Bundle, tmp_path: Path) -> None:
    batch = HISTORY / "real"
    judging = opened_table(batch, tmp_path / "openings.jsonl", "test", "")
    model = PredictionService(bundle)
    images = pd.read_parquet(batch / RECORDED_IMAGES)
    of_segment = judge(model, judging[judging["app"] == APP], images, {})[APP]
    rows = of_app(judging, APP, FULL)
    logs = point_model.predict_table(bundle.forecaster(APP).model_at("volume").model, rows, None)
    shares = abs(pd.Series(logs[:, 0]).rpow(2.718281828459045) / rows["cpu_s"] - 1)
    assert of_segment["errors"]["cpu_s"]["mape"] == pytest.approx(100 * shares.mean())
