"""The objects of ``voxcast`` in Python: models, plans, submissions, requests, tables, pictures."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import pytest
import yaml

import voxcast
from champions import write_champion
from commands import voxcast as verb
from small_head import write_head

ROOT = Path(__file__).parents[3]
TOOL = "import sys, pathlib; pathlib.Path(sys.argv[2], 'done').write_text('yes')"

mpl.use("Agg")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a champion of ``segment``, a tool of that name, and two heads."""
    folder = tmp_path_factory.mktemp("python") / "lab"
    verb("init", folder)
    app = {"version": "1", "argv": [sys.executable, "-c", TOOL, "{image}", "{out}"],
           "parameters": {"iterations": 30}}  # fmt: skip
    text = yaml.safe_dump({"defaults": ["_base@segment", "_self_"], "segment": app})
    (folder / "conf/app/segment.yaml").write_text(text)
    write_champion(folder, 40)
    (folder / "heads").mkdir()
    for name in ("a", "b"):
        write_head(folder / "heads" / f"{name}.nii.gz", spacing_mm=2.5, edge=80)
    return folder


@pytest.fixture(autouse=True)
def there(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)


def test_a_plan_says_what_the_verb_says_and_runs(project: Path, tmp_path: Path) -> None:
    heads = sorted(Path("heads").iterdir())
    plan = voxcast.load().recommend(heads, app="segment", cpus=[1])
    said = verb("recommend", *heads, "--app", "segment", "--cpus", 1, "--cluster", "local",
                "--json", project=project).json  # fmt: skip
    for n, image in enumerate(said["images"]):
        chosen = plan.table.iloc[n]
        assert chosen["walltime_s"] == image["chosen"]["walltime_s"]
        assert chosen["memory_bytes"] == image["chosen"]["memory_bytes"]
    assert plan.offers.groupby("image")["chosen"].sum().tolist() == [1, 1]
    plan.to_csv(tmp_path / "requests.csv")
    assert set(pd.read_csv(tmp_path / "requests.csv")["sample"]) == {"a", "b"}
    jobs = plan.submit(tmp_path / "out")
    assert jobs.wait(0.2).status()["status"].tolist() == ["completed", "completed"]
    assert (tmp_path / "out" / "a" / "done").read_text() == "yes"
    runs = voxcast.Submission(tmp_path / "out").runs()
    assert (runs["outcome"] == "completed").all()
    assert (runs["runtime_s"] < runs["requested_walltime_s"]).all()
    axes = voxcast.plot.requested_against_used(runs)
    assert axes.get_ylabel() == "requested time in s"
    with pytest.raises(voxcast.VoxcastError, match="already"):
        plan.submit(tmp_path / "out")


def test_a_plan_for_a_cluster_is_a_script(project: Path) -> None:
    plan = voxcast.load(project=project).recommend(
        "heads", app="segment", cluster="osc", deadline="2h"
    )
    assert "#SBATCH --time=" in replace(plan, images=plan.images[:1]).sbatch()
    with pytest.raises(voxcast.VoxcastError, match="are for one image"):
        plan.sbatch()
    assert voxcast.plot.pareto(plan).get_xlabel() == "requested time in s"
    with pytest.raises(voxcast.VoxcastError, match="moon: unknown cluster"):
        voxcast.load().recommend("heads", app="segment", cluster="moon")
    with pytest.raises(voxcast.VoxcastError, match=r"gone\.nii"):
        voxcast.load().recommend("gone.nii", app="segment")


def test_a_local_submission_is_cancelled_and_goes_on(project: Path, tmp_path: Path) -> None:
    config = project / "conf/app/segment.yaml"
    before = config.read_text()
    config.write_text(before.replace(TOOL, f"import time; time.sleep(1.5); {TOOL}"))
    try:
        jobs = voxcast.submit("heads/a.nii.gz", "segment", tmp_path / "out", cpus=[1])
        jobs.cancel()
        assert set(jobs.wait(0.2).status()["status"]) == {"completed"}
    finally:
        config.write_text(before)


def test_requests_of_a_law_a_history_and_an_image(project: Path) -> None:
    law = voxcast.requests("lognormal(3,0.5)", checkpoint=(2, 2))
    assert law["normalised_cost"].is_monotonic_increasing
    assert {"all_ckpt", "brute_force"} <= set(law["strategy"])
    said = {row["strategy"]: row for row in verb("requests", "lognormal(3,0.5)", "--json").json}
    plain = voxcast.requests("lognormal(3,0.5)").set_index("strategy")
    assert plain["requests"]["equal_time"] == said["equal_time"]["sequence"]
    history = ROOT / "data/history/reference"
    recorded = voxcast.requests(history, "ants_segment", strategy="mean_doubling")
    assert recorded["requests"][0][1] == pytest.approx(2 * recorded["requests"][0][0])
    image = voxcast.requests("heads/a.nii.gz", "segment", cpus=1, strategy="equal_time")
    predicted = voxcast.load().predict("heads/a.nii.gz", app="segment")
    assert image["requests"][0][0] > predicted["runtime_s_lower"][0]
    assert len(voxcast.plot.requests(law).patches) == len(law)


def test_images_and_histories_are_tables() -> None:
    facts = voxcast.inspect("heads/a.nii.gz")
    assert (facts["shape_i"], facts["spacing_i_mm"]) == (80, 2.5)
    assert facts["foreground_voxels"] > 0
    runs = voxcast.history(ROOT / "data/history/reference")
    assert len(runs) == 865
    phases = pd.concat(
        pd.read_parquet(part)
        for part in (ROOT / "data/history/reference").glob("*/phases.parquet")
    )
    apps = runs.set_index("cell_key")["app"]
    axes = voxcast.plot.phases(phases.assign(app=phases["cell_key"].map(apps)))
    assert axes.get_xlabel() == "mean time in s"
    with pytest.raises(voxcast.VoxcastError, match="gone"):
        voxcast.history("gone")
