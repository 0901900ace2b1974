"""The split by subject: stable, disjoint, and with something left to learn from."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import planted
from voxcast.features.training_table import MIN_SUBJECTS, side, split


@given(st.text(min_size=1), st.integers(0, 1000))
def test_a_subject_stays_on_its_side_of_the_split(subject: str, seed: int) -> None:
    assert side(subject, seed, 0.25) == side(subject, seed, 0.25)
    if side(subject, seed, 0.25) == "test":
        assert side(subject, seed, 0.5) == "test"


def test_the_split_has_about_the_requested_share() -> None:
    sides = [side(str(n), 1, 0.25) for n in range(4000)]
    assert 0.22 < sides.count("test") / 4000 < 0.28


def test_no_subject_is_on_both_sides() -> None:
    table = planted.table(MIN_SUBJECTS)
    sides = split(table, split_seed=9, test_fraction=0.25)
    assert min(len(sides.train), len(sides.test)) > 0
    assert not set(sides.train["subject"]) & set(sides.test["subject"])
    assert len(sides.train) + len(sides.test) == len(table)
    assert sides.not_judged == frozenset()


@pytest.mark.parametrize("subjects", [1, 12, MIN_SUBJECTS - 1])
def test_few_subjects_all_train(subjects: int) -> None:
    table = planted.table(subjects)
    sides = split(table, 9, 0.7)
    assert len(sides.train) == len(table)
    assert sides.test.empty
    assert list(sides.test) == list(table)
    assert sides.not_judged == {"segment"}


def test_each_application_is_split_by_itself() -> None:
    table = planted.table(MIN_SUBJECTS, apps=("segment", "register"))
    few = table[(table["app"] == "segment") | (table["subject"] == "0003")]
    sides = split(few, 9, 0.25)
    assert sides.not_judged == {"register"}
    assert set(sides.test["app"]) == {"segment"}
    of_many = sides.train[sides.train["app"] == "segment"]
    expected = split(table[table["app"] == "segment"], 9, 0.25).train
    pd.testing.assert_frame_equal(of_many.reset_index(drop=True), expected)
