"""`voxcast phases show` on traces of real programs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from commands import called
from synthetic_runs import cell, write_run
from voxcast.errors import ConfigError, RunError, TableError
from voxcast.phases import recorder as mpi_recorder

SAMPLES = Path(__file__).parents[2] / "samples"
KMEANS = SAMPLES / "kmeans_mpi_trace"


def test_the_terminal_shows_phases_a_line_for_each_process_and_collectives(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert called("phases", "show", str(KMEANS)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "4 processes, 43 ticks, 7.37 s; computation 71%, communication 29%" in lines[0]
    assert lines[2].split()[:4] == ["A", "1", "MPI_Allreduce", "1-10"]
    lanes = [line for line in lines if line.startswith("  rank ")]
    assert [lane.split("|")[0].strip() for lane in lanes] == [f"rank {n}" for n in range(4)]
    for lane in lanes:
        text = lane.split("|")[1]
        assert len(lane) <= 80
        # First the generation of points until the broadcast, then the iterations.
        assert text.upper().rstrip("-+. ") == text.upper().count("B") * "B" + "A" * (
            len(text.rstrip("-+. ")) - text.upper().count("B")
        )
    assert any(line.split()[:3] == ["MPI_Allreduce", "4", "40"] for line in lines)


def test_json_has_what_the_page_has(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert called("phases", "show", str(KMEANS), "--json", "--html", str(page)) == 0
    captured = capsys.readouterr()
    content = json.loads(captured.out)
    assert [phase["weight"] for phase in content["phases"]] == [1, 40]
    assert [row["process"] for row in content["by_process"]] == [f"rank {n}" for n in range(4)]
    assert content["collectives"][0]["operation"] == "MPI_Allreduce"
    assert f"wrote {page}" in captured.err
    assert "MPI_Allreduce 1-10 kB" in page.read_text(encoding="utf-8")


def test_an_archive_of_eztrace_is_shown_with_its_messages(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("otf2")
    assert called("phases", "show", str(SAMPLES / "eztrace_ring")) == 0
    captured = capsys.readouterr()
    assert "Messages: 12 between 3 pairs of processes" in captured.out
    assert "missing" in captured.err


def test_phases_and_page_are_logged_to_mlflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mlflow = pytest.importorskip("mlflow")
    (tmp_path / "params.yaml").write_text("{}\n")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    assert called("phases", "show", str(KMEANS), "--track", "--project", str(tmp_path)) == 0
    run_id = capsys.readouterr().err.rsplit(" ", 1)[-1].strip()
    logged = mlflow.get_run(run_id)
    assert logged.data.tags["kind"] == "trace"
    assert logged.data.metrics["phases/count"] == 2
    assert logged.data.metrics["phases/communication_share"] == pytest.approx(0.29, abs=0.01)
    client = mlflow.MlflowClient()
    assert {file.path for file in client.list_artifacts(run_id)} == {"phases.html", "phases.json"}
    content = json.loads(mlflow.artifacts.load_text(f"{logged.info.artifact_uri}/phases.json"))
    assert [phase["weight"] for phase in content["phases"]] == [1, 40]


def test_the_trace_of_a_recorded_run_is_logged_with_its_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mlflow = pytest.importorskip("mlflow")
    run = write_run(tmp_path / "data" / "runs" / "cpu", cell(), samples=12)
    shutil.copytree(KMEANS, run / "out" / "traces")
    (tmp_path / "params.yaml").write_text("{}\n")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    assert called("phases", "show", str(run / "out" / "traces"), "--track") == 0
    logged = mlflow.get_run(capsys.readouterr().err.rsplit(" ", 1)[-1].strip())
    assert logged.info.run_name == "app"
    assert (logged.data.tags["app"], logged.data.tags["cell_key"]) == ("app", run.name)


def test_bad_input_is_told(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no such file or folder"):
        called("phases", "show", str(tmp_path / "nothing"))
    with pytest.raises(RunError, match="holds no trace"):
        called("phases", "show", str(tmp_path))
    with pytest.raises(ConfigError, match="is a folder"):
        called("phases", "show", str(KMEANS), "--html", str(tmp_path))
    with pytest.raises(TableError, match=r"has no run\.json"):
        called("phases", "show", str(KMEANS), "--run", str(tmp_path))
    with pytest.raises(ConfigError, match="must be 0 or more"):
        called("phases", "show", str(KMEANS), "--tolerance", "-1")


@pytest.mark.mpi
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="needs mpirun")
def test_a_program_is_recorded_and_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subprocess.run(
        ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "3", sys.executable,
         mpi_recorder.__file__, "--out", tmp_path / "traces", SAMPLES / "mpi_program.py", "5"],
        check=True, timeout=300, capture_output=True,
    )  # fmt: skip
    page = tmp_path / "page.html"
    assert called("phases", "show", str(tmp_path / "traces"), "--json", "--html", str(page)) == 0
    content = json.loads(capsys.readouterr().out)
    ring = {(row["sender"], row["receiver"]) for row in content["messages"]}
    assert ring == {(0, 1), (1, 2), (2, 0)}
    calls = {row["operation"]: row["calls"] for row in content["collectives"]}
    assert calls["MPI_Allreduce"] == 2 * 5  # of an array and of an object
    assert page.stat().st_size < 1_000_000
