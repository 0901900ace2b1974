"""The stages from tune to register, and the verb `models`, on two applications of a project."""

import json
import runpy
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

import planted
from commands import called
from voxcast.errors import ModelError, RunError
from voxcast.files import sha256_folder
from voxcast.graph import learning_lock
from voxcast.images.network_volume import volume_dtype, write_small_volumes
from voxcast.serving.bundle import Bundle
from voxcast.serving.model_store import ModelStore
from voxcast.tracking.address import tracking_uri
from voxcast.tracking.promotion import receipts

ROOT = Path(__file__).parents[2]
STAGES = ("tune", "train", "evaluate", "explain", "register")
TIMES = ["cpu_s", "runtime_s"]


def planted_runs(app: str, subjects: range, noise: float = 0.05) -> pd.DataFrame:
    """Return undisturbed runs of these subjects, numbered from 0."""
    table = planted.table(subjects.stop, noise=noise, apps=(app,))
    names = [f"{n + 1:04d}" for n in subjects]
    rows = table[table["subject"].isin(names)].reset_index(drop=True)
    return rows.assign(noisy=False, image_set="heads")


def measured_under_load(rows: pd.DataFrame) -> pd.DataFrame:
    loaded = rows.assign(noisy=True, image_set="busy")
    loaded[TIMES] *= 3
    return loaded


