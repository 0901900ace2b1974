"""The campaign for another machine, run here on the CPU; what needs a GPU is marked so."""

import json
import os
import subprocess
import sys
from pathlib import Path

import nibabel
import numpy as np
import pandas as pd
import pytest

from voxcast import config
from voxcast.campaigns.gpu.archive import collect, pack
from voxcast.campaigns.gpu.machine import settle
from voxcast.campaigns.gpu.paired_cells import REPEATS, gpu_cells, training_points
from voxcast.campaigns.gpu.prepared_inputs import Inputs, Source, prepare, read_inputs
from voxcast.errors import RunError
from voxcast.history.run_folders import load_records
from voxcast.records import App, Cell, Configuration, Profile, as_fields
from voxcast_apps.tiles.grid import SHAPE, grid_affine

PROJECT = Path(__file__).parents[3]
SCRIPT = PROJECT / "pipelines/gpu_campaign.py"
TRAINING_APP = config.load_app(PROJECT / "conf/app", "dnn_train")
NETWORK_APP = App(name="tile_segment_network", version="1", module="m", devices=("cpu", "gpu"))
TINY = {"dataset": "synthetic", "samples": 30, "image_size": 8, "neurons": 4, "epochs": 2}
BOTH = (Configuration("cpu", 1), Configuration("gpu", 1, 1))
# Not on a machine that has torch, numpy and nibabel and nothing else.
ABSENT = ("psutil", "pyarrow", "pandas", "sklearn", "ants", "yaml", "tqdm", "scipy", "mlflow",
          "pydantic", "hydra", "omegaconf", "diptest")  # fmt: skip
BLOCKER = f"""
from importlib.machinery import PathFinder
usual = PathFinder.find_spec
def find_spec(cls, name, path=None, target=None):
    return None if name.split(".")[0] in {ABSENT} else usual(name, path, target)
PathFinder.find_spec = classmethod(find_spec)
"""


def _inputs(folder, training=(TINY,), repeats=1):
    prepare(folder, {"dnn_train": TRAINING_APP}, [], training, repeats)
    return folder


def _script(tmp_path, verb, *arguments):
    (tmp_path / "absent").mkdir(exist_ok=True)
    (tmp_path / "absent/sitecustomize.py").write_text(BLOCKER)
    paths = ["--archive", str(tmp_path / "runs.tar.gz")]
    if verb == "run":
        paths += ["--inputs", str(tmp_path / "inputs"), "--work", str(tmp_path / "work")]
    return subprocess.run(
        [sys.executable, str(SCRIPT), verb, *paths, *arguments],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "absent")},
        capture_output=True,
        text=True,
        check=False,
    )


def _run_folder(runs, device, *, gpu_utilisation=None, peak_gpu_bytes=None, result=None, repeat=0):
    cell = Cell(
        app="dnn_train", app_version="1", parameters={}, volume_id="", subject="",
        configuration=Configuration(device, 1, int(device == "gpu")), scale="full_scale",
        repeat=repeat, host_class="there",
    )  # fmt: skip
    profile = Profile(
        outcome="completed", exit_status=0, runtime_s=2.0, cpu_s=1.0, peak_rss_bytes=1,
        peak_cgroup_bytes=None, memory_method="rusage", cpu_method="rusage",
        started_at="2026-01-01T00:00:00+00:00", peak_gpu_bytes=peak_gpu_bytes,
        gpu_utilisation=gpu_utilisation,
    )  # fmt: skip
    record = {
        "cell": as_fields(cell), "profile": as_fields(profile),
        "host": {"cpu_model": "x", "host_id": "y"}, "probes": {}, "sitting": "s", "recipe": None,
    }  # fmt: skip
    run = runs / cell.key
    (run / "out").mkdir(parents=True)
    (run / "record.json").write_text(json.dumps(record))
    (run / "out/result.json").write_text(json.dumps(result or {}))
    columns = {"t_s": [0.0, 0.1], "rss_bytes": [1, 2], "cpu_s": [0.0, 0.1], "gpu_bytes": [None, 7]}
    (run / "samples.json").write_text(json.dumps(columns))
    return run


