"""Phases side by side, of runs that went through the same."""

import numpy as np
import pandas as pd
import pytest

from voxcast.errors import TableError
from voxcast.phases.matrix import phase_matrix, used_byte_s


def phases(key: str, *row: tuple[str, float, float, float | None]) -> pd.DataFrame:
    rows = [
        {"cell_key": key, "phase": name, "start_s": start, "duration_s": end - start,
         "peak_rss_bytes": peak}
        for name, start, end, peak in row
    ]  # fmt: skip
    return pd.DataFrame(rows).astype({"peak_rss_bytes": "Float64"})


USUAL = (("load", 0.0, 1.0, 10.0), ("epoch", 1.0, 3.0, 20.0), ("epoch", 3.0, 6.0, 30.0))


def test_repeated_phases_are_one_and_other_runs_are_counted() -> None:
    table = pd.concat(
        [phases("a", *USUAL), phases("b", *USUAL), phases("c", USUAL[0]),
         phases("d", USUAL[0], ("epoch", 1.0, 2.0, None))]
    )  # fmt: skip
    used = phase_matrix(table)
    assert used.phases == ("load", "epoch")
    assert used.cell_keys == ("a", "b")
    assert used.duration_s.tolist() == [[1, 5], [1, 5]]
    assert used.peak_bytes.tolist() == [[10, 30], [10, 30]]
    assert used.left_out == 2
    trace = pd.DataFrame({"cell_key": list("aaabbb"), "t_s": [0, 3, 9, 0, 3, 9],
                          "rss_bytes": [4, 4, 4, 0, 6, 6]})  # fmt: skip
    runs = pd.DataFrame({"cell_key": ["a", "b"], "labels_json": ""})
    assert used_byte_s(runs, trace, used) == pytest.approx(np.array([24.0, 30.0]))
    only = trace[trace["cell_key"] == "a"]
    assert used_byte_s(runs, only, used) is None
    labelled = runs.assign(labels_json=["", '{"mean_rss_bytes": 2}'])
    assert used_byte_s(labelled, only, used) == pytest.approx(np.array([24.0, 12.0]))


def test_phases_without_peaks_are_refused() -> None:
    with pytest.raises(TableError, match="no run with peak memory of all its phases"):
        phase_matrix(phases("a", ("load", 0.0, 1.0, None)))
