"""``voxcast predict``: light, from a read-only project, with options, and of rows of a table."""

from __future__ import annotations

import csv
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest

import voxcast
from champions import HEADER_ROW
from commands import attempt
from lab import lab
from model_server import free_port, running_server
from voxcast.serving.signature import OUTPUT_TYPES
from voxcast.serving.table_files import ROWS

PROJECT = Path(__file__).parents[3]
# Root may write to everything: without capabilities it is a user like others.
WITHOUT_CAPABILITIES = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
HEAVY = {"mlflow", "torch", "sklearn", "pandas", "scipy.stats", "threadpoolctl"}
ROW = {**HEADER_ROW, "subject": "01", "age_years": 63}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lab(tmp_path_factory.mktemp("lab"))


@pytest.fixture
def environment() -> dict[str, str]:
    return {
        k: v
        for k, v in os.environ.items()
        if k not in ("VOXCAST_PROJECT", "MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID")
    }


def copied(project: Path, folder: Path) -> Path:
    """Copy a project."""
    return Path(shutil.copytree(project, folder))


def run(
    *arguments: str, cwd: Path, prefix: list[str] | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Call a verb; with a prefix, as a process of its own."""
    if not prefix:
        return attempt(*arguments, cwd=cwd, **(env or {}))
    names = ("VOXCAST_PROJECT", "MLFLOW_TRACKING_URI")
    environment = {k: v for k, v in os.environ.items() if k not in names} | (env or {})
    return subprocess.run(
        [*prefix, sys.executable, "-m", "voxcast.cli", *arguments],
        cwd=cwd, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def refused(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 2, result.stderr
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("voxcast: ")
    return line


@pytest.mark.parametrize("words", [("predict", "--header-only"), ("recommend",)])
def test_an_image_is_answered_without_heavy_modules(project: Path, words: tuple[str, ...]) -> None:
    script = (
        "import sys; from voxcast.cli import main\n"
        f"code = main([*{words!r}, 'head.nii.gz', '--json'])\n"
        f"print(sorted({HEAVY!r} & set(sys.modules)), file=sys.stderr); sys.exit(code)"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=project, capture_output=True, text=True, check=True
    )
    assert json.loads(result.stdout)
    assert result.stderr.splitlines()[-1] == "[]"


@pytest.fixture
def read_only(project: Path, tmp_path: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield a copy of the project that cannot be written to, and a prefix of commands."""
    folder = copied(project, tmp_path / "read_only")
    prefix = []
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root writes to read-only folders, and setpriv is not installed")
        prefix = WITHOUT_CAPABILITIES
    paths = [folder, *folder.rglob("*")]
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in paths}
    for path in paths:
        path.chmod(modes[path] & ~0o222)
    written = subprocess.run([*prefix, "touch", folder / "new"], capture_output=True, check=False)
    assert written.returncode != 0
    yield folder, prefix
    for path in paths:
        path.chmod(modes[path] | 0o200)


