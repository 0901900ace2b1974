"""What the bound of a table rests on, against the calibrator that it speaks of."""

import pytest

from voxcast.models.conformal import BoundEvidence, Calibrator


@pytest.mark.parametrize("complete", [3, 9, 19, 34, 200])
@pytest.mark.parametrize("stopped", [0, 1, 2, 6, 21])
def test_the_highest_quantile_is_calibrated_and_the_next_is_not(
    complete: int, stopped: int
) -> None:
    scores = Calibrator((0.0,) * complete, (0.0,) * complete, censored=stopped)
    highest = BoundEvidence.of(scores, 0.9, "groups").highest_quantile
    assert highest == 0 or scores.missing(highest) == 0
    assert highest + 0.01 >= 1 or scores.missing(highest + 0.01) > 0
    for quantile in (0.6, 0.9, 0.99):
        evidence = BoundEvidence.of(scores, quantile, "groups")
        more = Calibrator((0.0,) * (complete + evidence.missing), (), censored=stopped)
        assert more.missing(quantile) == 0
        assert bool(evidence.reason) == (quantile > highest)


def test_few_groups_and_stopped_runs_are_told_apart() -> None:
    few = BoundEvidence.of(Calibrator((0.0,) * 5, (0.0,) * 5), 0.9, "groups")
    assert (few.reason, few.missing) == ("too few groups", 4)
    assert few.advice() == (
        "add 4 groups in which all runs completed, or take --quantile 0.83, the highest that holds"
    )
    stopped = BoundEvidence.of(Calibrator((0.0,) * 8, (0.0,) * 8, censored=1), 0.9, "rows")
    assert stopped.reason == "too many stopped runs"
    assert stopped.text().startswith("1 of 9 runs was stopped before it completed and counts as")
    assert stopped.advice().startswith("run the stopped jobs again with a higher limit and")
    none = BoundEvidence.of(Calibrator((0.0,) * 9, (0.0,) * 9), 0.9, "rows")
    assert (none.reason, none.text()) == ("", "9 rows calibrate a 90 % bound")
    assert (
        "--quantile" not in BoundEvidence.of(Calibrator((), (), censored=3), 0.9, "rows").advice()
    )
