"""Any CSV table by a column map, also of other schedulers, and names of jobs by a pattern."""

import json
from pathlib import Path

import pytest

from voxcast.errors import ConfigError, TableError
from voxcast.runs import csv_table
from voxcast.runs.csv_table import Column, load_map
from voxcast.runs.imported import name_pattern

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
