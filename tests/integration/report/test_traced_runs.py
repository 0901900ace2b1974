"""Memory and traces of single runs, from their folders in a project."""

from __future__ import annotations

import shutil
from pathlib import Path

from commands import called
from synthetic_runs import cell, write_run
from voxcast.report.phase_page import memory_drawings, traced_runs
from voxcast.runs.series import load_records

KMEANS = Path(__file__).parents[2] / "samples" / "kmeans_mpi_trace"


def test_the_run_of_median_time_is_drawn_with_its_phases(tmp_path: Path) -> None:
    folder = tmp_path / "data/measured/cpu"
    for repeat, seconds in enumerate((1.0, 2.0, 9.0)):
        write_run(folder, cell(repeat), samples=12, runtime_s=seconds)
    completed = load_records(folder)
    (drawing,) = memory_drawings(completed, tmp_path)
    assert drawing.caption.startswith("app, 1 CPU. Phases logged by the application: 1 n4")
    assert 'aria-label="Memory of app, 1 CPU. Phases logged' in drawing.svg
    assert memory_drawings(completed, tmp_path / "elsewhere") == []
    assert traced_runs(completed, tmp_path) == []


def test_traces_in_the_results_of_a_run_are_a_section(tmp_path: Path) -> None:
    folder = tmp_path / "data/measured/cpu"
    run = write_run(folder, cell(), samples=12)
    shutil.copytree(KMEANS, run / "out" / "traces")
    section, _, communication = traced_runs(load_records(folder), tmp_path)
    assert section.title == "app"
    assert section.sentence.startswith("4 processes, 43 ticks")
    assert communication.tables[0].rows[0]["operation"] == "MPI_Allreduce"
    # The verb finds the memory of the run by itself.
    page = tmp_path / "page.html"
    assert (
        called("phases", "show", str(run / "out" / "traces"), "--json", "--html", str(page)) == 0
    )
    assert "Memory of app, 1 CPU" in page.read_text(encoding="utf-8")


def test_a_damaged_trace_is_told_of_and_does_not_stop_the_report(tmp_path: Path) -> None:
    folder = tmp_path / "data/measured/cpu"
    run = write_run(folder, cell(), samples=12)
    shutil.copytree(KMEANS, run / "traces")
    (run / "traces" / "rank-00001.json").write_bytes(b"something else")
    (section,) = traced_runs(load_records(folder), tmp_path)
    assert not section.figures
    assert "is not a Chrome trace" in section.sentence
