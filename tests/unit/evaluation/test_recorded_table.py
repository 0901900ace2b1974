"""Studies see no run that others are judged on."""

import json
import logging
import math
from pathlib import Path

import pandas as pd
import pytest

from synthetic_runs import cell, write_run
from voxcast import config
from voxcast.errors import TableError
from voxcast.evaluation.recorded_table import (
    history_table,
    imported_table,
    of_app,
    recorded_table,
    reserved_table,
)
from voxcast.features.phase_labels import labels_of
from voxcast.features.rows import FULL, KERNEL_S, SPEED_DEVIATION, side
from voxcast.images.catalogue import ON_RECORD, RECORDED_IMAGES
from voxcast.runs.csv_table import load_map
from voxcast.runs.importer import import_files
from voxcast.runs.series import write_stage
from voxcast.runs.store import load_history, open_history
from voxcast.runs.table import PHASE_DTYPES, TRACE_DTYPES, checked_row, frame_of

ROOT = Path(__file__).parents[3]
HISTORY = ROOT / "data/history"
REFERENCE = HISTORY / "reference"


EVALUATION = config.load(ROOT / "params.yaml").evaluation


def is_sealed(subject: str) -> bool:
    return side(subject, EVALUATION.split_seed, EVALUATION.test_fraction) == "test"


@pytest.fixture(scope="module")
def everything() -> pd.DataFrame:
    return recorded_table([REFERENCE], lambda subject: False)


def test_the_subjects_of_the_test_side_are_sealed_from_every_study(
    everything: pd.DataFrame,
) -> None:
    app = config.load_app(ROOT / "conf/app", "ants_segment")
    declared, drivers = {app.name: app.characteristics}, {app.name: app.phase_drivers}
    table = recorded_table([REFERENCE], is_sealed, declared, drivers)
    on_image = table["volume_id"] != ""
    subjects = set(table.loc[on_image, "subject"])
    assert not any(map(is_sealed, subjects))
    all_subjects = set(everything.loc[everything["volume_id"] != "", "subject"])
    assert len(all_subjects - subjects) == 23
    # Runs without an image are in no test table.
    without_image = everything[everything["volume_id"] == ""]
    assert set(table.loc[~on_image, "cell_key"]) == set(without_image["cell_key"])
    assert table[SPEED_DEVIATION].std() > 0
    # Only this application says what drives its phases, and which characteristics it needs.
    assert labels_of(of_app(table, "ants_segment", FULL)) is not None
    assert labels_of(of_app(table, "tile_segment", FULL)) is None
    assert "content.noise_ratio" not in of_app(table, "ants_segment")
    assert "content.noise_ratio" in of_app(table, "tile_segment")
    assert table.index.tolist() == list(range(len(table)))


@pytest.mark.parametrize("batch", ["second", "real"])
def test_a_reserved_batch_is_judged_on_and_never_learned_from(batch: str) -> None:
    with pytest.raises(TableError, match=rf"{batch}: is reserved for judging"):
        recorded_table([HISTORY / batch], is_sealed)
    runs = reserved_table(HISTORY / batch)
    # Its runs are compared with the usual speed in the batches that are learned from.
    assert runs[SPEED_DEVIATION].std() > 0


def test_a_recorded_history_gives_the_table_of_the_studies(everything: pd.DataFrame) -> None:
    history = open_history(REFERENCE)
    table = history_table(history, history.runs)
    expected = everything.drop(columns=["batch", "sitting", SPEED_DEVIATION, KERNEL_S])
    pd.testing.assert_frame_equal(table[expected.columns], expected)


def test_a_part_uses_the_images_of_its_batch() -> None:
    part = sorted(REFERENCE.glob("*/"))[0]
    history = open_history(part)
    table = history_table(history, history.runs[history.runs["app"] == "tile_segment"])
    assert set(table["app"]) == {"tile_segment"}
    assert table["header.log_voxels"].notna().all()


def test_folders_of_runs_use_the_volumes_on_record_of_their_project(
    everything: pd.DataFrame, tmp_path: Path
) -> None:
    runs = load_history([REFERENCE])
    runs = runs[runs["app"] == "tile_segment"].reset_index(drop=True)
    no_phases, no_traces = frame_of([], PHASE_DTYPES), frame_of([], TRACE_DTYPES)
    write_stage(tmp_path / "data" / "runs" / "cpu", runs, no_phases, no_traces)
    images = pd.read_parquet(REFERENCE / RECORDED_IMAGES)
    images = images.assign(image_set="cohort", session="", coarse_points=32)
    (tmp_path / "data" / "catalogue").mkdir()
    images.to_parquet(tmp_path / "data" / "catalogue" / ON_RECORD)
    history = open_history(tmp_path / "data" / "runs" / "cpu")
    expected = everything[everything["app"] == "tile_segment"]
    table = history_table(history, history.runs)
    assert table["cell_key"].tolist() == expected["cell_key"].tolist()
    assert table["header.log_voxels"].tolist() == expected["header.log_voxels"].tolist()


