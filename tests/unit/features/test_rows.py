"""Features and sides: one function for training and serving, nothing measured gets in."""

import math

import numpy as np
import pandas as pd
import pytest

import planted
from voxcast.errors import TableError
from voxcast.features.rows import feature_names, features, volumes_of
from voxcast.features.training_table import TrainingRuns, build_table, stopped_runs
from voxcast.images.network_volume import volume_dtype, write_small_volumes
from voxcast.records import App, Configuration

HEADER = {
    "shape_i": 100, "shape_j": 120, "shape_k": 80,
    "spacing_i_mm": 1.0, "spacing_j_mm": 1.0, "spacing_k_mm": 2.0,
    "dtype": "int16", "bytes_per_voxel": 2, "file_size_bytes": 960_000, "obliqueness_deg": 3.0,
}  # fmt: skip


def test_features_by_hand() -> None:
    row = features(
        HEADER, {"foreground_voxels": 99.0}, "a", {"n": 3, "name": "x"}, Configuration("cpu", 4)
    )
    assert row["header.megavoxels"] == pytest.approx(0.96)
    assert row["header.log_file_bytes_per_voxel"] == pytest.approx(0.0)
    assert row["allocation.log2_cpus"] == 2
    assert row["content.log_foreground_voxels"] == pytest.approx(4.60517, abs=1e-4)
    assert row["parameter.n"] == 3
    assert row["parameter.name"] == "x"
    assert row["header.log_working_voxels"] == row["header.log_voxels"]


def test_features_use_the_grid_that_the_application_resamples_to() -> None:
    original, fine, coarse = (
        features(HEADER, None, "a", {"spacing_mm": mm}, Configuration("cpu", 1))
        for mm in (0.0, 0.5, 2.0)
    )
    name = "header.log_working_voxels"
    assert fine[name] == original[name]  # coarser already: it stays as it is
    assert math.exp(coarse[name]) == pytest.approx(960_000 * 2 / 8)


