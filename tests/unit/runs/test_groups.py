"""Groups by columns, labels and parameters."""

import pytest

from voxcast.errors import TableError
from voxcast.runs.table import checked_row, frame_of, group_column, groups

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
