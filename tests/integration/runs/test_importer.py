"""The import as a whole: accounts that add up, nothing twice, bad and packed files, images."""

import gzip
import json
from pathlib import Path

import pytest

from training_project import write_volume
from voxcast.cli import main
from voxcast.errors import ConfigError, TableError
from voxcast.files import read_json
from voxcast.images.volume import Volume
from voxcast.runs import imported, importer
from voxcast.runs.csv_table import load_map
from voxcast.runs.importer import READERS, RunImages
from voxcast.runs.store import load_history, load_phases, load_traces
from voxcast.runs.table import DTYPES

SAMPLES = Path(__file__).parents[2] / "samples" / "imports"
CASES = {
    "sacct": ["sacct.txt", "slurm_22_05_8.txt", "slurm_22_05_8_steps.txt"],
    "nextflow": ["trace.txt", "trace_raw.txt"],
    "snakemake": ["sub-01.align.benchmark.tsv", "extended.tsv"],
    "csv": ["runs.csv"],
    "slant": ["slant"],
}


def run(kind: str, into: Path) -> importer.Account:
    columns = load_map(SAMPLES / "runs.yaml") if kind == "csv" else None
    return importer.import_files(kind, [SAMPLES / f for f in CASES[kind]], into, None, columns)


@pytest.mark.parametrize("kind", CASES)
def test_counts_add_up_and_a_second_import_adds_nothing(kind: str, tmp_path: Path) -> None:
    first = run(kind, tmp_path)
    assert first.read == first.imported + first.duplicates + len(first.skipped) + len(first.bad)
    assert first.imported > 0
    table = load_history([tmp_path])
    assert len(table) == first.imported
    assert {name: str(kind) for name, kind in table.dtypes.items()} == {
        name: str(kind) for name, kind in DTYPES.items()
    }
    again = run(kind, tmp_path)
    assert (again.read, again.imported, again.part) == (first.read, 0, None)
    assert again.duplicates == first.imported + first.duplicates
    assert len(list(tmp_path.iterdir())) == 1


