"""The mission, row by row: one real command, stage or page for each, and its result.

Only what users touch is used: commands, stages, HTTP, MLflow's API, ``import voxcast``. What runs
in a project runs in the one of the fixture ``graph``, of a few recorded and measured runs.
"""

import json
import os
import runpy
import shutil
import sys
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pandas as pd
import pytest
import yaml

import accounting
from champions import register_champion, register_machines_champion
from commands import BIN, ROOT, call, environment, run, voxcast
from model_server import free_port, running_server
from participants import write_participants
from private_slurm import PrivateSlurm
from shell_campaigns import write_campaign
from submitted_project import APP, SubmittedProject
from voxcast.api.question import Question
from voxcast.records import TARGETS

REFERENCE = ROOT / "data/history/reference"
GPU = ROOT / "data/history/gpu"
SAMPLES = ROOT / "tests/samples"
APP_NAME = "ants_segment"
LAW = "lognormal(3,0.5)"
SLANT = os.environ.get("VOXCAST_SLANT_ARTIFACT")
needs_mpirun = pytest.mark.skipif(shutil.which("mpirun") is None, reason="needs mpirun")
needs_slant = pytest.mark.skipif(not SLANT, reason="VOXCAST_SLANT_ARTIFACT is not set")

# Half of the CPU time that the planted champion learned: this machine is twice as fast.
TOOL = """
import sys, time
import nibabel
import numpy as np
voxels = np.asanyarray(nibabel.load(sys.argv[1]).dataobj)
end = (1 + 4e-6 * np.count_nonzero(voxels > voxels.mean())) / 2
while time.process_time() < end:
    pass
"""


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def profiled(project: Path, out: Path, app: str, *words: object, code: int = 0) -> dict[str, Any]:
    """Run an application once, measured; its results are in ``out``."""
    answer = voxcast(
        "measure", *words, "--app", app, "--out", out, "--json", project=project, code=code
    )
    (measured,) = answer.json
    assert measured["outcome"] == "completed"
    return dict(measured)


def phase_names(measured: dict[str, Any]) -> list[str]:
    return [phase["name"] for phase in measured["phases"]]


def post(url: str, body: bytes, kind: str = "application/json") -> Any:
    request = urllib.request.Request(url, body, {"Content-Type": kind})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def upload(url: str, image: Path) -> Any:
    return post(url, image.read_bytes(), "application/octet-stream")


# The graph, the registry and what is served


def test_dvc_repro(graph: Path) -> None:
    """dvc repro: the graph ends with a registered model, and has nothing more to do."""
    receipt = read_json(graph / "results/register/receipt.json")
    of_app = receipt["apps"]["ants_segment"]
    assert (receipt["version"], of_app["registered"], of_app["reason"]) == ("1", True, "first")
    assert of_app["champion"] in (graph / "results/report/index.html").read_text()
    profiles = pd.read_parquet(graph / "data/runs/cpu/runs.parquet")
    assert (profiles["outcome"] == "completed").all()
    assert (profiles[["runtime_s", "cpu_s", "peak_rss_bytes"]] > 0).all(axis=None)
    phases = pd.read_parquet(graph / "data/profiles/phases.parquet")
    assert set(profiles["cell_key"]) <= set(phases["cell_key"])
    assert {"load", "mask", "n4", "atropos", "write"} <= set(phases["phase"])
    (listed,) = voxcast("models", "--json", project=graph).json
    assert (listed["version"], listed["champion"], listed["promoted"]) == ("1", True, APP_NAME)
    metrics = run(graph, BIN / "dvc", "metrics", "show", "--json").stdout
    assert of_app["champion"] in metrics
    plotted = run(graph, BIN / "dvc", "plots", "show", "-o", "build/plots")
    assert "Could not" not in plotted.stderr + plotted.stdout
    assert "up to date" in run(graph, BIN / "dvc", "repro").stdout


def test_dvc_runs_only_what_depends_on_a_change(graph: Path) -> None:
    """dvc repro: another rule of promotion makes only the model be registered again."""
    params = graph / "params.yaml"
    before = params.read_text()
    params.write_text(before.replace("max_under_request: 0.1", "max_under_request: 0.2"))
    try:
        dry = run(graph, BIN / "dvc", "repro", "--dry").stdout
    finally:
        params.write_text(before)
    stages = {line.split("'")[1] for line in dry.splitlines() if line.startswith("Running")}
    assert stages == {"register"}


def test_no_stage_but_evaluate_reads_the_test_side(graph: Path, tmp_path: Path) -> None:
    """dvc repro: only `evaluate` sees the test table; tables made again are the same."""
    blind = tmp_path / "blind"
    shutil.copytree(graph, blind, ignore=shutil.ignore_patterns("cache", "plots", "tmp"))
    params = yaml.safe_load((blind / "params.yaml").read_text())
    params["tune"]["families"] = ["median"]
    (blind / "params.yaml").write_text(yaml.safe_dump(params))
    for folder in ("catalogue", "features"):
        shutil.rmtree(blind / "data" / folder)

    def stage(name: str) -> None:
        call(runpy.run_path(str(ROOT / f"pipelines/{name}.py"))["main"], project=blind)

    stage("catalogue")
    stage("featurize")
    for name in ("catalogue/catalogue", "features/train"):
        first, second = (pd.read_parquet(p / f"data/{name}.parquet") for p in (graph, blind))
        pd.testing.assert_frame_equal(first, second)
    (blind / "data/features/test.parquet").unlink()
    for name in ("tune", "train", "register", "report"):
        stage(name)
    with pytest.raises(FileNotFoundError, match=r"test\.parquet"):
        stage("evaluate")


