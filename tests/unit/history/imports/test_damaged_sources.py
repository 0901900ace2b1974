"""Whatever a cell holds, a source is read or refused in one line, and every record is counted."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from voxcast.errors import TableError
from voxcast.runs import csv_table
from voxcast.runs.csv_table import load_map
from voxcast.runs.imported import Records
from voxcast.runs.importer import READERS

SAMPLES = Path(__file__).parents[3] / "samples" / "imports"
TABLES = [
    ("sacct", "slurm_22_05_8.txt", "|"), ("sacct", "sacct.txt", "|"),
    ("nextflow", "trace.txt", "\t"), ("nextflow", "trace_raw.txt", "\t"),
    ("snakemake", "sub-01.align.benchmark.tsv", "\t"), ("csv", "runs.csv", ","),
]  # fmt: skip
TEXTS = [
    "", "-", "x", "1e999", "-5", "9" * 30, "²", "٣", "0", "NaN", "inf", "1:2:3:4", "1-", "K",
    "9999999G", "0001-01-01T00:00:00", "9999-12-31T23:59:59+14:00", "\u2028", "1_0", "0x10", '"',
]  # fmt: skip
VALUES: list[Any] = [None, "x", -1, [], {}, 1e300, 1e18, True, [1], {"a": 1}, "0001-01-01"]


def check(read: Any, path: Path) -> None:
    try:
        reading: Records = read(path)
    except TableError:
        return
    assert len(reading.rows) == len(reading.lines) == len(reading.names)
    assert all(row["runtime_s"] > 0 for row in reading.rows)


@pytest.mark.parametrize(("kind", "name", "delimiter"), TABLES)
def test_tables_with_damaged_cells(kind: str, name: str, delimiter: str, tmp_path: Path) -> None:
    draw = random.Random(name)  # noqa: S311
    column_map = load_map(SAMPLES / "runs.yaml")
    for _ in range(80):
        lines = [line.split(delimiter) for line in (SAMPLES / name).read_text().splitlines()]
        for _ in range(draw.randint(1, 8)):
            cells = draw.choice(lines)
            cells[draw.randrange(len(cells))] = draw.choice(TEXTS)
        path = tmp_path / name
        path.write_text("\n".join(map(delimiter.join, lines)) + "\n", encoding="utf-8")
        check(
            (lambda path: csv_table.read(path, None, column_map))
            if kind == "csv"
            else READERS[kind],
            path,
        )


def damaged(value: Any, draw: random.Random) -> Any:
    """Return the value with one part of it replaced."""
    if isinstance(value, dict) and value and draw.random() < 0.8:
        name = draw.choice(sorted(value))
        return {**value, name: damaged(value[name], draw)}
    if isinstance(value, list) and value and draw.random() < 0.9:
        n = draw.randrange(len(value))
        return [*value[:n], damaged(value[n], draw), *value[n + 1 :]]
    return draw.choice(VALUES)


@pytest.mark.parametrize("name", ["slurm_22_05_8.json", "sacct_22_05.json", "sacct_23_11.json"])
def test_json_with_damaged_fields(name: str, tmp_path: Path) -> None:
    draw = random.Random(name)  # noqa: S311
    content = json.loads((SAMPLES / name).read_text())
    path = tmp_path / name
    for _ in range(120):
        jobs = content["jobs"]
        for _ in range(draw.randint(1, 8)):
            n = draw.randrange(len(jobs))
            jobs = [*jobs[:n], damaged(jobs[n], draw), *jobs[n + 1 :]]
        path.write_text(json.dumps({**content, "jobs": jobs}))
        check(READERS["sacct"], path)