def test_it_runs_packs_resumes_and_is_collected_with_torch_and_numpy_only(tmp_path):
    _inputs(tmp_path / "inputs")
    completed = _script(tmp_path, "run", "--devices", "cpu", "--cpus", "1", "--budget-s", "120")
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout == "1 runs measured, 1 of 1 on record\n"
    again = _script(tmp_path, "run", "--devices", "cpu", "--cpus", "1")
    assert again.stdout == "0 runs measured, 1 of 1 on record\n"
    assert collect(tmp_path / "runs.tar.gz", tmp_path / "home") == {"cpu": 1}
    (row,) = load_records(tmp_path / "home/cpu").to_dict("records")
    assert row["outcome"] == "completed"
    assert json.loads(row["parameters_json"]) == {**TRAINING_APP.parameters, **TINY}
    assert row["cpu_s"] > 0
    assert row["probe_cpu"] > 0
    samples = pd.read_parquet(next((tmp_path / "home/cpu").glob("*/samples.parquet")))
    assert list(samples) == ["t_s", "rss_bytes", "cpu_s"]
    assert 0 < samples["rss_bytes"].max() <= row["peak_rss_bytes"]


def test_a_missing_gpu_is_reported_in_one_line(tmp_path):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    _inputs(tmp_path / "inputs")
    completed = _script(tmp_path, "run", "--devices", "gpu")
    assert completed.returncode == 2
    assert completed.stderr.splitlines() == [
        "voxcast: --devices: none of gpu is available; gpu: left out, torch finds no CUDA device"
    ]


def test_a_campaign_cut_short_anywhere_is_balanced():
    volumes = tuple(Source(f"v{n:02d}", f"{n:04d}", Path(f"v{n}")) for n in range(12))
    apps = {"dnn_train": TRAINING_APP, "tile_segment_network": NETWORK_APP}
    inputs = Inputs(apps, volumes, tuple(training_points()), REPEATS)
    cells = gpu_cells(inputs, BOTH, "there")
    assert len({cell.key for cell in cells}) == len(cells) == 2 * (24 + 12 + 2 * (4 + 3))
    for end in range(len(cells)):
        cut = cells[:end]
        on_gpu = sum(cell.configuration.device == "gpu" for cell in cut)
        assert abs(2 * on_gpu - end) <= 1
        if end <= 2 * 36:
            networks = sum(cell.app == "tile_segment_network" for cell in cut)
            assert abs(networks - end / 3) <= 2


@pytest.mark.parametrize(
    ("seen", "outcome", "verified", "peak"),
    [
        ({"gpu_utilisation": 0.3, "peak_gpu_bytes": 9}, "completed", "utilisation", 9),
        ({"result": {"peak_cuda_reserved_bytes": 5}}, "completed", "cuda_memory", 5),
        ({"gpu_utilisation": 0.0, "peak_gpu_bytes": 0}, "failed", None, 0),
        ({}, "failed", None, None),
    ],
    ids=["seen by NVML", "by its own account", "NVML saw nothing", "nobody saw anything"],
)
def test_a_gpus_time_counts_only_if_the_gpu_was_used(tmp_path, seen, outcome, verified, peak):
    run = _run_folder(tmp_path, "gpu", **seen)
    for _ in range(2):  # once is as good as twice
        settle(run)
        record = json.loads((run / "record.json").read_text())
        assert record["profile"]["outcome"] == outcome
        assert record["profile"]["peak_gpu_bytes"] == peak
        assert record["gpu"]["verified_by"] == verified


def test_a_cpu_run_is_unchanged(tmp_path):
    run = _run_folder(tmp_path, "cpu")
    before = (run / "record.json").read_bytes()
    settle(run)
    assert (run / "record.json").read_bytes() == before