def test_dvc_repro_leaves_a_clone_as_it_is(graph: Path) -> None:
    """dvc repro: a run changes no file of a clone but DVC's own, so that its tests still pass."""
    changed = run(graph, "git", "diff", "--name-only").stdout.split()
    assert set(changed) <= {"dvc.lock", "params.yaml"}  # the latter was composed for this test


def test_hydra_cpu_and_gpu_runs(graph: Path, tmp_path: Path) -> None:
    """Hydra's CPU and GPU runs: composed devices; runs are measured where there is the device."""
    shutil.copytree(graph / "conf", tmp_path / "conf")
    for device, gpus in (("cpu", 0), ("gpu", 1)):
        run(tmp_path, sys.executable, "-m", "voxcast.config", f"device=[{device}]")
        composed = yaml.safe_load((tmp_path / "params.yaml").read_text())["device"]
        assert [(name, entry["gpus"]) for name, entry in composed.items()] == [(device, gpus)]
    measured = {
        device: len(pd.read_parquet(graph / "data/runs" / device / "runs.parquet"))
        for device in ("cpu", "gpu")
    }
    assert measured["cpu"] >= 3
    assert (measured["gpu"] > 0) == (shutil.which("nvidia-smi") is not None)


def test_optuna_in_mlflow(graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Optuna in MLflow, comparable in its UI: each trial is a run with parameters and metrics."""
    from mlflow.tracking import MlflowClient

    monkeypatch.chdir(graph)
    client = MlflowClient(f"sqlite:///{graph}/mlflow.db")
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    runs = client.search_runs(experiments)
    searched = [r for r in runs if r.data.params and any("mape" in m for m in r.data.metrics)]
    assert len(searched) >= 3
    shared = set.intersection(*(set(r.data.metrics) for r in searched))
    assert any("cpu_s" in name for name in shared)
    (version,) = client.search_model_versions("name='voxcast'")
    assert client.get_model_version_by_alias("voxcast", "champion").version == version.version


def test_small_network_by_ablation(graph: Path) -> None:
    """small 3D CNN by ablation: trained and judged beside the families that see no voxels."""
    board = pd.read_csv(graph / "results/tune/leaderboard.csv").set_index("family")
    assert board.loc["cnn", "cv_objective"] < board.loc["median", "cv_objective"]
    families = read_json(graph / "results/evaluate/families.json")["ants_segment"]
    assert 0 < families["cnn"]["cpu_s"]["mape"] < families["median"]["cpu_s"]["mape"]


def test_registry_champion_over_http(graph: Path, image: Path, server: str) -> None:
    """registry champion over HTTP, one signature: command, Python and server agree."""
    import voxcast as package

    words = ("predict", image, "--json", "--app", "ants_segment", "--cpus", 1)
    (local,) = voxcast(*words, project=graph).json[0]["predictions"]
    (served,) = voxcast(*words, "--model", server, project=graph).json[0]["predictions"]
    assert served == pytest.approx(local)
    assert 0 < local["runtime_s_lower"] <= local["runtime_s_median"] <= local["runtime_s_upper"]
    model = package.load(project=graph)
    answer = model.predict(image, app="ants_segment")
    row = answer[answer["cpus"] == 1].iloc[0]
    assert row["runtime_s_median"] == pytest.approx(local["runtime_s_median"])


def test_mlflow_serves_the_champion(graph: Path, image: Path) -> None:
    """registry champion over HTTP: MLflow's own server answers as the command line does."""
    port = free_port()
    command = [str(BIN / "mlflow"), "models", "serve", "-m", "models:/voxcast@champion",
               "--env-manager", "local", "--port", str(port)]  # fmt: skip
    with running_server(command, port, graph, environment()) as url:
        for options in ((), ("--header-only",)):
            words = ("predict", image, "--json", "--app", APP_NAME, "--cpus", 1, *options)
            (local,) = voxcast(*words, project=graph).json[0]["predictions"]
            question = Question(APP_NAME, (1,), header_only=bool(options), project=graph)
            (row,) = question.champion().request_rows(image)
            fields = {
                k: b64encode(v).decode() if isinstance(v, bytes) else v for k, v in row.items()
            }
            body = json.dumps({"dataframe_records": [fields]}).encode()
            (served,) = post(f"{url}/invocations", body)["predictions"]
            assert served["input_level"] == ("header" if options else "volume")
            names = [f"{target}_{end}" for target in TARGETS for end in ("median", "upper")]
            assert {n: served[n] for n in names} == pytest.approx({n: local[n] for n in names})
        for body in (b"{", b'{"dataframe_records": [{"shape_i": 3}]}'):
            with pytest.raises(urllib.error.HTTPError) as refused:
                post(f"{url}/invocations", body)
            assert refused.value.code == 400


def test_mlproject(graph: Path, image: Path) -> None:
    """MLproject: an entry point predicts."""
    ended = run(
        graph, BIN / "mlflow", "run", ".", "-e", "predict", "--env-manager", "local",
        "-P", f"image={image}",
    )  # fmt: skip
    assert "ants_segment" in ended.stdout


def test_image_characteristics(graph: Path, image: Path, server: str) -> None:
    """image characteristics, same at training and serving."""
    (inspected,) = voxcast("inspect", image, "--json").json
    catalogue = pd.read_parquet(graph / "data/catalogue/catalogue.parquet")
    path_of = {row["volume_id"]: str(row) for row in catalogue.to_dict("records")}
    (volume,) = (v for v, text in path_of.items() if "sub-0001" in text)
    trained = catalogue[catalogue["volume_id"] == volume].iloc[0]
    served = upload(f"{server}/images", image)
    values = {entry["name"]: entry["value"] for entry in served["characteristics"]}
    for name in ("foreground_voxels", "entropy_bits", "noise_ratio"):
        assert inspected[name] == pytest.approx(trained[name])
        assert values[name] == pytest.approx(inspected[name])


def test_page_for_a_dropped_scan(server: str, image: Path) -> None:
    """page for a dropped scan: the page is there, and what it asks for is answered."""
    with urllib.request.urlopen(f"{server}/", timeout=30) as answer:
        page = answer.read().decode()
    assert 'type="file"' in page
    facts = upload(f"{server}/images", image)
    assert len(facts["slices"]) == 3
    question = {"rows": [facts["row"]], "configurations": "all"}
    predicted = post(f"{server}/predict", json.dumps(question).encode())
    assert predicted["predictions"] == facts["predictions"]
    assert predicted["predictions"][0]["runtime_s_median"] > 0


def test_bids(graph: Path, tmp_path: Path) -> None:
    """BIDS: the participants of a dataset are chosen by label."""
    images = graph / "data/images"
    assert read_json(images / "dataset_description.json")["BIDSVersion"]
    plan = voxcast(
        "submit", images, "--participant-label", "0002", "--out", tmp_path / "out",
        "--cluster", "local", "--dry-run", "--json", project=graph,
    ).json  # fmt: skip
    assert [task["name"] for task in plan["tasks"]] == ["sub-0002_T1w"]


def test_what_to_measure_next(graph: Path) -> None:
    """what to measure next: runs are proposed, the most telling for their time first."""
    proposed = voxcast(
        "measure", "--next", 3, "--campaign", "reference", "-S", "campaign.seed=99", "--json",
        project=graph,
    ).json  # fmt: skip
    assert len(proposed) == 3
    assert all(entry["expected_s"] > 0 and entry["gain"] > 0 for entry in proposed)


def test_calibrated_requests(graph: Path, image: Path) -> None:
    """calibrated requests with reported coverage."""
    families = read_json(graph / "results/evaluate/families.json")["ants_segment"]
    assert families["ridge"]["runtime_s"]["coverage"] > 0.8
    (prediction, *_) = voxcast("predict", image, "--json", project=graph).json[0]["predictions"]
    assert prediction["calibrated"]
    assert prediction["measured_subjects"] > 30
    card = voxcast("models", "show", project=graph).out
    assert "coverage" in card or "%" in card


# Applications, measured


def test_slant_in_its_container(graph: Path, image: Path) -> None:
    """SLANT in its container, profiled: without the container, its description."""
    shown = voxcast("app", "show", "slant", "--json", project=graph).json
    assert "masidocker/public" in json.dumps(shown)
    refused = voxcast("measure", image, "--app", "slant", project=graph, code=2)
    assert "container" in refused.err


@needs_slant
def test_walltime_variation_of_slant(tmp_path: Path) -> None:
    """walltime variation and fits (312 runs)."""
    imported = voxcast("history", "import", "slant", SLANT, "--into", tmp_path / "slant")
    assert "312 imported" in imported.out
    groups = voxcast(
        "history", "variation", tmp_path / "slant", "--by", "app,label:dataset,label:modality",
        "--bootstrap", 0, "--json",
    ).json["groups"]  # fmt: skip
    drd = next(g for g in groups if tuple(g["group"].values())[1:] == ("DRD", "bold"))
    assert (drd["n"], round(drd["mean"] / 60, 1), drd["best_by_ks"]) == (88, 125.2, "lognormal")


def test_walltime_variation() -> None:
    """walltime variation and fits: of recorded runs, nine laws fitted to each group."""
    groups = voxcast(
        "history", "variation", REFERENCE, "--by", "app,cpus", "--bootstrap", 0, "--json"
    ).json
    register = groups["groups"][0]
    assert (register["group"]["app"], register["n"]) == ("ants_register", 168)
    assert register["mean"] == pytest.approx(11.8667, abs=1e-4)
    assert len(register["fits"]) >= 5


def test_slant_structured_application(graph: Path, image: Path, tmp_path: Path) -> None:
    """a SLANT-structured application with trained weights: tiles, a network, merged labels."""
    smaller = ("-p", "spacing_mm=3", "-p", "n4_iterations=8", "-p", "tiles_per_axis=2")
    measured = profiled(graph, tmp_path / "out", "tile_segment", image, *smaller)
    assert len(set(phase_names(measured))) >= 4
    (labels,) = (tmp_path / "out").rglob("*.nii.gz")
    voxels = np.asanyarray(nibabel.load(labels).dataobj)
    assert len(np.unique(voxels)) > 2
    assert voxels.shape == nibabel.load(image).shape


def test_dnn_training(graph: Path, tmp_path: Path) -> None:
    """DNN training as application: epochs are phases."""
    words = ("-p", "epochs=2", "-p", "samples=200", "-p", "image_size=32")
    measured = profiled(graph, tmp_path / "out", "dnn_train", *words)
    assert phase_names(measured).count("epoch") == 2
    assert measured["peak_rss_bytes"] > 10**8


def test_distributed_training(graph: Path, tmp_path: Path) -> None:
    """distributed training profiled: two processes on two CPUs."""
    words = ("--cpus", 2, "-p", "samples=128", "-p", "epochs=1")
    measured = profiled(graph, tmp_path / "out", "ddp_train", *words)
    (result,) = (tmp_path / "out").rglob("result.json")
    assert read_json(result)["processes"] == 2
    assert "epoch" in phase_names(measured)


def test_cpu_against_gpu() -> None:
    """CPU against GPU: speed-up and cost of recorded runs; a tenth of the time for the network."""
    report = voxcast("history", "compare", GPU, "--json").json
    assert report["runs"] == 116
    by_phase = {(row["app"], row["phase"]): row for row in report["comparisons"]}
    assert by_phase["tile_segment", "network"]["speedup"] == pytest.approx(10.10, abs=0.01)
    whole = by_phase["tile_segment", None]
    assert whole["speedup"] == pytest.approx(1.36, abs=0.01)
    assert whole["usd"][1] > 10 * whole["usd"][0]


def test_memory_over_time() -> None:
    """memory over time, per-task requests: a chain of jobs holds less than one at its peak."""
    report = voxcast("phases", "chain", REFERENCE, "--app", "ants_segment", "--json").json
    held = report["held_gb_h"]
    assert report["runs"] == 195
    assert 0 < held["used"] < held["at_phase_peaks"] < held["at_run_peak"]
    assert report["gain"] == pytest.approx(held["at_run_peak"] / held["at_phase_peaks"], rel=0.2)


# Requests


COSTS = {
    "brute_force": 1.91796, "mean_by_mean": 2.11988, "mean_stdev": 2.09569,
    "mean_doubling": 2.01625, "median_by_median": 2.45622, "equal_time": 1.91656,
    "equal_probability": 1.92323,
}  # fmt: skip
CHECKPOINTED = {
    "no_ckpt": 1.91656, "all_ckpt": 1.49109, "mixed_ckpt": 1.49109, "all_periodic": 1.58632,
    "no_periodic": 1.94003,
}  # fmt: skip


@pytest.mark.parametrize(
    ("options", "costs"),
    [
        pytest.param((), COSTS, id="seven reservation strategies"),
        pytest.param(("--checkpoint", "2,2"), CHECKPOINTED, id="checkpointing"),
    ],
)
def test_request_strategies(options: tuple[object, ...], costs: dict[str, float]) -> None:
    """seven reservation strategies with exact costs | five checkpointing strategies."""
    rows = voxcast("requests", LAW, *options, "--json").json
    found = {row["strategy"]: row["normalised_cost"] for row in rows}
    assert {name: found[name] for name in costs} == pytest.approx(costs, abs=1e-5)


def test_image_law(graph: Path, image: Path) -> None:
    """image law drives the request sequence."""
    rows = voxcast("requests", image, "--cpus", 1, "--json", project=graph).json
    first = next(row for row in rows if row["strategy"] == "equal_time")
    predicted = voxcast("predict", image, "--cpus", 1, "--json", project=graph).json[0]
    (row,) = predicted["predictions"]
    assert row["runtime_s_lower"] < first["sequence"][0] < 3 * row["runtime_s_upper"]
    assert 1 < first["normalised_cost"] < 2


def test_doubling_retry_baseline() -> None:
    """doubling-retry baseline: replayed on held-out runs, beside what knows the image."""
    report = voxcast(
        "history", "replay", REFERENCE, "--app", "tile_segment", "--trials", 1, "--folds", 2,
        "--json",
    ).json["tile_segment"]  # fmt: skip
    costs = {name: way["normalised_cost"] for name, way in report["ways"].items()}
    assert costs["clairvoyant"] == pytest.approx(1.0)
    low, high = report["ways"]["per_image"]["normalised_cost_interval"]
    assert 1 < low < costs["per_image"] < high
    assert costs["per_image"] < costs["harp_doubling"]
    assert costs["population"] < costs["site_default"]
    assert report["over_implied"] == pytest.approx(costs["per_image"] / report["implied"])


@pytest.mark.parametrize("cluster", ["local", "private", "osc", "cloud"])
def test_several_clusters(graph: Path, image: Path, cluster: str) -> None:
    """several clusters: the same prediction, requests of each site."""
    report = voxcast("recommend", image, "--cluster", cluster, "--json", project=graph).json
    chosen = report["images"][0]["chosen"]
    assert report["cluster"] == cluster
    assert chosen["walltime_s"] >= chosen["runtime_s_median"]
    assert (chosen["usd"] > 0) == (cluster in ("osc", "cloud"))


def test_cost_or_time_bound(graph: Path, image: Path) -> None:
    """cost- or time-bound choice: limits are kept, or nothing is chosen."""
    words = ("recommend", image, "--cluster", "cloud", "--json")
    report = voxcast(*words, "--deadline", "2h", project=graph).json["images"][0]
    assert report["chosen"]["turnaround_bound_s"] <= 7200
    within = [row for row in report["configurations"] if row["excluded"] is None]
    assert len({row["node_type"] for row in report["configurations"]}) >= 2
    assert report["chosen"] in within
    refused = voxcast(*words, "--budget", "0.0000001", project=graph, code=2).json["images"][0]
    assert refused["chosen"] is None


def test_cores_by_predicted_length(graph: Path, tmp_path: Path) -> None:
    """1-16 cores by predicted length: planned together on a node of sixteen cores."""
    images = sorted((graph / "data/images").rglob("*.nii.gz"))
    plan = voxcast(
        "submit", *images, "--out", tmp_path / "out", "--cluster", "private", "--nodes",
        "1x16", "--dry-run", "--json", project=graph,
    ).json  # fmt: skip
    assert len(plan["tasks"]) == len(images)
    assert all(1 <= task["requests"]["cpus"] <= 16 for task in plan["tasks"])


# Parallel runs


def collective_events(shown: dict[str, Any]) -> int:
    return sum(row["calls"] * row["processes"] for row in shown["collectives"])


@pytest.mark.parametrize(
    ("app", "words"),
    [
        pytest.param("kmeans_mpi", {"points": 2000, "iterations": 8}, marks=needs_mpirun),
        pytest.param("pinn_mpi", {"points": 300, "iterations": 8, "neurons": 8},
                     marks=needs_mpirun),
    ],
)  # fmt: skip
def test_mpi_programs_traced(
    graph: Path, tmp_path: Path, app: str, words: dict[str, object]
) -> None:
    """k-means MPI, PINN traced: recorded as they run, phases found."""
    out, trace = tmp_path / "out", tmp_path / "trace"
    module = yaml.safe_load((graph / f"conf/app/{app}.yaml").read_text())[app]["module"]
    program = [
        "mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", sys.executable, "-m",
        module, "--out", str(out), "--threads", "2", "--device", "cpu",
        "--parameters", json.dumps(words),
    ]  # fmt: skip
    run(tmp_path, BIN / "voxcast", "phases", "record", "--out", trace, "--", *program)
    shown = voxcast("phases", "show", trace, "--json").json
    assert (shown["processes"], collective_events(shown) >= 16) == (2, True)
    result = voxcast("phases", "signature", trace, "--json").json
    assert result["total_s"] == pytest.approx(result["elapsed_s"], rel=1e-6)


@pytest.mark.parametrize(
    ("model", "words"), [("small_cnn", {}), ("resnet", {"width": 4, "image_size": 16})]
)
def test_ddp_programs_traced(
    graph: Path, tmp_path: Path, model: str, words: dict[str, object]
) -> None:
    """logical traces of MPI and DDP programs | MNIST-like DDP, ResNet-like DDP traced."""
    parameters = {"model": model, "samples": 128, "epochs": 2, "width": 4, **words}
    options = [word for k, v in parameters.items() for word in ("-p", f"{k}={v}")]
    traces = tmp_path / "traces"
    traces.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VOXCAST_TRACE_FOLDER", str(traces))
        profiled(graph, tmp_path / "out", "ddp_train", "--cpus", 2, *options)
    shown = voxcast("phases", "show", traces, "--json").json
    assert shown["processes"] == 2
    assert collective_events(shown) > 4
    assert shown["phases"]


def test_logical_traces() -> None:
    """logical traces of MPI and DDP programs: a recorded k-means on four processes."""
    shown = voxcast("phases", "show", SAMPLES / "kmeans_mpi_trace", "--json").json
    assert len(shown["phases"]) == 2
    assert (shown["processes"], collective_events(shown)) == (4, 168)


def test_eztrace_traces() -> None:
    """EZTrace/OTF2 traces: a ring, as EZTrace recorded it."""
    shown = voxcast("phases", "show", SAMPLES / "eztrace_ring", "--json").json
    assert shown["processes"] == 3
    assert sum(row["messages"] for row in shown["messages"]) == 12
    assert len(shown["missing"]) == 4


def test_simo_phases(tmp_path: Path) -> None:
    """SIMO phases, weights, 1 % rule: those published for DeepGalaxy."""
    ticks = read_json(next(ROOT.glob("tests/**/pas2p_deepgalaxy.json")))["ticks"]
    values = tmp_path / "simo.txt"
    values.write_text("".join(f"{row['simo']}\n" for row in ticks))
    words = ("phases", "signature", values, "--json")
    phases = voxcast(*words, "--tolerance", 1).json["phases"]
    assert [p["founder"] for p in phases] == [50, 47, 45, 54, 63, 52, 60]
    assert [p["weight"] for p in phases] == [11, 16, 4, 2, 2, 1, 1]
    assert len(voxcast(*words, "--min-share", 0.05).json["phases"]) < len(phases)


def test_signature_predicts_time() -> None:
    """signature predicts time, share of communication."""
    trace = SAMPLES / "kmeans_mpi_trace"
    signature = voxcast("phases", "signature", trace, "--json").json
    assert [phase["weight"] for phase in signature["phases"]] == [1, 40]
    total = sum(phase["weight"] * phase["time_s"] for phase in signature["phases"])
    assert total == pytest.approx(signature["elapsed_s"], rel=0.01)
    assert "29% of the time" in voxcast("phases", "signature", trace).out
    checked = voxcast("phases", "predict", trace, "--check", 0.5, "--json").json
    assert checked["total_s"] == pytest.approx(checked["measured_s"], rel=0.2)


# HARP and studies


def test_harp_generate(shell_project: Path) -> None:
    """HARP generate (SD, FS, sweeps, resume): a campaign, stopped and continued."""
    first = voxcast(
        "measure", "--campaign", "pauses", "--time-budget", "1s", project=shell_project
    )  # fmt: skip
    assert "left" in first.err or first.out
    voxcast("measure", "--campaign", "pauses", project=shell_project)
    runs = pd.concat(
        pd.read_parquet(part)
        for part in (shell_project / "data/history/pauses").glob("*/runs.parquet")
    )
    assert runs["cell_key"].is_unique
    # A run that was disturbed is repeated once.
    sizes: dict[Any, int] = runs.groupby(["scale", "parameters_json"]).size().to_dict()
    repeats = {"full_scale": 2, "scaled_down": 1}
    assert [scale for scale, _ in sizes] == ["full_scale"] * 2 + ["scaled_down"] * 2
    assert all(repeats[scale] <= n <= 2 * repeats[scale] for (scale, _), n in sizes.items())
    assert set(runs["outcome"]) == {"completed"}
    again = voxcast("measure", "--campaign", "pauses", project=shell_project)
    assert "on record" in again.err + again.out


@pytest.mark.slow  # a study of hundreds of fits
def test_harp_predicts(study: Callable[[str], dict[str, Any]]) -> None:
    """HARP build (MLR, DTR, NNR x SD, SD+n % FS), predict (MAE, WTM), and its custom estimators.

    The study `splits` builds all candidates in each fold and takes one by each policy.
    """
    held_out = study("splits")["dnn_train"]["subject"]
    for policy in ("MAE", "WTM"):
        error = held_out[f"harp_{policy}"]["errors"]["runtime_s"]["mape"]
        assert 0 < error < 100
        custom = held_out[f"harp_{policy}_custom"]["errors"]["runtime_s"]["mape"]
        assert 0 < custom < 200
        assert 0 <= held_out[f"harp_{policy}"]["request"]["upp"] <= 100
    assert "harp_full_scale" in held_out


@pytest.mark.slow  # a study of hundreds of fits
def test_transfer_between_applications(study: Callable[[str], dict[str, Any]]) -> None:
    """transfer between applications: from one network's runs to another's."""
    transfers = study("transfer")
    assert len(transfers) == 6
    rows = transfers["vgg16 -> resnet50"]
    assert [row["runs"] for row in rows] == sorted(row["runs"] for row in rows)
    assert all(row["transferred"] > 0 and row["cold"] > 0 for row in rows)


def test_ablation(graph: Path) -> None:
    """ablation along input, hardware, hyper-parameters: results of the study on record."""
    path = ROOT / "published/studies/ablation.json"
    results = read_json(path)["ants_segment"]
    assert {"constant", "header", "header + content", "without hardware"} <= set(results)
    content = results["header + content"]["cpu_s"]["mape"]
    assert content < results["header"]["cpu_s"]["mape"] < results["constant"]["cpu_s"]["mape"]
    assert "without parameters" in read_json(path)["dnn_train"]
    assert (graph / "results/explain/shuffled.csv").is_file()


# Studies of many fits


@pytest.fixture(scope="session")
def participants(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_participants(tmp_path_factory.mktemp("participants"), 16)


@pytest.fixture
def parcels(
    graph: Path, participants: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, Any]]:
    """Return a function that runs a fit of the participants, and gives its result."""
    monkeypatch.setenv("VOXCAST_CACHE", str(tmp_path / "cache"))

    def fitted(app: str, **changes: object) -> dict[str, Any]:
        parameters = {
            "images": participants, "participants": 16, "parcels": 20, "target": "gamma",
            "folds": 3, "candidates": 2, **changes,
        }  # fmt: skip
        words = [word for k, v in parameters.items() for word in ("-p", f"{k}={v}")]
        out = tmp_path / f"out-{len(list(tmp_path.iterdir()))}"
        profiled(graph, out, app, *words)
        (result,) = out.rglob("result.json")
        return dict(read_json(result))

    return fitted


def test_splitting_by_fold(parcels: Callable[..., dict[str, Any]]) -> None:
    """splitting by fold: a fold alone is the fold of the whole run."""
    whole, part = parcels("parcel_study"), parcels("parcel_study", fold_range="1:2")
    assert part["folds"] == whole["folds"][1:2]


def test_caches(parcels: Callable[..., dict[str, Any]]) -> None:
    """caches by participant and fold."""
    first = parcels("parcel_study", reuse_folds="true")
    again = parcels("parcel_study", reuse_folds="true")
    assert again["cache"]["parcel_fold"] == {"hit": 3}
    assert (first["volumes_read"], again["volumes_read"]) == (16, 0)


def test_ensembles(parcels: Callable[..., dict[str, Any]], graph: Path) -> None:
    """voting, grid, stacked ensembles: of parcellations, and of the families of models."""
    for kind in ("voting", "grid", "stacked"):
        result = parcels("parcel_ensemble", ensemble=kind, parcels="20,30", seeds=1)
        assert result["r_squared"] > 0.3
    board = pd.read_csv(graph / "results/tune/leaderboard.csv")
    assert {"voting", "grid", "stacked"} <= set(board["family"])


def test_failure_tolerant_pool(shell_project: Path, tmp_path: Path) -> None:
    """random failure-tolerant pool, second pass with more: a first failure is made good."""
    mark = tmp_path / "failed"
    script = f'mkdir "{mark}-$0" 2> /dev/null && exit 3; sleep 0.1'
    sweeps = {"all": {"parameters": {"number": [1, 2, 3]}, "cpus": [1]}}
    write_campaign(shell_project, "flaky", script, ["{number}"], sweeps, parameters={"number": 0})
    words = ("measure", "--campaign", "flaky", "--cluster", "local", "--parallel", 2)
    voxcast(*words, project=shell_project)
    runs = pd.concat(
        pd.read_parquet(part)
        for part in (shell_project / "data/history/flaky").glob("*/runs.parquet")
    )
    completed = runs[runs["outcome"] == "completed"]
    assert len(completed) == 3
    assert len(list(tmp_path.glob("failed-*"))) == 3


# Jobs


def plan_of(graph: Path, out: Path, *words: object) -> dict[str, Any]:
    images = sorted((graph / "data/images").rglob("*.nii.gz"))[:1]
    return dict(
        voxcast("submit", *images, "--out", out, *words, "--dry-run", "--json", project=graph).json
    )


def test_escalation_by_cause(graph: Path, tmp_path: Path) -> None:
    """escalation by cause: too little time, then more of it; memory stays."""
    plan = plan_of(graph, tmp_path / "out", "--cluster", "local")
    (task,) = plan["tasks"]
    task["requests"]["walltimes_s"] = [1.0, 120.0]
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    done = voxcast(
        "submit", tmp_path / "plan.json", "--out", tmp_path / "out", "--cluster",
        "local", "--json", "--poll", "1s", project=graph,
    ).json  # fmt: skip
    (row,) = done["rows"]
    assert [attempt["outcome"] for attempt in row["attempts"]] == ["timeout", "completed"]
    first, second = (attempt["request"] for attempt in row["attempts"])
    assert first["walltime_s"] < second["walltime_s"]
    assert first["memory_bytes"] == second["memory_bytes"]


@pytest.mark.slurm
def test_slurm_submission(graph: Path, slurm: PrivateSlurm, tmp_path: Path) -> None:
    """Slurm submission, accounting closes the loop: submitted, followed, collected, audited."""
    images = sorted((graph / "data/images").rglob("*.nii.gz"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in slurm.environment.items():
            patch.setenv(name, value)
        submitted = voxcast(
            "submit", *images, "--out", tmp_path / "out", "--cluster", "private", "--cpus", 1,
            "--json", "--poll", "1s", project=graph,
        )  # fmt: skip
        assert submitted.json["by_status"] == {"completed": 2}
        collected = voxcast("status", tmp_path / "out", "--collect", "--json", project=graph).json
        assert collected["collected"]["on_record"] == 2
        columns = "JobID,JobName,User,Account,Partition,State,Submit,Start,End,Elapsed,TotalCPU,"
        exported = slurm.command(
            "sacct", "-a", "-P", f"--format={columns}MaxRSS,ReqMem,AllocCPUS,Timelimit,AllocTRES"
        )
    (tmp_path / "jobs.txt").write_text(exported.stdout)
    audit = voxcast("audit", tmp_path / "jobs.txt", "--json").json
    assert audit["total"]["core_hours"] > 0


def test_audit(tmp_path: Path) -> None:
    """requested-against-used audit: of a site whose use is known."""
    truth = accounting.truth(600, seed=3)
    (tmp_path / "jobs.txt").write_text("".join(f"{line}\n" for line in accounting.lines(truth)))
    report = voxcast("audit", tmp_path / "jobs.txt", "--by", "user,app", "--json").json
    assert report["records"]["read"] == 600
    by_user = sum(group["core_hours"] for group in report["by"]["user"])
    assert by_user == pytest.approx(report["total"]["core_hours"])
    assert report["savings"][0]["time"]["requested"] > 0


# Histories of others, and any table


@pytest.mark.parametrize(
    ("kind", "name", "options", "imported"),
    [
        ("sacct", "sacct.txt", (), 13),
        ("nextflow", "trace.txt", (), None),
        ("snakemake", "sub-01.align.benchmark.tsv", (), None),
        ("csv", "runs.csv", ("--map", SAMPLES / "imports/runs.yaml"), None),
    ],
)
def test_import(
    kind: str, name: str, options: tuple[object, ...], imported: int | None, tmp_path: Path
) -> None:
    """import of sacct, Nextflow, Snakemake, CSV: counted, once, and of what can be used."""
    words = (
        "history",
        "import",
        kind,
        SAMPLES / "imports" / name,
        "--into",
        tmp_path / "h",
        *options,
    )
    first = voxcast(*words, "--json").json
    assert first["imported"] == (imported or first["imported"]) > 0
    again = voxcast(*words, "--json").json
    assert (again["imported"], again["duplicates"]) == (0, first["imported"])


def test_fit_on_any_table(tmp_path: Path) -> None:
    """`fit` on any table."""
    rng = np.random.default_rng(0)
    size = np.exp(rng.uniform(0, 4, 60))
    seconds = (2 + size) * rng.lognormal(0, 0.05, 60)
    sites = [f"s{n % 6}" for n in range(60)]
    table = pd.DataFrame({"site": sites, "size": size, "seconds": seconds})
    table.to_csv(tmp_path / "jobs.csv", index=False)
    words = ("--target", "seconds", "--group", "site", "--trials", 1, "--out", tmp_path / "model")
    report = voxcast("learn", tmp_path / "jobs.csv", *words, "--json").json
    assert report["metrics"]["mape"] < 15 < report["candidates"]["median"]["mape"]
    new = ("predict", "--model", tmp_path / "model", tmp_path / "jobs.csv")
    voxcast(*new, "--out", tmp_path / "out.csv")
    assert len(pd.read_csv(tmp_path / "out.csv")) == 60


# Watching, and machines


def test_drift(tmp_path: Path) -> None:
    """drift, challenger, rollback: jobs learned from, predicted, and slower than predicted."""
    project = SubmittedProject(tmp_path)
    project.submit(12, factor=0.5, by_hand=True)
    learned = voxcast("learn", "--retrain", "--app", APP, project=tmp_path)
    assert f"{APP}: ridge is champion, version 1: first" in learned.out
    project.submit(8, factor=1.5)
    drift = voxcast("status", "--drift", "--last", 8, "--json", project=tmp_path, code=1)
    assert drift.json[APP]["verdict"] == "drifted"


def test_rollback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """drift, challenger, rollback: a version is taken back."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").touch()
    register_champion(tmp_path, 12)
    register_champion(tmp_path, 16)
    assert [row["champion"] for row in voxcast("models", "--json").json] == [True, False]
    assert voxcast("models", "show", "1").out
    assert voxcast("models", "rollback", project=tmp_path).out.startswith("version 1 is champion")


def test_challenger_is_judged_by_a_rule(graph: Path) -> None:
    """drift, challenger, rollback: a new model needs a reason to become champion."""
    receipt = read_json(graph / "results/register/receipt.json")["apps"]["ants_segment"]
    assert (receipt["registered"], receipt["reason"]) == (True, "first")
    assert receipt["challenger"]["family"]
    assert receipt["detail"] == "the application had no champion"


def test_unseen_hardware(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """unseen hardware by local runs and metronome: a machine is unknown, measured, and known."""
    folder = tmp_path / "project"
    voxcast("init", folder)
    tool = folder / "tool.py"
    tool.write_text(TOOL)
    app = {
        "defaults": ["_base@segment", "_self_"],
        "segment": {"version": "1", "argv": [sys.executable, str(tool), "{image}"],
                    "parameters": {"iterations": 30}},
    }  # fmt: skip
    (folder / "conf/app/segment.yaml").write_text(yaml.safe_dump(app))
    monkeypatch.chdir(folder)
    register_machines_champion(folder)
    (before,) = voxcast("measure", "--host", "--time-budget", "0s", "--json", project=folder).json[
        "apps"
    ]
    measured = voxcast("measure", "--host", "--time-budget", "60s", "--json", project=folder).json
    (after,) = measured["apps"]
    assert (measured["measured"], after["runs"]) == (4, 4)
    assert after["upper"] / after["lower"] < before["upper"] / before["lower"]
    image = sorted((folder / "data/campaigns/host/images").rglob("*.nii.gz"))[0]
    predict = ("predict", image, "--cpus", 1, "--json")
    (known,) = voxcast(*predict, project=folder).json[0]["predictions"]
    (other,) = voxcast(*predict, "--machine", "elsewhere", project=folder).json[0]["predictions"]
    assert (known["host_runs"], other["host_runs"]) == (4, 0)


def test_metronome(graph: Path) -> None:
    """unseen hardware by local runs and metronome: each run is timed by fixed work."""
    runs = pd.read_parquet(graph / "data/runs/cpu/runs.parquet")
    assert (runs["metronome_ticks"] > 0).all()
    assert (runs["metronome_compute_s"] > 0).all()
