"""The models of `voxcast fit` on tables in the shapes of public histories, beside plain models."""

import pytest

from public_tables import KINDS, available
from tables import MARGIN, compared

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