def test_collecting_adds_each_good_run_once(tmp_path, caplog):
    for repeat in range(2):
        _run_folder(tmp_path / "work/runs", "gpu", repeat=repeat)
    _run_folder(tmp_path / "work/runs", "cpu")
    broken = _run_folder(tmp_path / "work/runs", "gpu", repeat=9)
    (broken / "record.json").write_text("{")
    archive = tmp_path / "runs.tar.gz"
    pack(tmp_path / "work", archive)
    assert collect(archive, tmp_path / "home") == {"gpu": 2, "cpu": 1, "broken": 1}
    assert broken.name in caplog.text
    assert collect(archive, tmp_path / "home") == {"known": 3, "broken": 1}
    assert {path.name for path in (tmp_path / "home").iterdir()} == {"cpu", "gpu"}
    rows = load_records(tmp_path / "home/gpu")
    assert len(rows) == 2
    assert set(rows["memory_method"]) == {"rusage"}
    samples = pd.read_parquet(next((tmp_path / "home/gpu").glob("*/samples.parquet")))
    assert samples["gpu_bytes"].iloc[-1] == 7


def test_an_invalid_archive_is_refused(tmp_path):
    (tmp_path / "runs.tar.gz").write_bytes(b"no archive")
    with pytest.raises(RunError, match="cannot be read"):
        collect(tmp_path / "runs.tar.gz", tmp_path / "home")


def test_inputs_are_restored_and_a_damaged_volume_is_reported(tmp_path):
    path = tmp_path / "volumes/v1.nii.gz"
    path.parent.mkdir()
    path.write_bytes(b"prepared before")
    sources = [Source("v1", "0001", tmp_path / "native.nii.gz", {"seed": 1})]
    apps = {"dnn_train": TRAINING_APP}
    prepare(tmp_path, apps, sources, [TINY], 3)
    inputs = read_inputs(tmp_path)
    assert inputs.training == (TINY,)
    assert inputs.volumes == (Source("v1", "0001", path, {"seed": 1}),)
    app = inputs.apps["dnn_train"]
    assert (app.name, app.parameters) == ("dnn_train", TRAINING_APP.parameters)
    assert app.packages == TRAINING_APP.packages
    path.write_bytes(b"damaged")
    with pytest.raises(RunError, match="is not the volume that was prepared"):
        read_inputs(tmp_path)


@pytest.mark.slow
def test_a_scan_is_prepared_on_the_networks_grid_once(tmp_path):
    pytest.importorskip("ants")
    grid = np.stack(np.meshgrid(*[np.arange(48.0)] * 3, indexing="ij"))
    axes = np.array([16.0, 19.0, 15.0]).reshape(3, 1, 1, 1)
    radius = np.sqrt((((grid - 23.5) / axes) ** 2).sum(axis=0))
    head = np.select([radius < 0.6, radius < 1.0], [900.0, 600.0], 0.0)
    head += np.random.default_rng(1).normal(0, 10, head.shape)
    affine = np.diag([4.0, 4.0, 4.0, 1.0])
    affine[:3, 3] = -94
    scan = tmp_path / "scan.nii.gz"
    nibabel.save(nibabel.Nifti1Image(head.astype(np.float32), affine), scan)
    apps, sources = {"dnn_train": TRAINING_APP}, [Source("v1", "0001", scan)]
    prepare(tmp_path / "inputs", apps, sources, [TINY], 3)
    (volume,) = read_inputs(tmp_path / "inputs").volumes
    image = nibabel.load(volume.path)
    assert image.shape == SHAPE
    assert image.get_data_dtype() == np.int16
    np.testing.assert_allclose(image.affine, grid_affine())
    assert -4.001 <= image.get_fdata().min() < image.get_fdata().max() <= 4.001
    mtime_ns = volume.path.stat().st_mtime_ns
    prepare(tmp_path / "inputs", apps, sources, [TINY], 3)
    assert volume.path.stat().st_mtime_ns == mtime_ns