def snapshot(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_a_read_only_project_answers(
    read_only: tuple[Path, list[str]], project: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    folder, prefix = read_only
    (empty := tmp_path / "no_project").mkdir()
    before = snapshot(folder)
    for arguments in (
        ("predict", "head.nii.gz", "--json"),
        ("predict", "head.nii.gz", "--header-only", "--explain", "--json"),
        ("recommend", "head.nii.gz", "--json"),
    ):
        result = run(*arguments, cwd=folder, prefix=prefix)
        assert result.returncode == 0, result.stderr
        assert json.loads(result.stdout)
    port = free_port()
    command = [*prefix, sys.executable, "-m", "voxcast.cli", "serve", "--port", str(port)]
    command += ["--project", str(folder)]
    with running_server(command, port, project, environment) as url:
        here, there = (
            json.loads(
                run("predict", "head.nii.gz", "--json", *more, cwd=folder, prefix=prefix).stdout
            )
            for more in ((), ("--model", url))
        )
        assert there == here
        outside = run("predict", str(project / "head.nii.gz"), "--json", "--model", url, cwd=empty)
        assert json.loads(outside.stdout)[0]["predictions"] == here[0]["predictions"]
    assert snapshot(folder) == before


def test_the_cache_of_the_project_remembers_images_and_none_is_used_if_unset(
    project: Path, tmp_path: Path
) -> None:
    folder = copied(project, tmp_path / "project")
    cache = folder / "build" / "cache"
    shutil.rmtree(cache, ignore_errors=True)  # of other tests
    plain = run("predict", "head.nii.gz", "--json", cwd=folder, env={"VOXCAST_CACHE": ""})
    assert not cache.exists()
    for _ in range(2):
        again = run("predict", "head.nii.gz", "--json", cwd=folder)
        assert json.loads(again.stdout) == json.loads(plain.stdout)
        assert len(list(cache.rglob("*.npz"))) == 1
    not_a_folder = {"VOXCAST_CACHE": str(folder / "head.nii.gz")}
    message = refused(run("predict", "head.nii.gz", cwd=folder, env=not_a_folder))
    assert "cannot be used as a cache" in message


def test_predictions_of_images_are_written_as_csv(project: Path, tmp_path: Path) -> None:
    path = tmp_path / "predictions.csv"
    result = run("predict", "head.nii.gz", "--json", "--out", str(path), cwd=project)
    (predictions,) = json.loads(result.stdout)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["image"] for row in rows] == 2 * ["head.nii.gz"]
    for row, prediction in zip(rows, predictions["predictions"], strict=True):
        assert float(row["runtime_s_upper"]) == prediction["runtime_s_upper"]
    assert run("predict", "head.nii.gz", "--out", str(path), cwd=project).stdout == ""


def test_a_volume_that_itk_refuses_is_predicted_with_a_warning(
    project: Path, tmp_path: Path
) -> None:
    image = nibabel.load(project / "head.nii.gz")
    voxels = np.asarray(image.dataobj).astype(np.int64)
    path = tmp_path / "int64.nii.gz"
    nibabel.save(nibabel.Nifti1Image(voxels, image.affine, dtype="int64"), path)
    for options in ((), ("--header-only",)):
        result = run("predict", str(path), "--json", *options, cwd=project)
        assert json.loads(result.stdout)[0]["predictions"]
        (line,) = [line for line in result.stderr.splitlines() if "ITK" in line]
        assert f"{path}: applications built on ITK, such as ANTs, refuse it: its voxels" in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("head.nii.gz", "--app", "unheard"),
            "unheard: unknown application; the model has segment",
        ),
        (("head.nii.gz", "--quantile", "high"), "--quantile: must be a valid number"),
        (("head.nii.gz", "--quantile", "1"), "must be between 0.5 and 1"),
        (("head.nii.gz", "--cpus", "1,0"), "must be whole numbers of at least 1, not '1,0'"),
        (("head.nii.gz", "--cpus", "two"), "must be whole numbers of at least 1, not 'two'"),
        (("gone.nii.gz",), "gone.nii.gz: no such file"),
        ((), "see `voxcast predict --help`"),
    ],
)
def test_a_refusal_is_one_line(project: Path, arguments: tuple[str, ...], message: str) -> None:
    assert message in refused(run("predict", *arguments, cwd=project))


def test_an_application_that_is_described_and_not_learned_is_said_to_be_so(
    project: Path, tmp_path: Path
) -> None:
    folder = copied(project, tmp_path / "with_another")
    (folder / "conf/app").mkdir(parents=True, exist_ok=True)
    (folder / "conf/app/sharpen.yaml").write_text("sharpen: {}\n")
    line = refused(run("predict", "head.nii.gz", "--app", "sharpen", cwd=folder))
    assert "sharpen: has no model yet" in line
    assert "run `voxcast learn IMAGES --app sharpen`" in line


@pytest.fixture(autouse=True)
def in_project(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)


