"""The models of `voxcast fit` on tables in the shapes of public histories, beside plain models."""

import pandas as pd
import pytest

from public_tables import KINDS, available, tables_of
from tables import MARGIN, compared, summary_of

QUICK = ("tiny", "constants", "subjects")
OTHERS = tuple(name for name in available() if name not in (*QUICK, "wide", "accounting"))


def check(name: str) -> None:
    record = compared(KINDS[name], trials=2)
    assert record["unseen"]["over_best_plain"] <= MARGIN
    assert record["unseen"]["covered"] >= record["unseen"]["interval"][0] - 0.05
    for part in ("unseen", "larger"):
        if part in record:
            assert record[part]["calibrated_share"] == 1 or record[part]["covered_if_flagged"]
    if "larger" in record and name != "timeouts":  # its long runs have no label
        # The scale is up to eight times larger, and powers are up to two.
        assert record["larger"]["largest_over_largest_label"] < 64
        assert record["larger"]["fit"]["log_mae"] < 1.1 * min(
            errors["log_mae"] for errors in record["larger"]["plain"].values()
        )


@pytest.mark.parametrize("name", QUICK)
def test_no_plain_model_is_much_better(name: str) -> None:
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_no_plain_model_is_much_better_on_the_others(name: str) -> None:
    check(name)


def test_a_kind_is_the_same_again_and_its_rows_are_of_one_world() -> None:
    for name in available():
        kind = KINDS[name]
        first, second = tables_of(kind), tables_of(kind)
        for drawn, again in zip(vars(first).values(), vars(second).values(), strict=True):
            pd.testing.assert_frame_equal(drawn, again)
        assert len(first.train) == kind.rows
        assert (first.train[kind.target] > 0).all()
        assert list(first.train) == list(first.unseen)


def test_a_kind_that_misses_a_bar_is_named() -> None:
    good = {"over_best_plain": 1.0, "covered": 0.9, "interval": [0.86, 0.93],
            "largest_over_largest_label": 1.0, "largest_over_largest_true": 1.0}  # fmt: skip
    bad = {**good, "over_best_plain": 1.2, "covered": 0.8}
    summary = summary_of({"a": {"unseen": good, "larger": bad}, "b": {"unseen": bad}})
    assert summary["worse_than_best_plain"] == {"b": 1.2}
    assert summary["coverage_below_interval"] == {"b": 0.8}
    assert summary["coverage_below_interval_of_larger"] == {"a": 0.8}
