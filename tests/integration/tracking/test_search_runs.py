"""MLflow runs of a tuning, on a real database in a folder of its own."""

from pathlib import Path

import pytest

import planted
from registries import connected
from voxcast.models.selection.cross_validation import Validation
from voxcast.models.selection.learning import learn
from voxcast.tracking import runs
from voxcast.tracking.search_runs import SearchRuns


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> runs.Session:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("MLFLOW_RUN_ID", raising=False)
    monkeypatch.chdir(tmp_path)
    return connected(tmp_path)


def test_trials_are_nested_in_studies_and_ensembles_have_separate_runs(
    session: runs.Session,
) -> None:
    import mlflow

    with (
        runs.run(session, "campaign", "c") as campaign,
        SearchRuns(session, campaign, "segment", {"table_sha256": "x"}) as searches,
    ):
        leaderboard = learn(
            Validation(planted.table(8), None, 2, 0), ("extra_trees", "ridge"), trials=2,
            on_family=searches.on_family, on_trial=searches.on_trial, on_search=searches.on_search,
        )  # fmt: skip
        searches.log_ensembles(leaderboard)
    logged = mlflow.search_runs(search_all_experiments=True, output_format="list")
    by_kind: dict[str, list[object]] = {}
    for run in logged:
        by_kind.setdefault(run.data.tags["kind"], []).append(run)
    studies = {run.data.tags["family"]: run for run in by_kind["study"]}
    assert set(studies) == {"extra_trees", "ridge", "grid", "voting", "stacked"}
    assert {s.data.tags["mlflow.parentRunId"] for s in studies.values()} == {campaign}
    assert all(run.info.status == "FINISHED" for run in logged)
    assert len(by_kind["trial"]) == 4
    for trial in by_kind["trial"]:
        study = studies[trial.data.tags["family"]]
        assert trial.data.tags["mlflow.parentRunId"] == study.info.run_id
    assert studies["extra_trees"].data.params["trials"] == "2"
    assert {run.data.tags["app"] for run in logged if run.data.tags["kind"] != "campaign"} == {
        "segment"
    }
    best = leaderboard.metrics["volume"][leaderboard.best_family]["objective"]
    assert studies["grid"].data.metrics["cv/objective"] == pytest.approx(best)


def test_an_interrupted_study_is_marked(session: runs.Session) -> None:
    import mlflow

    with runs.run(session, "campaign", "c") as campaign:
        searches = SearchRuns(session, campaign, "segment", {})
        searches.on_family("extra_trees")
        error = KeyboardInterrupt()
        searches.__exit__(type(error), error, None)
    study = runs.find("study", app="segment", family="extra_trees")
    assert mlflow.get_run(study).info.status == "FAILED"
