from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

import report
from commands import call
from html_page import Page
from synthetic_campaign import Campaign
from voxcast import config
from voxcast.errors import TableError
from voxcast.report.inputs import ReportInputs
from voxcast.report.page import page, summary
from voxcast.report.results import Results

Build = Callable[..., Path]
CONF = Path(__file__).parents[3] / "conf"
MODEL = (
    "Error by model",
    "Predicted against measured",
    "Errors and bounds",
    "Best and worst scans",
)
RUNS = ("Measured runs", "Distributions of wall time", "CPU scaling", "CPU against GPU",
        "Time and memory by phase", "Cost of strategies")  # fmt: skip


def rendered(project: Path) -> tuple[Page, str, str]:
    results = Results.of(ReportInputs.read(project))
    html = page(results, project)
    return Page(html), html, summary(results, "results/report/index.html")


def lines(text: str) -> dict[str, str]:
    assert len(text.splitlines()) in (9, 10)
    return dict(re.split(r"  +", line, maxsplit=1) for line in text.splitlines())


def test_the_stage_writes_a_self_contained_page(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = build(app="ants_segment")
    config.compose(project / "params.yaml", ["app=[ants_segment]"], CONF)
    monkeypatch.chdir(project)  # commands are named as in the folder of the stage
    call(report.main, project=project)
    written = sorted(p.name for p in (project / "results/report").iterdir())
    assert written == ["index.html", "summary.txt"]
    html = (project / "results/report/index.html").read_text(encoding="utf-8")
    assert html == page(Results.of(ReportInputs.read(project)), project)
    content = Page(html)
    assert not content.all("script") + content.all("link") + content.all("iframe")
    for _, attrs in content.tags:
        for name in ("src", "href", "xlink:href", "srcset", "action", "data"):
            assert (attrs.get(name) or "#").startswith(("#", "data:image/"))
    assert not re.search(r"@import|url\((?!#)", html)
    ids = [attrs["id"] for _, attrs in content.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    targets = {(a.get("href") or "")[1:] for a in content.all("a")}
    assert targets <= set(ids)
    assert all(title in content.text for title in (*MODEL, *RUNS))
    assert all(i.get("alt") for i in content.all("img"))
    assert len(content.all("img")) == 3 * 4  # three slices of each scan
    pictures = [a for a in content.all("svg") if a.get("role") == "img"]
    assert pictures
    assert all(a.get("aria-label") for a in pictures)


def test_the_page_states_the_champion_and_its_limits(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/voxcast").touch()
    content, _, text = rendered(build())
    for said in (
        "ridge is champion of segment, version 1 (the application had no champion)",
        "not calibrated: a 95 % bound needs 19 training subjects",
        "Only 4 unseen subjects", "1 timeout", "no GPU on this machine", "of extra_trees",
        "No run on a GPU is on record, so there is nothing to compare.",
        "Learned from 22 runs of 8 subjects on record, from 1 image set; none shared the machine",
    ):  # fmt: skip
        assert said in content.text
    summary_lines = lines(text)
    assert summary_lines["measured"].startswith("29 of 30 runs completed")
    assert "the voxels baseline" in summary_lines["error"]
    assert "(4 unseen subjects, 7 runs)" in summary_lines["error"]
    assert summary_lines["report"] == "results/report/index.html"
    # The first head of the four on the test side.
    predict = ".venv/bin/voxcast predict data/images/0009.nii.gz --app segment"
    assert summary_lines["next"] == predict
    assert predict in content.text
    link = "http://127.0.0.1:5000/#/experiments/1"
    assert summary_lines["compare"] == f".venv/bin/mlflow ui, then {link}"
    assert link in content.text


def test_the_recorded_history_counts_for_devices_of_the_applications_of_the_pass_only(
    build: Build,
) -> None:
    project = build(subjects=6, test_subjects=2)
    campaign = Campaign()
    campaign.training(points=6, gpu=True)
    runs, phases = campaign.tables()
    part = project / "data" / "history" / "gpu" / "2026-01-01-00aa11bb-1"
    part.mkdir(parents=True)
    runs.to_parquet(part / "runs.parquet", index=False)
    phases.to_parquet(part / "phases.parquet", index=False)
    inputs = ReportInputs.read(project)
    assert set(inputs.runs["app"]) == {"segment"}
    assert set(inputs.on_record["app"]) == {"segment", "dnn_train"}
    assert set(inputs.phases_on_record["app"]) == {"segment", "dnn_train"}
    content, _, _ = rendered(project)
    assert "dnn_train" not in content.text
    assert "No run on a GPU is on record" in content.text


def test_runs_under_load_and_their_origin_are_stated(build: Build) -> None:
    project = build()
    path = project / "data/features/train.parquet"
    table = pd.read_parquet(path)
    half = len(table) // 2
    table.loc[: half - 1, "noisy"] = True
    table.loc[0, "image_set"] = "b" * 64
    table.loc[1, "batch"] = "second"
    table.to_parquet(path)
    content, _, _ = rendered(project)
    assert "from 2 image sets and the recorded batches second" in content.text
    assert f"{half} of them (50 %) shared the machine with other work" in content.text
    assert "were measured under load: 50 %" in content.text


def test_the_summary_is_of_the_applications_of_this_pass(build: Build) -> None:
    project = build()
    path = project / "data/runs/cpu/runs.parquet"
    runs = pd.read_parquet(path)
    other = runs.assign(app="unheard", cell_key="x" + runs["cell_key"])
    _write_runs(path, pd.concat([other, runs]))
    text = summary(Results.of(ReportInputs.read(project, ["segment"])), "index.html")
    assert "unheard" not in text
    assert lines(text)["measured"].startswith("29 of 30 runs completed: segment on")
    assert lines(text)["next"].endswith(" --app segment")


def _write_runs(path: Path, runs: pd.DataFrame, runs_left: int = 0) -> None:
    runs.attrs["runs_left"] = runs_left
    runs.to_parquet(path, index=False)


def test_hostile_names_stay_text_and_images_that_cannot_be_read_are_said(build: Build) -> None:
    bad = "<script>alert(1)</script>$x^$&\"'"
    project = build(app=bad, subject=bad + "{}")
    path = project / "data/catalogue/catalogue.parquet"
    catalogue = pd.read_parquet(path)
    catalogue.loc[0, "problem"] = bad
    catalogue.to_parquet(path)
    shutil.rmtree(project / "data/images")
    (project / "data/images").mkdir()
    (project / "data/images/0012.nii.gz").write_bytes(b"not an image")
    content, html, _ = rendered(project)
    assert "<script" not in html
    assert bad in content.text
    assert not content.all("img")
    assert "no such file" in content.text
    assert content.text.count("No slices: ") == 4


def test_a_table_of_effects_without_rows_is_no_section(build: Build) -> None:
    project = build()
    path = project / "results/explain/shuffled.csv"
    path.write_text(path.read_text().splitlines()[0] + "\n")
    content, _, _ = rendered(project)
    assert "Effect of the most important features" not in content.text


def test_scans_that_are_only_on_record_are_not_drawn(build: Build) -> None:
    project = build()
    path = project / "data/catalogue/catalogue.parquet"
    catalogue = pd.read_parquet(path)
    catalogue.assign(volume_id=catalogue["volume_id"] + "x").to_parquet(path)
    content, _, _ = rendered(project)
    assert "Best and worst scans" not in content.text


def test_an_empty_test_side_is_stated(build: Build) -> None:
    content, _, text = rendered(build(test_subjects=0))
    assert "No subject was kept apart: " in content.text
    assert not content.all("img")
    assert "no subjects were held out for testing" in lines(text)["error"]


def test_a_missing_input_is_reported(build: Build) -> None:
    project = build()
    (project / "results/evaluate/families.json").unlink()
    with pytest.raises(TableError, match=r"families\.json: no such file; run `dvc repro`"):
        ReportInputs.read(project)
