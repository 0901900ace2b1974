"""The error with and without close columns, on the same folds."""

import pandas as pd
import pytest

from column_tables import honest_tables, leaking_tables
from voxcast.features.any_table import choose_columns
from voxcast.features.hindsight import CloseColumns
from voxcast.features.screening import screened
from voxcast.models.column_ablation import MAX_GROUPS, Ablation, ablations


def ablations_of(columns: dict[str, object]) -> list[Ablation]:
    table = pd.DataFrame(columns)
    screening = screened(table, choose_columns(table, "seconds"))
    return ablations(table, screening.columns, screening.close)


def test_the_error_without_a_leak_is_that_of_the_honest_columns() -> None:
    for title in ("three parts", "a copy of the name of a size"):
        (ablation,) = ablations_of(leaking_tables()[title][1])
        assert ablation.error_with < 1
        assert ablation.error_without == pytest.approx(6.8, abs=1.5)  # noise of 10 %


def test_one_leak_does_not_cover_for_another() -> None:
    columns = leaking_tables()["a copy, rounded"][1]
    q, z = ablations_of({**columns, "z": columns["q"] * 60})
    assert (q.close.columns, z.close.columns) == (("q",), ("z",))
    assert q.error_with < 1
    assert z.error_with < 1
    assert q.error_without == z.error_without > 4


def test_without_its_only_column_a_law_is_a_median() -> None:
    (ablation,) = ablations_of(honest_tables()["exact law of one size"])
    assert ablation.error_with < 5 < 50 < ablation.error_without


def test_of_many_close_columns_the_first_are_measured() -> None:
    table = pd.DataFrame(honest_tables()["exact law of one size"])
    close = [CloseColumns(("size",), "size", "gives it")] * (MAX_GROUPS + 1)
    measured = ablations(table, choose_columns(table, "seconds"), close)
    assert [ablation.error_with is None for ablation in measured] == [False] * MAX_GROUPS + [True]


def test_without_time_nothing_is_measured() -> None:
    table = pd.DataFrame(honest_tables()["exact law of one size"])
    close = [CloseColumns(("size",), "size", "gives it")]
    (ablation,) = ablations(table, choose_columns(table, "seconds"), close, budget_s=0.0)
    assert (ablation.error_with, ablation.error_without) == (None, None)
