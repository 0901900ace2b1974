"""The subjects that are held out to tell how well a model extrapolates."""

import numpy as np

import planted
from voxcast.models.outer_subjects import (
    MINIMUM_SUBJECTS,
    OUTER_SHARE,
    OUTERMOST,
    outermost,
    sides,
)

SIZES = ("content.foreground_megavoxels", "header.megavoxels")


def test_the_subjects_least_like_the_others_are_held_out_completely() -> None:
    table = planted.table(30)
    far = table["subject"].isin(sorted(set(table["subject"]))[:3])
    rng = np.random.default_rng(0)
    for k in range(8):
        table[f"content.odd_{k}"] = rng.normal(size=len(table)) + 20 * far
    outer = outermost(table)
    assert outer[far].all()
    by_subject = table.assign(outer=outer).groupby("subject")["outer"]
    assert (by_subject.nunique() == 1).all()
    assert by_subject.first().sum() == 6
    assert sides(planted.table(MINIMUM_SUBJECTS - 1)) == {}


def test_each_end_of_each_size_is_a_side_of_complete_subjects() -> None:
    table = planted.table(30)
    masks = sides(table)
    # Parameters and CPUs have none.
    assert sorted(masks) == [f"{name} {end}" for name in SIZES for end in ("above", "below")]
    for mask in masks.values():
        assert not set(table["subject"][mask]) & set(table["subject"][~mask])
        assert table["subject"][mask].nunique() == round(OUTER_SHARE * 30)
    for name in SIZES:
        above, below = masks[f"{name} above"], masks[f"{name} below"]
        assert table[name][above].max() == table[name].max()
        # Subjects of one volume each: all beyond the others.
        assert table[name][above].min() > table[name][~above].max()
        assert table[name][below].max() < table[name][~below].min()
    assert len(sides(table, "header")) == 4  # what decides the work is checked from the header too


def test_a_value_that_many_subjects_share_is_held_out_together() -> None:
    table = planted.table(30)
    number = table["subject"].astype(int)
    table["parameter.epochs"] = (number % 4).astype(float)
    epochs = [
        sorted(set(table["parameter.epochs"][mask]))
        for name, mask in sides(table).items()
        if name.startswith("parameter.epochs")
    ]
    assert epochs == [[0.0], [3.0]]
    # Of two values no end can be held out: none would be left to learn an effect from.
    table["parameter.epochs"] = (number % 2).astype(float)
    assert len(sides(table)) == 2 * len(SIZES)


def test_columns_of_other_tools_have_one_side_altogether() -> None:
    table = planted.table(30)
    names = {name: f"column.{n}" for n, name in enumerate(table) if "." in name}
    renamed = table.rename(columns=names)
    masks = sides(renamed)
    assert list(masks) == [OUTERMOST]
    assert masks[OUTERMOST].tolist() == outermost(renamed).tolist()
    assert sides(renamed[renamed["subject"].isin(sorted(set(table["subject"]))[:5])]) == {}
