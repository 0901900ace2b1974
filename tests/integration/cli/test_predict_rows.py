"""``voxcast predict ROWS.parquet``: in batches, with a reason for each row that is refused."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest

import voxcast
from champions import HEADER_ROW
from commands import attempt
from lab import lab
from voxcast.serving.signature import OUTPUT_TYPES
from voxcast.serving.table_files import ROWS

ROW = {**HEADER_ROW, "subject": "01", "age_years": 63}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lab(tmp_path_factory.mktemp("lab"))


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
        (("--out", "answers.txt"), "answers.txt: is no name of a table; end it with .parquet"),
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
