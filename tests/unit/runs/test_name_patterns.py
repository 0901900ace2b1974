"""Application and subject from the names of jobs."""

from pathlib import Path

import pytest

from voxcast.errors import ConfigError
from voxcast.runs import name_patterns
from voxcast.runs.imported import Records
from voxcast.runs.importer import name_runs
from voxcast.runs.name_patterns import (
    MAX_NAME_CHARACTERS,
    name_pattern,
    values_by_name,
)

SUBJECT = name_pattern("(?P<site>[a-z]+)_(?P<subject>sub-[0-9]+)", "subject", "--subject-pattern")


def test_the_named_group_or_else_the_first_is_the_value() -> None:
    assert values_by_name(SUBJECT, ["lab_sub-01_x", "other"]) == {
        "lab_sub-01_x": "sub-01",
        "other": "",
    }
    first = name_pattern("([a-z]+)_(.*)", "app", "--app-pattern")
    assert values_by_name(first, ["x", "lab_sub-01"]) == {"x": "", "lab_sub-01": "lab"}


def test_a_group_that_did_not_take_part_is_no_value() -> None:
    pattern = name_pattern("(a)?b", "app", "--app-pattern")
    assert values_by_name(pattern, ["b", "ab"]) == {"b": "", "ab": "a"}


def test_names_that_are_too_long_do_not_match() -> None:
    name = "lab_sub-01" + "x" * MAX_NAME_CHARACTERS
    assert values_by_name(SUBJECT, [name]) == {}
    records = Records("sacct", Path("f"))
    records.rows, records.lines, records.names = [{"app": "a", "subject": ""}], [7], [name]
    name_runs([records], None, SUBJECT)
    assert [line for line, _ in records.unread.listed()] == [7]


def test_a_pattern_that_takes_exponential_time_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(name_patterns, "MATCH_S", 2.0)
    pattern = name_pattern("(a+)+$", "app", "--app-pattern")
    with pytest.raises(ConfigError, match="--app-pattern: takes more than 2 s"):
        values_by_name(pattern, ["a" * 60 + "!"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(", "is no regular expression"),
        ("(a{99999999999999999999})", "is no regular expression"),
        ("[a-z]+", "has no group"),
        ("(a)" * 400, "is longer than 1000 characters"),
    ],
)
def test_other_patterns_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match="--app-pattern") as error:
        name_pattern(text, "app", "--app-pattern")
    assert message in str(error.value)
