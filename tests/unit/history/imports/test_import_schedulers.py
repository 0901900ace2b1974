"""Accounting of PBS, Grid Engine and LSF, in the formats that these write."""

import json
from pathlib import Path

import pytest

from voxcast.errors import ConfigError, TableError
from voxcast.history.imports import lsf, pbs, sge
from voxcast.history.imports.file_records import FileRecords
from voxcast.history.imports.ledger import import_files
from voxcast.quantities import pbs_bytes, pbs_seconds, sge_bytes, sge_seconds

SAMPLES = Path(__file__).parents[3] / "samples" / "accounting"
READERS = {"pbs.txt": pbs.read, "sge.txt": sge.read, "qacct.txt": sge.read, "lsb.acct": lsf.read,
           "bacct.txt": lsf.read, "bhist.txt": lsf.read}  # fmt: skip
AMOUNTS = ("runtime_s", "cpu_s", "peak_rss_bytes", "limit_s", "mem_limit_bytes", "cpus", "gpus")


def runs(name: str) -> dict[str, tuple[object, ...]]:
    reading = READERS[name](SAMPLES / name)
    jobs = [json.loads(row["labels_json"])["job_id"] for row in reading.rows]
    return {
        job: (row["outcome"], *(row[amount] for amount in AMOUNTS))
        for job, row in zip(jobs, reading.rows, strict=True)
    }


def test_logs_of_pbs_and_torque() -> None:
    gib = 2**30
    assert runs("pbs.txt") == {
        "407": ("completed", 1841, 6300, 2031040 * 1024, 3600, 4 * gib, 4, 0),
        # Memory per process, and a time without two digits.
        "21048463": ("completed", 69784, 65724, 2031040 * 1024, 345600, 4000 * 2**20, 1, 0),
        # 271 is SIGTERM: here by the time limit, in 2281315 by its user.
        "691908": ("timeout", 129647, 8, 41684 * 1024, 129600, None, 24, 0),
        "2281314[7]": ("out_of_memory", 301, 1800, 10485700 * 1024, 3600, 10 * gib, 8, 2),
        "2281315": ("cancelled", 60, 30, 100 * 2**20, 3600, 10 * gib, 1, 0),
        "2281316": ("preempted", 70, 30, 100 * 2**20, 3600, None, 1, 0),
    }


def test_the_file_accounting_of_grid_engine() -> None:
    gib = 2**30
    assert runs("sge.txt") == {
        "101": ("completed", 3600, 13500.5, 5 * gib, 7200, 8 * gib, 4, 0),  # 2 GB a slot
        "102_17": ("timeout", 7201, 7000, gib, 7200, 2 * gib, 1, 0),
        "103": ("out_of_memory", 600, 500, 4200000000, 7200, 4 * gib, 2, 1),
        "105": ("failed", 100, 90, None, 600, None, 1, 0),  # milliseconds since 1970
    }


def test_the_text_of_qacct() -> None:
    gib = 2**30
    assert runs("qacct.txt") == {
        "42": ("completed", 600, 1100.078, 1.5 * gib, 900, 2 * gib, 2, 0),
        # Killed by 37, which is any limit, at its time; maxrss where Univa states it.
        "43_97": ("timeout", 86401, 80000.7, round(3.1 * gib), 86400, 25 * gib, 1, 0),
    }


def test_records_of_lsb_acct() -> None:
    assert runs("lsb.acct") == {
        "386": ("completed", 3, 0.011152, 2048 * 1024, None, None, 1, 0),
        # 2000 MB on each of 8 hosts.
        "404717": (
            "completed",
            40368,
            5794523.29,
            10725376 * 1024,
            43200,
            8 * 2000 * 2**20,
            128,
            0,
        ),
        "7610_3": ("timeout", 839, None, 2048 * 1024, 600, 4 * 2**30, 1, 0),  # TERM_RUNLIMIT
        "101": ("failed", 10, 0.020995, 2080 * 1024, None, None, 1, 0),  # of version 7
    }


def test_texts_of_bacct_and_bhist() -> None:
    assert runs("bacct.txt") == {
        "3329613": ("completed", 67, 0.08, 5 * 2**20, None, None, 1, 0),
        "1234567": ("timeout", 3602, 7200.1, 120 * 2**20, 3600, 128 * 2**20, 4, 0),
    }
    assert runs("bhist.txt") == {
        "2001": ("completed", 600, 1100.5, 2.5 * 2**30, None, 4 * 2**30, 2, 0)
    }


@pytest.mark.parametrize(
    ("name", "skipped", "bad"),
    [
        ("pbs.txt", ["job 2281317.casper-pbs was deleted and never run"], ["no run time"]),
        ("sge.txt", ["job 104 failed before its start (code 1) and was never run"], []),
        ("qacct.txt", ["job 44 failed before its start (code 8) and was never run"], []),
        ("lsb.acct", ["job 7611 was ended before its start and was never run"],
         ["a record JOB_FINISH that is cut off"]),
    ],
)  # fmt: skip
def test_records_without_a_run_are_listed(name: str, skipped: list[str], bad: list[str]) -> None:
    reading = READERS[name](SAMPLES / name)
    assert [remark.reason for remark in reading.skipped] == skipped
    assert [remark.reason for remark in reading.bad] == bad


def test_who_ran_it_is_kept() -> None:
    first = json.loads(pbs.read(SAMPLES / "pbs.txt").rows[0]["labels_json"])
    assert first == {
        "account": "neuro", "job_id": "407", "job_name": "recon_sub-01", "n_nodes": "1",
        "partition": "batch", "submitted_at": "2005-06-06T19:58:35+00:00", "user": "ann",
    }  # fmt: skip


@pytest.mark.parametrize(("kind", "name"), [("pbs", "pbs.txt"), ("sge", "sge.txt"),
                                             ("lsf", "lsb.acct")])  # fmt: skip
def test_they_are_imported_once(kind: str, name: str, tmp_path: Path) -> None:
    first = import_files(kind, [SAMPLES / name], tmp_path)
    second = import_files(kind, [SAMPLES / name], tmp_path)
    assert first.imported == len(runs(name)) == second.duplicates
    assert second.imported == 0


@pytest.mark.parametrize("read", [pbs.read, sge.read, lsf.read])
@pytest.mark.parametrize("content", ["JobID|State\n1|COMPLETED\n", "hello\n", ""])
def test_another_file_is_refused(read, content: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_text(content)
    with pytest.raises(TableError):
        read(tmp_path / "x")


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_is_cut_off_anywhere_is_read_or_refused(name: str, tmp_path: Path) -> None:
    content = (SAMPLES / name).read_bytes()
    whole_file = len(runs(name))
    for size in range(1, len(content), max(len(content) // 60, 1)):
        (tmp_path / "cut").write_bytes(content[:size])
        try:
            reading: FileRecords = READERS[name](tmp_path / "cut")
        except TableError:
            continue
        assert len(reading.rows) <= whole_file


@pytest.mark.parametrize(
    ("parse", "text"),
    [(pbs_seconds, "soon"), (pbs_bytes, "4 gallons"), (sge_bytes, "4 X"), (sge_seconds, "now"),
     (sge_bytes, "-1G"), (pbs_bytes, "")],
)  # fmt: skip
def test_what_is_no_amount_is_refused(parse, text: str) -> None:
    with pytest.raises(ConfigError):
        parse(text)
