"""The stage featurize on real volumes and records: image sets, recorded batches, few subjects."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from training_project import Project
from voxcast.features.rows import feature_names, volumes_of
from voxcast.images.catalogue import ON_RECORD, read_on_record
from voxcast.images.network_volume import (
    points_of,
    read_small_volumes,
    volume_dtype,
    write_small_volumes,
)
from voxcast.models.families.family import family
from voxcast.models.point_model import fit, log_targets, queries_of
from voxcast.runs.store import collect


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def known_volumes(project: Project) -> np.ndarray:
    volumes = volumes_of(project.rows(), project.folder / "data/features/volumes.npz")
    assert points_of(volumes) == 8
    return np.asarray((volumes["shape"] > 0).all(axis=1))


def test_small_volumes_of_another_grid_are_left_out(project: Project) -> None:
    project.measure("elsewhere", range(4))
    batch = project.record("elsewhere")
    ids = list(read_small_volumes(batch / "volumes.npz", ""))
    others = {name: np.zeros((), volume_dtype(16)) for name in ids}
    write_small_volumes(batch / "volumes.npz", others, 16)
    project.measure("here", range(20, 24))
    assert "4 small volumes have not 8 points" in project.featurize(history=["elsewhere"])
    assert (known_volumes(project) == (project.rows()["batch"] == "")).all()
    (batch / "volumes.npz").write_bytes(b"no archive")
    message = project.featurize(2, history=["elsewhere"])
    assert "volumes.npz: cannot be read" in message
    assert "take elsewhere out of features.history" in message


def test_a_second_image_set_adds_to_the_first(project: Project) -> None:
    project.measure("first", range(8))
    project.featurize()
    alone = project.rows()
    shutil.rmtree(project.folder / "images")  # the images are gone, their rows stay
    project.measure("second", range(10, 14), noisy=True)
    project.featurize()
    rows, summary = project.rows(), project.summary()
    assert rows.groupby("image_set").size().to_dict() == {"first": 16, "second": 8}
    assert set(rows[rows["noisy"]]["image_set"]) == {"second"}
    names = feature_names(alone)
    assert names == feature_names(rows)
    of_first = rows[rows["image_set"] == "first"].set_index("cell_key").sort_index()
    pd.testing.assert_frame_equal(of_first[names], alone.set_index("cell_key").sort_index()[names])
    assert {key: summary[key] for key in ("runs", "noisy", "of_present_image_set")} == {
        "runs": 24, "noisy": 8, "of_present_image_set": 8
    }  # fmt: skip
    assert summary["of_earlier_image_sets"] == {"first": 16}
    assert summary["of_recorded_batches"] == {}
    assert known_volumes(project).all()


def test_recorded_parts_train_where_they_are_named(project: Project) -> None:
    project.measure("elsewhere", range(8))
    batch = project.record("elsewhere")
    project.measure("here", range(20, 24))
    project.featurize()
    assert len(project.rows()) == 8
    project.featurize(history=["elsewhere"])
    rows, summary = project.rows(), project.summary()
    assert rows["batch"].value_counts().to_dict() == {"elsewhere": 16, "": 8}
    assert summary["of_recorded_batches"] == {"elsewhere": 16}
    assert summary["of_present_image_set"] == 8
    assert not rows[feature_names(rows)].isna().any(axis=None)

    # A batch has its small volumes; without their file the network is fitted to the others.
    assert known_volumes(project).all()
    (batch / "volumes.npz").unlink()
    project.featurize(history=["elsewhere"])
    known = known_volumes(project)
    assert (known == (rows["batch"] == "")).all()
    volumes = volumes_of(rows, project.folder / "data/features/volumes.npz")
    network = fit(rows, volumes, "cnn", family("cnn").defaults, "volume", seed=1)
    errors = np.abs(network.predict(queries_of(rows, volumes)) - log_targets(rows))
    assert errors[~known].max() < 0.5
    assert errors[known].max() < 0.5

    # A run that is in both is there once, as measured here.
    collect(project.folder / "data/measured/cpu", batch)
    project.featurize(history=["elsewhere"])
    assert project.rows()["batch"].value_counts().to_dict() == {"elsewhere": 16, "": 8}


def test_recorded_parts_that_cannot_be_used_are_one_line(project: Project) -> None:
    project.measure("elsewhere", range(2))
    batch = project.record("elsewhere")
    project.measure("here", range(20, 24))
    unknown = project.featurize(2, history=["nowhere"])
    assert unknown == (
        "voxcast: features.history: nowhere: no such recorded batch; choose from elsewhere"
    )
    images = pd.read_parquet(batch / "images.parquet")
    images.drop(columns="shape_i").to_parquet(batch / "images.parquet")
    assert "lacks the column shape_i" in project.featurize(2, history=["elsewhere"])
    (batch / "images.parquet").write_bytes(b"no table")
    message = project.featurize(2, history=["elsewhere"])
    assert "images.parquet: cannot be read" in message
    assert "\n" not in message
    (batch / "images.parquet").unlink()
    assert "import it again with --images DIR" in project.featurize(2, history=["elsewhere"])
    for name in (ON_RECORD, "../runs/cpu/runs.parquet"):
        (project.folder / "data/catalogue" / name).unlink()
        message = project.featurize(2)
        assert "no such file" in message
        assert "dvc repro" in message
        assert "\n" not in message
        project.write_tables()
        project.catalogue(f"again{len(name)}", range(30, 31))


def test_volumes_of_another_grid_are_excluded_by_this_cause(project: Project) -> None:
    project.measure("first", range(4))
    project.catalogue("second", range(10, 12), points=16)
    project.featurize(coarse_points=16, code=2)
    project.measure("third", range(20, 24))
    rows = read_on_record(project.folder / "data/catalogue" / ON_RECORD)
    assert rows["coarse_points"].value_counts().to_dict() == {32: 8, 16: 2}
    project.featurize(coarse_points=16, code=2)
    message = project.featurize(coarse_points=16, code=2)
    assert "16 volume catalogued with another features.coarse_points (app)" in message
    project.featurize()
    assert project.summary()["runs"] == 16


def test_stopped_runs_are_on_the_side_of_their_application(project: Project) -> None:
    project.measure("own", range(3))
    project.measure("slow", range(10, 13), outcome="timeout")
    project.featurize(test_fraction=0.99)
    stopped = pd.read_parquet(project.folder / "data/features/stopped.parquet")
    assert set(stopped["subject"]) == {"head10", "head11", "head12"}
    assert (stopped[["cpu_s", "runtime_s", "peak_rss_bytes"]] > 0).all(axis=None)
    train = pd.read_parquet(project.folder / "data/features/train.parquet")
    assert set(stopped) == set(train) - {"speed_deviation", "kernel_s"}
    assert project.summary()["apps"]["app"]["left_out"] == {"censored: timeout": 6}


def test_no_usable_run_is_one_line_with_the_causes(project: Project) -> None:
    project.measure("own", range(2), outcome="failed")
    message = project.featurize(2)
    assert "no usable completed run: 4 censored: failed (app)" in message
    assert "\n" not in message
