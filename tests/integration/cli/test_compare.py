"""``voxcast history compare`` on real folders of runs."""

import json
from pathlib import Path

import pytest

from synthetic_runs import cell, write_run
from voxcast.cli import main
from voxcast.records import Configuration
from voxcast.runs.store import collect

CPU, GPU = Configuration("cpu", 2), Configuration("gpu", 2, 1)


def measure(folder: Path, configuration: Configuration, seconds: float) -> None:
    for n in range(6):
        for repeat in range(2):
            of = cell(repeat, configuration=configuration, volume_id=f"v{n}", subject=f"s{n}")
            used = 4 * 10**9 if configuration.gpus else None
            took = seconds * (1 + n / 10) * (1 + repeat / 100)
            write_run(folder, of, runtime_s=took, peak_rss_bytes=10**9, peak_gpu_bytes=used)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The CPU's runs were recorded for good, the GPU's lie where they were measured."""
    (tmp_path / "params.yaml").write_text("")
    measure(tmp_path / "measured", CPU, 20.0)
    collect(tmp_path / "measured", tmp_path / "data" / "history" / "first")
    measure(tmp_path / "data" / "runs" / "gpu", GPU, 4.0)
    return tmp_path


@pytest.fixture
def compare(project, monkeypatch, capsys):
    """Return a function that runs the verb in the project and gives stdout and stderr."""
    monkeypatch.chdir(project)
    monkeypatch.delenv("VOXCAST_PROJECT", raising=False)

    def run(*arguments: str, status: int = 0) -> tuple[str, str]:
        try:
            code = main(["history", "compare", *arguments])
        except SystemExit as left:  # by the parser
            code = left.code
        captured = capsys.readouterr()
        assert code == status, captured
        return captured.out, captured.err

    return run


def test_text_output(compare) -> None:
    out, err = compare()
    assert "app, 2 CPUs: whole run: 5×" in out
    assert "smallest speed-up: v" in out
    assert "24 runs on record" in err


@pytest.mark.parametrize(
    ("remaining", "message"),
    [
        ("history", "no run on a GPU is on record"),
        ("runs", "no run on a CPU is on record"),
        ("nothing", "no completed measured run is on record"),
    ],
)
def test_a_side_without_runs_is_reported(
    project: Path, compare, remaining: str, message: str
) -> None:
    for name in {"history", "runs"} - {remaining}:
        (project / "data" / name).rename(project / f"away-{name}")
    assert message in compare()[0]
    report = json.loads(compare("--json")[0])
    assert message in report["missing"]
    assert report["comparisons"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gone",), "gone: no such folder"),
        (("data",), "data: is not a history of runs; give a folder"),
    ],
)
def test_invalid_arguments_are_refused(compare, arguments: tuple[str, ...], message: str) -> None:
    out, err = compare(*arguments, status=2)
    assert message in err
    assert out == ""
