"""Rows of the table of runs: groups, and those that meet conditions."""

import pandas as pd
import pytest

from voxcast.errors import ConfigError, TableError
from voxcast.runs.table import (
    checked_row,
    frame_of,
    group_column,
    groups,
    only_app,
    runs_of_apps,
    runs_where,
)

ROWS = [
    {"app": "a", "cpus": 1, "labels_json": '{"site":"x"}', "parameters_json": '{"epochs":3}'},
    {"app": "a", "cpus": 2, "labels_json": "{}", "parameters_json": ""},
    {"app": "b", "cpus": 2, "labels_json": "", "parameters_json": '{"epochs":3}'},
]
FRAME = frame_of(checked_row(row) for row in ROWS)


def test_groups_are_in_order_and_complete() -> None:
    split = groups(FRAME, ["app", "label:site"])
    assert [(names, len(group)) for names, group in split] == [
        ({"app": "a", "label:site": ""}, 1),
        ({"app": "a", "label:site": "x"}, 1),
        ({"app": "b", "label:site": ""}, 1),
    ]
    assert group_column(FRAME, "parameter:epochs").tolist() == ["3", "", "3"]
    assert groups(FRAME, [])[0][0] == {}
    assert group_column(FRAME, "peak_rss_bytes").tolist() == ["", "", ""]


@pytest.mark.parametrize("name", ["nothing", "label:nothing", "thing:app"])
def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(TableError, match="no"):
        group_column(FRAME, name)


RUNS = pd.DataFrame(
    {
        "app": ["a", "a", "b"],
        "cpus": [1, 2, 2],
        "labels_json": ['{"dataset": "X"}', '{"dataset": "Y"}', ""],
        "parameters_json": ["{}", "{}", '{"epochs": 3}'],
    }
)


def test_an_application_is_needed_only_if_there_are_several() -> None:
    assert only_app({"a"}, None, "h") == "a"
    assert only_app({"a", "b"}, "b", "h") == "b"
    with pytest.raises(TableError, match="h: has runs of a, b; choose with --app"):
        only_app({"a", "b"}, None, "h")
    with pytest.raises(TableError, match="h: has no runs of c, but of a, b"):
        only_app({"a", "b"}, "c", "h")
    with pytest.raises(TableError, match="has no runs"):
        only_app([], None, "h")


def test_named_applications_are_selected() -> None:
    assert len(runs_of_apps(RUNS, [], "h")) == 3
    assert runs_of_apps(RUNS, ["b"], "h")["app"].tolist() == ["b"]
    with pytest.raises(TableError, match="no runs of c, d, but of a, b"):
        runs_of_apps(RUNS, ["c", "a", "d"], "h")


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("cpus", "cpus: is not a condition; write it as NAME=VALUE"),
        ("cpus=8", "no run has cpus '8'; there are '1', '2'"),
        ("speed=1", "no such column"),
        ("label:site=1", "no run has this label; there are dataset"),
    ],
)
def test_conditions_that_no_run_can_meet_are_refused(condition: str, message: str) -> None:
    with pytest.raises((ConfigError, TableError)) as error:
        runs_where(RUNS, [condition])
    assert message in str(error.value) or message in error.value.problem + "; " + str(
        error.value.then
    )