def predict(*arguments: object) -> subprocess.CompletedProcess[str]:
    return attempt("predict", *arguments)


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    table = pd.DataFrame(rows)
    table.to_csv(path, index=False) if path.suffix == ".csv" else table.to_parquet(path)
    return path


BAD = {  # cells that a row is refused for, by the reason
    "cpus: must be at least 1, not": {"cpus": 0.0},
    "dtype: must be 'int8', 'uint8'": {"dtype": "elephant"},
    "shape_i: is missing": {"shape_i": None},
    "unheard: unknown application; the model has segment": {"app": "unheard"},
    "parameters_json: iteration: unknown parameter; choose from iterations": {
        "parameters_json": '{"iteration": 3}'
    },
    "foreground_voxels: is missing": {"noise_ratio": 0.1},
}


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_refused_rows_have_a_reason_and_the_others_a_prediction(tmp_path: Path, kind: str) -> None:
    rows = [ROW | {"cpus": 1.0, "subject": f"{n:02d}"} for n in range(20)]
    places = range(1, 2 + 3 * len(BAD) - 2, 3)
    for place, cells in zip(places, BAD.values(), strict=True):
        rows[place] |= cells
    source, target = written(tmp_path / f"rows.{kind}", rows), tmp_path / "out" / f"answers.{kind}"
    ended = predict(source, "--out", target)
    assert ended.returncode == 2
    lines = ended.stderr.splitlines()
    for line, place, reason in zip(lines, places, BAD, strict=False):
        assert f"rows.{kind}: row {place + 1}: {reason}" in line  # rows are counted from 1
    assert lines[len(BAD)].endswith(f"rows.{kind}: {len(BAD)} of 20 rows refused")
    table = (pd.read_csv if kind == "csv" else pd.read_parquet)(target, dtype_backend="pyarrow")
    assert list(table) == ["subject", "age_years", *OUTPUT_TYPES, "error"]
    assert table["subject"].astype(int).tolist() == list(range(20))
    assert table.index[table["error"].notna()].tolist() == list(places)
    assert table["runtime_s_upper"].isna().equals(table["error"].notna())
    (reference,) = voxcast.load().predict(ROW)["runtime_s_upper"]
    assert set(table["runtime_s_upper"].dropna()) == {reference}


def test_types_of_a_cell_are_checked_row_by_row(tmp_path: Path) -> None:
    good = {**ROW, "cpus": " 2 ", "host": "elsewhere"}
    rows = [{**ROW, "cpus": "two"}, good, {**ROW, "shape_i": "true"}, {**ROW, "axcodes": "XYZ"}]
    ended = predict(written(tmp_path / "rows.csv", rows), "--json")
    answers = json.loads(ended.stdout)
    assert (ended.returncode, answers[1]["cpus"], answers[1]["error"]) == (2, 2.0, None)
    assert [answers[n]["error"] for n in (0, 2, 3)] == [
        "cpus: must be a number, not 'two'",
        "shape_i: must be a number, not 'true'",
        "axcodes: must name three axes, not 'XYZ'; e.g. RAS",
    ]
    number = pd.DataFrame([{**ROW, "dtype": 16, "host": "a", "volume": "not base64!"}])
    number.to_parquet(tmp_path / "rows.parquet")
    (answer,) = json.loads(predict(tmp_path / "rows.parquet", "--json").stdout)
    assert answer["error"].startswith("dtype: must be 'int8'")
    assert answer["error"].endswith(", not 16")
    number.assign(dtype="int16").to_parquet(tmp_path / "rows.parquet")
    (answer,) = json.loads(predict(tmp_path / "rows.parquet", "--json").stdout)
    assert answer["error"] == "volume: is not base64"


