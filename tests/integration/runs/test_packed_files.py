"""Accounting packed with gzip: the same runs as unpacked, and damage that is named."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pytest

from voxcast.audit.jobs import read_jobs
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


def test_an_audit_is_that_of_the_unpacked_file(tmp_path: Path) -> None:
    path = SLURM
    steps: list[int] = []
    plain = read_jobs([path])
    source = packed(path, tmp_path)
    jobs = read_jobs([source], on_read=steps.append)
    assert len(jobs.frame)
    assert jobs.frame.equals(plain.frame)
    assert sum(steps) == source.stat().st_size  # so that the bar of progress ends at its end


def test_parts_that_were_packed_and_joined_are_read_to_the_end(tmp_path: Path) -> None:
    joined = tmp_path / "2024.gz"
    lines = SLURM.read_bytes().splitlines(keepends=True)
    parts = (lines[:9], lines[9:])
    joined.write_bytes(b"".join(gzip.compress(b"".join(part)) for part in parts))
    assert READERS["sacct"](joined).rows == READERS["sacct"](SLURM).rows


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


def test_what_is_packed_in_another_way_is_not_read(tmp_path: Path, capsys) -> None:
    source = tmp_path / "jobs.txt.xz"
    source.write_bytes(lzma.compress(SLURM.read_bytes()))
    assert main(["audit", str(source)]) == 2
    assert capsys.readouterr().err == (
        f"voxcast: {source}, line 1: holds a NUL and is not a text file; "
        "save it as UTF-8, unpacked or as gzip\n"
    )


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
