"""Accounting packed with gzip: the same runs as unpacked, and damage that is named."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from voxcast.cli import main
from voxcast.runs import imported
from voxcast.runs.importer import READERS

SAMPLES = Path(__file__).parents[2] / "samples"
IMPORTS = SAMPLES / "imports"
SLURM = IMPORTS / "slurm_22_05_8.txt"
BENCHMARK = IMPORTS / "sub-01.align.benchmark.tsv"


def packed(path: Path, folder: Path) -> Path:
    target = folder / f"{path.name}.gz"
    target.write_bytes(gzip.compress(path.read_bytes()))
    return target


@pytest.mark.parametrize(("kind", "path"), [("sacct", SLURM), ("snakemake", BENCHMARK)])
def test_runs_are_those_of_the_unpacked_file(kind: str, path: Path, tmp_path: Path) -> None:
    plain, from_packed = READERS[kind](path), READERS[kind](packed(path, tmp_path))
    assert plain.rows
    for row in (*plain.rows, *from_packed.rows):
        row["labels_json"] = row["labels_json"].replace(f'"{path.parent.name}"', '"folder"')
        row["labels_json"] = row["labels_json"].replace(f'"{tmp_path.name}"', '"folder"')
    assert from_packed.rows == plain.rows
    assert from_packed.lines == plain.lines
    assert from_packed.refused.listed() == plain.refused.listed()


@pytest.mark.parametrize("damage", ["cut", "overwritten"])
def test_damage_is_named(damage: str, tmp_path: Path, capsys) -> None:
    source = packed(SLURM, tmp_path)
    data = source.read_bytes()
    middle = len(data) // 2
    cut = data[:middle] if damage == "cut" else data[:middle] + bytes(9) + data[middle + 9 :]
    source.write_bytes(cut)
    into = ["--into", str(tmp_path / "history")]
    for command in (["audit", str(source)], ["history", "import", "sacct", str(source), *into]):
        assert main(command) == 2
        printed = capsys.readouterr()
        assert f"{source}: damaged or truncated gzip (" in printed.err
        assert printed.err.endswith("); copy it again\n")
    assert not (tmp_path / "history").exists()


def test_what_was_packed_to_fill_a_machine_is_refused(
    tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imported, "UNPACKED_BYTES", 1 << 20)
    monkeypatch.setattr(imported, "UNPACKED_TIMES", 9)
    source = tmp_path / "jobs.gz"
    source.write_bytes(gzip.compress(b"JobID|State|Elapsed\n" + b"1|COMPLETED|1:00\n" * 200_000))
    assert main(["audit", str(source)]) == 2
    problem = "cannot be read: unpacks to more than 1048576 bytes"
    assert capsys.readouterr().err == f"voxcast: {source}: {problem}\n"


def test_of_an_endless_line_the_beginning_is_kept(tmp_path: Path) -> None:
    source = tmp_path / "jobs.gz"
    source.write_bytes(gzip.compress(b"a" * (3 << 20) + b"\nb\n"))
    with imported.text_of(source) as (stream, _):
        lines = list(imported.lines_of(stream))
    assert [len(line) for line in lines] == [imported.LONGEST_LINE, 2]
