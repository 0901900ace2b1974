import json

import nibabel
import numpy as np
import pytest

from participants import write_participants
from voxcast.apps.phase_log import read_phases
from voxcast.content_cache import ContentCache
from voxcast_apps import parcel_ensemble, parcel_study
from voxcast_apps.parcel_ensemble import combine
from voxcast_apps.parcellation import (
    FoldPredictions,
    grid_points,
    parcellation,
    participants_of,
    r_squared,
    region_means,
    sampled_volume,
)

COUNT = 24


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return write_participants(tmp_path_factory.mktemp("images"), COUNT)


def _parameters(images, **changes):
    small = {"images": str(images), "participants": COUNT, "parcels": 20, "target": "gamma"}
    return parcel_study.DEFAULTS | small | {"candidates": 2, "folds": 3} | changes


def _result(app, out, parameters, threads=1):
    options = ["--threads", str(threads), "--parameters", json.dumps(parameters)]
    assert app.main(["--out", str(out), *options]) == 0
    return json.loads((out / "result.json").read_text())


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("VOXCAST_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_means_are_those_of_the_voxels_in_a_region(images):
    (first,) = participants_of(images, 1)
    values, labels = sampled_volume(first.volume), parcellation(20, 3)
    means = region_means([first], 20, 3, None).means[0]
    expected = [values[labels == region].mean() / values.mean() for region in range(20)]
    assert means == pytest.approx(expected, rel=1e-5)
    # Intensity grows along x, in world coordinates.
    slope = np.polyfit(grid_points()[:, 0], values, 1)[0]
    assert slope == pytest.approx(100 * float(first.columns["gamma"]) / 200, rel=0.05)


def test_volumes_are_read_once_for_all_parcellations(images, cache):
    participants, stored = participants_of(images, COUNT), ContentCache(cache)
    first = region_means(participants, 20, 1, stored)
    again = region_means(participants, 20, 1, ContentCache(cache))
    other = region_means(participants, 30, 1, ContentCache(cache))
    assert [first.loads, again.loads, other.loads] == [COUNT, 0, 0]
    assert (first.means == again.means).all()
    assert (region_means(participants, 30, 1, None).means == other.means).all()
    # A copy is the same content; another volume is not.
    changed = nibabel.load(participants[0].volume)
    nibabel.save(nibabel.Nifti1Image(changed.get_fdata() + 1, changed.affine), cache / "v.nii.gz")
    replaced = type(participants[0])("sub-00", cache / "v.nii.gz", {})
    assert region_means([replaced, *participants[1:]], 20, 1, stored).loads == 1


@pytest.mark.parametrize(
    ("pipeline", "features"),
    [("elastic_net", "pairs"), ("support_vectors", "means"), ("boosting", "means")],
)
def test_each_pipeline_learns_a_target_that_is_in_the_images(images, tmp_path, pipeline, features):
    parameters = _parameters(images, pipeline=pipeline, features=features)
    result = _result(parcel_study, tmp_path / "out", parameters)
    assert result["r_squared"] > 0.6
    assert len(result["out_of_fold"]) == COUNT


def test_a_run_on_two_cores_logs_its_phases_and_has_the_scores_of_one(images, tmp_path, capsys):
    parameters = _parameters(images, target="both")
    parallel = _result(parcel_study, tmp_path, parameters, threads=2)
    phases = [phase.name for phase in read_phases(capsys.readouterr().out, 0.0)]
    assert phases == ["start", "import", "regions", "fold", "fold", "fold", "write"]
    assert parallel["threads"] == 2
    assert parallel["folds"] == _result(parcel_study, tmp_path, parameters)["folds"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pipeline": "forest"}, "choose from boosting"),
        ({"features": "voxels"}, "choose from means"),
        ({"target": "height"}, "no column"),
        ({"target": "age"}, "not a number"),
        ({"target": "same"}, "the same for all"),
        ({"folds": 1}, "must be at least 2"),
        ({"parcels": 1}, "parcels: needs 2 to 5000"),
        ({"candidates": 0}, "needs 1 to 12"),
        ({"fold_range": "2:9"}, "at most 0:3"),
        ({"participants": COUNT + 1}, "24 participants, not 25"),
        ({"participants": 6}, "too few"),
    ],
)
def test_bad_parameters_are_one_line(images, changes, message, refused):
    assert message in refused(parcel_study.main, **_parameters(images, **changes))


def test_ensembles_fit_nothing_that_is_in_the_cache(images, tmp_path):
    shared = {"images": str(images), "participants": COUNT, "target": "gamma"}
    shared |= {"candidates": 2, "folds": 3}
    parameters = parcel_ensemble.DEFAULTS | shared | {"ensemble": "stacked", "parcels": "20,40"}
    _result(parcel_study, tmp_path, _parameters(images, seed=2, parcels=40))
    first = _result(parcel_ensemble, tmp_path, parameters)
    assert first["cache"]["parcel_fold"] == {"hit": 3, "miss": 9}
    again = _result(parcel_ensemble, tmp_path, parameters)
    assert again["cache"]["parcel_fold"] == {"hit": 12}
    assert again["volumes_read"] == 0
    assert again["r_squared"] == first["r_squared"] > 0.6


def test_no_ensemble_sees_a_test_participant():
    # Members are noise, and so is the target: whatever learned from the test rows would score.
    rng = np.random.default_rng(0)
    train, test = np.arange(40), np.arange(40, 400)
    targets = rng.normal(size=(400, 2))
    members = [
        FoldPredictions(train, test, rng.normal(size=(40, 2)), rng.normal(size=(360, 2)))
        for _ in range(6)
    ]
    for kind in parcel_ensemble.ENSEMBLES:
        before, chosen = combine(members, targets[train], kind)
        assert r_squared(targets[test], before, targets[train]) < 0.03
        # What other test participants are predicted changes nothing.
        for member in members:
            member.outer[0] = 99.0
        after, chosen_after = combine(members, targets[train], kind)
        assert chosen == chosen_after
        assert after[1:] == pytest.approx(before[1:])


def test_a_stack_weighs_and_a_grid_chooses_the_members_that_are_good():
    rng = np.random.default_rng(1)
    train, test = np.arange(60), np.arange(60, 160)
    targets = rng.normal(size=(160, 1))
    noises = (0.1, 0.1, 2.0, 2.0)
    rows = [targets + noise * rng.normal(size=targets.shape) for noise in noises]
    members = [FoldPredictions(train, test, row[train], row[test]) for row in rows]
    scores = {}
    for kind in parcel_ensemble.ENSEMBLES:
        combined, chosen = combine(members, targets[train], kind)
        scores[kind] = r_squared(targets[test], combined, targets[train])
        assert kind != "grid" or chosen == [0, 1]
    assert scores["voting"] < 0.9 < scores["stacked"]
    assert scores["grid"] > 0.98
