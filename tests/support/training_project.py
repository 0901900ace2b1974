"""A project in which featurize runs: real volumes and records, synthetic numbers."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import nibabel
import numpy as np
import pandas as pd
import yaml

import featurize
import synthetic_runs
from commands import call
from voxcast.images.catalogue import build_catalogue, recorded_images
from voxcast.images.network_volume import copy_small_volumes
from voxcast.images.sources import refresh
from voxcast.images.summary import Grids
from voxcast.records import Configuration
from voxcast.runs.series import write_tables_of
from voxcast.runs.store import collect

ROOT = Path(__file__).parents[2]


def write_volume(path: Path, seed: int) -> None:
    """Write a small volume that differs by seed, in a folder that is made if missing."""
    voxels = np.random.default_rng(seed).integers(0, 50, (30, 32, 34)).astype(np.int16)
    voxels[8:22, 8:22, 8 : 12 + seed % 16] += 500
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(voxels, np.eye(4)), path)


@dataclass(frozen=True)
class Project:
    """A folder in which the stage runs, with a new image set for each call of `measure`."""

    folder: Path

    def catalogue(self, label: str, seeds: range, points: int = 32) -> None:
        images = self.folder / "images" / label
        images.mkdir(parents=True)
        for seed in seeds:
            write_volume(images / f"head{seed}.nii.gz", seed)
        build_catalogue(
            refresh(images), self.folder / "data/catalogue", Grids(points, 8), image_set=label
        )

    def measure(
        self, label: str, seeds: range, *, runs: str = "data/measured/cpu", **changes
    ) -> None:
        """Write runs of the volumes that are catalogued now, on one CPU and on two."""
        self.catalogue(label, seeds)
        catalogue = pd.read_parquet(self.folder / "data/catalogue/catalogue.parquet")
        for volume in catalogue.to_dict("records"):
            for cpus in (1, 2):
                cell = synthetic_runs.cell(
                    volume_id=volume["volume_id"], subject=volume["subject"],
                    configuration=Configuration("cpu", cpus), parameters={"n": 3},
                )  # fmt: skip
                size = 1.0 + cpus / 10 + len(volume["subject"]) / 100
                targets = {"runtime_s": size / cpus, "cpu_s": size, "peak_rss_bytes": 10**8}
                synthetic_runs.write_run(self.folder / runs, cell, **{**targets, **changes})
        self.write_tables()

    def write_tables(self) -> None:
        for device in ("cpu", "gpu"):
            measured, tables = (
                self.folder / "data" / name / device for name in ("measured", "runs")
            )
            write_tables_of(measured, tables)

    def record(self, name: str) -> Path:
        """Move the runs of this project into a recorded batch, with its images, as a campaign."""
        batch = self.folder / "data/history" / name
        collect(self.folder / "data/measured/cpu", batch)
        catalogue = self.folder / "data/catalogue"
        images = recorded_images(catalogue, None)
        images.to_parquet(batch / "images.parquet")
        copy_small_volumes(catalogue, batch, set(images["volume_id"]))
        shutil.rmtree(self.folder / "data/runs")
        shutil.rmtree(self.folder / "data/measured")
        shutil.rmtree(self.folder / "data/catalogue")
        return batch

    def params(self, test_fraction: float = 0.25, **features: object) -> str:
        """Return the text of params.yaml, with values of its section `features`."""
        params = yaml.safe_load((ROOT / "params.yaml").read_text())
        params["app"] = {"app": params["app"]["ants_segment"]}
        params["features"] |= {"coarse_points": 32, "network_points": 8, "history": [], **features}
        params["evaluation"]["test_fraction"] = test_fraction
        return yaml.safe_dump(params)

    def featurize(self, code: int = 0, *, test_fraction: float = 0.25, **features: object) -> str:
        """Run the stage and return its messages."""
        (self.folder / "params.yaml").write_text(self.params(test_fraction, **features))
        return call(featurize.main, project=self.folder, code=code).err.strip()

    def summary(self) -> dict:
        return json.loads((self.folder / "data/features/summary.json").read_text())

    def rows(self) -> pd.DataFrame:
        sides = [self.folder / f"data/features/{side}.parquet" for side in ("train", "test")]
        return pd.concat([pd.read_parquet(path) for path in sides], ignore_index=True)
