"""Features and sides: one function for training and serving, nothing measured gets in."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import planted
from voxcast.errors import TableError
from voxcast.features.descriptions import amount, change, natural, outside, plain_name, usual
from voxcast.features.phase_labels import COLUMN, labels_of, phase_texts
from voxcast.features.rows import (
    KERNEL_S,
    MIN_SUBJECTS,
    SPEED_DEVIATION,
    feature_names,
    features,
    side,
    split,
    volumes_of,
)
from voxcast.features.training_table import (
    TrainingRuns,
    batches_to_learn_from,
    build_table,
    stopped_runs,
    with_speed_deviations,
)
from voxcast.images.characteristics import CHARACTERISTICS
from voxcast.images.network_volume import volume_dtype, write_small_volumes
from voxcast.records import App, Configuration
from voxcast.runs.speed import KERNELS
from voxcast.runs.table import DTYPES, PHASE_DTYPES, UNKNOWN, in_schema

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
    profiles, volumes = planted.history(6)
    profiles["host_id"] = ["x", "y"] * (len(profiles) // 2)
    profiles["probe_cpu"] = [1.0, 10.0, 1.2, 12.0] * (len(profiles) // 4)
    profiles["sitting"], profiles["batch"] = "2026-01-01-x-1", ["", "first"] * 6
    table, _ = build_table(profiles, volumes)
    assert set(table["host_id"]) == {"x", "y"}
    # Batches number their sittings alike.
    assert set(table["sitting"]) == {"2026-01-01-x-1", "first/2026-01-01-x-1"}
    assert set(table["node_type"]) == {"local"}
    assert not {"host_id", "sitting", "node_type", "started_at"} & set(feature_names(table))
    assert not [name for name in feature_names(table) if "probe" in name]


def test_an_application_without_an_image_has_its_parameters_as_subject() -> None:
    profiles, volumes = planted.history(3)
    profiles["volume_id"] = ""
    profiles["parameters_json"] = [f'{{"epochs": {n // 2}}}' for n in range(len(profiles))]
    table, left_out = build_table(profiles, volumes)
    assert table.empty
    assert left_out == {"an application without an image": 6}
    table, _ = build_table(profiles, volumes, without_image=True)
    assert table["subject"].nunique() == 3
    assert not [name for name in table if name.startswith(("header.", "content."))]


def test_only_declared_characteristics_are_features() -> None:
    profiles, volumes = planted.history(3)

    def contents(declared: tuple[str, ...] | None) -> set[str]:
        table, left_out = build_table(profiles, volumes, declared=declared)
        assert (len(table), left_out) == (6, {})
        return {name for name in table if name.startswith("content.")}

    extent = {"content.log_foreground_voxels", "content.foreground_megavoxels"}
    assert contents(None) == extent | {"content.noise_ratio"}
    assert contents(("foreground_voxels",)) == extent
    assert contents(()) == set()


def test_a_run_without_a_declared_characteristic_is_left_out_and_counted() -> None:
    profiles, volumes = planted.history(3)
    volumes.loc[0, "noise_ratio"] = float("nan")
    table, left_out = build_table(profiles, volumes)
    assert (len(table), left_out) == (
        4,
        {"noise_ratio of the volume is unknown, or of another version": 2},
    )
    both, left_out = build_table(profiles, volumes, declared=("foreground_voxels",))
    assert (len(both), left_out) == (6, {})
    _, left_out = build_table(profiles, volumes, declared=("asymmetry",))
    assert left_out == {"asymmetry of the volume is unknown, or of another version": 6}


def test_stopped_runs_are_lower_bounds_with_the_columns_of_the_training_table() -> None:
    profiles, volumes = planted.history(5)
    profiles.loc[0, "outcome"] = "timeout"
    profiles.loc[2, "outcome"] = "failed"
    profiles.loc[4, ["outcome", "app_version", "started_at"]] = ["timeout", "0", "2025"]
    profiles.loc[6, ["outcome", "memory_method"]] = ["out_of_memory", "another"]
    phases = planted.phases(profiles, volumes)
    names = tuple(name for name in CHARACTERISTICS if name in volumes)
    volumes = volumes.assign(image_set="")
    volumes = volumes.reindex(columns=[*volumes, *(CHARACTERISTICS.keys() - {*names})])
    training = TrainingRuns(profiles, volumes, phases, {})
    apps = {"segment": App("segment", "1", characteristics=names)}
    stopped = stopped_runs(training, apps)
    assert stopped["subject"].tolist() == ["0001", "0004"]
    first, second = stopped.to_dict("records")
    assert first["cpu_s"] == profiles["cpu_s"][0]
    assert np.isnan(second["peak_rss_bytes"])  # not comparable
    table, _ = build_table(profiles, volumes, declared=names, phase_texts={})
    assert set(table) == set(stopped)


@pytest.mark.parametrize("bad", [None, 0, -1, "wide", float("nan")])
def test_an_invalid_header_is_refused(bad: object) -> None:
    with pytest.raises(TableError, match="shape_j"):
        features({**HEADER, "shape_j": bad}, None, "a", {}, Configuration("cpu", 1))


def test_nothing_measured_during_the_run_is_a_feature() -> None:
    profiles, volumes = planted.history(4)
    before, _ = build_table(profiles, volumes)
    for target in ("runtime_s", "cpu_s", "peak_rss_bytes"):
        profiles[target] = profiles[target] * 3
    after, _ = build_table(profiles, volumes)
    names = feature_names(before)
    assert before[names].equals(after[names])
    assert not set(names) & set(profiles.columns) - {"app", "device"}


def test_volumes_follow_the_rows(tmp_path) -> None:
    table = planted.table(3)
    cubes = np.zeros(3, volume_dtype(2))
    cubes["shape"][:, 0] = range(3)
    volumes_by_id = dict(zip(("v0003", "v0001", "v0002"), cubes, strict=True))
    write_small_volumes(tmp_path / "v.npz", volumes_by_id, 2)
    volumes = volumes_of(table, tmp_path / "v.npz")
    expected = table["volume_id"].map({"v0003": 0, "v0001": 1, "v0002": 2})
    assert volumes["shape"][:, 0].tolist() == expected.tolist()


def test_a_disturbed_run_is_used_if_its_repeat_was_not_completed() -> None:
    profiles, volumes = planted.history(4)
    again = profiles.iloc[[0]].assign(cell_key="again", repeat=100, outcome="failed")
    profiles.loc[0, "noisy"] = True
    table, left_out = build_table(pd.concat([profiles, again]), volumes)
    assert (len(table), left_out) == (len(profiles), {"censored: failed": 1})
    table, left_out = build_table(
        pd.concat([profiles, again.assign(outcome="completed")]), volumes
    )
    assert left_out == {"disturbed, and undisturbed again": 1}
    anchor = profiles.iloc[[1]].assign(cell_key="anchor", repeat=1000)
    _, left_out = build_table(pd.concat([profiles, anchor]), volumes)
    assert left_out == {"anchor of a sitting": 1}


def test_runs_measured_here_decide_what_is_comparable() -> None:
    profiles, volumes = planted.history(4)
    recorded = [
        profiles.assign(
            batch="other", cell_key=f"{n}-" + profiles["cell_key"], repeat=n,
            app_version="2", memory_method="slurm_maxrss", started_at="2027",
        )
        for n in (1, 2)
    ]  # fmt: skip
    both = pd.concat([profiles.assign(batch=""), *recorded])
    table, left_out = build_table(both, volumes)
    assert set(table["batch"]) == {""}
    assert left_out == {"another version of the application": 16}
    both["app_version"] = both["app_version"].replace("2", "")  # an import that states none
    _, left_out = build_table(both, volumes)
    assert left_out == {"memory by another method: slurm_maxrss": 16}
    table, left_out = build_table(pd.concat(recorded), volumes)
    assert (len(table), left_out) == (16, {})


def test_runs_are_excluded_by_their_true_cause() -> None:
    profiles, volumes = planted.history(7)
    profiles = profiles.assign(source="measured")
    profiles.loc[0, "cpus"] = 0
    profiles.loc[1, "device"] = ""
    profiles["peak_rss_bytes"] = profiles["peak_rss_bytes"].astype("Int64")
    profiles.loc[2, "peak_rss_bytes"] = pd.NA
    profiles.loc[3, "cpu_s"] = 0.0
    profiles.loc[4, ["volume_id", "source"]] = ["", "sacct"]
    profiles.loc[5, "volume_id"] = ""
    volumes.loc[volumes["volume_id"] == "v0004", "problem"] = "volume on another grid"
    profiles.loc[8, "parameters_json"] = ""  # an import states none
    table, left_out = build_table(profiles, volumes)
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


def batch(history, name, images=True, **columns):
    part = history / name / "2026-01-01-abc-1"
    part.mkdir(parents=True)
    rows = {"app": ["tool", "tool", "other"], "outcome": "completed", **columns}
    pd.DataFrame(rows).to_parquet(part / "runs.parquet")
    if images:
        pd.DataFrame({"volume_id": ["v"]}).to_parquet(history / name / "images.parquet")


def test_batches_with_completed_runs_are_named(tmp_path):
    batch(tmp_path, "heads")
    batch(tmp_path, "failed", outcome="failed")
    batch(tmp_path, "no_characteristics", images=False)
    batch(tmp_path, "judging")
    (tmp_path / "reserved.txt").write_text("judging\n")
    assert batches_to_learn_from(tmp_path, "tool") == {"heads": 2}
    assert batches_to_learn_from(tmp_path, "unheard") == {}
    assert batches_to_learn_from(tmp_path / "none", "tool") == {}


def test_recorded_batches_that_judge_are_reserved():
    history = Path(__file__).parents[3] / "data/history"
    batches = batches_to_learn_from(history, "ants_segment")
    assert "reference" in batches
    assert "second" not in batches
    assert "real" not in batches


@given(st.text(min_size=1), st.integers(0, 1000))
def test_a_subject_stays_on_its_side_of_the_split(subject: str, seed: int) -> None:
    assert side(subject, seed, 0.25) == side(subject, seed, 0.25)
    if side(subject, seed, 0.25) == "test":
        assert side(subject, seed, 0.5) == "test"


def test_no_subject_is_on_both_sides() -> None:
    table = planted.table(MIN_SUBJECTS)
    sides = split(table, split_seed=9, test_fraction=0.25)
    assert min(len(sides.train), len(sides.test)) > 0
    assert not set(sides.train["subject"]) & set(sides.test["subject"])
    assert len(sides.train) + len(sides.test) == len(table)
    assert sides.not_judged == frozenset()


@pytest.mark.parametrize("subjects", [1, 12, MIN_SUBJECTS - 1])
def test_few_subjects_all_train(subjects: int) -> None:
    table = planted.table(subjects)
    sides = split(table, 9, 0.7)
    assert len(sides.train) == len(table)
    assert sides.test.empty
    assert list(sides.test) == list(table)
    assert sides.not_judged == {"segment"}


def test_each_application_is_split_by_itself() -> None:
    table = planted.table(MIN_SUBJECTS, apps=("segment", "register"))
    few = table[(table["app"] == "segment") | (table["subject"] == "0003")]
    sides = split(few, 9, 0.25)
    assert sides.not_judged == {"register"}
    assert set(sides.test["app"]) == {"segment"}
    of_many = sides.train[sides.train["app"] == "segment"]
    expected = split(table[table["app"] == "segment"], 9, 0.25).train
    pd.testing.assert_frame_equal(of_many.reset_index(drop=True), expected)


SITTINGS = ("1", "2")


def disturbed_runs() -> tuple[pd.DataFrame, pd.Series]:
    """Return three repeats of each cell in two sittings, and how slow the machine was in each.

    The second sitting is slower as a whole, which is no deviation from what is usual in it.
    """
    rng = np.random.default_rng(3)
    rows, slowed_by_key = [], {}
    for n, (sitting, cell, repeat) in enumerate(
        (s, c, r) for s in SITTINGS for c in range(10) for r in range(3)
    ):
        slowed = abs(rng.normal(0.0, 0.15)) + (0.3 if sitting == "2" else 0.0)
        key = f"{sitting}-{cell}-{repeat}"
        slowed_by_key[key] = slowed
        cpu_s = float(np.exp(2.0 + 0.1 * cell + slowed))
        rows.append(
            {name: UNKNOWN[dtype] for name, dtype in DTYPES.items()}
            | {"cell_key": key, "app": "segment", "volume_id": f"v{sitting}{cell}"}
            | {"subject": f"s{cell}", "repeat": repeat, "cpus": 1, "device": "cpu"}
            | {"host_id": "here", "sitting": sitting, "scale": "full_scale"}
            | {"outcome": "completed", "cpu_s": cpu_s, "runtime_s": cpu_s, "metronome_ticks": 20}
            | {"started_at": f"2026-01-01T{n // 60:02d}:{n % 60:02d}:00Z"}
            | dict.fromkeys(KERNELS, 0.004 * float(np.exp(slowed)))
        )
    return in_schema(pd.DataFrame(rows)), pd.Series(slowed_by_key)


NO_PHASES = pd.DataFrame(columns=list(PHASE_DTYPES)).astype(PHASE_DTYPES)


def test_deviations_are_from_the_usual_speed_of_the_sitting() -> None:
    runs, slowed = disturbed_runs()
    table = with_speed_deviations(runs, runs, NO_PHASES)
    deviations = table.set_index("cell_key")[SPEED_DEVIATION]
    for sitting in SITTINGS:
        of_sitting = deviations[deviations.index.str.startswith(f"{sitting}-")]
        assert of_sitting.median() == pytest.approx(0.0)
        planted = slowed[of_sitting.index]
        # Coefficients are shrunk, so a deviation is a little smaller than what was planted.
        ratio = -of_sitting / (planted - planted.median())
        assert 0.8 < ratio.median() < 1.01
    pd.testing.assert_frame_equal(table.drop(columns=[SPEED_DEVIATION, KERNEL_S]), runs)
    # No run is known to slow the kernels, so they took before it what they took beside it.
    np.testing.assert_allclose(table[KERNEL_S], runs[KERNELS[0]])


def test_runs_beside_which_nothing_was_timed_deviate_by_nothing() -> None:
    runs, _ = disturbed_runs()
    bare = runs.drop(columns=[*KERNELS, "metronome_ticks"])
    untimed = with_speed_deviations(bare, bare, NO_PHASES)
    assert (untimed[SPEED_DEVIATION] == 0.0).all()
    assert untimed[KERNEL_S].isna().all()
    others = runs.assign(cell_key=runs["cell_key"] + "-elsewhere")
    assert (with_speed_deviations(others, runs, NO_PHASES)[SPEED_DEVIATION] == 0.0).all()


FINE_HEADER = {
    "shape_i": 176, "shape_j": 256, "shape_k": 256, "spacing_i_mm": 1.0, "spacing_j_mm": 0.5,
    "spacing_k_mm": 2.0, "file_size_bytes": 9_000_000, "bytes_per_voxel": 2, "dtype": "int16",
    "obliqueness_deg": 12.0,
}  # fmt: skip
CONTENTS = dict.fromkeys(CHARACTERISTICS, 0.25) | {"foreground_voxels": 2e6, "foreground_ml": 2e3}
ROW = features(
    FINE_HEADER, CONTENTS, "segment", {"spacing_mm": 4.0, "mode": "fast"}, Configuration("cpu", 8),
)  # fmt: skip
VOXELS = 176 * 256 * 256


@pytest.mark.parametrize(
    ("column", "expected", "text"),
    [
        ("header.log_voxels", VOXELS, "11.5 million voxels"),
        ("header.megavoxels", VOXELS, "11.5 million voxels"),
        ("header.log_working_voxels", VOXELS / 64, "0.180 million voxels"),
        ("header.log_extent_mm3", VOXELS, "11.5 litres"),
        ("header.log_anisotropy", 4.0, "4"),
        ("header.log_file_bytes_per_voxel", 9e6 / VOXELS, "0.7803 bytes"),
        ("header.is_float", 0.0, "integer"),
        ("content.log_foreground_voxels", 2e6, "2.00 million voxels"),
        ("content.foreground_megavoxels", 2e6, "2.00 million voxels"),
        ("content.log_foreground_ml", 2e3, "2000 ml"),
        ("content.noise_ratio", 0.25, "0.25"),
        ("allocation.log2_cpus", 8.0, "8 CPUs"),
        ("parameter.spacing_mm", 4.0, "4"),
    ],
)
def test_a_column_is_turned_back_to_its_natural_unit(
    column: str, expected: float, text: str
) -> None:
    value = natural(column, float(ROW[column]))
    assert value == pytest.approx(expected)
    assert amount(plain_name(column), value) == text


def test_every_numeric_feature_has_phrases() -> None:
    for column, value in ROW.items():
        if isinstance(value, str):
            assert value in outside(column, value, None, None)
            continue
        name, x = plain_name(column), natural(column, value)
        text = change(name, 1.5, x, x)
        assert text.startswith("+50 % for ")
        assert "{" not in text
        assert "log" not in text
        assert "mega" not in text
        assert "measured" in outside(column, value + 1, value - 0.5, value)
        assert "measured" in outside(column, value, value + 0.5, value + 1)


def test_the_usual_number_of_cpus_exists() -> None:
    for median in (0.0, 0.5, 1.0, 1.5, 2.0):
        cpus = natural("allocation.log2_cpus", usual("allocation.log2_cpus", median))
        assert cpus == pytest.approx(round(cpus))
        assert usual("allocation.log2_cpus", median) >= median
    assert usual("content.noise_ratio", 0.123) == 0.123


@pytest.mark.parametrize(
    ("megavoxels", "phrase"),
    [(42.0, "4.2 times larger"), (12.6, "26 % larger"), (0.5, "4.0 times smaller"),
     (1.5, "25 % smaller")],
)  # fmt: skip
def test_a_size_out_of_range_is_compared_with_the_nearest_measured(
    megavoxels: float, phrase: str
) -> None:
    text = outside("header.megavoxels", megavoxels, 2.0, 10.0)
    assert text.startswith(f"this volume is {phrase} than any that was measured")
    assert ("at most 10.0" if megavoxels > 10 else "at least 2.00") in text


PHASES = pd.DataFrame(
    [
        ("a", "start", 1.0), ("a", "n4", 2.0), ("a", "n4", 1.0),
        ("b", "start", 1.0), ("b", "n4", np.nan),
        ("c", "start", 1.0), ("c", "n4", 9.0),
    ],
    columns=["cell_key", "phase", "cpu_s"],
)  # fmt: skip
CPU_S = {"a": 5.0, "b": 5.0, "c": 5.0, "d": 5.0}
DRIVERS = {"n4": ("mask",)}


def test_shares_add_up_to_the_run_and_repeated_phases_to_one() -> None:
    table = pd.DataFrame({COLUMN: [phase_texts(PHASES, CPU_S, DRIVERS).get("a"), ""]})
    labels = labels_of(table)
    assert labels is not None
    assert labels.names == ("n4", "rest", "start")
    assert labels.shares[0] == pytest.approx([0.6, 0.2, 0.2])
    assert labels.is_known.tolist() == [True, False]
    assert labels.drivers == DRIVERS


def test_runs_with_an_unknown_phase_or_too_much_time_have_no_labels() -> None:
    assert set(phase_texts(PHASES, CPU_S, DRIVERS)) == {"a"}
    assert phase_texts(PHASES, CPU_S, {}) == {}
    assert phase_texts(PHASES[:0], CPU_S, DRIVERS) == {}


def test_labels_are_no_features() -> None:
    table = planted.table(4)
    assert labels_of(table) is not None
    assert COLUMN not in feature_names(table)
    assert labels_of(table.drop(columns=COLUMN)) is None
    assert labels_of(table.assign(**{COLUMN: ""})) is None
