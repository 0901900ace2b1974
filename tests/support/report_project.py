"""A project folder with all inputs of the report: the real schemas, synthetic numbers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pandas as pd

from synthetic_campaign import Campaign
from voxcast.files import write_json
from voxcast.images.volume import Volume
from voxcast.models.metrics import target_metrics
from voxcast.records import TARGETS
from voxcast.runs.table import DTYPES as PROFILE_DTYPES
from voxcast.runs.table import PHASE_DTYPES, UNKNOWN

PHASES = {"load": 0.05, "mask": 0.15, "n4": 0.45, "atropos": 0.35}
ERRORS = {"ridge": 0.06, "extra_trees": 0.11, "voxels": 0.2, "median": 0.6}
Build = Callable[..., Path]


def project_builder(folder: Path) -> Build:
    """Return a function that writes such a project into ``folder`` and returns it."""

    def make(
        *,
        subjects: int = 12,
        test_subjects: int = 4,
        cpus: tuple[int, ...] = (1, 2),
        repeated: int = 3,
        speed: float = 1.5,
        noise: float = 0.01,
        app: str = "segment",
        subject: str = "{:04d}",
        winner: str = "ridge",
        receipt: dict[str, Any] | None = None,
        campaign: bool = False,
        gpu: bool = False,
    ) -> Path:
        rng = np.random.default_rng(1)
        catalogue = _catalogue(folder, subjects, subject, rng)
        if campaign:  # four applications at once
            measured = Campaign()
            measured.images(catalogue.to_dict("records"))
            measured.training(gpu=gpu)
            if gpu:
                measured.network(catalogue.to_dict("records"))
            profiles, phases = measured.tables()
        else:
            profiles = _runs(catalogue, cpus, repeated, speed, noise, app, rng)
            phases = _phases(profiles)
        _write(folder / "data/catalogue/catalogue.parquet", catalogue)
        runs, on_gpu = profiles[profiles["gpus"] == 0], profiles[profiles["gpus"] > 0].copy()
        _write(folder / "data/runs/cpu/runs.parquet", runs)
        on_gpu.attrs["notes"] = [] if gpu else ["no GPU on this machine"]
        _write(folder / "data/runs/gpu/runs.parquet", on_gpu)
        _write(folder / "data/profiles/phases.parquet", phases)
        _write_results(folder, runs, test_subjects, winner, rng, receipt or {})
        return folder

    return make


def _write(path: Path, frame: pd.DataFrame) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(path, index=False)


def _catalogue(root: Path, n: int, subject: str, rng: np.random.Generator) -> pd.DataFrame:
    rows = []
    for index in range(1, n + 1):
        path = root / f"data/images/{index:04d}.nii.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        shape = tuple(int(x) for x in rng.integers(16, 40, 3))
        distance = np.sqrt(sum(g**2 for g in np.meshgrid(
            *(np.linspace(-1, 1, k) for k in shape), indexing="ij")))  # fmt: skip
        voxels = np.where(distance < 0.8, 700, 20) + rng.normal(0, 15, shape)
        affine = np.diag([-4.0, 4.0, 4.5, 1.0])
        nibabel.save(nibabel.Nifti1Image(voxels.astype(np.int16), affine), path)
        header = Volume.open(path).header
        rows.append(
            {
                "volume_id": f"v{index:04d}", "subject": subject.format(index), "session": "",
                "suffix": "T1w", "path": str(path.relative_to(root)), "problem": None,
                **header.columns(), "voxel_sha256": "0" * 64,
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def _runs(
    catalogue: pd.DataFrame, cpus: tuple[int, ...], repeated: int, speed: float, noise: float,
    app: str, rng: np.random.Generator,
) -> pd.DataFrame:  # fmt: skip
    rows = []
    for number, volume in enumerate(catalogue.to_dict("records")):
        voxels = volume["shape_i"] * volume["shape_j"] * volume["shape_k"]
        base_s = 4e-4 * voxels * np.exp(rng.normal(0, 0.1))
        for k in cpus:
            for repeat in range(2 if number < repeated else 1):
                wall_noise = np.exp(rng.normal(0, noise))
                cpu_s = base_s * np.exp(rng.normal(0, noise / 4))
                rows.append(
                    {name: UNKNOWN[dtype] for name, dtype in PROFILE_DTYPES.items()}
                    | {
                        "cell_key": f"{app}{volume['volume_id']}{k}{repeat}", "app": app,
                        "app_version": "1", "parameters_json": "{}",
                        "volume_id": volume["volume_id"], "subject": volume["subject"],
                        "device": "cpu", "node_type": "local", "cpus": k, "gpus": 0,
                        "scale": "full_scale", "repeat": repeat, "host_class": "Some CPU, 2 cores",
                        "outcome": "completed", "exit_status": 0, "limit_s": 600.0,
                        "runtime_s": cpu_s / (speed if k > 1 else 1) * wall_noise,
                        "cpu_s": cpu_s, "peak_rss_bytes": int(3e8 + 60 * voxels),
                        "memory_method": "cgroup", "cpu_method": "cgroup", "load1": 0.4,
                        "source": "measured",
                        "started_at": f"2026-01-01T00:{number:02d}:00+00:00",
                    }
                )  # fmt: skip
    rows[-1] |= {"outcome": "timeout", "exit_status": None}
    return pd.DataFrame(rows, columns=list(PROFILE_DTYPES)).astype(PROFILE_DTYPES)


def _phases(runs: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for run in runs.to_dict("records"):
        start = 0.0
        for name, share in PHASES.items():
            length = share * run["runtime_s"]
            rows.append(
                {k: run[k] for k in ("cell_key", "app", "volume_id", "cpus")}
                | {"phase": name, "start_s": start, "end_s": start + length}
                | {"duration_s": length, "cpu_s": share * run["cpu_s"], "peak_rss_bytes": 10**8}
            )
            start += length
    return pd.DataFrame(rows, columns=list(PHASE_DTYPES)).astype(PHASE_DTYPES)


def _write_results(
    root: Path, runs: pd.DataFrame, test_subjects: int, winner: str, rng: np.random.Generator,
    receipt: dict[str, Any],
) -> None:  # fmt: skip
    names = sorted(set(runs["subject"]) - {""})
    completed = runs[(runs["outcome"] == "completed") & (runs["scale"] == "full_scale")]
    completed = completed[completed["volume_id"] != ""]
    all_tests = completed[completed["subject"].isin(names[len(names) - test_subjects :])]
    board: list[dict[str, Any]] = []
    frames: list[pd.DataFrame] = []
    metrics: dict[str, Any] = {}
    receipts: dict[str, Any] = {}
    for app in sorted(completed["app"].unique()):
        test = all_tests[all_tests["app"] == app]
        metrics[app] = {"runs": len(test), "subjects": test["subject"].nunique()}
        board += _evaluate(app, test, winner, rng, metrics[app], frames)
        count = int((completed["app"] == app).sum()) - len(test)
        receipts[app] = _receipt(winner, count, len(names) - test_subjects, metrics[app])
        receipts[app] |= receipt
    training = completed[~completed["cell_key"].isin(all_tests["cell_key"])]
    _write(root / "data/features/train.parquet", training.assign(image_set="a" * 64, batch=""))
    (root / "results/evaluate").mkdir(parents=True, exist_ok=True)
    (root / "results/evaluate/new_days.csv").write_text("app\n")
    marker = {"tracking_uri": f"sqlite:///{root}/mlflow.db", "experiment_id": "1"}
    write_json(root / "models/registered.json", marker)
    (root / "results/tune").mkdir(parents=True, exist_ok=True)
    pd.DataFrame(board).to_csv(root / "results/tune/leaderboard.csv", index=False)
    write_json(root / "results/evaluate/families.json", metrics)
    laws = {"cpu_s": "5 s + 2 s per million voxels", "peak_rss_bytes": "200 MB"}
    write_json(root / "results/evaluate/laws.json", dict.fromkeys(metrics, laws))
    everything = pd.concat(frames) if frames else pd.DataFrame({"family": []})
    everything.to_csv(root / "results/evaluate/predictions.csv", index=False)
    (root / "results/explain").mkdir(parents=True, exist_ok=True)
    features = [{"app": app, "feature": "foreground_voxels"} for app in receipts]
    pd.DataFrame([feature | {"rise": 20.5} for feature in features]).to_csv(
        root / "results/explain/shuffled.csv", index=False
    )
    curves = [
        feature | {"quantile": q, "value": 2e6 * q, "factor": 2 * q}
        for feature in features
        for q in (0.05, 0.5, 0.95)
    ]
    pd.DataFrame(curves).to_csv(root / "results/explain/dependence.csv", index=False)
    content = {"model": "voxcast", "version": "1", "apps": receipts}
    write_json(root / "results/register/receipt.json", json.loads(json.dumps(content)))


def _evaluate(
    app: str, test: pd.DataFrame, winner: str, rng: np.random.Generator,
    metrics: dict[str, Any], frames: list[pd.DataFrame],
) -> list[dict[str, Any]]:  # fmt: skip
    """Add planted predictions and metrics of an application; return its leaderboard."""
    board = []
    for name, error in (ERRORS | {"header_only": 0.15}).items():
        identity = ["cell_key", "subject", "volume_id", "app", "device", "cpus", "repeat"]
        frame = test[identity].copy()
        for target in TARGETS:
            median = test[target] * np.exp(rng.normal(0, error, len(test)))
            frame[f"{target}_actual"] = test[target]
            for kind, factor in (("lower", -2), ("median", 0), ("upper", 2)):
                frame[f"{target}_{kind}"] = median * np.exp(factor * error)
        if len(test):
            metrics[name] = target_metrics(frame)
            frames.append(frame.assign(family=name))
        if name != "header_only":
            scores = {
                f"cv_{t}_{m}": 100 * error * (1 if m != "log_mae" else 0.01)
                for t in TARGETS
                for m in ("mape", "median_ape", "log_mae", "upp", "ov_mape")
            }
            board.append({"app": app, "family": name, "input_level": "volume", "trials": 8}
                         | {"pruned": 2, "cut_short": name == "extra_trees"} | scores
                         | {"cv_objective": 0.01 if name == winner else error})  # fmt: skip
    return board


def _receipt(winner: str, runs: int, subjects: int, metrics: dict[str, Any]) -> dict[str, Any]:
    risk = {"exceeded": 1, "subjects": 8, "rate": 0.125, "interval": [0.003, 0.527]}
    return {
        "registered": True, "reason": "first",
        "detail": "the application had no champion", "version": "1", "champion": winner,
        "challenger": {
            "family": winner, "params": {"alpha": 1.0}, "calibrated": False,
            "cross_validation": {}, "risk_at_upper_quantile": dict.fromkeys(TARGETS, risk),
        },
        "upper_quantile": 0.95,
        "training": {"runs": runs, "subjects": subjects, "table_sha256": "a" * 64},
        "test": metrics.get(winner),
    }  # fmt: skip
