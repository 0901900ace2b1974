"""Measure performance against the documented bounds; prints JSON.

Times on a shared machine drift, so where possible a bound is a ratio of two times measured in turn
in the same run.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from timing import median_seconds, seconds
from voxcast.errors import EXIT_BAD_INPUT
from voxcast.files import write_json

PROJECT = Path(__file__).parents[1]
REPEATS = 7
TABULAR = ("ridge", "boosted", "extra_trees")


def _command_seconds(*command: str, cwd: Path = PROJECT) -> float:
    return seconds(lambda: subprocess.run(command, cwd=cwd, check=True, capture_output=True))


def bench_help() -> dict[str, Any]:
    """``voxcast --help``, compared with a bare interpreter."""
    voxcast = str(Path(sys.executable).with_name("voxcast"))
    times = [_command_seconds(voxcast, "--help") for _ in range(REPEATS)]
    bare = [_command_seconds(sys.executable, "-c", "pass") for _ in range(REPEATS)]
    return {
        "help_s": statistics.median(times),
        "bare_interpreter_s": statistics.median(bare),
        "bound_s": 0.4,
    }


def load_voxels(path: Path) -> None:
    """Read all voxels of a volume."""
    from voxcast.images.volume import Volume

    for _ in Volume.open(path).blocks():
        pass


def bench_volume() -> dict[str, Any]:
    """Header row and characteristics of a 1 mm head, compared with loading it."""
    from voxcast.images.characteristics import characteristics
    from voxcast.images.network_volume import network_volume
    from voxcast.images.volume import Volume

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "head.nii.gz"
        _write_head(path)
        size = Volume.open(path).header
        header, loading, reading, features, network = [], [], [], [], []
        volume = Volume.open(path).read()
        network_volume(volume)  # imports once
        for _ in range(REPEATS):
            header.append(seconds(lambda: Volume.open(path).header))
            loading.append(seconds(lambda: load_voxels(path)))
            reading.append(seconds(lambda: Volume.open(path).read()))
            features.append(seconds(functools.partial(characteristics, volume)))
            network.append(seconds(functools.partial(network_volume, volume)))
        # Grid and foreground are made while the voxels are read: what it adds to loading counts.
        ratios = [
            (reading_s - loading_s + features_s) / loading_s
            for reading_s, features_s, loading_s in zip(reading, features, loading, strict=True)
        ]
    return {
        "shape": list(size.shape),
        "header_ms": 1e3 * statistics.median(header),
        "load_ms": 1e3 * statistics.median(loading),
        "read_ms": 1e3 * statistics.median(reading),
        "characteristics_ms": 1e3 * statistics.median(features),
        "network_volume_ms": 1e3 * statistics.median(network),
        "characteristics_over_load": statistics.median(ratios),
        "bound_characteristics_over_load": 1.5,
    }


def _write_head(path: Path) -> None:
    """Write the bundled template at 1 mm, in the field of view of a scanner."""
    import nibabel
    import numpy as np
    from nilearn.datasets import load_mni152_template

    template = load_mni152_template(resolution=1)
    voxels = np.asarray(template.dataobj, dtype=np.float32)
    field_of_view = np.zeros((256, 256, 256), dtype=np.int16)
    start = [(256 - n) // 2 for n in voxels.shape]
    head_region = tuple(slice(a, a + n) for a, n in zip(start, voxels.shape, strict=True))
    field_of_view[head_region] = 1000 * voxels / voxels.max()
    noise = np.random.default_rng(0).normal(0, 8, field_of_view.shape)
    image = nibabel.Nifti1Image((field_of_view + np.abs(noise)).astype(np.int16), np.eye(4))
    image.set_sform(np.eye(4), code=1)
    nibabel.save(image, path)


def bench_repro() -> dict[str, Any]:
    """``dvc repro`` with nothing to do, in this project."""
    dvc = str(Path(sys.executable).with_name("dvc"))
    status = subprocess.run(
        [dvc, "status", "dvc.yaml"], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    if "up to date" not in status.stdout + status.stderr:
        return {"skipped": "the project is not up to date; run `make repro` first"}
    times = [_command_seconds(dvc, "repro") for _ in range(3)]
    return {"repro_noop_s": statistics.median(times), "bound_s": 6}


def bench_start() -> dict[str, Any]:
    """Answers and a refusal from the start of a process, compared with importing numpy.

    The champion is that of this project; the image is a header alone.
    """
    from voxcast.serving.model_store import ModelStore

    voxcast = str(Path(sys.executable).with_name("voxcast"))
    app = next(iter(ModelStore.of(PROJECT).open().apps))
    image = next((PROJECT / "data/images").glob("sub-*/anat/*.nii.gz"))
    header = (str(image), "--header-only", "--app")
    commands = {
        "predict": (voxcast, "predict", *header, app),
        "recommend": (voxcast, "recommend", *header, app),
        "refusal": (voxcast, "predict", *header, "an unknown application"),
        "numpy": (sys.executable, "-c", "import numpy"),
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(REPEATS):  # in turn, because the machine drifts
        for name, command in commands.items():
            code = EXIT_BAD_INPUT if name == "refusal" else 0
            times[name].append(seconds(functools.partial(_run_to, code, command)))
    medians = {name: statistics.median(values) for name, values in times.items()}
    return {
        **{f"{name}_s": value for name, value in medians.items()},
        **{
            f"{name}_over_numpy": medians[name] / medians["numpy"]
            for name in ("predict", "recommend", "refusal")
        },
        "bound_answer_s": 2.5,
        "bound_refusal_s": 0.5,
    }


def _run_to(code: int, command: tuple[str, ...]) -> None:
    process = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    if process.returncode != code:
        raise RuntimeError(f"{command}: exit code {process.returncode}: {process.stderr}")


def bench_predict() -> dict[str, Any]:
    """One row, all targets and quantiles, by the champion in process."""
    from dataclasses import replace

    from voxcast.serving.prediction_service import PredictionService

    model = PredictionService.of_project(PROJECT)
    champion = model.champion(next(iter(model.bundle.apps)))
    image = next((PROJECT / "data/images").glob("sub-*/anat/*.nii.gz"))
    figures = {}
    for name, header_only in (("header", True), ("volume", False)):
        rows = replace(champion, header_only=header_only).request_rows(
            image, champion.configurations[:1]
        )
        champion.predict(rows, 0.95)
        row_s = median_seconds(functools.partial(champion.predict, rows, 0.95), REPEATS)
        figures[f"{name}_row_ms"] = 1e3 * row_s
    return figures


def bench_bulk() -> dict[str, Any]:
    """Many rows by the champion's forecaster, and the network on resampled volumes."""
    import numpy as np
    import pandas as pd

    from voxcast.features.rows import rows_of
    from voxcast.images.network_volume import POINTS, volume_dtype
    from voxcast.models.forecaster import Forecaster
    from voxcast.models.point_model import Query
    from voxcast.serving.model_store import ModelStore

    table = pd.read_parquet(PROJECT / "data/features/train.parquet")
    bundle = ModelStore.of(PROJECT).open()
    app = next(iter(bundle.apps))
    table = table[table["app"] == app]
    rows = (rows_of(table) * (20_000 // len(table) + 1))[:20_000]
    forecaster, folder_of_models = bundle.forecaster(app), PROJECT / "data/models" / app
    models = {name: Forecaster.load(folder_of_models / name) for name in TABULAR}
    models[f"champion ({forecaster.family})"] = forecaster
    rates: dict[str, float] = {}
    queries = [Query(row) for row in rows]
    for name, model in models.items():
        # Without volumes, a champion with a network as a member uses its header model.
        rates[name] = len(rows) / median_seconds(functools.partial(model.predict, queries), 3)
    network = Forecaster.load(folder_of_models / "cnn")
    volume = np.ones((), volume_dtype(POINTS))
    with_volume = [Query(rows[0], volume=volume)]
    network.predict(with_volume)
    network_s = median_seconds(lambda: network.predict(with_volume), REPEATS)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "head.nii.gz"
        _write_head(path)
        head_s = median_seconds(lambda: load_voxels(path), REPEATS)
    return {
        "rows": len(rows),
        "rows_a_second": rates,
        "bound_rows_a_second": 20_000,
        "network_ms": 1e3 * network_s,
        "bound_network_ms": 25,
        "network_over_load": network_s / head_s,
        "bound_network_over_load": 0.5,
    }


def _script(name: str, *arguments: str) -> Any:
    # The exit status is ignored: the printed JSON shows a missed bound.
    command = [sys.executable, str(PROJECT / "benchmarks" / name), *arguments]
    process = subprocess.run(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True, check=False)
    return json.loads(process.stdout)


BENCHMARKS: dict[str, Callable[[], Any]] = {
    "help": bench_help, "volume": bench_volume, "repro": bench_repro, "start": bench_start,
    "predict": bench_predict, "bulk": bench_bulk,
}  # fmt: skip
SCRIPTS = {
    "sampler": ("sampler.py",), "campaign": ("campaign.py",), "pool": ("pool.py",),
    "recommend": ("allocation.py", "recommend"), "requests": ("allocation.py", "requests"),
    "fit": ("fit_budget.py",), "audit": ("audit.py",), "submission": ("submission.py",),
    "service": ("service.py",), "recorder": ("recorded_calls.py",),
}  # fmt: skip
BENCHMARKS |= {name: functools.partial(_script, *words) for name, words in SCRIPTS.items()}


def main() -> int:
    """Run all benchmarks, or those named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(BENCHMARKS)}")
    parser.add_argument(
        "--save", action="store_true",
        help="also write each to results/bench/NAME.json, from which pages take their numbers",
    )  # fmt: skip
    args = parser.parse_args()
    unknown = set(args.names) - set(BENCHMARKS)
    if unknown:
        names = ", ".join(sorted(unknown))
        parser.error(f"unknown benchmark: {names}; choose from {', '.join(BENCHMARKS)}")
    figures = {}
    for name in args.names or BENCHMARKS:
        figures[name] = BENCHMARKS[name]()
        if args.save:
            write_json(PROJECT / f"results/bench/{name}.json", figures[name])
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
