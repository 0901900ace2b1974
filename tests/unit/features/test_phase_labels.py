"""Shares of the CPU time by phase: of runs of which all phases are known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import planted
from voxcast.features.phase_labels import COLUMN, labels_of, phase_texts
from voxcast.features.rows import feature_names

PHASES = pd.DataFrame(
    [
        ("a", "start", 1.0), ("a", "n4", 2.0), ("a", "n4", 1.0),
        ("b", "start", 1.0), ("b", "n4", np.nan),
        ("c", "start", 1.0), ("c", "n4", 9.0),
    ],
    columns=["cell_key", "phase", "cpu_s"],
)  # fmt: skip
CPU_S = {"a": 5.0, "b": 5.0, "c": 5.0, "d": 5.0}
DRIVERS = {"n4": ("mask",)}


def test_shares_add_up_to_the_run_and_repeated_phases_to_one() -> None:
    table = pd.DataFrame({COLUMN: [phase_texts(PHASES, CPU_S, DRIVERS).get("a"), ""]})
    labels = labels_of(table)
    assert labels is not None
    assert labels.names == ("n4", "rest", "start")
    assert labels.shares[0] == pytest.approx([0.6, 0.2, 0.2])
    assert labels.is_known.tolist() == [True, False]
    assert labels.drivers == DRIVERS


def test_runs_with_an_unknown_phase_or_too_much_time_have_no_labels() -> None:
    assert set(phase_texts(PHASES, CPU_S, DRIVERS)) == {"a"}
    assert phase_texts(PHASES, CPU_S, {}) == {}
    assert phase_texts(PHASES[:0], CPU_S, DRIVERS) == {}


def test_labels_are_no_features() -> None:
    table = planted.table(4)
    assert labels_of(table) is not None
    assert COLUMN not in feature_names(table)
    assert labels_of(table.drop(columns=COLUMN)) is None
    assert labels_of(table.assign(**{COLUMN: ""})) is None
