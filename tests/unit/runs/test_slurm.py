"""Accounting of Slurm is read as it was recorded, damaged or not."""

import hashlib
import json
from pathlib import Path

import pandas as pd
import pytest

from voxcast.errors import TableError
from voxcast.runs import slurm
from voxcast.runs.importer import from_slurm

TESTS = Path(__file__).parents[2]
GOLDENS = TESTS / "goldens" / "accounting"
SAMPLES = TESTS / "samples" / "imports"
KINDS = ("bad", "skipped", "unread")


def reading(path: Path) -> tuple[list[dict], dict[str, list[tuple[int, str]]]]:
    """Rows by name of column, and remarks by kind: the one place that knows the reader."""
    records = from_slurm(path)
    kept = set(records.lines)
    unread = [remark for remark in records.unread.listed() if remark[0] in kept]
    return records.rows, dict(
        zip(KINDS, (records.refused.listed(), records.skipped.listed(), unread), strict=True)
    )


def value_of(row: dict, name: str) -> object:
    value = row.get(name)
    if name.endswith("_json"):
        return json.loads(value)
    return None if value == "" or pd.isna(value) else value


@pytest.mark.parametrize("golden", sorted(GOLDENS.glob("*.json")), ids=lambda path: path.stem)
def test_accounting_is_read_as_recorded(golden: Path) -> None:
    recorded = json.loads(golden.read_text())
    text = GOLDENS / f"{golden.stem}.txt"
    rows, remarks = reading(text if text.exists() else SAMPLES / text.name)
    assert len(rows) == len(recorded["rows"])
    names = set().union(*recorded["rows"])
    for row, expected in zip(rows, recorded["rows"], strict=True):
        if expected.get("peak_rss_bytes") is None:
            expected.pop("memory_method", None)  # it was kept where the peak is out of range
        assert {n: value_of(row, n) for n in names} == {n: value_of(expected, n) for n in names}
    for kind in KINDS:
        assert sorted(remarks[kind]) == sorted(tuple(remark) for remark in recorded[kind])


def test_the_recorded_cell_keys_are_all_there() -> None:
    """That each follows from the columns of its row is tested beside the records."""
    recorded = json.loads((TESTS / "goldens" / "cell_keys.json").read_text())
    history = TESTS.parent / "data" / "history"
    assert sum(part["runs"] for part in recorded.values()) == 1696
    for part, expected in recorded.items():
        keys = sorted(pd.read_parquet(history / part / "runs.parquet")["cell_key"])
        sha256 = hashlib.sha256("\n".join(keys).encode()).hexdigest()
        assert {"runs": len(keys), "sha256": sha256} == expected


ODD = (GOLDENS / "odd.txt").read_text()
HEADER, *LINES = ODD.splitlines()


def job(state: str, code: str, steps: dict[str, tuple[str, str]], reason: str = "") -> pd.Series:
    """Return a job with 100 MB, by state, exit code and (state, MaxRSS) of its steps."""
    lines = ["JobID|State|ExitCode|ElapsedRaw|ReqMem|MaxRSS|Reason"]
    lines.append(f"7|{state}|{code}|60|100M||{reason}")
    lines += [f"7.{name}|{of_step}|{code}|60||{rss}|" for name, (of_step, rss) in steps.items()]
    return slurm.read("\n".join(lines)).frame.iloc[0]


@pytest.mark.parametrize(
    ("state", "code", "steps", "outcome"),
    [
        ("FAILED", "0:9", {"batch": ("FAILED", "99M")}, "out_of_memory"),
        ("FAILED", "0:9", {"batch": ("FAILED", "9M")}, "failed"),
        ("FAILED", "0:9", {}, "out_of_memory"),
        ("FAILED", "137:0", {"batch": ("FAILED", "91M")}, "out_of_memory"),
        ("FAILED", "137:0", {"batch": ("FAILED", "89M")}, "failed"),
        ("FAILED", "137:0", {}, "failed"),
        ("FAILED", "1:0", {"batch": ("FAILED", "99M")}, "failed"),
        ("COMPLETED", "0:0", {"batch": ("COMPLETED", "99M")}, "completed"),
        ("COMPLETED", "0:0", {"0": ("OUT_OF_ME+", "9M")}, "out_of_memory"),
        ("COMPLETED", "0:0", {"extern": ("OUT_OF_MEMORY", "9M")}, "completed"),
        ("COMPLETED", "0:0", {"0": ("CANCELLED by 0", "310M")}, "out_of_memory"),
        ("FAILED", "9:0", {"0": ("CANCELLED by 1000", "9M")}, "failed"),
    ],
)
def test_the_cause_of_an_end_follows_from_state_exit_code_and_memory(
    state: str, code: str, steps: dict[str, tuple[str, str]], outcome: str
) -> None:
    assert job(state, code, steps)["outcome"] == outcome


def test_a_note_of_slurm_names_memory_as_the_cause() -> None:
    assert job("FAILED", "1:0", {}, "oom-kill event")["outcome"] == "out_of_memory"
    assert job("CANCELLED", "0:0", {}, "Dependency")["outcome"] == "cancelled"


