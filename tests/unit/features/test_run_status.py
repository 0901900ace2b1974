"""How runs ended, as the columns of accounting tell it."""

import numpy as np
import pandas as pd
import pytest

from voxcast.features.any_table import choose_columns, is_censored, learnable, statuses


@pytest.mark.parametrize(
    ("name", "cells", "expected"),
    [
        (
            "State",
            ["COMPLETED", "FAILED", "CANCELLED by 12", "NODE_FAIL", "TIMEOUT", "OUT_OF_MEMORY"],
            ["completed", "failed", "cancelled", "node_failure", "timeout", "out_of_memory"],
        ),
        ("ExitCode", ["0:0", "1:0", "0:9"], ["completed", "failed", "failed"]),
        ("exit", [0, 137, np.nan], ["completed", "failed", "completed"]),
        ("status", ["ok", "error", None], ["completed", "failed", "failed"]),
        ("state", ["Ohio", "Texas", "Maine"], ["completed"] * 3),
        ("colour", ["failed", "failed", "completed"], ["completed"] * 3),
    ],
)
def test_columns_of_accounting_tell_how_a_run_ended(name: str, cells, expected) -> None:
    assert statuses(pd.DataFrame({name: cells})).tolist() == expected


def test_a_status_outranks_the_exit_code_of_a_stopped_run() -> None:
    table = pd.DataFrame({"state": ["TIMEOUT", "COMPLETED"], "exit": [143, 0]})
    assert is_censored(statuses(table)).tolist() == [True, False]


def test_runs_that_failed_have_no_label_unless_that_is_requested() -> None:
    table = pd.DataFrame(
        {
            "size": range(1, 31),
            "seconds": range(1, 31),
            "state": ["COMPLETED"] * 25 + ["FAILED"] * 5,
        }
    )
    columns = choose_columns(table, "seconds")
    usable, left_out = learnable(table, columns)
    assert usable.sum() == 25
    assert left_out == {"not completed (failed)": [26, 27, 28, 29, 30]}
    assert learnable(table, columns, keep_failed=True)[0].all()