def test_an_import_with_images_but_without_cpu_time_has_the_features_of_both(
    tmp_path: Path, caplog
) -> None:
    images = pd.read_parquet(REFERENCE / RECORDED_IMAGES).head(12)
    jobs = pd.DataFrame(
        {
            "wall": range(100, 112), "mem": 5, "subject": images["subject"].to_numpy(),
            "volume": images["volume_id"].to_numpy(), "job": range(12),
        }
    )  # fmt: skip
    jobs.to_csv(tmp_path / "jobs.csv", index=False)
    (tmp_path / "map.yaml").write_text(
        "columns:\n  runtime_s: wall\n  peak_rss_bytes: {column: mem, unit: GB}\n"
        "  subject: subject\n  volume_id: volume\n"
        "constants: {app: recon, device: cpu, cpus: 2}\nidentity: [job]\n"
    )
    batch = tmp_path / "jobs"
    import_files("csv", [tmp_path / "jobs.csv"], batch, None, load_map(tmp_path / "map.yaml"))
    images.to_parquet(batch / RECORDED_IMAGES)
    history = open_history(batch)
    table = history_table(history, history.runs)
    assert len(table) == 12
    assert table["cpu_s"].tolist() == table["runtime_s"].tolist()
    assert table["content.log_foreground_voxels"].notna().all()
    assert "wall time is predicted directly" in caplog.text


def test_runs_whose_images_are_not_on_record_are_refused(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "cpu", cell(0))
    history = open_history(tmp_path / "runs" / "cpu")
    with pytest.raises(TableError, match=r"neither images.parquet .*dvc repro catalogue"):
        history_table(history, history.runs)


def runs(n: int = 6, **changes: object) -> pd.DataFrame:
    rows = [
        checked_row(
            {
                "cell_key": f"{k:02}", "app": "recon", "device": "cpu", "cpus": 2, "repeat": 0,
                "outcome": "completed", "runtime_s": 10.0 + k, "cpu_s": 15.0 + k,
                "peak_rss_bytes": 1000 + k, "subject": f"s{k % 3}", "scale": "full_scale",
                "source": "sacct", "started_at": "2024-05-01T10:00:00",
                "labels_json": json.dumps(
                    {"user": "ab"[k % 2], "job_id": str(k), "state": "COMPLETED",
                     "file_size": 10.0 ** k, "sessions": k % 2}
                ),
            } | changes
        )
        for k in range(n)
    ]  # fmt: skip
    return frame_of(rows)


def test_labels_known_before_a_run_are_features(caplog) -> None:
    with caplog.at_level(logging.INFO):
        table = imported_table(runs(), "h")
    features = sorted(name for name in map(str, table) if "." in name)
    assert features == [
        "allocation.gpus", "allocation.log2_cpus", "parameter.log_file_size",
        "parameter.sessions", "parameter.user",
    ]  # fmt: skip
    assert table["allocation.log2_cpus"].tolist() == [1.0] * 6
    assert table["parameter.log_file_size"].tolist() == pytest.approx(
        [k * math.log(10) for k in range(6)]
    )
    assert table["subject"].tolist() == ["s0", "s1", "s2"] * 2
    assert "labels that are not features: job_id, state" in caplog.text


def test_a_number_that_some_runs_lack_is_unknown_in_them() -> None:
    table = runs()
    table.loc[2, "labels_json"] = '{"user": "a"}'
    features = imported_table(table, "h")
    assert features["parameter.sessions"].isna().tolist() == [False, False, True] + [False] * 3


def test_wall_time_stands_for_a_cpu_time_that_is_mostly_unknown(caplog) -> None:
    table = runs()
    table.loc[:2, "cpu_s"] = float("nan")
    mixed = imported_table(table, "h")
    assert mixed["cpu_s"].tolist() == mixed["runtime_s"].tolist()
    assert "wall time is predicted directly" in caplog.text
    many = runs(20)
    many.loc[0, "cpu_s"] = float("nan")
    assert len(imported_table(many, "h")) == 19
    assert "1 of 20 completed runs lack memory or CPU time" in caplog.text


def test_runs_without_subject_are_subjects(caplog) -> None:
    table = imported_table(runs(subject="", cpus=0), "h")
    assert table["subject"].nunique() == 6
    assert table["cpus"].tolist() == [1] * 6
    assert "6 runs have no subject" in caplog.text


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"outcome": "cancelled"}, "recon: none of 6 runs completed"),
        ({"peak_rss_bytes": None}, "recon: none of 6 completed runs has a peak memory"),
    ],
)
def test_what_is_missing_is_named(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(TableError) as error:
        imported_table(runs(**changes), "h")
    assert str(error.value) == f"h: has no run to replay ({problem})"
