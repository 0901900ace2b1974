"""`voxcast phases show` on traces of real programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import called
from voxcast.errors import ConfigError, RunError

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


def test_bad_input_is_told(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no such file or folder"):
        called("phases", "show", str(tmp_path / "nothing"))
    with pytest.raises(RunError, match="holds no trace"):
        called("phases", "show", str(tmp_path))
    with pytest.raises(ConfigError, match="is a folder"):
        called("phases", "show", str(KMEANS), "--html", str(tmp_path))
