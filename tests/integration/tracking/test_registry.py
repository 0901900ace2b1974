"""Runs and registry on a real database in a folder of its own: nesting and promotion."""

import functools
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import pytest

import planted
from champions import register_champion
from registries import connected
from voxcast.errors import ModelError
from voxcast.files import sha256_file, sha256_folder
from voxcast.models.selection.cross_validation import Validation
from voxcast.models.selection.fitting import fit_forecasters
from voxcast.models.selection.learning import learn
from voxcast.records import Configuration
from voxcast.serving.bundle import INDEX, Bundle
from voxcast.serving.model_store import ModelStore
from voxcast.serving.prediction_service import PredictionService
from voxcast.tracking import registry, runs
from voxcast.tracking.address import tracking_uri
from voxcast.tracking.challengers import AppFacts, Challenger
from voxcast.tracking.promotion import Rule, promote, publish_champion, receipts, rolled_back
from voxcast.tracking.registry import MODEL_NAME, SHA256_TAG
from voxcast.tracking.versions import roll_back

MODELS = TemporaryDirectory()
RULE = Rule(0.95, 0.10, 1.5)
APP = AppFacts("segment", "1", planted.PARAMETERS, [Configuration("cpu", 1)], 64, 16)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("MLFLOW_RUN_ID", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def learned(
    models: Path, families: tuple[str, ...], app: str, table: pd.DataFrame | None = None
) -> Challenger:
    """Do what the stages tune and train do, without their files in between."""
    runs_on_record = planted.table(12, apps=(app,)) if table is None else table
    validation = Validation(runs_on_record, None, 3, 0)
    leaderboard = learn(validation, families, trials=2, input_levels=("volume", "header"))
    for name, forecaster in fit_forecasters(
        validation, leaderboard, list(leaderboard.params), 1.5
    ):
        forecaster.save(models / app / name)
    return Challenger(validation, "sha", leaderboard, models / app)


@functools.cache
def trained(*families: str, app: str = "segment") -> Challenger:
    """Learn from the planted runs of an application, once for all tests."""
    return learned(Path(MODELS.name, "-".join(families)), families, app)


def register_in(project: Path, subjects: int) -> None:
    """Register a champion in a process that used another project before."""
    os.environ.pop("MLFLOW_TRACKING_URI", None)  # where MLflow keeps what it was pointed to
    register_champion(project, subjects)


def promoted(project: Path, *families: str, app: str = "segment") -> dict:
    session = connected(project)
    return promote(session, project, replace(APP, name=app), trained(*families, app=app), RULE)


def test_runs_are_nested_tagged_and_reused(project: Path) -> None:
    import mlflow

    session = connected(project)
    with runs.run(session, "campaign", "c", tags={"table_sha256": "x"}) as campaign, runs.run(
        session, "study", "ridge", parent=campaign, tags={"family": "ridge"}
    ) as study, runs.run(session, "trial", "ridge 0", parent=study, params={"alpha": 1},
                  metrics={"cv/cpu_s/mape": 4.0}) as trial:  # fmt: skip
        pass
    assert runs.find("study", family="ridge") == study
    assert runs.find("study", family="none") is None
    logged = mlflow.get_run(trial)
    assert logged.data.tags["mlflow.parentRunId"] == study
    assert logged.data.params == {"alpha": "1"}
    assert logged.data.metrics == {"cv/cpu_s/mape": 4.0}
    assert {"host", "user", "voxcast_version", "kind"} <= set(logged.data.tags)
    assert (project / "mlflow.db").is_file()


def test_an_inherited_run_id_becomes_the_parent(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    connected(project)
    with mlflow.start_run() as outer:
        pass
    monkeypatch.setenv("MLFLOW_RUN_ID", outer.info.run_id)
    session = connected(project)
    with runs.run(session, "campaign", "c") as campaign:
        pass
    assert campaign != outer.info.run_id
    assert mlflow.get_run(campaign).data.tags["mlflow.parentRunId"] == outer.info.run_id


def registered_bundle(project: Path, number: str) -> Bundle:
    return ModelStore.of(project).open(number)


def champion(project: Path) -> str:
    return ModelStore.of(project).champion()


def test_first_then_same_then_better_then_worse(project: Path) -> None:
    first = promoted(project, "median")
    assert (first["registered"], first["reason"], first["version"]) == (True, "first", "1")
    # What is trained anew differs in its files and is the same recipe; itself, it is unchanged.
    session, challenger = connected(project), learned(project / "again", ("median",), "segment")
    refit = promote(session, project, APP, challenger, RULE)
    assert refit["reason"] in ("not_better", "unchanged")
    assert refit["version"] == "1"
    better = promoted(project, "median", "ridge")
    assert better["challenger"]["family"] == "ridge"
    assert (better["registered"], better["reason"], better["version"]) == (True, "better", "2")
    assert better["comparison"]["gain"]["low"] > 0
    worse = promoted(project, "voxels")
    assert not worse["registered"]
    assert worse["version"] == better["version"]
    json.dumps(worse, allow_nan=False)


def test_a_promotion_carries_the_other_applications_over_unchanged(project: Path) -> None:
    assert promoted(project, "median")["version"] == "1"
    first = registered_bundle(project, "1")
    receipt = promoted(project, "ridge", app="tile")
    assert (receipt["registered"], receipt["reason"], receipt["version"]) == (True, "first", "2")
    second = registered_bundle(project, "2")
    assert list(second.apps) == ["segment", "tile"]
    assert second.apps["segment"] == first.apps["segment"]
    assert second.apps["tile"].host_classes == ("here",)
    assert second.apps["tile"].measured == (("cpu", 1, 0), ("cpu", 2, 0))
    hashes = [sha256_folder(b.forecaster_folder("segment")) for b in (first, second)]
    assert hashes[0] == hashes[1] == first.apps["segment"].forecaster_sha256
    assert second.trained_on("segment") == first.trained_on("segment")
    assert second.apps["tile"].promotion.from_version == "1"
    newest, oldest = ModelStore.of(project).listed()
    assert (newest["champion"], oldest["champion"]) == (True, False)
    assert (newest["promoted"], newest["previous"]) == ("tile", "1")
    assert newest["apps"]["tile"]["family"] == "ridge"
    assert newest["apps"]["segment"] == oldest["apps"]["segment"]
    assert_described(first, second)
    model = PredictionService.of_project(project)
    assert model.champion("tile").app == "tile"
    with pytest.raises(ModelError, match="several applications: segment, tile"):
        model.champion()


def champion_of_two(project: Path) -> Bundle:
    promoted(project, "median")
    promoted(project, "ridge", app="tile")
    return registered_bundle(project, "2")


DAMAGE: dict[str, Callable[[Bundle], object]] = {
    "forecaster": lambda bundle: shutil.rmtree(bundle.forecaster_folder("tile")),
    "index": lambda bundle: (bundle.folder / INDEX).write_text("{"),
    "runs": lambda bundle: bundle.trained_on_path("tile").write_text("{}"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_nothing_is_promoted_beside_damage_until_a_person_rolls_back(
    project: Path, kind: str
) -> None:
    DAMAGE[kind](champion_of_two(project))
    with pytest.raises(ModelError, match="`voxcast models rollback` returns to an older"):
        promoted(project, "median", "ridge")
    assert champion(project) == "2"
    receipt = roll_back(project)
    assert (receipt["to_version"], receipt["restored"].keys()) == ("1", {"segment"})
    assert rolled_back(project, "tile") == set()  # no person decided against it
    assert promoted(project, "median", "ridge")["version"] == "3"
    assert receipts(project)[-1]["kind"] == "promotion"


def test_one_application_returns_to_its_older_forecaster(project: Path) -> None:
    promoted(project, "median", app="tile")
    promoted(project, "median")
    promoted(project, "median", "ridge", app="tile")
    first, third = (registered_bundle(project, number) for number in "13")
    receipt = roll_back(project, app="tile")
    assert (receipt["to_version"], receipt["version"]) == ("2", "4")
    fourth = registered_bundle(project, "4")
    assert fourth.apps["tile"].forecaster_sha256 == first.apps["tile"].forecaster_sha256
    assert fourth.apps["segment"] == third.apps["segment"]
    assert not fourth.problems()
    assert rolled_back(project, "tile") == {third.apps["tile"].forecaster_sha256}
    with pytest.raises(ModelError, match="has the champion's forecaster of tile"):
        roll_back(project, "1", "tile")
    shutil.rmtree(fourth.forecaster_folder("tile"))
    assert roll_back(project, "1", "tile")["version"] == "5"
    assert not registered_bundle(project, "5").problems()


def assert_described(first: Bundle, second: Bundle) -> None:
    """Check that the page of the registry says what each version serves."""
    import mlflow

    client = mlflow.MlflowClient()
    assert "one forecaster for each application" in str(
        client.get_registered_model(MODEL_NAME).description
    )
    for number, bundle in (("1", first), ("2", second)):
        tags = client.get_model_version(MODEL_NAME, number).tags
        assert tags[SHA256_TAG] == sha256_file(bundle.folder / INDEX)
    assert client.get_model_version_by_alias(MODEL_NAME, "champion").version == 2


def test_a_lost_registry_is_detected(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connected(project)
    registry.write_marker(project, "1")
    assert not registry.forget_lost(project)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    assert registry.forget_lost(project)
    assert not (project / registry.MARKER).exists()
    registry.write_marker(project, "1")
    assert not registry.forget_lost(project)  # a server that does not answer is not lost
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    register_champion(project, 12)
    registry.write_marker(project, "1")
    assert not registry.forget_lost(project)
    (project / "models/champion.json").unlink()
    assert registry.forget_lost(project)
    registry.write_marker(project, "1")
    (project / "mlflow.db").unlink()
    assert registry.forget_lost(project)


def test_a_registry_that_was_begun_anew_gets_the_champion_under_a_new_number(
    project: Path,
) -> None:
    import mlflow

    bundle = champion_of_two(project)
    anew = project / "anew"
    shutil.copytree(project / "models", anew / "models")
    os.environ.pop("MLFLOW_TRACKING_URI")
    session = connected(anew)
    publish_champion(session, anew)
    publish_champion(session, anew)  # once is enough
    assert (champion(anew), ModelStore.of(anew).pointer().numbers) == ("3", ["3", "2", "1"])
    again = registered_bundle(anew, "3")
    assert again.apps.keys() == bundle.apps.keys()
    for app, served in bundle.apps.items():
        assert again.apps[app].forecaster_sha256 == served.forecaster_sha256
    assert mlflow.MlflowClient().get_model_version_by_alias(MODEL_NAME, "champion").version == 3


def test_a_version_is_fetched_and_what_was_changed_is_refused(project: Path) -> None:
    champion_of_two(project)
    uri, store = tracking_uri(project), ModelStore(project / "elsewhere")
    assert registry.pull(store, uri) == "2"
    assert registry.pull(store, uri, "1") == store.champion() == "1"
    assert registry.pull(store, uri) == store.champion() == "2"  # it is here
    for number in "12":
        assert not store.open(number).problems()
    with pytest.raises(ModelError, match="the registry has no version 9"):
        registry.pull(store, uri, "9")
    (index,) = (project / "mlruns").rglob("bundle/forecasters/tile/forecaster.json")
    index.write_text(index.read_text() + " ")
    fresh = ModelStore(project / "fresh")
    with pytest.raises(ModelError, match="application tile: is not the model that was"):
        registry.pull(fresh, uri)
    assert fresh.pointer().champion is None
    assert not list(fresh.folder.glob("v*"))


def test_a_project_that_was_moved_writes_nothing_where_it_was(project: Path) -> None:
    import mlflow

    first = project / "first"
    first.mkdir()
    register_in(first, 12)
    before = sorted(first.rglob("*"))
    copy = shutil.copytree(first, project / "copy")
    register_in(copy, 13)
    assert sorted(first.rglob("*")) == before
    assert ModelStore.of(copy).champion() == "2"
    assert len(list((copy / "mlruns").rglob("bundle.json"))) == 2
    moved = first.rename(project / "second")
    assert PredictionService.of_project(moved).bundle.version == "1"
    register_in(moved, 14)
    assert not first.exists()
    names = {experiment.name for experiment in mlflow.MlflowClient().search_experiments()}
    assert names == {"Default", "voxcast", f"voxcast of {first}/mlruns"}
    register_in(moved, 15)
    assert len(mlflow.MlflowClient().search_experiments()) == 3
