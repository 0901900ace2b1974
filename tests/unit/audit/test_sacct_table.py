"""The columnar reader of sacct against the line reader, on regular and on damaged exports."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from voxcast.audit import sacct_table, slurm_cells, text_blocks
from voxcast.audit.jobs import AuditedJobs
from voxcast.errors import TableError
from voxcast.history.imports import sacct

SAMPLES = Path(__file__).parents[2] / "samples" / "imports"
AMOUNTS = ("runtime_s", "cpu_s", "cpus", "gpus", "limit_s", "mem_limit_bytes", "peak_rss_bytes")
HEADER = (
    "JobID|JobName|User|Account|Partition|State|ExitCode|Submit|Start|End|Elapsed|ElapsedRaw|"
    "TotalCPU|MaxRSS|ReqMem|AllocCPUS|AllocTRES|Timelimit|NTasks|AveRSS|TRESUsageInTot|Comment"
)


def by_line(jobs: AuditedJobs) -> dict[int, tuple[object, ...]]:
    return {
        row.line: (
            row.job_id, row.name_, row.user, row.account, row.partition, row.state, row.outcome,
            *(None if np.isnan(getattr(row, name)) else getattr(row, name) for name in AMOUNTS),
        )
        for row in jobs.frame.rename(columns={"name": "name_"}).itertuples()
    }  # fmt: skip


def compare(path: Path) -> AuditedJobs:
    """Read a file both ways, and return what the columns gave."""
    lines = sacct.read(path, app="any")
    jobs = sacct_table.read(path)
    expected = {}
    for row, line in zip(lines.rows, lines.lines, strict=True):
        labels = json.loads(row["labels_json"])
        expected[line] = (
            *(labels.get(n, "") for n in ("job_id", "job_name", "user", "account", "partition")),
            labels["state"], row["outcome"],
            *(row[name] for name in AMOUNTS),
        )  # fmt: skip
    assert by_line(jobs) == expected
    instant = [bad for bad in lines.bad if bad.reason == "run time is 0 s"]
    assert jobs.instant == len(instant)
    assert jobs.refused.total() == len(lines.bad) - len(instant)
    named = {place for places in jobs.examples.values() for place in places}
    assert named <= {f"{path.name}:{bad.line}" for bad in lines.bad}
    assert jobs.not_ended.total() + jobs.never_started.total() == len(lines.skipped)
    assert jobs.records == lines.read
    return jobs


@pytest.fixture(params=["parsed one by one", "parsed by Arrow"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parse cells one by one as in short files, and by Arrow as in long ones."""
    if request.param == "parsed by Arrow":
        monkeypatch.setattr(slurm_cells, "FEW", 0)


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("name", ["sacct.txt", "slurm_22_05_8.txt", "slurm_22_05_8_tasks.txt"])
def test_exports_of_slurm_are_read_as_line_by_line(name: str) -> None:
    assert len(compare(SAMPLES / name).frame) > 3


def record(job: str = "1", state: str = "COMPLETED", **cells: str) -> str:
    """Return a line with usual cells, but for those given."""
    usual = {
        "JobID": job, "JobName": "tool", "User": "ann", "Account": "lab", "Partition": "main",
        "State": state, "ExitCode": "0:0", "Submit": "2026-01-01T09:00:00",
        "Start": "2026-01-01T10:00:00", "End": "2026-01-01T10:01:40", "Elapsed": "00:01:40",
        "ElapsedRaw": "100", "TotalCPU": "01:30.500", "ReqMem": "4G", "AllocCPUS": "2",
        "AllocTRES": "cpu=2,mem=4G,node=1", "Timelimit": "1-00:00:00",
    }  # fmt: skip
    return "|".join((usual | cells).get(name, "") for name in HEADER.split("|"))


def step(job: str, name: str = "batch", **cells: str) -> str:
    empty = dict.fromkeys(HEADER.split("|"), "")
    usual = {"JobID": f"{job}.{name}", "State": "COMPLETED", "MaxRSS": "100M", "NTasks": "1"}
    return record(f"{job}.{name}", **(empty | usual | cells))


