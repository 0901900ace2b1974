"""Any CSV table by a column map, and traces of workflow engines; every record is counted."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from voxcast.errors import ConfigError, TableError
from voxcast.runs import csv_table
from voxcast.runs.csv_table import Column, load_map
from voxcast.runs.imported import Records, name_pattern
from voxcast.runs.importer import READERS
from voxcast.runs.workflows import nextflow, snakemake

SAMPLES = Path(__file__).parents[2] / "samples" / "imports"


def test_a_table_is_read_through_its_column_map() -> None:
    reading = csv_table.read(SAMPLES / "runs.csv", None, load_map(SAMPLES / "runs.yaml"))
    assert [(row["runtime_s"], row["peak_rss_bytes"], row["outcome"]) for row in reading.rows] == [
        (150, 1.5 * 2**30, "completed"),
        (210, 2 * 2**30, "out_of_memory"),
        (180, None, "completed"),
    ]
    assert reading.rows[0]["cpus"] == 4
    assert json.loads(reading.rows[0]["labels_json"]) == {"dataset": "A, first"}
    assert reading.refused.listed() == [
        (4, "no run time"),
        (5, "no run time; column wall: not a duration: 'soon'"),
        (6, "column status: outcome 'lost' is unknown; map it by `values`"),
        (8, "3 columns where the header has 7"),
    ]


def test_equal_lines_without_an_identity_are_separate_runs(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text("columns: {runtime_s: t}\nconstants: {app: a}\n")
    (tmp_path / "t.csv").write_text("t\n5\n5\n")
    reading = csv_table.read(tmp_path / "t.csv", None, load_map(tmp_path / "m.yaml"))
    assert len({row["cell_key"] for row in reading.rows}) == 2


def test_quotes_in_a_wrong_place_are_named_by_line(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text("columns: {runtime_s: t, app: a}\n")
    (tmp_path / "t.csv").write_text('t,a\n5,x\n6,"y"y\n7,z\n')
    reading = csv_table.read(tmp_path / "t.csv", None, load_map(tmp_path / "m.yaml"))
    assert [row["app"] for row in reading.rows] == ["x", "z"]
    assert [line for line, _ in reading.refused.listed()] == [3]
    (tmp_path / "t.csv").write_text('t,a\n5,x\n6,"y\n7,z\n8,z\n')
    with pytest.raises(TableError, match=r"line 3: .*; close the quote that begins there"):
        csv_table.read(tmp_path / "t.csv", None, load_map(tmp_path / "m.yaml"))


@pytest.mark.parametrize(
    ("decimal", "text", "expected"),
    [
        ("decimal: '.'\n", "1.234", 1.234),
        ("decimal: ','\n", "1.234", 1234),
        ("decimal: ','\n", "1.234,5", 1234.5),
        ("decimal: ','\n", "2,5 min", 150),
        ("decimal: ','\n", "1.5", "is no number with a decimal comma"),
    ],
)
def test_numbers_are_read_by_their_decimal_mark(
    tmp_path: Path, decimal: str, text: str, expected: float | str
) -> None:
    (tmp_path / "m.yaml").write_text(
        f"delimiter: ';'\n{decimal}columns: {{runtime_s: t}}\nconstants: {{app: a}}\n"
    )
    (tmp_path / "t.csv").write_text(f"t;n\n{text};1\n")
    reading = csv_table.read(tmp_path / "t.csv", None, load_map(tmp_path / "m.yaml"))
    if isinstance(expected, str):
        assert expected in reading.refused.listed()[0][1]
    else:
        assert [row["runtime_s"] for row in reading.rows] == [expected]


@pytest.mark.parametrize(
    ("target", "unit", "text", "value"),
    [
        ("runtime_s", "", "2.5", 2.5),
        ("runtime_s", "", "2.5h", 9000),
        ("runtime_s", "", "01:00:05", 3605),
        ("runtime_s", "min", "2", 120),
        ("runtime_s", "slurm", "02:30", 150),
        ("runtime_s", "nextflow", "1m 5s", 65),
        ("peak_rss_bytes", "", "12", 12),
        ("peak_rss_bytes", "GB", "1.5", 1.5e9),
        ("peak_rss_bytes", "GB", "1.5 MiB", 1.5 * 2**20),
        ("peak_rss_bytes", "slurm", "340K", 348160),
        ("peak_rss_bytes", "nextflow", "1 KB", 1024),
        ("cpus", "", "4", 4),
    ],
)
def test_units(target: str, unit: str, text: str, value: float) -> None:
    assert Column("x", unit).number(target, text) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "columns: {runtime_s: t, speed: v}",
            "columns: speed: Input should be 'app', 'app_version'",
        ),
        ("columns: {app: t}", "runtime_s"),
        ("columns: {runtime_s: {column: t, unit: parsec}}", "not a unit: 'parsec'"),
        (
            "columns: {runtime_s: {column: t, units: s}}",
            "runtime_s: units: Unexpected keyword argument",
        ),
        ("columns: {runtime_s: t, app: {column: a, unit: s}}", "has no unit"),
        ("columns: {runtime_s: t}\nconstants: {cpus: four}", "wrong type"),
        ("columns: {runtime_s: t}\ndelimiter: ab", "one character"),
        ("columns: {runtime_s: t}\ndecimal: ','", "decimal: state"),
        ("columns: {runtime_s: t, cell_key: k}", "columns: cell_key"),
        ("columns: [runtime_s]", "columns: Input should be a valid dictionary"),
        ("{", "cannot be read"),
    ],
)
def test_an_invalid_column_map_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "m.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r".") as error:
        load_map(tmp_path / "m.yaml")
    assert message in str(error.value)


def test_a_table_without_a_mapped_column_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    with pytest.raises(
        TableError, match="has no column job, mem, status, study, tool, wall, when"
    ):
        csv_table.read(tmp_path / "t.csv", None, load_map(SAMPLES / "runs.yaml"))


def test_an_unknown_outcome_is_not_a_label(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(
        "columns:\n  runtime_s: t\n  outcome: {column: state, values: {ok: completed}}\n"
        "constants: {app: a}\n"
    )
    (tmp_path / "t.csv").write_text("t,state\n5,ok\n6,\n7,NA\n")
    reading = csv_table.read(tmp_path / "t.csv", None, load_map(tmp_path / "m.yaml"))
    assert [row["runtime_s"] for row in reading.rows] == [5]
    assert [line for line, _ in reading.refused.listed()] == [3, 4]
    assert "column state: no outcome" in reading.refused.listed()[0][1]


def test_runs_of_two_studies_may_share_names(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("job,t\n1,5\n")
    keys = set()
    for study in ("", "study: a\n", "study: b\n"):
        text = "columns: {runtime_s: t}\nconstants: {app: x}\nidentity: [job]\n"
        (tmp_path / "m.yaml").write_text(text + study)
        reading = csv_table.read(tmp_path / "t.csv", None, load_map(tmp_path / "m.yaml"))
        keys.add(reading.rows[0]["cell_key"])
    assert len(keys) == 3


EXAMPLES = Path(__file__).parents[3] / "examples" / "schedulers"
NAMES = ("outcome", "runtime_s", "cpu_s", "peak_rss_bytes", "cpus", "limit_s")
RUNS = {
    "qacct": [("completed", 600, 1100.078, 1610612736, 2, None),
              ("timeout", 86401, 80000.7, 3328599654, 1, None)],
    "pbs": [("completed", 1841, 6300, 2031040 * 1024, 4, 3600),
            ("cancelled", 60, 30, 102400 * 1024, 1, 3600)],
    "bacct": [("completed", 900, 1500.5, 2**30, 2, 3600),
              ("timeout", 3601, 1500.5, 2**31, 2, 3600)],
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_an_export_is_read_by_its_map(name: str) -> None:
    reading = csv_table.read(EXAMPLES / f"{name}.csv", None, load_map(EXAMPLES / f"{name}.yaml"))
    assert [tuple(row[n] for n in NAMES) for row in reading.rows] == RUNS[name]
    for remarks in (reading.refused, reading.skipped, reading.unread):
        assert not remarks.listed()


@pytest.mark.parametrize(
    ("text", "group", "name", "value"),
    [
        ("(?P<site>[a-z]+)_(?P<subject>sub-[0-9]+)", "subject", "lab_sub-01_x", "sub-01"),
        ("(?P<site>[a-z]+)_(?P<subject>sub-[0-9]+)", "subject", "other", ""),
        ("([a-z]+)_(.*)", "app", "lab_sub-01", "lab"),
        ("(a)?b", "app", "b", ""),
    ],
)
def test_the_named_group_or_else_the_first_is_the_value(
    text: str, group: str, name: str, value: str
) -> None:
    assert name_pattern(text, group, f"--{group}-pattern").values_in([name]) == {name: value}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(", "is no regular expression"),
        ("(a{99999999999999999999})", "is no regular expression"),
        ("[a-z]+", "has no group"),
    ],
)
def test_other_patterns_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match="--pattern") as error:
        name_pattern(text, "app", "--pattern")
    assert message in str(error.value)


@pytest.fixture(scope="module")
def trace() -> Records:
    return nextflow(SAMPLES / "trace.txt")


def test_a_trace_with_human_readable_units_is_read(trace: Records) -> None:
    row = trace.rows[0]
    assert (row["app"], row["runtime_s"], row["cpu_s"]) == ("BET", 65, pytest.approx(62.075))
    assert row["peak_rss_bytes"] == round(1.2 * 2**30)  # its GB are binary
    assert (row["mem_limit_bytes"], row["limit_s"], row["cpus"]) == (4 * 2**30, 3600, 2)
    assert json.loads(row["labels_json"])["tag"] == "sub-01"
    assert trace.rows[1]["runtime_s"] == pytest.approx(0.35)
    assert trace.rows[1]["peak_rss_bytes"] is None


def test_task_states_become_outcomes(trace: Records) -> None:
    assert [row["outcome"] for row in trace.rows] == [
        "completed", "completed", "out_of_memory", "failed", "timeout",
    ]  # fmt: skip
    assert trace.skipped.listed() == [
        (7, "task FAST (sub-04) is ABORTED and was never run"),
        (8, "task FAST (sub-05) is RUNNING"),
        (11, "task BET (sub-01) is CACHED: it was not run again"),
    ]
    assert trace.refused.listed() == [
        (9, "no run time; column realtime: not a Nextflow duration: '5 parsecs'"),
        (10, "8 columns where the header has 20"),
    ]


def test_a_raw_trace_gives_the_same_task(trace: Records) -> None:
    raw = nextflow(SAMPLES / "trace_raw.txt").rows[0]
    same = ("cell_key", "runtime_s", "limit_s", "mem_limit_bytes", "outcome", "peak_rss_bytes")
    assert {name: raw[name] for name in same} == {name: trace.rows[0][name] for name in same}


def test_benchmarks_count_in_mib_and_equal_repeats_are_kept() -> None:
    reading = snakemake(SAMPLES / "sub-01.align.benchmark.tsv")
    assert [row["runtime_s"] for row in reading.rows] == [65.2031, 65.2031, 0.0421, 86405, 1]
    assert len({row["cell_key"] for row in reading.rows}) == 5
    row = reading.rows[0]
    assert (row["peak_rss_bytes"], row["cpu_s"]) == (round(1024.5 * 2**20), 63.9)
    assert (row["app"], row["outcome"]) == ("sub-01.align", "completed")
    assert (reading.rows[2]["peak_rss_bytes"], reading.rows[2]["cpu_s"]) == (None, None)
    assert reading.refused.listed() == [(6, "run time is -3 s")]
    assert reading.unread.listed() == [
        (7, "column s: not a duration: 'fast'"),  # the other column has the time
    ]


def test_a_task_with_a_cell_that_cannot_be_read_is_kept(tmp_path: Path) -> None:
    header = "name\tstatus\texit\trealtime\t%cpu\tpeak_rss\tmemory\ttime\tstart\tcpus\n"
    (tmp_path / "t").write_text(
        header + "A (1)\tCOMPLETED\t0\t1m 5s\thigh\tmuch\t4 GB\t1h\tsoon\ttwo\n"
    )
    reading = nextflow(tmp_path / "t")
    (row,) = reading.rows
    assert (row["runtime_s"], row["limit_s"], row["mem_limit_bytes"]) == (65, 3600, 4 * 2**30)
    assert (row["peak_rss_bytes"], row["cpu_s"], row["started_at"], row["cpus"]) == (
        None, None, "", 0,
    )  # fmt: skip
    assert sorted(reason.partition(":")[0] for _, reason in reading.unread.listed()) == [
        "column %cpu", "column cpus", "column peak_rss", "column start",
    ]  # fmt: skip


def test_times_with_and_without_a_zone_are_compared(tmp_path: Path) -> None:
    (tmp_path / "t").write_text(
        "name\tstatus\trealtime\tstart\tcomplete\n"
        "A\tCOMPLETED\t1m\t2024-05-01 10:00:00.000\t1714557660000\n"
        "B\tCOMPLETED\t1m\t0001-01-01 00:00:00\t9999-12-31 23:59:59\n"
    )
    reading = nextflow(tmp_path / "t")
    assert [row["app"] for row in reading.rows] == ["A", "B"]


@pytest.mark.parametrize(("completes", "read"), [("02:10", 1), ("01:05", 0)])
def test_a_clock_is_set_back_by_an_hour_and_no_more(
    tmp_path: Path, completes: str, read: int
) -> None:
    (tmp_path / "t").write_text(
        "name\tstatus\trealtime\tstart\tcomplete\n"
        f"A\tCOMPLETED\t10m\t2024-10-27 03:00:00\t2024-10-27 {completes}:00\n"
    )
    assert len(nextflow(tmp_path / "t").rows) == read


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
