"""Whatever a cell holds, a source is read or refused in one line, and every record is counted."""

import random
from pathlib import Path
from typing import Any

import pytest

from voxcast.errors import TableError
from voxcast.runs import csv_table
from voxcast.runs.imported import Records
from voxcast.runs.importer import READERS

SAMPLES = Path(__file__).parents[2] / "samples" / "imports"
TABLES = [
    ("sacct", "slurm_22_05_8.txt", "|"), ("sacct", "sacct.txt", "|"),
    ("nextflow", "trace.txt", "\t"), ("nextflow", "trace_raw.txt", "\t"),
    ("snakemake", "sub-01.align.benchmark.tsv", "\t"), ("csv", "runs.csv", ","),
]  # fmt: skip
TEXTS = [
    "", "-", "x", "1e999", "-5", "9" * 30, "²", "٣", "0", "NaN", "inf", "1:2:3:4", "1-", "K",
    "9999999G", "0001-01-01T00:00:00", "9999-12-31T23:59:59+14:00", "\u2028", "1_0", "0x10", '"',
]  # fmt: skip


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
    column_map = csv_table.load_map(SAMPLES / "runs.yaml")
    for _ in range(25):
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