ODD = [
    record("1", "CANCELLED by 1001"),
    record("2", "CANCELLED by 1001", ElapsedRaw="0", Elapsed="00:00:00", Start="None"),
    record("3", "REQUEUED"), step("3", MaxRSS="1G"),
    record("3", Start="2026-01-01T11:00:00"), step("3", MaxRSS="2G"),
    record("4_7"), step("4_7"), step("4_7", "extern", MaxRSS="900M"),
    record("5_[1-9%3]", "PENDING", Start="Unknown", End="Unknown", ElapsedRaw="0"),
    record("6+0"), step("6+0", "0", MaxRSS="64M", NTasks="2"),
    record("6+1"), step("6+1", "0", MaxRSS="64M", NTasks="4", AveRSS="60.5M"),
    record("7"), step("7", "0", MaxRSS="64M", NTasks="4", TRESUsageInTot="cpu=00:01:00,mem=200M"),
    record("8", AllocTRES="billing=4,cpu=4,gres/gpu:a100=2,mem=16G,node=1", AllocCPUS=""),
    record("9", AllocTRES="cpu=4,gres/gpu=2,gres/gpu:a100=2,mem=1.50T,node=2"),
    record("10", AllocTRES="", ReqMem="4Gn"), record("11", AllocTRES="", ReqMem="4Gc"),
    record("12", AllocTRES="", ReqMem="0n"), record("13", AllocTRES="", ReqMem="2048"),
    record("14", AllocTRES="", ReqMem="4Q"), record("15", AllocTRES="mem=lots", ReqMem="1G"),
    record("16", AllocTRES="billing=3", ReqMem="500Mc", AllocCPUS="0"),
    record("17", TotalCPU="1-02:03:04", ElapsedRaw=""), record("18", TotalCPU="INVALID"),
    record("19", ElapsedRaw="", Elapsed=""),
    record("20", ElapsedRaw="", Elapsed="", End="Unknown"),
    record("21", ElapsedRaw="0"), record("22", ElapsedRaw="-5"), record("23", ElapsedRaw="1e3"),
    record("24", "RUNNING", End="Unknown"), record("25", "SLEEPING"), record("26", "OUT_OF_ME+"),
    record("27", Timelimit="UNLIMITED"), record("28", Timelimit="Partition_Limit"),
    record("29", Timelimit="soon"), record("30", End="2026-01-01T08:00:00"),
    record("31", End="2026-01-01T09:30:00"), record("32", Start="2026-02-30T10:00:00"),
    record("33", "FAILED", ExitCode="0:9"), step("33", MaxRSS="3.9G"),
    record("34", "FAILED", ExitCode="0:9"), step("34", MaxRSS="1G"),
    record("35", "FAILED", ExitCode="0:9"), step("35", State="CANCELLED by 0", MaxRSS="1G"),
    record("36", "FAILED", ExitCode="0:9"), record("37", "FAILED", ExitCode="3:0"),
    record("38", "FAILED", ExitCode="1:0", Comment="slurmstepd: Exceeded job memory limit"),
    record("39", "CANCELLED", Comment="oom-kill event"), record("40"),
    step("40", "0", State="OUT_OF_MEMORY"), record("41"),
    step("41", "extern", State="OUT_OF_MEMORY"), step("999"), record("42", MaxRSS="5M"),
    step("42", MaxRSS="9000000G"), record("43", "NODE_FAIL", ElapsedRaw="0"),
    record("44", "TIMEOUT"), record("45", "PREEMPTED"), record("46", "BOOT_FAIL", ElapsedRaw="0"),
    record("47", JobName="ä name, of sorts", User="none"), record("48", JobName="two|pipes"),
    record("49", "COMPLETED ", AllocCPUS="-4"), HEADER, "", "   ", record("50", ElapsedRaw="inf"),
    record("51", TotalCPU="99999999-00:00:00"), record("52", ElapsedRaw="999999999999"),
    record("53", "completing"), record("54", "timeout"), record("55", ExitCode="x"),
    record("56", "FAILED", ExitCode="9:0"), step("56", "0", State="CANCELLED by 0", MaxRSS="5G"),
    record("57"), step("57", "0", State="CANCELLED by 0", MaxRSS="1G"),
    record("58"), step("58", "0", State="CANCELLED by 1000", MaxRSS="5G"),
    record("59", User="root"), step("59", "0", State="CANCELLED by 0", MaxRSS="1G"),
    record("60", User="root"), step("60", "0", State="CANCELLED by 0", MaxRSS="5G"),
    record("61", "FAILED", User="root", ExitCode="0:9"),
    step("61", State="CANCELLED by 0", MaxRSS="1G"),
    record("62", User="root"), step("62", "0", State="CANCELLED by 0", MaxRSS=""),
]  # fmt: skip


