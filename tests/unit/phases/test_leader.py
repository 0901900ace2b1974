"""Grouping by leader, against the published segment and against a loop over ticks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxcast.phases.signature import grouped

PUBLISHED = json.loads(
    (Path(__file__).parents[2] / "data" / "pas2p_deepgalaxy.json").read_text(encoding="utf-8")
)
SIMO = np.array([row["simo"] for row in PUBLISHED["ticks"]])


def grouped_one_by_one(values, kinds, tolerance):
    """The definition, a tick at a time."""
    founders, labels = [], []
    for value, kind in zip(values, kinds, strict=True):
        for n, (founder, founder_kind) in enumerate(founders):
            if founder_kind == kind and abs(value - founder) <= tolerance:
                labels.append(n)
                break
        else:
            labels.append(len(founders))
            founders.append((value, kind))
    return labels, [value for value, _ in founders]


def test_the_published_segment() -> None:
    phases = grouped(SIMO, 1, min_share=0.01)
    assert phases.founder.tolist() == PUBLISHED["tolerance_1"]["founders"]
    assert phases.weight.tolist() == PUBLISHED["tolerance_1"]["weights"]
    assert [ticks[0] for ticks in phases.ticks()] == phases.first_tick.tolist()
    assert (phases.dropped_phases, phases.dropped_share) == (0, 0)
    for n, ticks in enumerate(phases.ticks()):
        assert np.array_equal(np.flatnonzero(phases.label == n), ticks)


@given(
    st.lists(st.tuples(st.integers(-40, 40), st.integers(0, 2)), max_size=60),
    st.integers(0, 12),
    st.booleans(),
)
def test_as_tick_by_tick(ticks, tolerance, in_eighths) -> None:
    # Eighths are exact in binary, so that both sides round alike.
    values = np.array([value for value, _ in ticks]) / (8 if in_eighths else 1)
    kinds = np.array([kind for _, kind in ticks], dtype=np.int64)
    limit = tolerance / (8 if in_eighths else 1)
    labels, founders = grouped_one_by_one(values.tolist(), kinds.tolist(), limit)
    phases = grouped(values, limit, communication=kinds)
    assert phases.label.tolist() == labels
    assert phases.founder.tolist() == founders
    assert phases.first_tick.tolist() == [labels.index(n) for n in range(len(founders))]


def test_small_phases_are_dropped_and_counted() -> None:
    values = np.array([3] * 60 + [9] + [5] * 38 + [7])
    phases = grouped(values, min_share=0.02)
    assert phases.founder.tolist() == [3, 5]
    assert phases.label[[0, 60, 61, 99]].tolist() == [0, -1, 1, -1]
    assert (phases.dropped_phases, phases.dropped_share) == (2, pytest.approx(0.02))
    assert [len(ticks) for ticks in phases.ticks()] == [60, 38]


def test_the_share_is_of_time_where_it_is_given() -> None:
    values, seconds = np.array([3] * 99 + [9]), np.array([0.0001] * 99 + [10.0])
    phases = grouped(values, duration=seconds, min_share=0.01)
    assert phases.founder.tolist() == [9]
    assert phases.dropped_share == pytest.approx(0.0099 / 10.0099)


@pytest.mark.parametrize(
    ("values", "options"),
    [([1.0, np.nan], {}), ([1], {"tolerance": -1}), ([1], {"min_share": 1.5})],
)
def test_nonsense_is_refused(values, options) -> None:
    with pytest.raises(ValueError, match=r"finite|out of range"):
        grouped(np.array(values), **options)
