"""Runs on record, in real folders of every kind."""

import shutil
from pathlib import Path

import pandas as pd
import pytest

from synthetic_runs import cell, write_run
from voxcast.analysis.runs_on_record import runs_on_record
from voxcast.records import Configuration
from voxcast.runs.series import RUNS
from voxcast.runs.store import collect

GPU = Configuration("gpu", 1, 1)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """One batch of two cells, and runs of two devices, of which one is in the batch too."""
    cpu, gpu = tmp_path / "runs" / "cpu", tmp_path / "runs" / "gpu"
    for repeat in range(2):
        write_run(cpu, cell(repeat))
    collect(cpu, tmp_path / "history" / "one")
    write_run(cpu, cell(2))
    write_run(gpu, cell(0, configuration=GPU))
    shutil.rmtree(cpu / cell(0).key)
    return tmp_path


def test_every_type_of_folder_is_read_and_a_key_counts_once(project: Path) -> None:
    counts = {
        "history/one": 2, "history": 2, "runs/cpu": 2, "runs/gpu": 1, "runs": 3,
    }  # fmt: skip
    for name, count in counts.items():
        runs, phases = runs_on_record([project / name])
        assert len(runs) == count, name
        assert runs["cell_key"].is_unique
        assert set(phases["cell_key"]) == set(runs["cell_key"])
        assert set(phases["phase"]) == {"n4"}
    runs, phases = runs_on_record([project / "history", project / "runs"])
    assert len(runs) == len(phases) == 4
    assert runs["started_at"].is_monotonic_increasing
    assert runs["peak_rss_bytes"].iloc[0] == 2**53 + 1


def test_imported_runs_are_excluded(project: Path) -> None:
    part = next((project / "history" / "one").glob(f"*/{RUNS}"))
    frame = pd.read_parquet(part)
    frame.loc[0, "source"] = "sacct"
    frame.to_parquet(part, index=False)
    runs, phases = runs_on_record([project / "history"])
    assert len(runs) == len(phases) == 1


def test_a_broken_table_is_named_and_the_others_are_used(project: Path, caplog) -> None:
    part = next((project / "history" / "one").glob(f"*/{RUNS}"))
    collect(project / "runs" / "cpu", project / "history" / "two")
    part.write_bytes(b"not a table")
    runs, _ = runs_on_record([project / "history"])
    assert set(runs["cell_key"]) == {cell(1).key, cell(2).key}
    assert f"{part}: a part that cannot be read" in caplog.text