def test_several_batches_are_one_file_in_the_order_of_the_rows(tmp_path: Path) -> None:
    rows = [{**ROW, "subject": str(n), "cpus": float(1 + n % 2)} for n in range(2 * ROWS + 7)]
    rows[ROWS]["cpus"] = -1.0
    source, target = written(tmp_path / "rows.parquet", rows), tmp_path / "answers.parquet"
    ended = predict(source, "--out", target)
    assert f"row {ROWS + 1}: cpus: must be at least 1" in ended.stderr
    table = pd.read_parquet(target)
    assert table["subject"].tolist() == [row["subject"] for row in rows]
    assert table["error"].notna().sum() == 1
    assert table["cpus"].drop(ROWS).tolist() == [row["cpus"] for row in rows if row["cpus"] > 0]
    assert pyarrow.parquet.read_schema(target).names[-1] == "error"


def test_options_fill_what_rows_leave_open(tmp_path: Path) -> None:
    rows = [{**ROW, "app": None, "parameters_json": None}, {**ROW, "parameters_json": "{}"}]
    source = written(tmp_path / "rows.parquet", rows)
    ended = predict(source, "--json", "--app", "segment", "-p", "iterations=60")
    assert ["iterations" in a["out_of_range"] for a in json.loads(ended.stdout)] == [True, False]
    ended = predict(source, "--json", "-p", "iteration=60")
    assert "iteration: unknown parameter; choose from iterations" in ended.stderr
    assert ended.returncode == 2


def test_an_empty_table_gives_an_empty_one(tmp_path: Path) -> None:
    source, target = tmp_path / "rows.parquet", tmp_path / "answers.parquet"
    pd.DataFrame([ROW]).iloc[:0].to_parquet(source)
    assert predict(source, "--out", target).returncode == 0
    assert list(pd.read_parquet(target)) == ["subject", "age_years", *OUTPUT_TYPES, "error"]
    assert json.loads(predict(source, "--json").stdout) == []


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.parquet", b"not Parquet", "rows.parquet: cannot be read: "),
        ("rows.csv", b"", "rows.csv: is empty"),
        ("rows.csv", b"\xff\xfe\x00", "rows.csv: cannot be read: "),
        ("rows.csv", b"cpus,cpus\n1,2\n", "rows.csv: names the column cpus twice"),
        ("rows.csv", b"cpus,gpus\n1,2\n", "has no column dtype, file_size_bytes, shape_i"),
        ("gone.csv", None, "gone.csv: no such file"),
    ],
)
def test_a_file_that_is_no_table_of_rows_is_refused(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    ended = predict(tmp_path / name, "--out", tmp_path / "answers.csv")
    assert ended.returncode == 2
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "answers.csv").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "--out: is needed for a table; or --json for a list on stdout"),
        (("--json", "--cpus", "2"), "--cpus: is for images; the rows of a table say it"),
        (("--json", "--header-only"), "--header-only: is for images"),
        (("--json", "head.nii.gz"), "a table of rows is predicted by itself"),
        (
            ("--out", "answers.txt"),
            "answers.txt: not the name of a table file; end it with .parquet",
        ),
        (
            ("--json", "--app", "unheard"),
            "unheard: unknown application; the model has segment",
        ),
    ],
)
def test_options_that_do_not_fit_are_refused(
    tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    ended = predict(written(tmp_path / "rows.csv", [ROW]), *options)
    assert ended.returncode == 2
    assert message in ended.stderr


def test_a_damaged_end_leaves_no_file_and_keeps_the_former(tmp_path: Path) -> None:
    lines = pd.DataFrame([ROW]).to_csv(index=False).splitlines()
    source, target = tmp_path / "rows.csv", tmp_path / "answers.csv"
    target.write_text("former")
    many = [lines[1]] * 20_000  # more than one block
    source.write_text("\n".join([lines[0], *many, "1,2,3"]) + "\n")
    ended = predict(source, "--out", target)
    assert ended.returncode == 2
    assert "rows.csv: cannot be read: CSV parse error" in ended.stderr
    assert target.read_text() == "former"
    assert {path.name for path in tmp_path.iterdir()} == {"rows.csv", "answers.csv"}
