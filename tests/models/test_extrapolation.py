"""What answers where the data end is chosen where the data end."""

import numpy as np

import planted
from voxcast.models.extrapolation import MINIMUM_SUBJECTS, choose, fit_extrapolator, outermost
from voxcast.models.selection.cross_validation import Validation

PLAIN = {"alpha": 1e-3, "columns": "sizes", "scale": "relative", "products": False}
GREEDY = {"alpha": 1e-3, "columns": "all", "scale": "log", "products": True}


def test_extrapolation_holds_out_complete_subjects_of_each_application() -> None:
    table = planted.table(30, apps=("segment", "register"))
    far = table["subject"].isin(sorted(set(table["subject"]))[:3])
    rng = np.random.default_rng(0)
    for k in range(8):
        table[f"content.odd_{k}"] = rng.normal(size=len(table)) + 20 * far
    outer = outermost(table)
    assert outer[far].all()
    by_subject = table.assign(outer=outer).groupby(["app", "subject"])["outer"]
    assert (by_subject.nunique() == 1).all()
    assert by_subject.first().groupby("app").sum().tolist() == [6, 6]
    assert not outermost(planted.table(MINIMUM_SUBJECTS - 1)).any()


def test_a_model_of_sizes_is_preferred_to_one_of_all_features() -> None:
    table = planted.table(40)
    noise = np.random.default_rng(1)
    by_subject = {name: noise.normal(size=12) for name in sorted(set(table["subject"]))}
    for k in range(12):
        table[f"content.nothing_{k}"] = [by_subject[name][k] for name in table["subject"]]
    validation = Validation(table, None, 3, 0)
    assert choose(validation, {"median": {}, "ridge": GREEDY}) == (
        "ridge",
        {**PLAIN, "alpha": 0.1},
    )
    assert choose(validation, {"median": {}}) is None
    calibrated = fit_extrapolator(validation, {"ridge": GREEDY}, 1.5)
    assert calibrated is not None
    assert set(calibrated.calibrators) == set(validation.targets)
