"""The real graph on four tiny volumes: killed, run again, served over HTTP. No part is faked."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
import yaml

from model_server import free_port, running_server
from voxcast import config
from voxcast.models.openings import BOOK, read_openings
from voxcast.records import TARGETS

PROJECT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
TINY = (
    "campaign=tiny", "images.subjects=4", "images.axis_voxels=[24,128]",
    "images.voxels=[60000,80000,200000]",
    "tune.trials=2", "tune.budget_s=30", "tune.folds=2", "evaluation.split_seed=14",
)  # fmt: skip


def environment() -> dict[str, str]:
    variables = {k: v for k, v in os.environ.items() if not k.startswith("MLFLOW_")}
    variables["PATH"] = f"{BIN}{os.pathsep}{variables['PATH']}"
    return {**variables, "MLFLOW_DISABLE_TELEMETRY": "true", "DVC_NO_ANALYTICS": "true"}


def run(project: Path, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    completed = subprocess.run(
        command, cwd=project, env=environment(), capture_output=True, text=True, check=False
    )
    if check:
        assert completed.returncode == 0, f"{command}\n{completed.stdout}\n{completed.stderr}"
    return completed


def receipt_of(project: Path) -> dict:
    return json.loads((project / "results/register/receipt.json").read_text())


def records(project: Path) -> set[Path]:
    return set((project / "data/measured/cpu").glob("[0-9a-f]*/run.json"))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tracked project, its graph killed in the middle and then brought to an end."""
    folder = tmp_path_factory.mktemp("voxcast") / "project"
    listed = run(PROJECT, "git", "ls-files", "-co", "--exclude-standard").stdout.split("\n")
    for name in filter(None, listed):
        source, target = PROJECT / name, folder / name
        # What is published was run elsewhere, its openings too.
        if source.is_file() and not name.startswith("published/") and name != "dvc.lock":
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    config.compose(folder / "params.yaml", list(TINY), folder / "conf")
    run(folder, "git", "init", "-q")
    run(folder, "git", "-c", "user.name=t", "-c", "user.email=t@t", "add", "-A")
    run(folder, "git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "copy")

    begun = subprocess.Popen(
        [str(BIN / "dvc"), "repro"],
        cwd=folder,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while not records(folder) and begun.poll() is None:
        time.sleep(0.1)
    os.killpg(begun.pid, signal.SIGKILL)
    begun.wait()
    # By content: DVC copies files that are hard links before a stage runs.
    finished = {path: path.read_bytes() for path in records(folder)}
    assert finished, "the graph ended before anything was measured"
    run(folder, "dvc", "repro")
    for path, content in finished.items():
        assert path.read_bytes() == content, "a finished run was measured again"
    return folder


def test_every_run_is_on_record_with_its_phases(project: Path) -> None:
    profiles = pd.read_parquet(project / "data/runs/cpu/runs.parquet")
    assert (profiles["outcome"] == "completed").all()
    assert profiles["volume_id"].nunique() == 4
    assert set(profiles["cpus"]) == ({1, 2} if len(os.sched_getaffinity(0)) > 1 else {1})
    assert (profiles[["runtime_s", "cpu_s", "peak_rss_bytes"]] > 0).all(axis=None)
    phases = pd.read_parquet(project / "data/profiles/phases.parquet")
    assert set(profiles["cell_key"]) == set(phases["cell_key"])
    assert {"load", "mask", "n4", "atropos", "write"} <= set(phases["phase"])
    assert len(pd.read_parquet(project / "data/runs/gpu/runs.parquet")) == 0


def test_the_graph_ends_with_a_champion_honestly_labelled(project: Path) -> None:
    receipt = receipt_of(project)
    assert receipt["version"] == "1"
    assert receipt["test_openings"] == {"same_runs": 1, "any_subject": 1}
    (opening,) = read_openings(project / BOOK)
    assert opening.by == "stage evaluate"
    assert list(receipt["apps"]) == ["ants_segment"]
    of_app = receipt["apps"]["ants_segment"]
    assert of_app["registered"]
    assert of_app["reason"] == "first"
    assert of_app["challenger"]["calibrated"] is False
    metrics = json.loads((project / "results/evaluate/families.json").read_text())
    families = yaml.safe_load((project / "params.yaml").read_text())["tune"]["families"]
    assert set(families) <= set(metrics["ants_segment"])
    page = (project / "results/report/index.html").read_text()
    assert of_app["champion"] in page


def test_a_second_run_has_nothing_to_do(project: Path) -> None:
    assert "up to date" in run(project, "dvc", "repro").stdout


def test_an_evaluation_parameter_reruns_only_dependent_stages(project: Path) -> None:
    params = project / "params.yaml"
    before = params.read_text()
    try:
        params.write_text(before.replace("max_under_request: 0.1", "max_under_request: 0.2"))
        dry = run(project, "dvc", "repro", "--dry").stdout
        rerun = {line.split("'")[1] for line in dry.splitlines() if line.startswith("Running")}
        assert rerun == {"register"}
        status = json.loads(run(project, "dvc", "status", "--json").stdout)
        # Stages of other files, which nothing here asks for, are listed with their path.
        assert {name for name in status if "/" not in name} == {"register"}
    finally:
        params.write_text(before)


def test_models_are_listed(project: Path) -> None:
    rows = json.loads(run(project, "voxcast", "models", "--json").stdout)
    assert [(row["version"], row["champion"], row["promoted"]) for row in rows] == [
        ("1", True, "ants_segment")
    ]
    assert rows[0]["apps"]["ants_segment"]["reason"] == "first"


def test_metrics_and_plots_can_be_shown(project: Path) -> None:
    metrics = json.loads(run(project, "dvc", "metrics", "show", "--json").stdout)
    assert receipt_of(project)["apps"]["ants_segment"]["champion"] in json.dumps(metrics)
    plotted = run(project, "dvc", "plots", "show", "-o", "plots")
    assert "Could not" not in plotted.stderr + plotted.stdout
    assert (project / "plots/index.html").is_file()


def test_only_evaluate_opens_the_test_table(project: Path, tmp_path: Path) -> None:
    blind = tmp_path / "blind"
    shutil.copytree(project, blind, ignore=shutil.ignore_patterns("cache", "plots"))
    (blind / "data/features/test.parquet").unlink()
    params = yaml.safe_load((blind / "params.yaml").read_text())
    params["tune"] |= {"families": ["median", "ridge"], "trials": 1}
    (blind / "params.yaml").write_text(yaml.safe_dump(params))
    for stage in ("tune", "train", "register", "report"):
        run(blind, sys.executable, f"pipelines/{stage}.py")
    assert run(blind, sys.executable, "pipelines/evaluate.py", check=False).returncode != 0


def test_same_seed_same_tables(project: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    shutil.copytree(project, again, ignore=shutil.ignore_patterns("cache", "plots"))
    for folder in ("images", "catalogue", "features"):
        shutil.rmtree(again / "data" / folder)
    for stage in ("images", "catalogue", "featurize"):
        run(again, sys.executable, f"pipelines/{stage}.py")
    for table in ("catalogue/catalogue", "catalogue/characteristics", "features/train"):
        first, second = (pd.read_parquet(p / f"data/{table}.parquet") for p in (project, again))
        pd.testing.assert_frame_equal(first, second)
    images = Path("data/images/images.tsv")
    assert (project / images).read_bytes() == (again / images).read_bytes()


def test_the_command_line_predicts_with_the_same_champion(project: Path) -> None:
    image = "data/images/sub-0001/anat/sub-0001_T1w.nii.gz"
    (entry,) = json.loads(run(project, "voxcast", "predict", image, "--json").stdout)
    predictions = entry["predictions"]
    assert [row["cpus"] for row in predictions] == [1, 2]
    for row in predictions:
        assert row["input_level"] == "volume"
        assert not row["calibrated"]
        for target in TARGETS:
            lower, median, upper = (row[f"{target}_{q}"] for q in ("lower", "median", "upper"))
            assert 0 < lower <= median <= upper
    # Runs of two CPUs are measured only where there are two.
    if len(os.sched_getaffinity(0)) == 1:
        assert "allocation.log2_cpus" in predictions[1]["out_of_range"]
    assert "not calibrated" in run(project, "voxcast", "predict", image, "--cpus", "1").stdout
    refused = run(project, "voxcast", "predict", image, "--app", "unheard", check=False)
    assert refused.returncode == 2
    assert "unheard: unknown application" in refused.stderr.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def server(project: Path) -> Iterator[str]:
    port = free_port()
    command = [str(BIN / "mlflow"), "models", "serve", "-m", "models:/voxcast@champion",
               "--env-manager", "local", "--port", str(port)]  # fmt: skip
    with running_server(command, port, project, environment()) as url:
        yield url


def test_the_served_champion_predicts_as_the_command_line_does(project: Path, server: str) -> None:
    image = "data/images/sub-0002/anat/sub-0002_T1w.nii.gz"
    for options in ((), ("--header-only",)):
        local, served = (
            json.loads(
                run(project, "voxcast", "predict", image, "--json", "--app", "ants_segment",
                    "--cpus", "1", *options, *more).stdout
            )[0]["predictions"][0]
            for more in ((), ("--url", server))
        )  # fmt: skip
        assert served["input_level"] == ("header" if options else "volume")
        assert served == pytest.approx(local)


def test_an_invalid_request_is_a_client_error(server: str) -> None:
    for body in (b"{", b'{"dataframe_records": [{"shape_i": 3}]}'):
        request = urllib.request.Request(
            f"{server}/invocations", body, {"Content-Type": "application/json"}
        )
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=30)
        assert refused.value.code == 400
