"""Application and subject from the names of jobs."""

import pytest

from voxcast.errors import ConfigError
from voxcast.runs.imported import name_pattern


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
