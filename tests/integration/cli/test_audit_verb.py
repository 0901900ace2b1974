"""``voxcast audit`` on accounting of Slurm and others: text, JSON, picture and bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import accounting
from voxcast.cli import main

SAMPLES = Path(__file__).parents[2] / "samples"
CONF = Path(__file__).parents[3] / "conf"


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("site") / "jobs.txt"
    lines = accounting.lines(accounting.truth(600, seed=3))
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "params.yaml").write_text("")
    (tmp_path / "conf" / "cluster").mkdir(parents=True)
    for name in ("osc.yaml", "cloud.yaml"):
        text = (CONF / "cluster" / name).read_text()
        text = text.replace("partition: serial\n", "partition: normal\n", 1)
        text = text.replace("  serial:\n", "  normal:\n").replace("gpuserial", "gpu")
        (tmp_path / "conf" / "cluster" / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_tables_of_a_site(
    export: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)  # no project is needed
    assert main(["audit", str(export), "--picture", "jobs.svg"]) == 0
    text = capsys.readouterr().out
    for words in ("600 records = ", "user", "account", "partition", "application", "lab1",
                  "fmriprep", "savings by other requests", "assumptions:"):  # fmt: skip
        assert words in text
    assert "USD" not in text
    assert (tmp_path / "jobs.svg").read_text().startswith("<svg")


def test_json_with_money(export: Path, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(export), "--json", "--by", "app,user", "--cluster", "osc"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result["by"]) == {"app", "user"}
    assert result["cluster"] == "osc"
    assert result["total"]["usd"] > 0
    assert result["records"]["read"] == 600
    by_app = sum(group["core_hours"] for group in result["by"]["app"])
    assert by_app == pytest.approx(result["total"]["core_hours"])
    saving = result["savings"][0]
    assert saving["time"]["requested"] > 0
    assert result["assumptions"]


def test_a_table_with_a_column_map(capsys: pytest.CaptureFixture[str]) -> None:
    imports = SAMPLES / "imports"
    assert main(["audit", str(imports / "runs.csv"), "--map", str(imports / "runs.yaml")]) == 0
    assert "bet" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["gone.txt"], "gone.txt: no such file or folder"),
        (["."], ".: has no file; name the files, or another folder"),
        (["jobs.txt", "--by", "colour"], "--by: not a key: 'colour'; choose from user, account"),
        ([], "FILE: is missing; get one from Slurm by `sacct"),
        (["jobs.txt", "--picture", "x.png"], "x.png: the picture is an SVG; let its name end in"),
        (["jobs.txt", "--cluster", "moon"], "no project here or above"),
        (["jobs.txt", "--cost=-1,0,0"], "alpha: must be above 0 and finite, not -1"),
        (["jobs.txt", "--pattern", "("], "--pattern: is no regular expression"),
        (["waiting.txt"], "no job has run and ended; of 1 records: 1 have not run"),
        (["semicolons.txt"], "but jobid;"),
        (["binary"], "is not a text file"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(
    arguments: list[str], line: str, export: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    if arguments != ["."]:
        (folder / "jobs.txt").write_bytes(export.read_bytes())
        (folder / "waiting.txt").write_text("JobID|State|Elapsed\n1|PENDING|00:00:00\n")
        (folder / "semicolons.txt").write_text("JobID;State;Elapsed\n1;PENDING;00:00:00\n")
        (folder / "binary").write_bytes(b"\0\1\2")
    assert main(["audit", *arguments]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    (message,) = output.err.splitlines()
    assert line in message