# After the bytes by which a file is known as text.
FILLING = "".join(f"{record(str(n))}\n" for n in range(1000, 1400))


@pytest.mark.usefixtures("both_ways")
def test_odd_records_are_read_as_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "odd.txt"
    path.write_text("\n".join([HEADER, *ODD]) + "\n")
    jobs = compare(path)
    assert len(jobs.frame) > 40
    assert jobs.unread["totalcpu"] == 1  # INVALID is Slurm's word for unknown
    assert jobs.unread["reqmem"] == 1
    assert dict(jobs.frame.set_index("job_id")["all_memory"])["12"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.encode() + b"60|cut off in the mid",
        lambda text: text.encode().replace(b"tool|ann", b"t\xe4ol|ann", 3),
        lambda text: (text + FILLING).encode() + record("61").replace("tool", "t\0l").encode(),
        lambda text: b"\xef\xbb\xbf" + text.encode(),
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: text.replace("\n", "|\n").encode(),
        lambda text: text.replace("\n", " | \n", 9).replace(" | \n", "|\n", 1).encode(),
        lambda text: text.encode() + b"61|" + b"x" * (1 << 21) + b"\n" + record("62").encode(),
        lambda text: text.encode() + b"61|" + b"x" * (1 << 21),
    ],
    ids=["last line cut off", "latin-1", "NUL", "byte order mark", "CR LF", "sacct -p",
         "some lines end", "long line", "long last line"],
)  # fmt: skip
@pytest.mark.parametrize("block_bytes", [1 << 24, 700])
def test_damaged_files_are_read_as_line_by_line(
    damage, block_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "damaged.txt"
    path.write_bytes(damage("\n".join([HEADER, *ODD]) + "\n"))
    monkeypatch.setattr(text_blocks, "BLOCK_BYTES", block_bytes)
    compare(path)


@pytest.mark.parametrize(
    "columns",
    ["JobID|State|Elapsed", "JobIDRaw|State|Start|End", "State|JobID|ElapsedRaw|User",
     "jobid|STATE|elapsedraw|MAXRSS|ReqMem|ReqCPUS", "JobID|JobIDRaw|State|Elapsed|NCPUS|NNodes",
     "JobID|State|ElapsedRaw|ReqTRES|NCPUS|TimelimitRaw"],
)  # fmt: skip
def test_sites_that_export_few_columns(columns: str, tmp_path: Path) -> None:
    names = {name.lower(): n for n, name in enumerate(HEADER.split("|"))}
    other = {"jobidraw": "77", "reqcpus": "3", "ncpus": "5", "nnodes": "2", "timelimitraw": "90",
             "reqtres": "cpu=4,mem=3G,node=1"}  # fmt: skip
    lines = [columns]
    for line in ODD[:40]:
        cells = line.split("|")
        if line and len(cells) == len(names):
            lines.append(
                "|".join(
                    cells[names[c]] if c in names else other[c] for c in columns.lower().split("|")
                )
            )
    path = tmp_path / "few.txt"
    path.write_text("\n".join(lines))
    assert len(compare(path).frame) > 5


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "is empty"),
        ("JobID|JobName\n1|a\n", "no column State in line 1"),
        (f"{HEADER}\n", "has no record below its header"),
        (f"{HEADER}\n".replace("|", ";"), "its columns are separated by ';', not by '|'"),
        ("\0\0", "is not a text file"),
        ("JobID|State|State|Elapsed\n", "duplicate column: state"),
    ],
)
def test_a_file_that_is_no_export_is_refused(content: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text(content)
    with pytest.raises(TableError) as caught:
        sacct_table.read(path)
    assert problem in str(caught.value)


def test_another_delimiter_can_be_given(tmp_path: Path) -> None:
    path, semicolons = tmp_path / "a", tmp_path / "b"
    path.write_text("\n".join([HEADER, *ODD[:30]]))
    semicolons.write_text("\n".join([HEADER, *ODD[:30]]).replace("|", ";"))
    assert by_line(sacct_table.read(path)) == by_line(sacct_table.read(semicolons, ";"))