def test_the_comment_of_a_user_names_no_cause() -> None:
    header, line = (
        "JobID|State|ElapsedRaw|ExitCode|{}",
        "1|FAILED|60|1:0|memory limit of 8G",
    )
    for column, outcome in (("Comment", "failed"), ("SystemComment", "out_of_memory")):
        jobs = slurm.read(f"{header.format(column)}\n{line}\n")
        assert jobs.frame["outcome"].tolist() == [outcome]


NUMBER_61 = LINES[0].replace("1|", "61|", 1)


@pytest.mark.parametrize(
    ("damage", "kind", "count"),
    [
        (lambda t: t.encode() + b"60|cut off in the mid", "2 columns where the header has 22", 1),
        (lambda t: b"\xef\xbb\xbf" + t.encode(), "", 0),
        (lambda t: t.replace("\n", "\r\n").encode(), "", 0),
        (lambda t: t.encode() + b"61|" + b"x" * (1 << 21) + b"\n" + NUMBER_61.encode(),
         "not a line of a table", 1),
        (lambda t: t.encode() + b"61|" + b"x" * (1 << 21), "not a line of a table", 1),
    ],
    ids=["last line cut off", "byte order mark", "CR LF", "long line", "long last line"],
)  # fmt: skip
@pytest.mark.parametrize("block_lines", [50_000, 7])
def test_damaged_lines_are_refused_and_all_others_read(
    damage, kind: str, count: int, block_lines: int, tmp_path: Path, monkeypatch
) -> None:
    path = tmp_path / "damaged.txt"
    path.write_bytes(damage(ODD))
    whole = slurm.read(ODD)
    monkeypatch.setattr(slurm, "BLOCK_LINES", block_lines)
    jobs = slurm.read(path)
    assert jobs.refused.counts() - whole.refused.counts() == ({kind: count} if count else {})
    refused = {line for line, _ in jobs.refused.listed()}
    expected = whole.frame[~whole.frame["line"].isin(list(refused))].reset_index(drop=True)
    read = jobs.frame[jobs.frame["line"] <= len(LINES) + 1].reset_index(drop=True)
    pd.testing.assert_frame_equal(read, expected, check_categorical=False)


def test_a_delimiter_may_end_each_line_and_names_may_not_be_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "ended.txt"
    path.write_bytes(ODD.replace("\n", "|\n").encode().replace(b"tool|ann", b"t\xe4ol|ann", 1))
    whole, ended = slurm.read(ODD).frame, slurm.read(path).frame
    assert ended["job_id"].tolist() == whole["job_id"].tolist()
    assert ended["name"][0] == "t�ol"


def test_columns_of_sacct_may_be_few_and_in_any_order() -> None:
    def read(columns: str, cells: str) -> pd.Series:
        return slurm.read(f"{columns}\n{cells}\n").frame.iloc[0]

    assert read("JobIDRaw|State|Start|End", "7|COMPLETED|2026-01-01T10:00:00|2026-01-01T10:01:40")[
        "runtime_s"
    ] == pytest.approx(100)
    few = read("elapsedraw|STATE|jobid|MAXRSS|ReqMem|ReqCPUS", "90|TIMEOUT|7|5M|4Gc|3")
    assert few[["job_id", "runtime_s", "peak_rss_bytes", "cpus"]].tolist() == ["7", 90, 5 << 20, 3]
    assert few["mem_limit_bytes"] == 3 * 4 << 30
    names = "JobID|State|Elapsed|ReqTRES|NNodes|TimelimitRaw"
    other = read(names, "7|FAILED|01:30|cpu=4,mem=3G|2|5")
    assert other[["cpus", "mem_limit_bytes", "nodes", "limit_s"]].tolist() == [4, 3 << 30, 2, 300]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "is empty"),
        ("JobID|JobName\n1|a\n", "has no column state"),
        ('{"jobs": []}\n', "has no column jobid or jobidraw"),
        (f"{HEADER}\n", "has no record below its header"),
        (f"{HEADER}\n".replace("|", ";"), "but jobid;jobname;user"),
        ("\0\0", "is not a text file"),
        ("JobID|State|State|Elapsed\n", "names the column State twice"),
    ],
)
def test_a_file_without_accounting_is_refused(content: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text(content)
    with pytest.raises(TableError) as caught:
        slurm.read(path)
    assert problem in str(caught.value)


def test_another_delimiter_can_be_given() -> None:
    lines = "\n".join([HEADER, *LINES[:30]])
    pd.testing.assert_frame_equal(
        slurm.read(lines).frame, slurm.read(lines.replace("|", ";"), ";").frame
    )


def test_jobs_of_two_clusters_with_one_number_are_two_runs(tmp_path: Path) -> None:
    header = "JobID|JobName|Cluster|State|ElapsedRaw|Start"
    lines = [f"7|a|{name}|COMPLETED|60|2026-01-05T10:00:00" for name in ("big", "small", "big")]
    path = tmp_path / "jobs.txt"
    path.write_text("\n".join([header, *lines]) + "\n")
    assert len({row["cell_key"] for row in from_slurm(path).rows}) == 2