def test_nothing_is_written_if_one_file_is_unreadable(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    into = tmp_path / "history"
    with pytest.raises(TableError, match="empty"):
        importer.import_files("sacct", [SAMPLES / "sacct.txt", tmp_path / "empty"], into)
    assert not into.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"\x7fELF\0\0\1", "not a text file"),
        ("JobID|State\n".encode("utf-16"), "save it as UTF-8"),
        (b"a" * 3_000_000, "no column"),
        (b"\x80\x81 JobID\n1\n", "no column"),
    ],
)
@pytest.mark.parametrize("kind", ["sacct", "nextflow", "snakemake"])
def test_files_of_another_format_are_refused(
    kind: str, content: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(TableError, match=message):
        importer.import_files(kind, [tmp_path / "x"], tmp_path / "into")


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(TableError, match="cannot be read"):
            importer.import_files("sacct", [path], tmp_path / "into")
    with pytest.raises(ConfigError, match="column map"):
        importer.import_files("csv", [SAMPLES / "runs.csv"], tmp_path / "into")


def test_partial_output_of_a_killed_import_is_removed(tmp_path: Path) -> None:
    left = tmp_path / ".partial-killed"
    left.mkdir()
    (left / "runs.parquet").write_text("half")
    account = importer.import_files("nextflow", [SAMPLES / "trace.txt"], tmp_path)
    assert account.imported == 5
    assert [path.name for path in tmp_path.iterdir()] == [account.part]


def test_slant_is_imported_with_phases_and_traces(tmp_path: Path) -> None:
    run("slant", tmp_path)
    phases, traces = load_phases([tmp_path]), load_traces([tmp_path])
    assert phases["phase"].tolist() == ["task_1", "task_2"] * 2
    assert 100 < len(traces) <= 200
    assert traces["cell_key"].nunique() == 1


def test_runs_of_the_same_name_are_kept_apart(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(
        "columns: {runtime_s: t, outcome: state}\nconstants: {app: x}\nidentity: [job]\n"
    )
    columns = load_map(tmp_path / "m.yaml")
    (tmp_path / "t.csv").write_text("job,t,state\n7,5,failed\n7,90,completed\n8,4,completed\n")
    into = tmp_path / "into"
    first = importer.import_files("csv", [tmp_path / "t.csv"], into, None, columns)
    assert (first.read, first.imported, first.duplicates) == (3, 2, 0)
    assert [remark.line for remark in first.bad] == [3]
    (tmp_path / "t.csv").write_text("job,t,state\n7,5.01,failed\n8,44,completed\n")
    again = importer.import_files("csv", [tmp_path / "t.csv"], into, None, columns)
    assert (again.read, again.imported, again.duplicates, len(again.bad)) == (2, 0, 1, 1)
    assert "identity" in again.bad[0].reason


def test_the_account_names_fields_and_values_that_are_unknown(tmp_path: Path) -> None:
    outcome = importer.import_files("sacct", [SAMPLES / "sacct.txt"], tmp_path)
    assert [(r.line, r.reason.partition(":")[0]) for r in outcome.unread] == [
        (23, "MaxRSS"), (28, "peak_rss_bytes"),
    ]  # fmt: skip
    assert outcome.unknown == {"peak_rss_bytes": 7, "cpu_s": 1, "subject": 13}
    account = read_json(tmp_path / str(outcome.part) / importer.ACCOUNT_FILE)
    assert account["unread"][0]["file"] == "sacct.txt"
    again = importer.import_files("sacct", [SAMPLES / "sacct.txt"], tmp_path)
    assert (again.unread, again.unknown) == ([], {})


SLURM = SAMPLES / "slurm_22_05_8.txt"
BENCHMARK = SAMPLES / "sub-01.align.benchmark.tsv"


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


def bids(folder: Path, *names: str) -> Path:
    """Write a volume for each ``SUBJECT`` or ``SUBJECT/SESSION``."""
    for seed, name in enumerate(names):
        subject, _, session = name.partition("/")
        stem = "_".join(
            f"{key}-{label}" for key, label in (("sub", subject), ("ses", session)) if label
        )
        parts = [f"sub-{subject}", *([f"ses-{session}"] if session else []), "anat"]
        write_volume(folder.joinpath(*parts) / f"{stem}_T1w.nii.gz", seed)
    return folder


def row(subject: str, **labels: str) -> dict[str, str]:
    return {"subject": subject, "labels_json": json.dumps(labels), "volume_id": ""}


def test_runs_get_the_image_of_their_subject_and_session(tmp_path: Path) -> None:
    folder = bids(tmp_path / "bids", "01", "02/a", "02/b")
    rows = [row("01"), row("sub-01"), row("02", session="ses-b"), row("sub-02_ses-a")]
    assert RunImages(folder, 32).match(rows) == {}
    expected = [
        folder / "sub-01/anat/sub-01_T1w.nii.gz",
        folder / "sub-01/anat/sub-01_T1w.nii.gz",
        folder / "sub-02/ses-b/anat/sub-02_ses-b_T1w.nii.gz",
        folder / "sub-02/ses-a/anat/sub-02_ses-a_T1w.nii.gz",
    ]
    ids = [Volume.open(path).read(32).voxel_sha256[:16] for path in expected]
    assert [values["volume_id"] for values in rows] == ids
    assert [values["subject"] for values in rows] == ["01", "01", "02", "02"]


def test_runs_without_one_image_are_counted_by_reason(tmp_path: Path) -> None:
    folder = bids(tmp_path / "bids", "01", "02/a", "02/b", "03")
    (folder / "sub-03/anat/sub-03_T1w.nii.gz").write_bytes(b"no image")
    rows = [row("01"), row(""), row("07"), row("07"), row("02"), row("02", session="c"), row("03")]
    reasons = RunImages(folder, 32).match(rows)
    path = folder / "sub-03/anat/sub-03_T1w.nii.gz"
    assert {reason.partition(str(path))[1] or reason: n for reason, n in reasons.items()} == {
        "the run states no subject": 1,
        "no image of subject 07": 2,
        "2 images of subject 02: sub-02_ses-a_T1w.nii.gz, sub-02_ses-b_T1w.nii.gz; "
        "give a folder with one of them": 1,
        "no image of subject 02, session c": 1,
        str(path): 1,
    }
    assert [bool(values["volume_id"]) for values in rows] == [True, *[False] * 6]
