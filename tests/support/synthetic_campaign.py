"""A synthetic campaign: four applications, sittings with anchors, disturbed runs, a GPU."""

import json
from typing import Any

import numpy as np
import pandas as pd

from voxcast.runs.table import DTYPES, PHASE_DTYPES, UNKNOWN

# By application: seconds per megavoxel, shares of its phases, relative time with two CPUs.
IMAGE_APPS: dict[str, tuple[float, dict[str, float], float]] = {
    "ants_segment": (9.0, {"load": 0.05, "mask": 0.15, "n4": 0.45, "atropos": 0.35}, 0.98),
    "ants_register": (14.0, {"load": 0.03, "affine": 0.22, "syn": 0.7, "write": 0.05}, 0.7),
    "tile_segment": (
        6.0,
        {"load": 0.02, "affine": 0.2, "n4": 0.15, "normalise": 0.03, "network": 0.45,
         "fusion": 0.08, "inverse": 0.05, "volumes": 0.02},
        0.6,
    ),
}  # fmt: skip
MACHINE, GPU_MACHINE = "Some CPU, 2 cores", "Other CPU, 16 cores, Some GPU"
DRIFT = {1: 1.0, 2: 1.01, 3: 0.97}  # of CPU time, by sitting
GPU_GAIN = 8.0
NOISE = 0.005


class Campaign:
    """Rows of runs and phases, filled one run at a time."""

    def __init__(self, seed: int = 3) -> None:
        self._rng = np.random.default_rng(seed)
        self._runs: list[dict[str, Any]] = []
        self._phases: list[dict[str, Any]] = []

    def tables(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return runs and phases in the columns of the history."""
        runs = pd.DataFrame(self._runs, columns=list(DTYPES)).astype(DTYPES)
        phases = pd.DataFrame(self._phases, columns=list(PHASE_DTYPES)).astype(PHASE_DTYPES)
        return runs, phases

    def run(
        self, app: str, cpu_s: float, wall_s: float, phases: dict[str, float], **changes: Any
    ) -> None:
        """Add a completed run; ``changes`` are columns."""
        wall_s *= float(np.exp(self._rng.normal(0, 2 * NOISE)))
        cpu_s *= float(np.exp(self._rng.normal(0, NOISE)))
        number = len(self._runs)
        sitting = int(changes.pop("sitting", 1 + number * 3 // 2000))
        row = {name: UNKNOWN[dtype] for name, dtype in DTYPES.items()} | {
            "cell_key": f"{number:064x}", "app": app, "app_version": "1+ab1.2.3",
            "parameters_json": "{}", "device": "cpu", "node_type": "local", "cpus": 1,
            "scale": "full_scale", "repeat": 0, "host_class": MACHINE, "host_id": "00aa11bb",
            "outcome": "completed", "exit_status": 0, "limit_s": 900.0, "runtime_s": wall_s,
            "cpu_s": cpu_s, "peak_rss_bytes": 10**9, "memory_method": "cgroup",
            "cpu_method": "cgroup", "load1": 0.2, "source": "measured",
            "sitting": f"2026-01-0{sitting}-00aa11bb-{sitting}",
            "started_at": f"2026-01-0{sitting}T{number // 3600:02d}:{number // 60 % 60:02d}:"
                          f"{number % 60:02d}+00:00",
        } | changes  # fmt: skip
        self._runs.append(row)
        start = 0.0
        for name, share in phases.items():
            length = share * row["runtime_s"]
            self._phases.append(
                {k: row[k] for k in ("cell_key", "app", "volume_id", "cpus")}
                | {"phase": name, "start_s": start, "end_s": start + length}
                | {"duration_s": length, "cpu_s": share * row["cpu_s"], "peak_rss_bytes": None}
            )
            start += length

    def images(
        self, volumes: list[dict[str, Any]], repeated: int = 12, two_cpu_volumes: int = 40
    ) -> None:
        """Run the applications on all volumes, and some repeated, with two CPUs or scaled down."""
        for n, volume in enumerate(volumes):
            voxels = volume["shape_i"] * volume["shape_j"] * volume["shape_k"] / 1e6
            content = float(np.exp(self._rng.normal(0, 0.5)))
            columns = {"volume_id": volume["volume_id"], "subject": volume["subject"]}
            for app, (pace, phases, gain) in IMAGE_APPS.items():
                cpu_s = 1.0 + pace * voxels * content
                columns["peak_rss_bytes"] = int(3e8 + 6e7 * voxels)
                for repeat in range(3 if n < repeated else 1):
                    self.run(app, cpu_s, cpu_s + 0.3, phases, repeat=repeat, **columns)
                if n == 5:  # disturbed, and repeated for that reason
                    self.run(app, cpu_s, 2 * cpu_s, phases, repeat=3, noisy=True, **columns)
                    self.run(app, cpu_s, cpu_s + 0.3, phases, repeat=103, **columns)
                if n < two_cpu_volumes:
                    self.run(app, cpu_s * 1.03, cpu_s * gain, phases, cpus=2, **columns)
                    small_s = 0.8 + 0.1 * cpu_s
                    self.run(app, small_s, small_s, phases, scale="scaled_down", **columns)
                if n == 0:
                    for sitting, factor in DRIFT.items():
                        self.run(
                            app, cpu_s * factor, cpu_s * factor + 0.3, phases,
                            repeat=1000 + sitting, sitting=sitting, **columns,
                        )  # fmt: skip

    def training(self, points: int = 72, gpu: bool = False) -> None:
        """Run `dnn_train`, which takes no image, at both scales, and on a GPU."""
        phases = {"start_up": 0.2, "data": 0.1, "train": 0.7}
        for n in range(points):
            network = ("fully_connected", "vgg16", "resnet50")[n % 3]
            settings = {"network": network, "batch_size": 2 ** (4 + n % 5), "epochs": 3 + n // 3}
            parameters = json.dumps(settings, sort_keys=True, separators=(",", ":"))
            full_s = (2.0, 25.0, 60.0)[n % 3] * (1 + n / points)
            columns = {"parameters_json": parameters}
            for repeat in range(3 if n < 6 else 1):
                self.run("dnn_train", full_s, full_s, phases, repeat=repeat, **columns)
            self.run("dnn_train", 1 + full_s / 10, 1 + full_s / 10, phases,
                     scale="scaled_down", **columns)  # fmt: skip
            if gpu and n < 24:
                self._on_cpu_and_gpu("dnn_train", full_s / 2, phases, n, **columns)

    def network(self, volumes: list[dict[str, Any]]) -> None:
        """Run `tile_segment` on a GPU and on that machine's CPU."""
        for n, volume in enumerate(volumes[:20]):
            columns = {"volume_id": volume["volume_id"], "subject": volume["subject"]}
            phases = {"load": 0.05, "weights": 0.05, "network": 0.85, "fusion": 0.05}
            self._on_cpu_and_gpu("tile_segment", 12.0 + n / 10, phases, n, **columns)

    def _on_cpu_and_gpu(
        self, app: str, cpu_s: float, phases: dict[str, float], n: int, **columns: Any
    ) -> None:
        machine = {"host_class": GPU_MACHINE, "host_id": "cc22dd33", "cpus": 4}
        for repeat in range(3 if n < 4 else 1):
            columns["repeat"] = repeat
            self.run(app, 3 * cpu_s, cpu_s, phases, **machine, **columns)
            gain = GPU_GAIN * (0.3 + n / 20)
            self.run(
                app, cpu_s / gain, cpu_s / gain, phases, device="gpu", gpus=1,
                peak_gpu_bytes=3 * 10**9, **machine, **columns,
            )  # fmt: skip
