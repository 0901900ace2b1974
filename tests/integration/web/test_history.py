"""GET /history: recorded runs of this repository, jobs on record, and what is cached."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from champions import write_champion
from recorded_jobs import job_row, measured_row
from voxcast.runs.store import add_part, load_history
from voxcast.runs.table import frame_of
from voxcast.serving.model_store import ModelStore
from voxcast.web.application import application
from voxcast.web.overview import MAX_RUNS
from voxcast.web.server import Settings

ADDRESS = "http://127.0.0.1"
RECORDED = Path(__file__).parents[3] / "data/history/real"
EVALUATED = (
    "cell_key,subject,app,runtime_s_actual,runtime_s_median,runtime_s_upper,"
    "peak_rss_bytes_actual,peak_rss_bytes_median,peak_rss_bytes_upper,family\n"
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("history")
    shutil.copytree(RECORDED, folder / "data/history/real")
    write_champion(folder, 20, "register", "segment")
    return folder


@pytest.fixture(scope="module")
def service(project: Path) -> Iterator[TestClient]:
    settings = Settings(ModelStore.of(project), project)
    with TestClient(application(settings), ADDRESS) as client:
        yield client


def record(project: Path, part: str, rows: list[dict[str, Any]]) -> None:
    folder = project / "data/history/jobs" / part
    folder.parent.mkdir(parents=True, exist_ok=True)
    add_part(folder, frame_of(rows), {"runs": len(rows)})


def history(service: TestClient) -> dict[str, Any]:
    answer = service.get("/history")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_recorded_runs_are_compared(service: TestClient) -> None:
    content = history(service)
    runs = load_history([RECORDED])
    assert content["runs_on_record"] == len(runs) == len(content["runs"])
    assert [run["used_s"] for run in content["runs"]] == pytest.approx(runs["runtime_s"].tolist())
    assert {run["requested_s"] for run in content["runs"]} == {None}
    assert content["calibration"] == []


def test_it_is_computed_anew_when_runs_were_added(service: TestClient, project: Path) -> None:
    first = service.get("/history")
    assert len(service.app.state.history) == 1  # what has not changed is not computed again
    rows = [job_row(n, f"2026-03-{n + 1:02}T00:00:00+00:00", 12.0 + n / 4) for n in range(20)]
    measured = [measured_row(n, 1, 10.0) for n in range(3)]
    record(project, "2026-03-20-submit-1", rows + measured)
    (project / "results/evaluate").mkdir(parents=True)
    bounds = [(11, "ridge"), (9.5, "ridge"), (11, "extra_trees")]
    lines = [
        f"{row['cell_key']},{row['subject']},segment,10,9,{upper},2,1,3,{family}\n"
        for row, (upper, family) in zip(measured, bounds, strict=True)
    ]
    (project / "results/evaluate/predictions.csv").write_text(EVALUATED + "".join(lines))
    content = history(service)
    assert content["runs_on_record"] == first.json()["runs_on_record"] + 23
    by_time = {run["started_at"]: run for run in content["runs"]}
    job = by_time["2026-03-20T00:00:00+00:00"]
    assert (job["requested_s"], job["used_s"], job["predicted_upper_s"]) == (20.0, 16.75, 15.0)
    assert [run["predicted_by"] for run in content["runs"]].count("evaluation") == 2
    counted = {
        (row["basis"], row["target"]): (row["below"], row["subjects"])
        for row in content["calibration"]
    }
    assert counted == {
        ("submission", "runtime_s"): (13, 20), ("submission", "peak_rss_bytes"): (20, 20),
        # Those trees are not the champion.
        ("evaluation", "runtime_s"): (1, 2), ("evaluation", "peak_rss_bytes"): (2, 2),
    }  # fmt: skip
    coverage = next(row for row in content["calibration"] if row["below"] == 13)
    assert coverage["low"] < coverage["share_within"] == 13 / 20 < coverage["high"] < 0.95


def test_the_newest_runs_are_told_of_a_long_history(service: TestClient, project: Path) -> None:
    rows = [
        job_row(n, f"2027-01-01T{n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}+00:00", 5.0)
        for n in range(MAX_RUNS + 10)
    ]
    record(project, "2027-01-01-submit-1", rows)
    content = history(service)
    assert len(content["runs"]) == MAX_RUNS
    assert content["runs"][0]["started_at"] == rows[10]["started_at"]
    assert content["runs"][-1]["started_at"] == rows[-1]["started_at"]
    assert content["runs_on_record"] > MAX_RUNS
    january = [row for row in content["calibration"] if row["month"] == "2027-01"]
    assert {row["subjects"] for row in january} == {MAX_RUNS + 10}


def test_without_a_project_the_reason_is_told(project: Path) -> None:
    with TestClient(application(Settings(ModelStore.of(project))), ADDRESS) as service:
        answer = service.get("/history")
    assert answer.status_code == 404
    assert "without a project" in answer.json()["detail"]
