"""``voxcast models shadow --report`` on a log, and on runs of the same images measured later."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from training_project import ROOT, Project
from voxcast.cli import main
from voxcast.errors import EXIT_BAD_INPUT
from voxcast.records import TARGETS, Configuration
from voxcast.serving.champion import Champion
from voxcast.serving.shadow_log import shadow_log

LATER = "2099-01-01T00:00:00+00:00"
PARAMETERS = '{"n": 3}'  # those of the runs


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three heads were asked about, each on one CPU, and measured later."""
    folder = tmp_path_factory.mktemp("shadow")
    written = Project(folder)
    written.measure("heads", range(3), started_at=LATER)
    (folder / "params.yaml").write_text(written.params())
    (folder / "conf/app").mkdir(parents=True)
    for name in ("_base", "ants_segment"):
        text = (ROOT / f"conf/app/{name}.yaml").read_text()
        text = text.replace("@ants_segment", "@app").replace("\nants_segment:", "\napp:")
        target = "app" if name == "ants_segment" else name
        (folder / f"conf/app/{target}.yaml").write_text(text)
    log = shadow_log(folder)
    for image in sorted((folder / "images/heads").glob("*.nii.gz")):
        champion = Champion(no_network, "app", [Configuration("cpu", 1)], coarse_points=32)
        rows = champion.request_rows(image)
        requests = [row | {"parameters_json": PARAMETERS} for row in rows]
        # The runs take 1.2 s and 100 MB: the champion says 1 s, and its bound does not hold.
        log.add([answer(1.0)], [answer(1.2)], "3", "4", requests)
    return folder


def no_network(rows: Any, quantile: float, *, explain: bool = False) -> list[dict[str, Any]]:
    return [{"network_points": 0.0} for _ in rows]


def answer(seconds: float) -> dict[str, Any]:
    row: dict[str, Any] = {
        "app": "app", "device": "cpu", "cpus": 1.0, "host": "", "out_of_range": "",
        "calibrated": True,
    }  # fmt: skip
    for target in TARGETS:
        median = 1e8 if target == "peak_rss_bytes" else seconds
        scaled = {"lower": 0.95 * median, "median": median, "upper": 1.1 * median}
        row |= {f"{target}_{name}": value for name, value in scaled.items()}
    return row


def test_runs_of_the_same_images_judge_both(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["models", "shadow", "--report", "--project", str(project)]
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        "app: version 4 in shadow of 3, bounds at 95 %: 3 answers, 3 questions, 3 images"
    )
    assert lines[1].startswith("  cpu_s: medians 1.200 (1.200 to 1.200) times the champion's")
    assert "  judged on 3 later runs" in lines
    (of_cpu,) = (line for line in lines if line.startswith("    cpu_s: "))
    assert "; version 4 is nearer (difference +0." in of_cpu
    assert of_cpu.endswith("; the bound held for 0 and 3 of 3 images")
    (of_memory,) = (line for line in lines if line.startswith("    peak_rss_bytes: "))
    assert "no difference is shown" in of_memory
    assert main([*arguments, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    (comparison,) = content["comparisons"]
    assert (comparison["versions"], comparison["runs"]) == (["3", "4"], 3)
    assert comparison["judgements"]["cpu_s"]["challenger_held"] == 3
    assert content["without_history"] == {}


def remove_runs(folder: Path) -> None:
    for path in folder.glob("data/runs/*/runs.parquet"):
        path.unlink()


def spoil_line(folder: Path) -> None:
    with shadow_log(folder).path.open("a") as file:
        file.write("{\n")


def leave_no_answer(folder: Path) -> None:
    shadow_log(folder).path.write_text("spoilt\n")


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        (remove_runs, 0, "data/history: no run of app is on record; "),
        (spoil_line, 0, "of 1 line of the log nothing can be read"),
        (
            leave_no_answer,
            EXIT_BAD_INPUT,
            "has no answers; of 1 line of the log nothing can be read",
        ),
    ],
)
def test_what_is_missing_is_said(
    project: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[Path], None],
    status: int,
    message: str,
) -> None:
    folder = shutil.copytree(project, tmp_path / "project")
    change(folder)
    assert main(["models", "shadow", "--report", "--project", str(folder)]) == status
    captured = capsys.readouterr()
    assert message in captured.out + captured.err