def test_the_machine_is_on_record_and_no_feature() -> None:
    profiles, catalogue, characteristics = planted.history(6)
    profiles["host_id"] = ["x", "y"] * (len(profiles) // 2)
    profiles["probe_cpu"] = [1.0, 10.0, 1.2, 12.0] * (len(profiles) // 4)
    profiles["sitting"], profiles["batch"] = "2026-01-01-x-1", ["", "first"] * 6
    table, _ = build_table(profiles, catalogue, characteristics)
    assert set(table["host_id"]) == {"x", "y"}
    # Batches number their sittings alike.
    assert set(table["sitting"]) == {"2026-01-01-x-1", "first/2026-01-01-x-1"}
    assert set(table["node_type"]) == {"local"}
    assert not {"host_id", "sitting", "node_type", "started_at"} & set(feature_names(table))
    assert not [name for name in feature_names(table) if "probe" in name]


def test_an_application_without_an_image_has_its_parameters_as_subject() -> None:
    profiles, catalogue, characteristics = planted.history(3)
    profiles["volume_id"] = ""
    profiles["parameters_json"] = [f'{{"epochs": {n // 2}}}' for n in range(len(profiles))]
    table, left_out = build_table(profiles, catalogue, characteristics)
    assert table.empty
    assert left_out == {"an application without an image": 6}
    table, _ = build_table(profiles, catalogue, characteristics, without_image=True)
    assert table["subject"].nunique() == 3
    assert not [name for name in table if name.startswith(("header.", "content."))]


def test_only_declared_characteristics_are_features() -> None:
    profiles, catalogue, characteristics = planted.history(3)

    def contents(declared: tuple[str, ...] | None) -> set[str]:
        table, left_out = build_table(profiles, catalogue, characteristics, declared=declared)
        assert (len(table), left_out) == (6, {})
        return {name for name in table if name.startswith("content.")}

    extent = {"content.log_foreground_voxels", "content.foreground_megavoxels"}
    assert contents(None) == extent | {"content.noise_ratio"}
    assert contents(("foreground_voxels",)) == extent
    assert contents(()) == set()


def test_a_run_without_a_declared_characteristic_is_left_out_and_counted() -> None:
    profiles, catalogue, characteristics = planted.history(3)
    characteristics.loc[0, "noise_ratio"] = float("nan")
    table, left_out = build_table(profiles, catalogue, characteristics)
    assert (len(table), left_out) == (
        4,
        {"noise_ratio of the volume is unknown, or of another version": 2},
    )
    both, left_out = build_table(
        profiles, catalogue, characteristics, declared=("foreground_voxels",)
    )
    assert (len(both), left_out) == (6, {})
    _, left_out = build_table(profiles, catalogue, characteristics, declared=("asymmetry",))
    assert left_out == {"asymmetry of the volume is unknown, or of another version": 6}


def test_stopped_runs_are_lower_bounds_with_the_columns_of_the_training_table() -> None:
    profiles, catalogue, characteristics = planted.history(5)
    profiles.loc[0, "outcome"] = "timeout"
    profiles.loc[2, "outcome"] = "failed"
    profiles.loc[4, ["outcome", "app_version", "started_at"]] = ["timeout", "0", "2025"]
    profiles.loc[6, ["outcome", "memory_method"]] = ["out_of_memory", "another"]
    phases = planted.phases(profiles, characteristics)
    volumes = catalogue.merge(characteristics, on="volume_id").assign(image_set="")
    names = tuple(characteristics.columns.drop("volume_id"))
    training = TrainingRuns(profiles, volumes, phases, dict.fromkeys(names, 1), {})
    apps = {"segment": App("segment", "1", characteristics=names)}
    stopped = stopped_runs(training, apps)
    assert stopped["subject"].tolist() == ["0001", "0004"]
    first, second = stopped.to_dict("records")
    assert first["cpu_s"] == profiles["cpu_s"][0]
    assert np.isnan(second["peak_rss_bytes"])  # not comparable
    table, _ = build_table(profiles, catalogue, characteristics, phase_texts={})
    assert set(table) == set(stopped)


@pytest.mark.parametrize("bad", [None, 0, -1, "wide", float("nan")])
def test_an_invalid_header_is_refused(bad: object) -> None:
    with pytest.raises(TableError, match="shape_j"):
        features({**HEADER, "shape_j": bad}, None, "a", {}, Configuration("cpu", 1))


def test_nothing_measured_during_the_run_is_a_feature() -> None:
    profiles, catalogue, characteristics = planted.history(4)
    before, _ = build_table(profiles, catalogue, characteristics)
    for target in ("runtime_s", "cpu_s", "peak_rss_bytes"):
        profiles[target] = profiles[target] * 3
    after, _ = build_table(profiles, catalogue, characteristics)
    names = feature_names(before)
    assert before[names].equals(after[names])
    assert not set(names) & set(profiles.columns) - {"app", "device"}


def test_censored_runs_are_counted_and_never_labels() -> None:
    profiles, catalogue, characteristics = planted.history(5)
    profiles.loc[[0, 3], "outcome"] = ["timeout", "failed"]
    profiles.loc[5, "volume_id"] = "gone"
    table, left_out = build_table(profiles, catalogue, characteristics)
    assert len(table) == len(profiles) - 3
    assert left_out == {
        "censored: timeout": 1, "censored: failed": 1, "volume not on record": 1
    }  # fmt: skip


def test_volumes_follow_the_rows(tmp_path) -> None:
    table = planted.table(3)
    cubes = np.zeros(3, volume_dtype(2))
    cubes["shape"][:, 0] = range(3)
    volumes_by_id = dict(zip(("v0003", "v0001", "v0002"), cubes, strict=True))
    write_small_volumes(tmp_path / "v.npz", volumes_by_id, 2)
    volumes = volumes_of(table, tmp_path / "v.npz")
    expected = table["volume_id"].map({"v0003": 0, "v0001": 1, "v0002": 2})
    assert volumes["shape"][:, 0].tolist() == expected.tolist()


def test_each_device_has_its_version() -> None:
    profiles, catalogue, characteristics = planted.history(4)
    on_gpu = profiles["cpus"] == 2
    other = profiles.assign(
        device=on_gpu.map({True: "gpu", False: "cpu"}),
        app_version=on_gpu.map({True: "1+imageb", False: "1+imagea"}),
    )
    table, left_out = build_table(other, catalogue, characteristics)
    assert 0 < on_gpu.sum() < len(profiles)
    assert (len(table), left_out) == (len(profiles), {})


def test_a_disturbed_run_is_used_if_its_repeat_was_not_completed() -> None:
    profiles, catalogue, characteristics = planted.history(4)
    again = profiles.iloc[[0]].assign(cell_key="again", repeat=100, outcome="failed")
    profiles.loc[0, "noisy"] = True
    table, left_out = build_table(pd.concat([profiles, again]), catalogue, characteristics)
    assert (len(table), left_out) == (len(profiles), {"censored: failed": 1})
    table, left_out = build_table(
        pd.concat([profiles, again.assign(outcome="completed")]), catalogue, characteristics
    )
    assert left_out == {"disturbed, and undisturbed again": 1}
    anchor = profiles.iloc[[1]].assign(cell_key="anchor", repeat=1000)
    _, left_out = build_table(pd.concat([profiles, anchor]), catalogue, characteristics)
    assert left_out == {"anchor of a sitting": 1}


def test_one_application_does_not_discard_runs_of_another() -> None:
    profiles, catalogue, characteristics = planted.history(4, apps=("segment", "register"))
    of_other = profiles["app"] == "register"
    odd = profiles.assign(
        app_version=of_other.map({True: "7", False: "1"}),
        memory_method=of_other.map({True: "tree", False: "cgroup1"}),
        started_at=of_other.map({True: "2027", False: "2026"}),
    )
    more = [odd, odd[of_other].assign(cell_key=lambda runs: "more-" + runs["cell_key"], repeat=1)]
    table, left_out = build_table(pd.concat(more), catalogue, characteristics)
    assert left_out == {}
    assert table["app"].value_counts().to_dict() == {"register": 16, "segment": 8}


def test_runs_measured_here_decide_what_is_comparable() -> None:
    profiles, catalogue, characteristics = planted.history(4)
    recorded = [
        profiles.assign(
            batch="other", cell_key=f"{n}-" + profiles["cell_key"], repeat=n,
            app_version="2", memory_method="slurm_maxrss", started_at="2027",
        )
        for n in (1, 2)
    ]  # fmt: skip
    both = pd.concat([profiles.assign(batch=""), *recorded])
    table, left_out = build_table(both, catalogue, characteristics)
    assert set(table["batch"]) == {""}
    assert left_out == {"another version of the application": 16}
    both["app_version"] = both["app_version"].replace("2", "")  # an import that states none
    _, left_out = build_table(both, catalogue, characteristics)
    assert left_out == {"memory by another method: slurm_maxrss": 16}
    table, left_out = build_table(pd.concat(recorded), catalogue, characteristics)
    assert (len(table), left_out) == (16, {})


def test_runs_are_excluded_by_their_true_cause() -> None:
    profiles, catalogue, characteristics = planted.history(7)
    profiles = profiles.assign(source="measured")
    profiles.loc[0, "cpus"] = 0
    profiles.loc[1, "device"] = ""
    profiles["peak_rss_bytes"] = profiles["peak_rss_bytes"].astype("Int64")
    profiles.loc[2, "peak_rss_bytes"] = pd.NA
    profiles.loc[3, "cpu_s"] = 0.0
    profiles.loc[4, ["volume_id", "source"]] = ["", "sacct"]
    profiles.loc[5, "volume_id"] = ""
    catalogue.loc[catalogue["volume_id"] == "v0004", "problem"] = "volume on another grid"
    profiles.loc[8, "parameters_json"] = ""  # an import states none
    table, left_out = build_table(profiles, catalogue, characteristics)
    assert left_out == {
        "number of CPUs is not stated": 1,
        "device is not stated": 1,
        "peak_rss_bytes is unknown or not positive": 1,
        "cpu_s is unknown or not positive": 1,
        "imported without an image": 1,
        "an application without an image": 1,
        "volume on another grid": 2,
    }
    assert len(table) == 6
