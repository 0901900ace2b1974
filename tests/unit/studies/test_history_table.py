"""Any history as one training table."""

from pathlib import Path

import pandas as pd
import pytest

from synthetic_runs import cell, write_run
from voxcast.errors import TableError
from voxcast.evaluation.recorded_table import history_table, recorded_table
from voxcast.features.rows import SPEED_DEVIATION
from voxcast.images.catalogue import ON_RECORD, columns_of
from voxcast.images.characteristics import versions_of
from voxcast.images.recorded import RECORDED_IMAGES
from voxcast.runs.csv_table import load_map
from voxcast.runs.importer import import_files
from voxcast.runs.series import write_stage
from voxcast.runs.store import load_history, open_history
from voxcast.runs.table import PHASE_DTYPES, TRACE_DTYPES, frame_of

REFERENCE = Path(__file__).parents[3] / "data/history/reference"


def test_a_recorded_history_gives_the_table_of_the_studies() -> None:
    history = open_history(REFERENCE)
    table = history_table(history, history.runs)
    expected = recorded_table([REFERENCE], lambda subject: False)
    expected = expected.drop(columns=["batch", "sitting", SPEED_DEVIATION])
    pd.testing.assert_frame_equal(table[expected.columns], expected)


def test_a_part_uses_the_images_of_its_batch() -> None:
    part = sorted(REFERENCE.glob("*/"))[0]
    history = open_history(part)
    table = history_table(history, history.runs[history.runs["app"] == "tile_segment"])
    assert set(table["app"]) == {"tile_segment"}
    assert table["header.log_voxels"].notna().all()


def test_folders_of_runs_use_the_volumes_on_record_of_their_project(tmp_path: Path) -> None:
    runs = load_history([REFERENCE])
    runs = runs[runs["app"] == "tile_segment"].reset_index(drop=True)
    no_phases, no_traces = frame_of([], PHASE_DTYPES), frame_of([], TRACE_DTYPES)
    write_stage(tmp_path / "data" / "runs" / "cpu", runs, no_phases, no_traces)
    images = pd.read_parquet(REFERENCE / RECORDED_IMAGES)
    images = images.assign(image_set="cohort", session="", coarse_points=32)
    (tmp_path / "data" / "catalogue").mkdir()
    images = images.reindex(columns=columns_of(versions_of({})))
    images.to_parquet(tmp_path / "data" / "catalogue" / ON_RECORD)
    history = open_history(tmp_path / "data" / "runs" / "cpu")
    expected = recorded_table([REFERENCE], lambda subject: False)
    expected = expected[expected["app"] == "tile_segment"]
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