def learn(*tables: pd.DataFrame) -> dict:
    """Write the tables of the stage featurize, run the stages, return the receipt."""
    table = pd.concat(tables, ignore_index=True)
    features = Path("data/features")
    features.mkdir(parents=True, exist_ok=True)
    on_test_side = table["subject"].isin(["0002", "0007"]) & (table["app"] == "segment")
    table[~on_test_side].to_parquet(features / "train.parquet", index=False)
    table[on_test_side].to_parquet(features / "test.parquet", index=False)
    table[["app", "subject"]].head(0).to_parquet(features / "stopped.parquet", index=False)
    volumes = table.drop_duplicates("volume_id")
    unknown = np.zeros((), volume_dtype(8))
    write_small_volumes(features / "volumes.npz", dict.fromkeys(volumes["volume_id"], unknown), 8)
    for stage in STAGES:
        assert runpy.run_path(str(ROOT / f"pipelines/{stage}.py"))["main"]() == 0
    return json.loads(Path("results/register/receipt.json").read_text())


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a champion of eight subjects of one application and one of another."""
    folder = tmp_path_factory.mktemp("project")
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    app = params["app"]["ants_segment"]
    params["app"] = dict.fromkeys(("segment", "tile"), app)
    params["tune"] |= {"families": ["median", "voxels", "ridge"], "trials": 2, "folds": 4}
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID"):
            patch.delenv(name, raising=False)
        patch.chdir(folder)
        receipt = learn(planted_runs("segment", range(10)), planted_runs("tile", range(1)))
    (folder / "first.json").write_text(json.dumps(receipt))
    return folder


@pytest.fixture(autouse=True)
def inside(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(project)
    import mlflow

    mlflow.set_tracking_uri(tracking_uri(project))


def registered_bundle(project: Path, number: str) -> Bundle:
    return ModelStore.of(project).open(number)


def hash_of(version: str, app: str) -> str:
    return sha256_folder(registered_bundle(Path(), version).forecaster_folder(app))


def test_each_application_is_learned_alone(project: Path) -> None:
    receipt = json.loads((project / "first.json").read_text())
    assert {app: facts["reason"] for app, facts in receipt["apps"].items()} == {
        "segment": "first", "tile": "first",
    }  # fmt: skip
    assert receipt["version"] == "2"
    tile = receipt["apps"]["tile"]
    assert tile["challenger"]["family"] in ("median", "voxels")  # one subject: a baseline
    assert not tile["challenger"]["calibrated"]
    assert tile["training"]["subjects"] == 1
    board = pd.read_csv("results/tune/leaderboard.csv")
    assert board.columns[0] == "app"
    families = board.groupby("app")["family"].apply(set).to_dict()
    assert "ridge" in families["segment"]
    assert families["tile"] == {"median", "voxels", "grid"}
    evaluated = json.loads(Path("results/evaluate/families.json").read_text())
    assert (evaluated["segment"]["subjects"], evaluated["tile"]["subjects"]) == (2, 0)
    assert "header_only" in evaluated["segment"]
    assert "ridge" not in evaluated["tile"]
    assert set(json.loads(Path("results/evaluate/metrics.json").read_text())) == {
        "segment", "tile",
    }  # fmt: skip
    predictions = pd.read_csv("results/evaluate/predictions.csv")
    assert set(predictions["app"]) == {"segment"}
    assert set(pd.read_csv("results/explain/shuffled.csv")["app"]) == {"segment"}
    # Nothing recorded to predict the runs of the project from.


def test_runs_of_mlflow_name_their_application() -> None:
    import mlflow

    finals = mlflow.search_runs(
        search_all_experiments=True, filter_string="tags.kind = 'final'", output_format="list"
    )
    assert {run.data.tags["app"] for run in finals} == {"segment", "tile"}
    for run in finals:
        study = mlflow.get_run(run.data.tags["mlflow.parentRunId"])
        assert study.data.tags["app"] == run.data.tags["app"] == run.data.params["app"]
    (ridge,) = (run for run in finals if run.data.tags["family"] == "ridge")
    assert {"cv/objective", "test/cpu_s/mape"} <= ridge.data.metrics.keys()
    contexts = {tag.value for entry in ridge.inputs.dataset_inputs for tag in entry.tags}
    assert contexts == {"training"}


def logged(kind: str) -> list[Any]:
    import mlflow

    return mlflow.search_runs(
        search_all_experiments=True, filter_string=f"tags.kind = '{kind}'", output_format="list"
    )


def test_trials_are_nested_in_studies_and_logged_once(project: Path) -> None:
    (campaign,) = logged("campaign")
    studies = {run.info.run_id: run for run in logged("study")}
    assert {run.data.tags["mlflow.parentRunId"] for run in studies.values()} == {
        campaign.info.run_id
    }
    names = {run.data.tags["family"] for run in studies.values() if run.data.tags["app"] == "tile"}
    assert names == {"median", "voxels", "grid"}
    trials = logged("trial")
    for trial in trials:
        study = studies[trial.data.tags["mlflow.parentRunId"]]
        assert study.data.tags["family"] == trial.data.tags["family"]
        assert trial.data.metrics["fit_s"] > 0
    count = {run.data.tags["family"]: run.data.params["trials"] for run in studies.values()
             if run.data.tags["app"] == "segment"}  # fmt: skip
    assert (count["ridge"], count["median"], count["grid"]) == ("2", "1", "0")
    before = len(logged("trial")), len(logged("final"))
    assert runpy.run_path(str(ROOT / "pipelines/register.py"))["main"]() == 0
    assert (len(logged("campaign")), len(logged("trial")), len(logged("final"))) == (1, *before)


def test_a_lost_database_is_filled_without_a_search(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {kind: len(logged(kind)) for kind in ("campaign", "study", "trial", "final")}
    copy = shutil.copytree(project, tmp_path / "copy", ignore=lambda folder, names: {"mlflow.db"})
    monkeypatch.chdir(copy)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert runpy.run_path(str(ROOT / "pipelines/register.py"))["main"]() == 0
    assert {kind: len(logged(kind)) for kind in before} == before
    assert ModelStore.of(copy).pointer().numbers == ["3", "2", "1"]


def test_a_busy_machine_more_subjects_and_a_person(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    segment, tile = planted_runs("segment", range(10)), planted_runs("tile", range(1))
    champion = hash_of("2", "segment")

    # Nine more subjects on a busy machine: the champion stays, and the receipt says why.
    loaded = measured_under_load(planted_runs("segment", range(10, 19)))
    receipt = learn(segment, tile, loaded)
    of_segment = receipt["apps"]["segment"]
    assert (of_segment["registered"], of_segment["reason"]) == (False, "under_load")
    assert of_segment["under_load"] == [
        "18 of 18 runs (100 %) of image set busy were measured beside other work"
    ]
    assert receipt["apps"]["tile"]["reason"] == "unchanged"
    assert receipt["version"] == "2"

    # A person decides otherwise, and then returns to what was.
    assert called("models", "promote", "--app", "segment") == 0
    assert "segment: " in capsys.readouterr().out
    promoted = ModelStore.of(project).listed()[0]
    assert (promoted["version"], promoted["champion"]) == ("3", True)
    assert promoted["apps"]["segment"]["reason"] == "by_hand"
    assert hash_of("3", "segment") != champion
    assert called("models", "compare", "2", "3") == 0
    compared = capsys.readouterr().out
    assert "tile: both versions have the same forecaster" in compared
    assert "over 17 held-out subjects, each predicted by models that had not learned" in compared
    assert called("models", "rollback", "--app", "segment") == 0
    assert "version 4 is champion; segment as in version 2" in capsys.readouterr().out
    assert hash_of("4", "segment") == champion
    assert hash_of("4", "tile") == hash_of("2", "tile")

    # What was rolled back is not promoted again by itself.
    assert runpy.run_path(str(ROOT / "pipelines/register.py"))["main"]() == 0
    receipt = json.loads(Path("results/register/receipt.json").read_text())
    assert receipt["apps"]["segment"]["reason"] == "rolled_back"
    assert receipt["version"] == "4"

    # The whole bundle moves between versions too.
    assert called("models", "rollback", "1") == 0
    assert ModelStore.of(project).champion() == "1"
    assert called("models", "rollback", "4") == 0
    capsys.readouterr()

    # Undisturbed subjects, twice as many: learned from, and the other application stays.
    receipt = learn(segment, tile, planted_runs("segment", range(10, 40)))
    assert receipt["apps"]["segment"]["reason"] in ("better", "more_subjects")
    assert receipt["apps"]["tile"]["reason"] == "unchanged"
    assert receipt["version"] == "5"
    assert hash_of("5", "tile") == hash_of("2", "tile")
    newest, oldest = (registered_bundle(project, number) for number in ("5", "2"))
    assert newest.apps["tile"] == oldest.apps["tile"]
    assert called("models") == 0
    listed = capsys.readouterr().out
    assert listed.startswith("version   5 champion\n  segment: ridge, ")
    kinds = [receipt["kind"] for receipt in receipts(project)]
    assert kinds == [
        "promotion", "promotion", "promotion", "comparison", "rollback", "rollback", "rollback",
        "promotion",
    ]  # fmt: skip


def test_a_version_is_described(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("models", "show", "5") == 0
    card = capsys.readouterr().out
    training = registered_bundle(project, "5").apps["segment"].promotion.evidence["training"]
    assert training["image_sets"] == {"heads": 76}
    for fact in (
        "# voxcast, version 5\n", "- made for: `segment`\n", "- replaced version: 4\n",
        "image sets: heads (76 runs); measured: 2026-01-01 to 2026-01-01\n",
        "- machines measured: here\n", "- bounds at 95 %: calibrated, ", " held-out subjects: ",
        "| CPU time | ", "- CPUs: 1 to 2 CPUs\n", "\n## tile\n", "bounds at 95 %: not calibrated",
    ):  # fmt: skip
        assert fact in card, fact
    assert "- software: voxcast==" in card
    logged = [path.read_text() for path in (project / "mlruns").rglob("model_card.md")]
    assert any(text.partition("## Limits")[2] in card for text in logged)
    assert card.endswith(" files, all of them as they were registered\n")
    for version in "12345":
        assert called("models", "show", version) == 0


def test_tags_tell_why_versions_were_made(project: Path) -> None:
    import mlflow

    client = mlflow.MlflowClient(tracking_uri(project))
    for reason, numbers in (("first", {1, 2}), ("by_hand", {3}), ("rolled_back", {4})):
        found_versions = client.search_model_versions(
            f"name = 'voxcast' and tags.reason = '{reason}'"
        )
        assert {int(version.version) for version in found_versions} == numbers
    tags = client.get_model_version("voxcast", "5").tags
    promotion = registered_bundle(project, "5").apps["segment"].promotion
    assert (tags["promoted"], tags["table_sha256"]) == ("segment", promotion.table_sha256)
    assert client.get_model_version_by_alias("voxcast", "champion").version == 5


def test_what_cannot_be_promoted_or_rolled_back_is_one_error() -> None:
    with pytest.raises(ModelError, match="unheard: was not learned last"):
        called("models", "promote", "--app", "unheard")
    with pytest.raises(ModelError, match="unheard: unknown application"):
        called("models", "rollback", "1", "--app", "unheard")
    with pytest.raises(ModelError, match="version 99: no such version; the model has 5, 4"):
        called("models", "rollback", "99")
    with pytest.raises(ModelError, match="version 99: no such version; the model has 5, 4"):
        called("models", "compare", "1", "99")
    with pytest.raises(ModelError, match="tile: unknown application"):
        called("models", "compare", "1", "2", "--app", "tile")


def test_a_promotion_waits_for_learning_and_needs_its_files() -> None:
    with learning_lock(Path()), pytest.raises(RunError, match=r"another `voxcast learn` .process"):
        called("models", "promote", "--app", "segment")
    train = Path("data/features/train.parquet")
    table = pd.read_parquet(train)
    table[table["app"] == "tile"].to_parquet(train, index=False)
    with pytest.raises(ModelError, match=r"of tile were; run `voxcast learn --app segment` first"):
        called("models", "promote", "--app", "segment")
    with pytest.raises(ModelError, match=r"have segment in common.*of tile.*learn --app segment"):
        called("models", "compare", "2", "5", "--app", "segment")
    Path("data/tune/tile/best.json").unlink()
    with pytest.raises(ModelError, match=r"tuning has not ended; run `voxcast learn --app tile`"):
        called("models", "promote", "--app", "tile")
