"""A history with planted costs, for tests: real schemas, synthetic numbers."""

import functools
import json

import numpy as np
import pandas as pd

from voxcast.features.phase_labels import phase_texts
from voxcast.features.training_table import build_table
from voxcast.images.network_volume import STEPS, volume_dtype
from voxcast.models import point_model
from voxcast.models.families.family import FAMILIES
from voxcast.models.forecaster import CalibratedModel, Forecaster, calibrate
from voxcast.models.point_model import InputLevel
from voxcast.models.selection.cross_validation import Validation

PARAMETERS = {"iterations": 30}


def history(
    subjects: int, *, seed: int = 0, noise: float = 0.01, apps: tuple[str, ...] = ("segment",)
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return profiles, and volumes with their characteristics.

    CPU time is 1 s + 4 s per million foreground voxels, memory 200 MB + 80 bytes per voxel. Wall
    time is 0.6 of CPU time on two CPUs, and 1.05 on one.
    """
    rng = np.random.default_rng(seed)
    volumes, profiles = [], []
    for n in range(1, subjects + 1):
        shape = rng.integers(50, 160, 3)
        voxels = int(shape.prod())
        foreground = voxels * rng.uniform(0.1, 0.6)
        volume_id = f"v{n:04d}"
        volumes.append(
            {
                "volume_id": volume_id, "subject": f"{n:04d}", "session": "", "suffix": "T1w",
                "path": f"{volume_id}.nii.gz", "problem": None,
                "shape_i": int(shape[0]), "shape_j": int(shape[1]), "shape_k": int(shape[2]),
                "spacing_i_mm": 2.0, "spacing_j_mm": 2.0, "spacing_k_mm": rng.uniform(2, 3),
                "axcodes": "RAS", "obliqueness_deg": 0.0, "dtype": "int16", "bytes_per_voxel": 2,
                "file_size_bytes": int(voxels * rng.uniform(0.8, 1.4)),
                "foreground_voxels": foreground,
                "noise_ratio": rng.uniform(0.01, 0.1),
            }
        )  # fmt: skip
        for app_number, app in enumerate(apps, start=1):
            for cpus in (1, 2):
                cpu_s = app_number * (1 + 4e-6 * foreground) * np.exp(rng.normal(0, noise))
                profiles.append(
                    {
                        "cell_key": f"{app}-{volume_id}-{cpus}", "app": app,
                        "parameters_json": json.dumps(PARAMETERS),
                        "volume_id": volume_id, "subject": f"{n:04d}", "device": "cpu",
                        "cpus": cpus, "gpus": 0, "scale": "full_scale", "repeat": 0,
                        "host_class": "here", "outcome": "completed",
                        "app_version": "1", "memory_method": "cgroup1", "noisy": False,
                        "node_type": "local", "mem_limit_bytes": None,
                        "started_at": "2026-01-01T00:00:00+00:00",
                        "runtime_s": cpu_s * {1: 1.05, 2: 0.6}[cpus],
                        "cpu_s": cpu_s,
                        "peak_rss_bytes": int((2e8 + 80 * voxels) * np.exp(rng.normal(0, noise))),
                    }
                )  # fmt: skip
    return pd.DataFrame(profiles), pd.DataFrame(volumes)


def table(subjects: int, **kwargs: object) -> pd.DataFrame:
    """Return the feature table of `history`, in which a quarter of the start is in no phase."""
    profiles, volumes = history(subjects, **kwargs)
    texts = phase_texts(
        phases(profiles, volumes),
        dict(zip(profiles["cell_key"], profiles["cpu_s"], strict=True)),
        {"segment": ("mask",)},
    )
    return build_table(profiles, volumes, phase_texts=texts)[0]


def phases(profiles: pd.DataFrame, volumes: pd.DataFrame) -> pd.DataFrame:
    """Return the CPU time by phase: a start of 0.75 s of 1 s, and 4 s per million voxels."""
    foreground = volumes.set_index("volume_id")["foreground_voxels"]
    work = 4e-6 * foreground.loc[profiles["volume_id"]].to_numpy()
    start_s = profiles["cpu_s"].to_numpy() / (1 + work)
    rows = [("start", 0.75 * start_s), ("segment", work * start_s)]
    return pd.concat(
        pd.DataFrame({"cell_key": profiles["cell_key"], "phase": name, "cpu_s": seconds})
        for name, seconds in rows
    )


def volumes(rows: pd.DataFrame, points: int = 16) -> np.ndarray:
    """Return small volumes whose bright fraction is the foreground fraction of the features."""
    volumes = np.zeros(len(rows), volume_dtype(points))
    voxels = np.exp(rows["header.log_voxels"].to_numpy())
    share = np.exp(rows["content.log_foreground_voxels"]) / voxels
    for volume, fraction in zip(volumes, share, strict=True):
        volume["maps"][:, : max(1, round(points * fraction))] = STEPS
    volumes["shape"] = np.rint(np.cbrt(voxels))[:, None]
    volumes["spacing_mm"] = 1.0
    return volumes


def calibrated(
    runs: pd.DataFrame,
    small_volumes: np.ndarray | None = None,
    name: str = "ridge",
    input_level: InputLevel = "volume",
) -> CalibratedModel:
    """Fit and calibrate a family on runs."""
    params = FAMILIES[name].defaults
    model = point_model.fit(runs, small_volumes, name, params, input_level, 0)
    validation = Validation(runs, small_volumes, 3, 0)
    return calibrate(model, runs, validation.out_of_fold(name, params, input_level), 1.5)


def fitted(
    runs: pd.DataFrame, small_volumes: np.ndarray | None = None, name: str = "ridge"
) -> Forecaster:
    """Return a forecaster of a family; from the header alone, a ridge."""
    return Forecaster({
        "header": calibrated(runs, input_level="header"),
        "volume": calibrated(runs, small_volumes, name),
    })  # fmt: skip


@functools.cache
def fit_forecaster(subjects: int, app: str = "segment", name: str = "ridge") -> Forecaster:
    """Fit and calibrate a family on planted runs, once for all tests."""
    runs = table(subjects, apps=(app,))
    return fitted(runs, volumes(runs), name)
