"""A registered champion trained on planted runs, for tests of its users."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import planted
import several_machines
from registries import connected
from voxcast.files import read_json, sha256_file, sha256_folder, write_json
from voxcast.models.families.family import FAMILIES
from voxcast.records import Configuration
from voxcast.serving.bundle import (
    INDEX,
    Bundle,
    BundlePart,
    Origin,
    Promotion,
    ServedApp,
    TrainedOn,
    write_bundle,
)
from voxcast.serving.model_store import MODELS, POINTER, ModelStore
from voxcast.tracking import registry, runs
from voxcast.tracking.registry import FOLDER

PROMOTION = Promotion(
    family="ridge", params=FAMILIES["ridge"].defaults, subjects=20, runs=40, noisy_runs=0,
    reason="first", detail="the application had no champion",
    promoted_at="2026-01-01T00:00:00+00:00", calibrated=True, upper_quantile=0.95,
    cv_objective=0.01, table_sha256="0" * 64, app_version="1",
)  # fmt: skip
HEADER_ROW: dict[str, Any] = {
    "shape_i": 60.0, "shape_j": 64.0, "shape_k": 50.0, "spacing_i_mm": 2.0, "spacing_j_mm": 2.0,
    "spacing_k_mm": 2.0, "file_size_bytes": 3e5, "dtype": "int16",
}  # fmt: skip


def bundle_of_apps(
    folder: Path, subjects: int, *apps: str, name: str = "ridge", previous: str | None = None
) -> Bundle:
    """Write a bundle into a folder ``bundle``; each application has a model of planted runs."""
    configurations = [Configuration("cpu", n) for n in (1, 2)]
    parts = []
    for app in apps:
        forecaster = folder / "models" / app
        planted.fit_forecaster(subjects, app, name).save(forecaster)
        served = ServedApp(
            app, planted.PARAMETERS, configurations, 64, 16, sha256_folder(forecaster), PROMOTION,
            ("here",), (("cpu", 1, 0), ("cpu", 2, 0)),
        )  # fmt: skip
        table = planted.table(subjects, apps=(app,))
        parts.append(BundlePart(served, forecaster, TrainedOn.of(table)))
    return write_bundle(folder / FOLDER, parts, origin=Origin(apps[-1], previous))


def trust(project: Path) -> None:
    """Record the hashes that files have now, as somebody who may write to all of them can."""
    path = project / MODELS / POINTER
    content = read_json(path)
    for number, record in content["versions"].items():
        record["sha256"] = sha256_file(path.parent / f"v{number}" / INDEX)
    write_json(path, content)


def machines_bundle(
    folder: Path, here: str = "b", *, today: bool = False, timed: bool = False
) -> Bundle:
    """Write a bundle learned from machine ``a`` and, 0.5 faster and by 12 runs, ``here``.

    With ``timed`` it is ``here`` alone, on days that differ, with the kernels timed before runs.
    """
    table = several_machines.table({"a": [0.0, 0.0], here: [0.5]}, {"a": 30, here: 6})
    table.loc[table["host_id"] == here, ["host_class", "node_type"]] = ["fast", "big"]
    if timed:
        table = several_machines.table({here: [0.3, -0.3, 0.2, -0.2, 0.0]}, {here: 40})
        table = several_machines.timed(table)
    if today:
        table["started_at"] = datetime.now(UTC).isoformat()
    planted.fitted(table).save(folder / "model")
    served = ServedApp(
        "segment", planted.PARAMETERS, [Configuration("cpu", 1)], 64, 16,
        sha256_folder(folder / "model"), PROMOTION,
    )  # fmt: skip
    part = BundlePart(served, folder / "model", TrainedOn(table["cell_key"].tolist(), ["1"]))
    return write_bundle(folder / FOLDER, [part], origin=Origin("segment"))


def write_champion(folder: Path, subjects: int, *apps: str) -> None:
    """Write a champion of ``segment``, or others, into a project folder; MLflow has no copy."""
    store = ModelStore.of(folder)
    with store.new_folder() as work:
        store.add(
            str(len(store.pointer().numbers) + 1), _bundle(store, work, subjects, apps).folder
        )


def _bundle(store: ModelStore, work: str, subjects: int, apps: tuple[str, ...]) -> Bundle:
    names, previous = apps or ("segment",), store.pointer().champion
    return bundle_of_apps(Path(work), subjects, *names, previous=previous)


def register(folder: Path, write: Callable[[str], Bundle]) -> None:
    """Register a bundle in MLflow as the champion of a project folder, the current one."""
    session = connected(folder)
    with runs.run(session, "final", "ridge final") as run_id:
        pass
    with ModelStore.of(folder).new_folder() as work:
        registry.register(folder, run_id, write(work).folder)


def register_champion(folder: Path, subjects: int, *apps: str) -> None:
    """Register the champion of `write_champion`."""
    store = ModelStore.of(folder)
    register(folder, lambda work: _bundle(store, work, subjects, apps))


def register_machines_champion(folder: Path, *args: Any, **kwargs: Any) -> None:
    """Register the bundle of `machines_bundle`."""
    register(folder, lambda work: machines_bundle(Path(work), *args, **kwargs))
